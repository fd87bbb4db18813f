use std::{
    ffi::CStr,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    path::Path,
};

use core_types::{Error, Result};
use rustix::{
    fs::{CWD, Dir, FileType, Mode, OFlags, XattrFlags},
    io::Errno,
};

/// Where the kernel keeps a file's label.
const ATTRIBUTE: &str = "security.selinux";
/// How deep a tree may be.
const MAX_DEPTH: usize = 256;
/// Directories of the host whose labels programs of the host depend on.
const OF_THE_HOST: [&str; 22] = [
    "/", "/bin", "/boot", "/dev", "/etc", "/etc/pki", "/home", "/lib", "/lib64", "/media", "/opt", "/proc", "/root",
    "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/var", "/var/lib", "/var/log",
];

/// Gives a file or all of a directory an SELinux label, `mount_label` of a specification. Links are labelled and
/// never followed, whatever is renamed meanwhile. A file system without labels is left as it is.
///
/// # Errors
/// InvalidArgument for a directory that the host itself lives in and for a tree that is too deep; else what the
/// file system says.
pub fn relabel(path: &Path, label: &str) -> Result<()> {
    let real = std::fs::canonicalize(path).map_err(|error| Error::io(format!("label {}", path.display()), error))?;
    if OF_THE_HOST.iter().any(|host| real == Path::new(host)) {
        return Err(Error::invalid_argument(format!("{} belongs to the host and is not relabelled", real.display())));
    }
    let failed = |error: Errno| Error::io(format!("label {} with {label}", real.display()), error.into());
    let top = open(CWD, &real).map_err(failed)?;
    match label_tree(&top, label, 0) {
        Ok(()) | Err(Errno::NOTSUP) => Ok(()),
        Err(Errno::NAMETOOLONG) => {
            Err(Error::invalid_argument(format!("{} is deeper than {MAX_DEPTH} directories", real.display())))
        }
        Err(error) => Err(failed(error)),
    }
}

/// The file itself, also of a link, without opening it for anything.
fn open(directory: BorrowedFd<'_>, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn label_tree(file: &OwnedFd, label: &str, depth: usize) -> rustix::io::Result<()> {
    if depth > MAX_DEPTH {
        return Err(Errno::NAMETOOLONG);
    }
    // A path descriptor has no attribute calls of its own; its entry in /proc leads to the very file.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut have = vec![0; label.len() + 2];
    let same = rustix::fs::getxattr(&path, ATTRIBUTE, &mut have)
        .is_ok_and(|length| have[..length].strip_suffix(b"\0").unwrap_or(&have[..length]) == label.as_bytes());
    if !same {
        rustix::fs::setxattr(&path, ATTRIBUTE, label.as_bytes(), XattrFlags::empty())?;
    }
    if FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode) != FileType::Directory {
        return Ok(());
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut listing = Dir::new(rustix::fs::openat(file.as_fd(), c".", flags, Mode::empty())?)?;
    while let Some(entry) = listing.read() {
        let entry = entry?;
        let name: &CStr = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        match open(file.as_fd(), name) {
            Ok(inner) => label_tree(&inner, label, depth + 1)?,
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn label_of(path: &Path) -> Option<Vec<u8>> {
        let mut value = [0; 256];
        let length = rustix::fs::lgetxattr(path, ATTRIBUTE, &mut value).ok()?;
        Some(value[..length].to_vec())
    }

    #[test]
    fn a_tree_is_labelled_and_nothing_beyond_its_links() {
        const LABEL: &str = "system_u:object_r:container_file_t:s0:c1,c2";
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("inside");
        fs::create_dir_all(inside.join("deep")).unwrap();
        fs::write(dir.path().join("outside"), "").unwrap();
        fs::write(inside.join("deep/file"), "").unwrap();
        symlink("../outside", inside.join("link")).unwrap();
        let probe = rustix::fs::setxattr(dir.path(), ATTRIBUTE, b"x", XattrFlags::empty());
        if probe.is_err() {
            eprintln!("skipped: labels cannot be set here");
            relabel(&inside, LABEL).unwrap_err();
            return;
        }
        relabel(&inside, LABEL).unwrap();
        relabel(&inside, LABEL).unwrap();
        for path in ["inside", "inside/deep", "inside/deep/file"] {
            assert_eq!(label_of(&dir.path().join(path)).unwrap(), LABEL.as_bytes(), "{path}");
        }
        assert_ne!(label_of(&dir.path().join("outside")).unwrap_or_default(), LABEL.as_bytes());
    }

    #[test]
    fn the_hosts_own_directories_are_refused() {
        for path in ["/", "/etc", "/usr/../usr", "/var/log/"] {
            let error = relabel(Path::new(path), "l").unwrap_err();
            assert_eq!(error.kind(), core_types::ErrorKind::InvalidArgument, "{path}");
        }
    }
}
