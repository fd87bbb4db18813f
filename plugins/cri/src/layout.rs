//! Where the service keeps files, by containerd's names: what outlives a reboot below `root`, what does not below
//! `state`.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use core_types::{Error, Result};

/// The directories of the service.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    root: PathBuf,
    state: PathBuf,
}

impl Layout {
    /// Directories below these.
    pub(crate) fn new(root: PathBuf, state: PathBuf) -> Self {
        Self { root, state }
    }

    /// Directory of a sandbox that outlives a reboot.
    pub(crate) fn sandbox_root(&self, id: &str) -> PathBuf {
        self.root.join("sandboxes").join(id)
    }

    /// Directory of a sandbox that does not.
    pub(crate) fn sandbox_state(&self, id: &str) -> PathBuf {
        self.state.join("sandboxes").join(id)
    }

    /// Directory of a container that outlives a reboot.
    pub(crate) fn container_root(&self, id: &str) -> PathBuf {
        self.root.join("containers").join(id)
    }

    /// Directory of a container that does not.
    pub(crate) fn container_state(&self, id: &str) -> PathBuf {
        self.state.join("containers").join(id)
    }

    /// File with the status of a container.
    pub(crate) fn status(&self, id: &str) -> PathBuf {
        self.container_root(id).join("status")
    }

    /// Shared memory of a sandbox.
    pub(crate) fn shm(&self, id: &str) -> PathBuf {
        self.sandbox_state(id).join("shm")
    }

    /// The user namespace of a sandbox that has one and a network of its own.
    pub(crate) fn user_namespace(&self, id: &str) -> PathBuf {
        self.sandbox_state(id).join("userns")
    }

    /// Images that are volumes of a pod.
    pub(crate) fn image_volumes(&self, sandbox: &str) -> PathBuf {
        self.state.join("image-volumes").join(sandbox)
    }

    /// Network namespaces, when they are kept here.
    pub(crate) fn network_namespaces(&self) -> PathBuf {
        self.state.join("netns")
    }

    /// The sandboxes or containers that have a directory here. Blocking.
    pub(crate) fn left(&self, kind: &str) -> Vec<String> {
        let mut ids: Vec<String> = [&self.root, &self.state]
            .into_iter()
            .filter_map(|base| fs::read_dir(base.join(kind)).ok())
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        ids.sort();
        ids.dedup();
        ids
    }
}

/// Makes a directory and those above. Blocking.
///
/// # Errors
/// What the kernel says.
pub(crate) fn make_directory(path: &Path, mode: u32) -> Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(mode).create(path);
    made.map_err(|error| Error::io(format_args!("make directory {}", path.display()), error))
}

/// Removes a directory with all in it; what is mounted there is unmounted first, and when that fails nothing is
/// removed. Blocking.
///
/// # Errors
/// What the kernel says; a directory that is gone is no error.
pub(crate) fn remove_directory(path: &Path) -> Result<()> {
    core_mount::unmount_all(path)?;
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io(format_args!("remove {}", path.display()), error))
        }
        _ => Ok(()),
    }
}
