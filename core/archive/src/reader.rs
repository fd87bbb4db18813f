use std::io::{self, BufRead};

use crate::{
    Entry, Error, Kind, Result, Timestamp,
    error::shown,
    header::{BLOCK, Header},
    pax::{self, Records},
    sparse,
};

/// Bytes that an extended header or a long name may have.
const EXTENSION_LIMIT: u64 = 1 << 20;
/// Extensions that one entry may have, against archives of nothing else.
const EXTENSIONS_LIMIT: u32 = 64;

/// Reads the entries of a tar archive: v7, ustar, GNU and PAX, with GNU's three ways and one more to store
/// files with holes.
///
/// Memory is bounded whatever the archive claims. Data are handed out as slices of the underlying buffer.
pub struct Archive<R> {
    blocks: Blocks<R>,
    /// Bytes of the current entry's data not yet handed out.
    left: u64,
    /// Bytes between its data and the next header.
    padding: u64,
    ended: bool,
}

/// What modifies the entry that follows.
#[derive(Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    records: Records,
    count: u32,
}

impl<R: BufRead> Archive<R> {
    /// Reads `source` from its first byte, uncompressed.
    pub fn new(source: R) -> Self {
        Self { blocks: Blocks { source }, left: 0, padding: 0, ended: false }
    }

    /// The next entry; what is left of the last one's data is skipped. None at the end of the archive.
    ///
    /// # Errors
    /// [`Error::Invalid`] and [`Error::Truncated`] for what the archive does wrong, [`Error::Io`] of the source.
    pub fn next_entry(&mut self) -> Result<Option<Entry>> {
        self.skip_data()?;
        let mut extensions = Extensions::default();
        let mut block = [0; BLOCK];
        loop {
            if self.ended || !self.read_header(&mut block, extensions.count > 0)? {
                return Ok(None);
            }
            let Some(header) = Header::parse(&block)? else {
                self.ended = true;
                return Ok(None);
            };
            match header.type_flag() {
                b'x' | b'L' | b'K' | b'g' | b'V' => self.take_extension(&header, &mut extensions)?,
                _ => return self.entry(&header, extensions).map(Some),
            }
        }
    }

    fn read_header(&mut self, block: &mut [u8; BLOCK], inside: bool) -> Result<bool> {
        if self.blocks.at_end()? {
            // Archives without end marks exist; only the middle of something must not be missing.
            return if inside { Err(Error::Truncated("it ends after an extended header".into())) } else { Ok(false) };
        }
        self.blocks.read_exact(block)?;
        Ok(true)
    }

    fn take_extension(&mut self, header: &Header<'_>, extensions: &mut Extensions) -> Result<()> {
        extensions.count += 1;
        if extensions.count > EXTENSIONS_LIMIT {
            return Err(Error::invalid("too many extended headers for one entry"));
        }
        let size = header.size()?;
        let flag = header.type_flag();
        if size > EXTENSION_LIMIT {
            return Err(Error::invalid(format_args!("extended header of {size} bytes, more than {EXTENSION_LIMIT}")));
        }
        let mut body = self.blocks.read_vec(size)?;
        match flag {
            b'x' => extensions.records = pax::parse(&body)?,
            b'L' | b'K' => {
                body.truncate(body.iter().position(|byte| *byte == 0).unwrap_or(body.len()));
                if flag == b'L' {
                    extensions.path = Some(body);
                } else {
                    extensions.link = Some(body);
                }
            }
            // Global headers say nothing that a layer needs; the label of a volume neither.
            _ => {}
        }
        Ok(())
    }

    fn entry(&mut self, header: &Header<'_>, extensions: Extensions) -> Result<Entry> {
        let records = extensions.records;
        let mut path = records.path.or(extensions.path).unwrap_or_else(|| header.path());
        let link = records.link.or(extensions.link).unwrap_or_else(|| header.link());
        let flag = header.type_flag();
        let kind = kind(header, &path, link)?;
        let has_data = matches!(kind, Kind::File);
        let mut stored = if has_data { records.size.map_or_else(|| header.size(), Ok)? } else { 0 };
        let padding = stored.wrapping_neg() % BLOCK as u64;
        let mut size = stored;
        let mut map = None;
        if flag == b'S' {
            let (segments, real) = sparse::read_old(header, &mut self.blocks, stored)?;
            (map, size) = (Some(segments), real);
        } else if has_data {
            if let Some(name) = &records.sparse.name {
                path.clone_from(name);
            }
            if let Some((segments, real)) = records.sparse.into_map(&mut self.blocks, &mut stored)? {
                (map, size) = (Some(segments), real);
            }
        }
        if i64::try_from(size).is_err() || path.contains(&0) {
            return Err(Error::invalid("entry with an impossible size or name"));
        }
        (self.left, self.padding) = (stored, padding);
        let id = |value: u64| {
            u32::try_from(value)
                .map_err(|_| Error::invalid(format_args!("owner {value} of {} is out of range", shown(&path))))
        };
        Ok(Entry {
            uid: id(records.uid.map_or_else(|| header.uid(), Ok)?)?,
            gid: id(records.gid.map_or_else(|| header.gid(), Ok)?)?,
            kind,
            mode: (header.mode()? & 0o7777) as u32,
            size,
            mtime: match records.mtime {
                Some(time) => time,
                None => Timestamp { seconds: header.mtime()?, nanos: 0 },
            },
            atime: records.atime,
            xattrs: records.xattrs,
            sparse: map,
            path,
        })
    }

    /// The next piece of the current entry's data, without holes. Empty at its end.
    ///
    /// # Errors
    /// As [`Archive::next_entry`].
    pub fn data(&mut self) -> Result<&[u8]> {
        if self.left == 0 {
            return Ok(&[]);
        }
        let buffer = self.blocks.fill()?;
        let length = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        Ok(&buffer[..length])
    }

    /// Marks `count` bytes of what [`Archive::data`] gave as used.
    pub fn consume(&mut self, count: usize) {
        self.blocks.source.consume(count);
        self.left = self.left.saturating_sub(count as u64);
    }

    fn skip_data(&mut self) -> Result<()> {
        while self.left > 0 {
            let length = self.data()?.len();
            self.consume(length);
        }
        self.left = std::mem::take(&mut self.padding);
        // Padding of the very last entry is missing in some archives; it holds nothing.
        while self.left > 0 && !self.blocks.at_end()? {
            let length = self.data()?.len();
            self.consume(length);
        }
        self.left = 0;
        Ok(())
    }

    /// Reads what follows the archive, to the end of the stream.
    ///
    /// # Errors
    /// [`Error::Io`] of the source.
    pub fn drain(&mut self) -> Result<()> {
        while !self.blocks.at_end()? {
            let length = self.blocks.fill()?.len();
            self.blocks.source.consume(length);
        }
        Ok(())
    }
}

fn kind(header: &Header<'_>, path: &[u8], link: Vec<u8>) -> Result<Kind> {
    let device = || {
        let (major, minor) = header.device()?;
        let range = |_| Error::invalid(format_args!("device number of {} is out of range", shown(path)));
        Ok::<_, Error>((u32::try_from(major).map_err(range)?, u32::try_from(minor).map_err(range)?))
    };
    Ok(match header.type_flag() {
        // Before POSIX a directory was a file with a slash at the end.
        0 if path.ends_with(b"/") => Kind::Directory,
        0 | b'0' | b'7' | b'S' => Kind::File,
        b'1' => Kind::HardLink(link),
        b'2' => Kind::Symlink(link),
        b'3' => device().map(|(major, minor)| Kind::CharDevice(major, minor))?,
        b'4' => device().map(|(major, minor)| Kind::BlockDevice(major, minor))?,
        b'5' => Kind::Directory,
        b'6' => Kind::Fifo,
        other => {
            return Err(Error::Unsupported(format!(
                "entry {} of the layer has the type {:?}, which is not handled",
                shown(path),
                char::from(other)
            )));
        }
    })
}

/// Exact reads from the source.
pub(crate) struct Blocks<R> {
    source: R,
}

impl<R: BufRead> Blocks<R> {
    fn raw_fill(&mut self) -> io::Result<&[u8]> {
        loop {
            match self.source.fill_buf() {
                // The borrow checker wants a second look at what was just filled.
                Ok(_) => return self.source.fill_buf(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn at_end(&mut self) -> Result<bool> {
        self.raw_fill().map(<[u8]>::is_empty).map_err(from_stream)
    }

    fn fill(&mut self) -> Result<&[u8]> {
        match self.raw_fill() {
            Ok([]) => Err(Error::Truncated("it ends in the middle of an entry".into())),
            Ok(buffer) => Ok(buffer),
            Err(error) => Err(from_stream(error)),
        }
    }

    pub(crate) fn read_exact(&mut self, mut target: &mut [u8]) -> Result<()> {
        while !target.is_empty() {
            let buffer = self.fill()?;
            let length = buffer.len().min(target.len());
            let (filled, rest) = target.split_at_mut(length);
            filled.copy_from_slice(&buffer[..length]);
            self.source.consume(length);
            target = rest;
        }
        Ok(())
    }

    /// Reads a body of bounded `size` and its padding. Grows with what is really there.
    fn read_vec(&mut self, size: u64) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        let mut left = size + size.wrapping_neg() % BLOCK as u64;
        while left > 0 {
            let buffer = self.fill()?;
            let length = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            body.extend_from_slice(&buffer[..length]);
            self.source.consume(length);
            left -= length as u64;
        }
        body.truncate(usize::try_from(size).unwrap_or(usize::MAX));
        Ok(body)
    }
}

/// Errors that a decompressor in the source packed keep their kind.
fn from_stream(error: io::Error) -> Error {
    match error.downcast::<Error>() {
        Ok(inner) => inner,
        Err(error) => Error::io("read layer", error),
    }
}

#[cfg(test)]
mod tests;
