//! From the name of a runtime to the binary of its shim.

use std::{
    collections::HashMap,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Mutex,
};

use core_types::{Error, Result};

/// Finds shim binaries; what was found is kept.
#[derive(Debug)]
pub(crate) struct Resolver {
    /// Directories in the order in which they are searched.
    path: Vec<PathBuf>,
    found: Mutex<HashMap<String, PathBuf>>,
}

impl Resolver {
    /// Searches `path` in its order.
    pub(crate) fn new(path: Vec<PathBuf>) -> Self {
        Self { path, found: Mutex::default() }
    }

    /// The binary for `runtime`: itself when it is an absolute path, else `containerd-shim-<name>-<version>`
    /// for a name like `io.containerd.runc.v2`.
    ///
    /// # Errors
    /// InvalidArgument for a name of the wrong form, NotFound that names the runtime and the binary.
    pub(crate) fn resolve(&self, runtime: &str) -> Result<PathBuf> {
        if runtime.starts_with('/') {
            return match executable(Path::new(runtime)) {
                true => Ok(PathBuf::from(runtime)),
                false => Err(Error::not_found(format!("runtime {runtime:?} is no executable file"))),
            };
        }
        let name = binary_name(runtime)?;
        if let Some(found) = self.lock().get(&name).filter(|path| executable(path)) {
            return Ok(found.clone());
        }
        let found = self.path.iter().map(|dir| dir.join(&name)).find(|path| executable(path)).ok_or_else(|| {
            Error::not_found(format!(
                "runtime {runtime:?} is not installed: no {name:?} beside the daemon or in PATH; \
                 install it, or name the runtime by the absolute path of its shim"
            ))
        })?;
        self.lock().insert(name, found.clone());
        Ok(found)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, PathBuf>> {
        self.found.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The directory of the daemon's executable, then those of PATH.
pub(crate) fn search_path(executable: &Path, path: Option<std::ffi::OsString>) -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = executable.parent().map(Path::to_path_buf).into_iter().collect();
    dirs.extend(path.iter().flat_map(std::env::split_paths).filter(|dir| dir.is_absolute()));
    dirs
}

fn binary_name(runtime: &str) -> Result<String> {
    let wrong = || {
        Error::invalid_argument(format!(
            "invalid runtime name {runtime:?}: it must be like io.containerd.runc.v2, or the absolute path of a shim"
        ))
    };
    if runtime.contains('/') || runtime.contains('\0') {
        return Err(wrong());
    }
    let mut parts = runtime.rsplit('.');
    let (Some(version), Some(name)) = (parts.next(), parts.next()) else { return Err(wrong()) };
    if runtime.starts_with('.') || version.is_empty() || name.is_empty() {
        return Err(wrong());
    }
    Ok(format!("containerd-shim-{name}-{version}"))
}

fn executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core_types::ErrorKind;

    #[test]
    fn names_paths_and_what_is_missing() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let binary = second.path().join("containerd-shim-runc-v2");
        std::fs::write(&binary, "").unwrap();
        let resolver = Resolver::new(vec![first.path().into(), second.path().into()]);
        let missing = resolver.resolve("io.containerd.runc.v2").unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound, "a file that cannot be executed does not count");
        assert!(missing.message().contains("io.containerd.runc.v2"));
        std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(resolver.resolve("io.containerd.runc.v2").unwrap(), binary);
        assert_eq!(resolver.resolve(binary.to_str().unwrap()).unwrap(), binary);
        assert!(resolver.resolve("/no/such/shim").unwrap_err().is_not_found());
        for name in ["", "runc", "../runc.v2", ".runc", "a/b.c", "io."] {
            assert_eq!(resolver.resolve(name).unwrap_err().kind(), ErrorKind::InvalidArgument, "{name}");
        }
    }

    #[test]
    fn the_daemons_directory_is_searched_first() {
        let dirs = search_path(Path::new("/opt/bin/containerd"), Some("/usr/bin:relative:/bin".into()));
        assert_eq!(dirs, ["/opt/bin", "/usr/bin", "/bin"].map(PathBuf::from));
    }
}
