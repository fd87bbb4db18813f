use std::io::BufRead;

use crate::{
    Error, Result,
    header::{self, BLOCK, Header},
    pax::decimal,
    reader::Blocks,
};

/// Data segments that one file may have. Maps beyond that are refused while they are read.
const LIMIT: usize = 1 << 18;

/// A piece of data in a file with holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where in the file it begins.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
}

/// GNU tar's PAX records for files with holes, of its three versions.
#[derive(Debug, Default)]
pub(crate) struct PaxRecords {
    pub(crate) name: Option<Vec<u8>>,
    pub(crate) real_size: Option<u64>,
    version_one: bool,
    map: Vec<Segment>,
    pending_offset: Option<u64>,
    seen: bool,
}

impl PaxRecords {
    /// Takes one record `GNU.sparse.<key>`.
    pub(crate) fn take(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let number = || decimal(value).ok_or_else(|| Error::invalid("sparse file record that is no number"));
        match key {
            b"name" => self.name = Some(value.to_vec()),
            b"realsize" | b"size" => self.real_size = Some(number()?),
            b"major" => self.version_one = number()? == 1,
            b"offset" => self.pending_offset = Some(number()?),
            b"numbytes" => {
                let offset = self.pending_offset.take();
                let offset = offset.ok_or_else(|| Error::invalid("sparse file segment without offset"))?;
                push(&mut self.map, Segment { offset, length: number()? })?;
            }
            b"map" => self.take_map(value)?,
            b"minor" | b"numblocks" => {
                number()?;
            }
            _ => return Ok(()),
        }
        self.seen = true;
        Ok(())
    }

    /// Version 0.1: `offset,length,offset,length…`.
    fn take_map(&mut self, value: &[u8]) -> Result<()> {
        let mut numbers = value.split(|byte| *byte == b',').map(decimal);
        self.map.clear();
        while let Some(offset) = numbers.next() {
            match (offset, numbers.next().flatten()) {
                (Some(offset), Some(length)) => push(&mut self.map, Segment { offset, length })?,
                _ => return Err(Error::invalid("malformed map of a sparse file")),
            }
        }
        Ok(())
    }

    /// The map, if this is a file with holes; version 1.0 has it at the beginning of the data, of which
    /// `stored` bytes are left.
    pub(crate) fn into_map<R: BufRead>(
        self,
        blocks: &mut Blocks<R>,
        stored: &mut u64,
    ) -> Result<Option<(Vec<Segment>, u64)>> {
        if !self.seen {
            return Ok(None);
        }
        let size = self.real_size.ok_or_else(|| Error::invalid("sparse file without its size"))?;
        let map = if self.version_one { read_map(blocks, stored)? } else { self.map };
        check(&map, size, *stored)?;
        Ok(Some((map, size)))
    }
}

fn push(map: &mut Vec<Segment>, segment: Segment) -> Result<()> {
    if map.len() >= LIMIT {
        return Err(Error::invalid(format_args!("sparse file with more than {LIMIT} segments")));
    }
    map.push(segment);
    Ok(())
}

/// Version 1.0: decimal numbers, each on a line, padded to a block.
fn read_map<R: BufRead>(blocks: &mut Blocks<R>, stored: &mut u64) -> Result<Vec<Segment>> {
    let mut lines = Lines { blocks, stored, block: [0; BLOCK], at: BLOCK };
    let count = lines.next()?;
    if count > LIMIT as u64 {
        return Err(Error::invalid(format_args!("sparse file with {count} segments, more than {LIMIT}")));
    }
    let mut map = Vec::new();
    for _ in 0..count {
        push(&mut map, Segment { offset: lines.next()?, length: lines.next()? })?;
    }
    Ok(map)
}

struct Lines<'a, R> {
    blocks: &'a mut Blocks<R>,
    stored: &'a mut u64,
    block: [u8; BLOCK],
    at: usize,
}

impl<R: BufRead> Lines<'_, R> {
    fn next(&mut self) -> Result<u64> {
        let mut value = None;
        for _ in 0..24 {
            if self.at == BLOCK {
                let left = self.stored.checked_sub(BLOCK as u64);
                *self.stored = left.ok_or_else(|| Error::invalid("map of a sparse file beyond its data"))?;
                self.blocks.read_exact(&mut self.block)?;
                self.at = 0;
            }
            let byte = self.block[self.at];
            self.at += 1;
            let digit = u64::from(byte.wrapping_sub(b'0'));
            match (byte, value) {
                (b'\n', Some(value)) => return Ok(value),
                (b'0'..=b'9', _) => {
                    value = value.unwrap_or(0_u64).checked_mul(10).and_then(|value| value.checked_add(digit));
                    if value.is_none() {
                        break;
                    }
                }
                _ => break,
            }
        }
        Err(Error::invalid("malformed map of a sparse file"))
    }
}

/// The map of GNU tar's old format, which begins in the header and goes on in blocks behind it.
pub(crate) fn read_old<R: BufRead>(
    header: &Header<'_>,
    blocks: &mut Blocks<R>,
    stored: u64,
) -> Result<(Vec<Segment>, u64)> {
    if !header.is_gnu() {
        return Err(Error::invalid("sparse file in an archive that is not GNU tar's"));
    }
    let size = header::unsigned(header.field(483, 12), "real size")?;
    let mut map = Vec::new();
    let mut more = header.field(482, 1)[0] != 0;
    let mut open = read_old_segments(header.field(386, 96), &mut map)?;
    while more {
        let mut block = [0; BLOCK];
        blocks.read_exact(&mut block)?;
        if open {
            open = read_old_segments(&block[..504], &mut map)?;
        } else {
            return Err(Error::invalid("malformed map of a sparse file"));
        }
        more = block[504] != 0;
    }
    check(&map, size, stored)?;
    Ok((map, size))
}

/// Whether the map may go on: no empty slot was met.
fn read_old_segments(fields: &[u8], map: &mut Vec<Segment>) -> Result<bool> {
    for slot in fields.chunks_exact(24) {
        if slot[0] == 0 {
            return Ok(false);
        }
        let offset = header::unsigned(&slot[..12], "sparse offset")?;
        push(map, Segment { offset, length: header::unsigned(&slot[12..], "sparse length")? })?;
    }
    Ok(true)
}

/// Segments in order, apart, inside the file, and as long together as the data stored.
fn check(map: &[Segment], size: u64, stored: u64) -> Result<()> {
    let (mut end, mut sum) = (0_u64, 0_u64);
    for segment in map {
        let after = segment.offset.checked_add(segment.length).filter(|after| *after <= size);
        match after {
            Some(after) if segment.offset >= end => end = after,
            _ => return Err(Error::invalid("map of a sparse file that overlaps or leaves the file")),
        }
        sum += segment.length;
    }
    if sum != stored || i64::try_from(size).is_err() {
        return Err(Error::invalid("map of a sparse file that does not fit its data"));
    }
    Ok(())
}
