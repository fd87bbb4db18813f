use std::{collections::HashMap, io::Write, os::fd::OwnedFd};

use rustix::{
    fs::{AtFlags, FileType, Stat},
    io::Errno,
};

use super::{
    DiffOptions,
    walk::{Change, fill, open_directory, open_file, xattrs},
};
use crate::{Entry, Error, Kind, Result, Timestamp, Writer, error::shown, whiteout};

/// Bytes read from a file at once.
const PIECE: usize = 256 << 10;

/// Writes changes as entries.
pub(super) struct Emitter<'root, W> {
    root: &'root OwnedFd,
    writer: Writer<W>,
    epoch: Option<i64>,
    /// The directory used last, with its path.
    directory: Option<(Vec<u8>, OwnedFd)>,
    /// First names of files that have several.
    linked: HashMap<(u64, u64), Vec<u8>>,
    buffer: Vec<u8>,
}

impl<'root, W: Write> Emitter<'root, W> {
    pub(super) fn new(root: &'root OwnedFd, writer: Writer<W>, options: &DiffOptions) -> Self {
        Self {
            root,
            writer,
            epoch: options.source_date_epoch,
            directory: None,
            linked: HashMap::new(),
            buffer: vec![0; PIECE],
        }
    }

    pub(super) fn finish(self) -> Result<W> {
        self.writer.finish()
    }

    pub(super) fn emit(&mut self, change: &Change) -> Result<()> {
        match change {
            Change::Deleted(path) => self.writer.entry(&deletion(path)),
            Change::Written(path) => self.written(path),
        }
    }

    fn written(&mut self, path: &[u8]) -> Result<()> {
        let doing = |error: Errno| {
            if error == Errno::NOENT {
                return Error::Changed(format!("{} went away while it was archived", shown(path)));
            }
            Error::io(format_args!("archive {}", shown(path)), error)
        };
        let (parent, name) = split(path);
        let directory = self.open(parent).map_err(doing)?;
        let result = self.write(path, name, &directory, doing);
        self.directory = Some((parent.to_vec(), directory));
        result
    }

    fn write(&mut self, path: &[u8], name: &[u8], directory: &OwnedFd, doing: impl Fn(Errno) -> Error) -> Result<()> {
        let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map_err(&doing)?;
        let mut entry = self.entry(path, &stat);
        entry.kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(directory, name, Vec::new()).map_err(&doing)?;
                Kind::Symlink(target.into_bytes())
            }
            FileType::CharacterDevice => {
                Kind::CharDevice(rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev))
            }
            FileType::BlockDevice => {
                Kind::BlockDevice(rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev))
            }
            FileType::Fifo => Kind::Fifo,
            // A socket by now: sockets are left out.
            _ => return Ok(()),
        };
        if entry.kind == Kind::Directory {
            entry.path.push(b'/');
        } else if stat.st_nlink > 1 {
            let first = self.linked.entry((stat.st_dev, stat.st_ino)).or_insert_with(|| path.to_vec());
            if first != path {
                entry.kind = Kind::HardLink(first.clone());
                entry.size = 0;
                return self.writer.entry(&entry);
            }
        }
        entry.xattrs = xattrs(directory, name).map_err(&doing)?;
        self.writer.entry(&entry)?;
        if entry.kind == Kind::File && entry.size > 0 {
            self.content(&open_file(directory, name).map_err(&doing)?, doing)?;
        }
        Ok(())
    }

    fn content(&mut self, file: &OwnedFd, doing: impl Fn(Errno) -> Error) -> Result<()> {
        loop {
            let read = fill(file, &mut self.buffer).map_err(&doing)?;
            if read == 0 {
                return Ok(());
            }
            self.writer.data(&self.buffer[..read])?;
        }
    }

    fn entry(&self, path: &[u8], stat: &Stat) -> Entry {
        let mut mtime = Timestamp { seconds: stat.st_mtime, nanos: stat.st_mtime_nsec as u32 };
        if let Some(epoch) = self.epoch {
            mtime = mtime.min(Timestamp { seconds: epoch, nanos: 0 });
        }
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        Entry {
            kind: Kind::File,
            path: path.to_vec(),
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: if is_file { stat.st_size as u64 } else { 0 },
            mtime,
            atime: None,
            xattrs: Vec::new(),
            sparse: None,
        }
    }

    /// The directory of that path, component by component.
    fn open(&mut self, path: &[u8]) -> Result<OwnedFd, Errno> {
        match self.directory.take() {
            Some((known, directory)) if known == path => return Ok(directory),
            Some((known, directory)) => {
                // Most often the next one is just below.
                let below = path.strip_prefix(&known[..]).and_then(|rest| rest.strip_prefix(b"/"));
                if let Some(name) = below.filter(|name| !known.is_empty() && !name.contains(&b'/')) {
                    return open_directory(&directory, name);
                }
            }
            None => {}
        }
        let mut current = rustix::io::fcntl_dupfd_cloexec(self.root, 0)?;
        for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            current = open_directory(&current, part)?;
        }
        Ok(current)
    }
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    path.iter().rposition(|byte| *byte == b'/').map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]))
}

/// The whiteout of a path, at the epoch.
fn deletion(path: &[u8]) -> Entry {
    let (parent, name) = split(path);
    let slash: &[u8] = if parent.is_empty() { b"" } else { b"/" };
    Entry {
        kind: Kind::File,
        path: [parent, slash, whiteout::PREFIX, name].concat(),
        mode: 0,
        uid: 0,
        gid: 0,
        size: 0,
        mtime: Timestamp::default(),
        atime: None,
        xattrs: Vec::new(),
        sparse: None,
    }
}
