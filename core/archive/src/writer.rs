use std::io::{self, Write};

use crate::{Entry, Error, Kind, Result, header::BLOCK};

/// The largest number in eleven octal digits.
const OCTAL_11: u64 = 0o77_777_777_777;
/// The largest number in seven octal digits.
const OCTAL_7: u64 = 0o7_777_777;

/// Writes a tar archive in the POSIX format, with PAX records only where the old header has no room.
pub struct Writer<W> {
    out: W,
    /// Bytes of data that the current entry still wants.
    left: u64,
    padding: usize,
}

impl<W: Write> Writer<W> {
    /// Writes to `out`, preferably buffered.
    pub fn new(out: W) -> Self {
        Self { out, left: 0, padding: 0 }
    }

    /// Begins an entry. Of a [`Kind::File`], `size` bytes of [`Writer::data`] must follow. Maps of holes are not
    /// written.
    ///
    /// # Errors
    /// [`Error::Changed`] when data of the last entry are missing, and what writing says.
    pub fn entry(&mut self, entry: &Entry) -> Result<()> {
        self.end_entry()?;
        let records = records(entry);
        if !records.is_empty() {
            let mut block = Block::new();
            let base = entry.path.rsplit(|byte| *byte == b'/').find(|part| !part.is_empty()).unwrap_or_default();
            block.text(0, 100, &[b"PaxHeaders.0/", base].concat());
            block.octal(100, 8, 0o644);
            block.octal(124, 12, records.len() as u64);
            block.octal(136, 12, 0);
            self.block(block, b'x')?;
            self.write(&records)?;
            self.write(&[0; BLOCK][..padding(records.len() as u64)])?;
        }
        self.block(header(entry), flag(&entry.kind))?;
        if matches!(entry.kind, Kind::File) {
            self.left = entry.size;
            self.padding = padding(entry.size);
        }
        Ok(())
    }

    /// Data of the current entry.
    ///
    /// # Errors
    /// [`Error::Changed`] for more than its size, and what writing says.
    pub fn data(&mut self, data: &[u8]) -> Result<()> {
        let left = self.left.checked_sub(data.len() as u64);
        self.left = left.ok_or_else(|| Error::Changed("a file grew while it was archived".into()))?;
        self.write(data)
    }

    /// Ends the archive and gives the stream back.
    ///
    /// # Errors
    /// As [`Writer::entry`].
    pub fn finish(mut self) -> Result<W> {
        self.end_entry()?;
        self.write(&[0; 2 * BLOCK])?;
        self.out.flush().map_err(write_failed)?;
        Ok(self.out)
    }

    fn end_entry(&mut self) -> Result<()> {
        if self.left > 0 {
            return Err(Error::Changed("a file shrank while it was archived".into()));
        }
        let padding = std::mem::take(&mut self.padding);
        self.write(&[0; BLOCK][..padding])
    }

    fn block(&mut self, mut block: Block, flag: u8) -> Result<()> {
        block.0[156] = flag;
        block.0[257..265].copy_from_slice(b"ustar\x0000");
        block.0[148..156].fill(b' ');
        let sum: u64 = block.0.iter().map(|byte| u64::from(*byte)).sum();
        block.octal(148, 7, sum);
        self.write(&block.0)
    }

    fn write(&mut self, data: &[u8]) -> Result<()> {
        self.out.write_all(data).map_err(write_failed)
    }
}

fn write_failed(error: io::Error) -> Error {
    Error::io("write layer", error)
}

fn padding(size: u64) -> usize {
    (size.wrapping_neg() % BLOCK as u64) as usize
}

fn flag(kind: &Kind) -> u8 {
    match kind {
        Kind::File => b'0',
        Kind::HardLink(_) => b'1',
        Kind::Symlink(_) => b'2',
        Kind::CharDevice(..) => b'3',
        Kind::BlockDevice(..) => b'4',
        Kind::Directory => b'5',
        Kind::Fifo => b'6',
    }
}

fn link(kind: &Kind) -> &[u8] {
    match kind {
        Kind::HardLink(target) | Kind::Symlink(target) => target,
        _ => &[],
    }
}

/// The size that the header states: only files have data.
fn size(entry: &Entry) -> u64 {
    if matches!(entry.kind, Kind::File) { entry.size } else { 0 }
}

struct Block([u8; BLOCK]);

impl Block {
    fn new() -> Self {
        Self([0; BLOCK])
    }

    fn text(&mut self, start: usize, length: usize, text: &[u8]) {
        let length = text.len().min(length);
        self.0[start..start + length].copy_from_slice(&text[..length]);
    }

    /// Digits and a NUL byte; what does not fit is in a PAX record and 0 here.
    fn octal(&mut self, start: usize, length: usize, value: u64) {
        let text = format!("{value:0width$o}", width = length - 1);
        let text = if text.len() < length { text } else { "0".repeat(length - 1) };
        self.text(start, length, text.as_bytes());
    }
}

fn header(entry: &Entry) -> Block {
    let mut block = Block::new();
    block.text(0, 100, &entry.path);
    block.octal(100, 8, u64::from(entry.mode & 0o7777));
    block.octal(108, 8, u64::from(entry.uid));
    block.octal(116, 8, u64::from(entry.gid));
    block.octal(124, 12, size(entry));
    block.octal(136, 12, u64::try_from(entry.mtime.seconds).unwrap_or(0));
    block.text(157, 100, link(&entry.kind));
    let (major, minor) = match entry.kind {
        Kind::CharDevice(major, minor) | Kind::BlockDevice(major, minor) => (major, minor),
        _ => (0, 0),
    };
    block.octal(329, 8, u64::from(major));
    block.octal(337, 8, u64::from(minor));
    block
}

/// The PAX records of what the header has no room for.
fn records(entry: &Entry) -> Vec<u8> {
    let mut out = Vec::new();
    if entry.path.len() > 100 {
        record(&mut out, b"path", &entry.path);
    }
    if link(&entry.kind).len() > 100 {
        record(&mut out, b"linkpath", link(&entry.kind));
    }
    if size(entry) > OCTAL_11 {
        record(&mut out, b"size", size(entry).to_string().as_bytes());
    }
    for (key, id) in [(&b"uid"[..], entry.uid), (b"gid", entry.gid)] {
        if u64::from(id) > OCTAL_7 {
            record(&mut out, key, id.to_string().as_bytes());
        }
    }
    let time = entry.mtime;
    if time.nanos != 0 || u64::try_from(time.seconds).map_or(true, |seconds| seconds > OCTAL_11) {
        record(&mut out, b"mtime", shown_time(time).as_bytes());
    }
    for (name, value) in &entry.xattrs {
        record(&mut out, &[b"SCHILY.xattr.", &name[..]].concat(), value);
    }
    out
}

fn shown_time(time: crate::Timestamp) -> String {
    let (sign, seconds, nanos) = match (time.seconds, time.nanos) {
        (seconds, 0) if seconds < 0 => ("-", seconds.unsigned_abs(), 0),
        (seconds, nanos) if seconds < 0 => ("-", seconds.unsigned_abs() - 1, 1_000_000_000 - nanos),
        (seconds, nanos) => ("", seconds.unsigned_abs(), nanos),
    };
    let text = format!("{sign}{seconds}.{nanos:09}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `length key=value\n`, where the length counts itself.
fn record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    out.extend_from_slice(length.to_string().as_bytes());
    out.push(b' ');
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Archive, Timestamp};

    #[test]
    fn what_is_written_is_read_again() {
        let file = |path: Vec<u8>, seconds, nanos| Entry {
            kind: Kind::File,
            path,
            mode: 0o4755,
            uid: 3_000_000,
            gid: u32::MAX - 1,
            size: 5,
            mtime: Timestamp { seconds, nanos },
            atime: None,
            xattrs: vec![(b"user.k".to_vec(), b"\0v\n=".to_vec())],
            sparse: None,
        };
        let long = [&b"p"[..]; 99].join(&b'/');
        let link = Kind::Symlink([b'l'; 120].to_vec());
        let entries = [
            file(b"short".to_vec(), 1, 0),
            file(long, -1, 250_000_000),
            file(b"old".to_vec(), -7, 0),
            Entry { size: 0, xattrs: vec![], kind: link, ..file(b"link".to_vec(), 9_999_999_999, 1) },
            Entry { size: 0, uid: 0, kind: Kind::CharDevice(5, 1), ..file(b"dev".to_vec(), 3, 999_999_999) },
        ];
        let mut writer = Writer::new(Vec::new());
        for entry in &entries {
            writer.entry(entry).unwrap();
            if matches!(entry.kind, Kind::File) {
                writer.data(b"hello").unwrap();
            }
        }
        let bytes = writer.finish().unwrap();
        let mut archive = Archive::new(&bytes[..]);
        for entry in &entries {
            assert_eq!(archive.next_entry().unwrap().as_ref(), Some(entry));
            if matches!(entry.kind, Kind::File) {
                assert_eq!(archive.data().unwrap(), b"hello");
            }
        }
        assert_eq!(archive.next_entry().unwrap(), None);
    }

    #[test]
    fn files_that_change_their_size_are_noticed() {
        let entry = Entry {
            kind: Kind::File,
            path: b"f".to_vec(),
            mode: 0o644,
            uid: 0,
            gid: 0,
            size: 3,
            mtime: Timestamp::default(),
            atime: None,
            xattrs: vec![],
            sparse: None,
        };
        let mut writer = Writer::new(Vec::new());
        writer.entry(&entry).unwrap();
        assert!(matches!(writer.data(b"four"), Err(Error::Changed(_))));
        let mut writer = Writer::new(Vec::new());
        writer.entry(&entry).unwrap();
        assert!(matches!(writer.finish(), Err(Error::Changed(_))));
    }
}
