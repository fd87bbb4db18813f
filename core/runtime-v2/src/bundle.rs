//! The bundle of a task: what the shim and the OCI runtime work in.
//!
//! `<state>/<namespace>/<id>` holds `config.json` (the client's bytes, untouched), the mount point `rootfs`,
//! the link `work` to `<root>/<namespace>/<id>`, and what makes the shim findable after a restart:
//! `bootstrap.json`, `shim-binary-path`, `address`, `sandbox`.

use std::{
    fs, io,
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use core_types::{Error, Namespace, Result, ResultExt, identifiers};
use serde::Deserialize;

use crate::Any;

/// Name of the file with the path of the shim's binary.
const BINARY_FILE: &str = "shim-binary-path";
/// Name of the file with the id of the sandbox that the task belongs to.
const SANDBOX_FILE: &str = "sandbox";

/// Where bundles are.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// What survives a reboot: `<root>/io.containerd.runtime.v2.task`.
    pub(crate) root: PathBuf,
    /// What does not: `<state>/io.containerd.runtime.v2.task`.
    pub(crate) state: PathBuf,
}

impl Layout {
    /// Makes both directories, open for traversal so that processes with mapped users reach their root.
    pub(crate) fn prepare(&self) -> Result<()> {
        for dir in [&self.root, &self.state] {
            make_all(dir)?;
        }
        Ok(())
    }

    /// The bundle of a task, there or not.
    pub(crate) fn bundle(&self, namespace: &Namespace, id: &str) -> Bundle {
        Bundle { path: self.state.join(namespace.as_str()).join(id), work: self.root.join(namespace.as_str()).join(id) }
    }
}

/// A task's directories.
#[derive(Clone, Debug)]
pub(crate) struct Bundle {
    /// The bundle itself.
    pub(crate) path: PathBuf,
    work: PathBuf,
}

impl Bundle {
    /// Makes the directories and writes the spec; leaves nothing when it fails.
    ///
    /// # Errors
    /// InvalidArgument for an id that is none, AlreadyExists when the bundle is there.
    pub(crate) fn create(layout: &Layout, namespace: &Namespace, id: &str, spec: Option<&Any>) -> Result<Self> {
        identifiers::validate(id).doing("invalid task id")?;
        let bundle = layout.bundle(namespace, id);
        for dir in [&bundle.path, &bundle.work] {
            make_all(dir.parent().unwrap_or(dir))?;
        }
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&bundle.path)
            .doing(format_args!("create bundle {}", bundle.path.display()))?;
        if let Err(error) = bundle.fill(spec) {
            let _ = fs::remove_dir_all(&bundle.path);
            let _ = fs::remove_dir_all(&bundle.work);
            return Err(error.context(format_args!("create bundle {}", bundle.path.display())));
        }
        Ok(bundle)
    }

    fn fill(&self, spec: Option<&Any>) -> Result<()> {
        if let Some(spec) = spec.filter(|spec| is_oci_spec(spec)) {
            self.open_for_group(&spec.value)?;
        }
        fs::DirBuilder::new().mode(0o711).create(self.path.join("rootfs"))?;
        match fs::DirBuilder::new().mode(0o711).create(&self.work) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_dir_all(&self.work)?;
                fs::DirBuilder::new().mode(0o711).create(&self.work)?;
            }
            done => done?,
        }
        std::os::unix::fs::symlink(&self.work, self.path.join("work"))?;
        if let Some(spec) = spec.filter(|spec| !spec.value.is_empty()) {
            fs::write(self.path.join("config.json"), &spec.value).doing("write config.json")?;
        }
        Ok(())
    }

    /// With a user namespace the group that stands for root may pass through the bundle.
    fn open_for_group(&self, spec: &[u8]) -> Result<()> {
        let Some(gid) = mapped_root_group(spec)? else { return Ok(()) };
        std::os::unix::fs::chown(&self.path, None, Some(gid))?;
        fs::set_permissions(&self.path, fs::Permissions::from_mode(0o710))?;
        Ok(())
    }

    /// Keeps the path of the shim's binary.
    pub(crate) fn store_binary(&self, binary: &Path) -> Result<()> {
        write_file(&self.path.join(BINARY_FILE), binary.as_os_str().as_encoded_bytes(), 0o600)
    }

    /// The kept path of the shim's binary (or, in old bundles, the name of the runtime).
    pub(crate) fn load_binary(&self) -> Option<String> {
        fs::read_to_string(self.path.join(BINARY_FILE)).ok().filter(|path| !path.is_empty())
    }

    /// Keeps the id of the sandbox.
    pub(crate) fn store_sandbox(&self, sandbox: &str) -> Result<()> {
        write_file(&self.path.join(SANDBOX_FILE), sandbox.as_bytes(), 0o600)
    }

    /// The kept id of the sandbox.
    pub(crate) fn load_sandbox(&self) -> Option<String> {
        fs::read_to_string(self.path.join(SANDBOX_FILE)).ok().filter(|id| !id.is_empty())
    }

    /// Unmounts what is mounted in the bundle and removes all of it. Done already is fine.
    ///
    /// # Errors
    /// When something stays mounted: then nothing is removed.
    pub(crate) fn delete(&self) -> Result<()> {
        core_mount::unmount_all(&self.path)?;
        match fs::remove_dir(self.path.join("rootfs")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io(format_args!("remove {}/rootfs", self.path.display()), error));
            }
            _ => {}
        }
        let bundle = remove_atomically(&self.path);
        let work = remove_atomically(&self.work);
        bundle.and(work)
    }
}

fn is_oci_spec(spec: &Any) -> bool {
    spec.type_url.ends_with("/opencontainers/runtime-spec/1/Spec")
        || spec.type_url.ends_with("opencontainers.specs.Spec")
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SpecMappings {
    linux: Option<LinuxMappings>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LinuxMappings {
    gid_mappings: Option<Vec<IdMapping>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IdMapping {
    #[serde(rename = "containerID", default)]
    container: u32,
    #[serde(rename = "hostID", default)]
    host: u32,
}

/// The group on the host that group 0 of the container is mapped to, when it is another.
fn mapped_root_group(spec: &[u8]) -> Result<Option<u32>> {
    let spec: SpecMappings = serde_json::from_slice(spec)
        .map_err(|error| Error::invalid_argument(format!("the container's spec is no OCI runtime spec: {error}")))?;
    let mappings = spec.linux.and_then(|linux| linux.gid_mappings).unwrap_or_default();
    Ok(mappings.iter().find(|mapping| mapping.container == 0).map(|mapping| mapping.host).filter(|gid| *gid != 0))
}

fn make_all(dir: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o711)
        .create(dir)
        .doing(format_args!("create directory {}", dir.display()))
}

/// Writes a small state file so that after a crash there is the old one or the new one.
pub(crate) fn write_file(path: &Path, data: &[u8], mode: u32) -> Result<()> {
    let write = || -> io::Result<()> {
        let temp = path.with_extension("tmp");
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&temp)?;
        file.write_all(data)?;
        // Bundles are on a tmpfs and die with the machine; a rename is all that a crash of the daemon needs.
        fs::rename(&temp, path)
    };
    write().doing(format_args!("write {}", path.display()))
}

/// Renames to a hidden name first, so that a half-removed directory is never taken for a task.
fn remove_atomically(path: &Path) -> Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    let hidden = parent.join(hidden);
    let remove = || -> io::Result<()> {
        match fs::remove_dir_all(&hidden) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        match fs::rename(path, &hidden) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            done => done?,
        }
        fs::remove_dir_all(&hidden)
    };
    remove().doing(format_args!("remove {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(dir: &Path) -> Layout {
        Layout { root: dir.join("root"), state: dir.join("state") }
    }

    fn spec(text: &'static str) -> Any {
        Any { type_url: "types.containerd.io/opencontainers/runtime-spec/1/Spec".into(), value: text.into() }
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn the_spec_is_kept_byte_for_byte_and_all_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (layout, namespace) = (layout(dir.path()), Namespace::new("default").unwrap());
        let text = "{ \"unknownField\" : 1,\n\"linux\":{}}";
        let bundle = Bundle::create(&layout, &namespace, "one", Some(&spec(text))).unwrap();
        assert_eq!(fs::read_to_string(bundle.path.join("config.json")).unwrap(), text);
        assert_eq!(fs::read_link(bundle.path.join("work")).unwrap(), layout.root.join("default/one"));
        assert_eq!((mode(&bundle.path), mode(&bundle.path.join("rootfs"))), (0o700, 0o711));
        let again = Bundle::create(&layout, &namespace, "one", None).unwrap_err();
        assert!(again.is_already_exists(), "{again}");
        assert!(bundle.path.join("config.json").exists(), "a refused second one must not harm the first");
        bundle.delete().unwrap();
        bundle.delete().unwrap();
        assert_eq!(fs::read_dir(layout.state.join("default")).unwrap().count(), 0);
        assert_eq!(fs::read_dir(layout.root.join("default")).unwrap().count(), 0);
    }

    #[test]
    fn a_bad_spec_or_id_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (layout, namespace) = (layout(dir.path()), Namespace::new("default").unwrap());
        assert!(Bundle::create(&layout, &namespace, "../up", None).is_err());
        assert!(Bundle::create(&layout, &namespace, "one", Some(&spec("no json"))).is_err());
        assert_eq!(fs::read_dir(layout.state.join("default")).unwrap().count(), 0);
    }

    #[test]
    fn a_mapped_group_may_pass() {
        let gid =
            mapped_root_group(br#"{"linux":{"gidMappings":[{"containerID":0,"hostID":1000,"size":1}]}}"#).unwrap();
        assert_eq!(gid, Some(1000));
        assert_eq!(mapped_root_group(br#"{"linux":{"gidMappings":null}}"#).unwrap(), None);
        assert_eq!(mapped_root_group(b"{}").unwrap(), None);
    }
}
