use crate::{Error, Result};

/// Length of a block, of which an archive consists.
pub(crate) const BLOCK: usize = 512;

/// One header block whose checksum is right.
pub(crate) struct Header<'block>(&'block [u8; BLOCK]);

impl<'block> Header<'block> {
    /// Takes a block. None for the block of zeros that ends an archive.
    pub(crate) fn parse(block: &'block [u8; BLOCK]) -> Result<Option<Self>> {
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let header = Self(block);
        let stated = octal(header.field(148, 8)).ok_or_else(|| Error::invalid("header without checksum"))?;
        let (mut unsigned, mut signed) = (0_i64, 0_i64);
        for (index, byte) in block.iter().enumerate() {
            let byte = if (148..156).contains(&index) { b' ' } else { *byte };
            unsigned += i64::from(byte);
            signed += i64::from(byte.cast_signed());
        }
        if i64::try_from(stated) != Ok(unsigned) && i64::try_from(stated) != Ok(signed) {
            return Err(Error::invalid("header with a wrong checksum"));
        }
        Ok(Some(header))
    }

    pub(crate) fn field(&self, start: usize, length: usize) -> &'block [u8] {
        &self.0[start..start + length]
    }

    pub(crate) fn type_flag(&self) -> u8 {
        self.0[156]
    }

    /// Whether the fields of GNU tar's own format follow the name of the group.
    pub(crate) fn is_gnu(&self) -> bool {
        self.field(257, 8) == b"ustar  \0"
    }

    fn is_posix(&self) -> bool {
        self.field(257, 6) == b"ustar\0"
    }

    /// The name, with the prefix where the format has one.
    pub(crate) fn path(&self) -> Vec<u8> {
        let name = text(self.field(0, 100));
        if !self.is_posix() {
            return name.to_vec();
        }
        // The format of star has a shorter prefix and times behind it.
        let prefix = text(self.field(345, if self.field(508, 4) == b"tar\0" { 131 } else { 155 }));
        if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() }
    }

    pub(crate) fn link(&self) -> Vec<u8> {
        text(self.field(157, 100)).to_vec()
    }

    pub(crate) fn mode(&self) -> Result<u64> {
        unsigned(self.field(100, 8), "mode")
    }

    pub(crate) fn uid(&self) -> Result<u64> {
        unsigned(self.field(108, 8), "uid")
    }

    pub(crate) fn gid(&self) -> Result<u64> {
        unsigned(self.field(116, 8), "gid")
    }

    pub(crate) fn size(&self) -> Result<u64> {
        unsigned(self.field(124, 12), "size")
    }

    pub(crate) fn mtime(&self) -> Result<i64> {
        number(self.field(136, 12)).ok_or_else(|| Error::invalid("header with a wrong mtime"))
    }

    pub(crate) fn device(&self) -> Result<(u64, u64)> {
        if !self.is_posix() && !self.is_gnu() {
            return Ok((0, 0));
        }
        Ok((unsigned(self.field(329, 8), "device")?, unsigned(self.field(337, 8), "device")?))
    }
}

/// Up to the first NUL byte.
fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

pub(crate) fn unsigned(field: &[u8], name: &str) -> Result<u64> {
    let value = number(field).and_then(|value| u64::try_from(value).ok());
    value.ok_or_else(|| Error::invalid(format_args!("header with a wrong {name}")))
}

/// A number in octal digits, or in base 256 when the first bit is set.
pub(crate) fn number(field: &[u8]) -> Option<i64> {
    let (&first, rest) = field.split_first()?;
    if first & 0x80 == 0 {
        return i64::try_from(octal(field)?).ok();
    }
    // The bit after the marker is the sign.
    let mut value = i64::from(((first << 1).cast_signed()) >> 1);
    for byte in rest {
        value = value.checked_mul(256)?.checked_add(i64::from(*byte))?;
    }
    Some(value)
}

fn octal(field: &[u8]) -> Option<u64> {
    let blank = |byte: &u8| *byte == b' ' || *byte == 0;
    let start = field.iter().position(|byte| !blank(byte)).unwrap_or(field.len());
    let digits = &field[start..];
    let digits = &digits[..digits.iter().position(blank).unwrap_or(digits.len())];
    digits.iter().try_fold(0_u64, |value, digit| {
        (b'0'..=b'7').contains(digit).then(|| value.checked_mul(8)?.checked_add(u64::from(digit - b'0')))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_both_bases() {
        assert_eq!(number(b"0000644\0"), Some(0o644));
        assert_eq!(number(b"   644 \0"), Some(0o644));
        assert_eq!(number(b"\0\0\0\0\0\0\0\0"), Some(0));
        assert_eq!(number(b"\x80\0\0\0\x12\x34\x56\x78"), Some(0x1234_5678));
        assert_eq!(number(&[0xff; 12]), Some(-1));
        assert_eq!(number(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00"), Some(-256));
        assert_eq!(number(b"\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), None);
        assert_eq!(number(b"12x4567\0"), None);
    }
}
