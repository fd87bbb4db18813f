use std::{
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use core_types::{Error, Result};
use rustix::{
    fs::CWD,
    io::Errno,
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags},
};

use crate::{
    Mount,
    options::Options,
    perform::{c_string, io, open_path},
};

/// `mount(2)` copies one page of options; some room is left for what the kernel adds.
const OPTION_ROOM: usize = 4096 - 512;

/// The directories of an overlay mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverlayDirs {
    /// Where changes go; none for a read-only overlay.
    pub upper: Option<PathBuf>,
    /// The kernel's work directory.
    pub work: Option<PathBuf>,
    /// The layers below, topmost first.
    pub lower: Vec<PathBuf>,
    /// Whether overlay keeps its marks in `user.overlay.*` attributes instead of `trusted.overlay.*`.
    pub user_xattr: bool,
}

/// The directories that the options of an overlay mount name; none when it is not an overlay mount.
pub fn overlay_dirs(mount: &Mount) -> Option<OverlayDirs> {
    (mount.kind == "overlay").then(|| parse_dirs(&mount.options))
}

fn parse_dirs(options: &[String]) -> OverlayDirs {
    let mut dirs = OverlayDirs::default();
    for option in options {
        match option.split_once('=') {
            Some(("upperdir", path)) => dirs.upper = Some(unescape(path).into()),
            Some(("workdir", path)) => dirs.work = Some(unescape(path).into()),
            Some(("lowerdir", paths)) => dirs.lower = split_lower(paths).map(|path| unescape(path).into()).collect(),
            None if option == "userxattr" => dirs.user_xattr = true,
            _ => {}
        }
    }
    dirs
}

/// Splits at colons that no backslash precedes.
fn split_lower(paths: &str) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    paths.split(move |character| {
        let separates = character == ':' && !escaped;
        escaped = character == '\\' && !escaped;
        separates
    })
}

fn unescape(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut characters = path.chars();
    while let Some(character) = characters.next() {
        out.push(if character == '\\' { characters.next().unwrap_or('\\') } else { character });
    }
    out
}

/// Mounts an overlay. Options that do not fit into one page go by the descriptor interface of newer kernels,
/// else with paths made short by a common working directory.
pub(crate) fn mount_overlay(source: &str, options: &Options, target: &Path) -> Result<()> {
    let source = if source.is_empty() { "overlay" } else { source };
    let data = options.data_string();
    if data.len() < OPTION_ROOM {
        let data = c_string(&data)?;
        return rustix::mount::mount(source, target, "overlay", options.flags, data.as_c_str()).map_err(io);
    }
    match mount_by_descriptors(source, options, target) {
        Err(error) if matches!(error.errno, Some(Errno::NOSYS | Errno::INVAL)) => {
            mount_compacted(source, options, target)
        }
        other => other.map_err(|error| error.error),
    }
}

/// An error that remembers what the kernel said.
struct KernelError {
    errno: Option<Errno>,
    error: Error,
}

impl From<Errno> for KernelError {
    fn from(errno: Errno) -> Self {
        Self { errno: Some(errno), error: io(errno) }
    }
}

impl From<Error> for KernelError {
    fn from(error: Error) -> Self {
        Self { errno: None, error }
    }
}

/// Layers as descriptors (Linux 6.13): no length limit, and what is checked is what is mounted.
fn mount_by_descriptors(source: &str, options: &Options, target: &Path) -> Result<(), KernelError> {
    let context = rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), "source", source)?;
    let dirs = parse_dirs(&options.data);
    let set = |key: &str, path: &Path| -> Result<(), KernelError> {
        let directory = open_path(path)?;
        Ok(rustix::mount::fsconfig_set_fd(context.as_fd(), key, directory.as_fd())?)
    };
    for lower in &dirs.lower {
        set("lowerdir+", lower)?;
    }
    if let Some(upper) = &dirs.upper {
        set("upperdir", upper)?;
    }
    if let Some(work) = &dirs.work {
        set("workdir", work)?;
    }
    for option in &options.data {
        match option.split_once('=') {
            Some(("upperdir" | "workdir" | "lowerdir", _)) => {}
            Some((key, value)) => rustix::mount::fsconfig_set_string(context.as_fd(), key, value)?,
            None => rustix::mount::fsconfig_set_flag(context.as_fd(), option.as_str())?,
        }
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    let mount = rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes(options.flags))?;
    rustix::mount::move_mount(mount.as_fd(), "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(())
}

fn attributes(flags: MountFlags) -> MountAttrFlags {
    let mut attributes = MountAttrFlags::empty();
    attributes.set(MountAttrFlags::MOUNT_ATTR_RDONLY, flags.contains(MountFlags::RDONLY));
    attributes.set(MountAttrFlags::MOUNT_ATTR_NOSUID, flags.contains(MountFlags::NOSUID));
    attributes.set(MountAttrFlags::MOUNT_ATTR_NODEV, flags.contains(MountFlags::NODEV));
    attributes.set(MountAttrFlags::MOUNT_ATTR_NOEXEC, flags.contains(MountFlags::NOEXEC));
    attributes.set(MountAttrFlags::MOUNT_ATTR_NODIRATIME, flags.contains(MountFlags::NODIRATIME));
    if flags.contains(MountFlags::NOATIME) {
        attributes |= MountAttrFlags::MOUNT_ATTR_NOATIME;
    } else if flags.contains(MountFlags::STRICTATIME) {
        attributes |= MountAttrFlags::MOUNT_ATTR_STRICTATIME;
    }
    attributes
}

/// Mounts from the deepest directory that all layers share, on a thread with a working directory of its own.
fn mount_compacted(source: &str, options: &Options, target: &Path) -> Result<()> {
    let Some((directory, data)) = compact(&options.data) else {
        return Err(too_many(options.data.len()));
    };
    let data = data.join(",");
    if data.len() >= 4096 {
        return Err(too_many(parse_dirs(&options.data).lower.len()));
    }
    let data = c_string(&data)?;
    let target = std::path::absolute(target)?;
    let mounted = std::thread::scope(|scope| {
        let work = || -> Result<()> {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS).map_err(std::io::Error::from)?;
            rustix::process::chdir(&directory).map_err(io)?;
            rustix::mount::mount(source, &target, "overlay", options.flags, data.as_c_str()).map_err(io)
        };
        scope.spawn(work).join()
    });
    mounted.unwrap_or_else(|_| Err(Error::internal("the mounting thread died")))
}

fn too_many(layers: usize) -> Error {
    Error::failed_precondition(format!(
        "the paths of {layers} layers do not fit into the options of one overlay mount on this kernel; \
         use a shorter root directory or an image with fewer layers"
    ))
}

/// The common parent of the lower directories and the options with them relative to it.
fn compact(options: &[String]) -> Option<(PathBuf, Vec<String>)> {
    let dirs = parse_dirs(options);
    let mut common = dirs.lower.first()?.parent()?.to_owned();
    while !dirs.lower.iter().all(|lower| lower.starts_with(&common)) {
        common = common.parent()?.to_owned();
    }
    if common == Path::new("/") {
        return None;
    }
    let base = format!("{}/", common.to_str()?);
    let out = options.iter().map(|option| match option.strip_prefix("lowerdir=") {
        Some(paths) => {
            let short: Vec<_> = split_lower(paths).map(|path| path.strip_prefix(&base).unwrap_or(path)).collect();
            format!("lowerdir={}", short.join(":"))
        }
        None => option.clone(),
    });
    Some((common, out.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_read_from_options() {
        let mount = Mount {
            kind: "overlay".into(),
            options: ["index=off", "workdir=/s/w", "upperdir=/s/u", "lowerdir=/s/b\\:c:/s/a", "userxattr"]
                .map(str::to_owned)
                .to_vec(),
            ..Mount::default()
        };
        let dirs = overlay_dirs(&mount).unwrap();
        assert_eq!(dirs.upper.as_deref(), Some(Path::new("/s/u")));
        assert_eq!(dirs.lower, [Path::new("/s/b:c"), Path::new("/s/a")]);
        assert!(dirs.user_xattr);
        assert!(overlay_dirs(&Mount::default()).is_none());
    }

    #[test]
    fn lower_directories_become_relative_to_what_they_share() {
        let options = ["upperdir=/r/snapshots/9/fs", "lowerdir=/r/snapshots/2/fs:/r/snapshots/1/fs"].map(str::to_owned);
        let (directory, options) = compact(&options).unwrap();
        assert_eq!(directory, Path::new("/r/snapshots"));
        assert_eq!(options, ["upperdir=/r/snapshots/9/fs", "lowerdir=2/fs:1/fs"]);
        assert!(compact(&["lowerdir=/a/x:/b/x".to_owned()]).is_none());
    }
}
