use std::os::fd::{AsFd, OwnedFd};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags},
    io::Errno,
};

/// Levels that are gone down at once; what is deeper is moved up first, so that few descriptors are open.
const LEVELS: usize = 64;

/// Removes a file or a whole tree, which may be missing. Whether something other than a plain file went.
pub(super) fn remove(directory: impl AsFd, name: &[u8]) -> Result<bool, Errno> {
    let directory = directory.as_fd();
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) => return Ok(true),
        Err(Errno::NOENT) => return Ok(false),
        // A directory, by Linux and by POSIX.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error),
    }
    let mut moved = 0;
    let mut pending = vec![name.to_vec()];
    while let Some(name) = pending.last() {
        match remove_tree(directory, directory, name, LEVELS, &mut moved) {
            Ok(()) => {
                pending.pop();
            }
            // Something was moved to the top: that goes before the rest.
            Err(Errno::XFULL) => pending.push(moved_name(moved)),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn moved_name(number: u64) -> Vec<u8> {
    format!(".wh..wh.removed-{number}").into_bytes()
}

fn open(directory: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

fn remove_tree(
    top: impl AsFd + Copy,
    parent: impl AsFd + Copy,
    name: &[u8],
    levels: usize,
    moved: &mut u64,
) -> Result<(), Errno> {
    if levels == 0 {
        *moved += 1;
        rustix::fs::renameat(parent, name, top, moved_name(*moved))?;
        return Err(Errno::XFULL);
    }
    let fd = open(parent, name)?;
    for (child, kind) in children(&fd)? {
        let unlinked = if kind == FileType::Directory {
            Err(Errno::ISDIR)
        } else {
            rustix::fs::unlinkat(&fd, &child[..], AtFlags::empty())
        };
        match unlinked {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::ISDIR | Errno::PERM) => remove_tree(top, fd.as_fd(), &child, levels - 1, moved)?,
            Err(error) => return Err(error),
        }
    }
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// The names in a directory, with their kinds as far as the file system tells.
pub(super) fn children(directory: impl AsFd) -> Result<Vec<(Vec<u8>, FileType)>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push((name.to_vec(), entry.file_type()));
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_deeper_than_descriptors_and_paths_allow_goes() {
        let dir = tempfile::tempdir().unwrap();
        let root = rustix::fs::open(dir.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let mut current = rustix::io::dup(&root).unwrap();
        for _ in 0..1500 {
            rustix::fs::mkdirat(&current, "directory", Mode::from(0o755)).unwrap();
            current = open(&current, b"directory").unwrap();
        }
        drop(current);
        assert!(remove(&root, b"directory").unwrap());
        assert!(children(&root).unwrap().is_empty());
        assert!(!remove(&root, b"directory").unwrap());
    }
}
