//! The few protobuf messages that a shim binary reads and writes, on the wire.
//!
//! The domain layer links no protobuf library; what it exchanges with a shim *binary* (not over the socket)
//! and the two events it makes itself are flat messages of strings, numbers and bytes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use core_types::{Error, Result};

/// Appends fields to a message.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    /// A number; zero is left out, as proto3 does.
    pub(crate) fn number(mut self, field: u32, value: u64) -> Self {
        if value != 0 {
            self.varint(u64::from(field) << 3);
            self.varint(value);
        }
        self
    }

    /// Bytes, a string or an inner message; empty ones are left out.
    pub(crate) fn bytes(self, field: u32, value: &[u8]) -> Self {
        if value.is_empty() { self } else { self.message(field, value) }
    }

    /// An inner message, also when it is empty.
    pub(crate) fn message(mut self, field: u32, value: &[u8]) -> Self {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// A `google.protobuf.Timestamp`.
    pub(crate) fn time(self, field: u32, value: Option<SystemTime>) -> Self {
        let Some(value) = value else { return self };
        let since = value.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let inner = Self::default().number(1, since.as_secs()).number(2, u64::from(since.subsec_nanos())).finish();
        self.message(field, &inner)
    }

    /// The message.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// Value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// A number.
    Number(u64),
    /// Bytes, a string or an inner message.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// The number, zero when it is none.
    pub(crate) fn number(self) -> u64 {
        match self {
            Value::Number(number) => number,
            Value::Bytes(_) => 0,
        }
    }

    /// The bytes, none when it is a number.
    pub(crate) fn bytes(self) -> &'a [u8] {
        match self {
            Value::Bytes(bytes) => bytes,
            Value::Number(_) => &[],
        }
    }

    /// The text.
    ///
    /// # Errors
    /// When it is no UTF-8.
    pub(crate) fn text(self) -> Result<String> {
        String::from_utf8(self.bytes().to_vec()).map_err(|_| malformed())
    }
}

/// The fields of a message with their numbers.
///
/// # Errors
/// When the bytes are no message.
pub(crate) fn fields(mut rest: &[u8]) -> Result<Vec<(u32, Value<'_>)>> {
    let mut found = Vec::new();
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        let field = u32::try_from(key >> 3).map_err(|_| malformed())?;
        if field == 0 {
            return Err(malformed());
        }
        let value = match key & 7 {
            0 => Value::Number(varint(&mut rest)?),
            1 => fixed::<8>(&mut rest).map(|bytes| Value::Number(u64::from_le_bytes(bytes)))?,
            2 => {
                let length = usize::try_from(varint(&mut rest)?).map_err(|_| malformed())?;
                let (value, after) = rest.split_at_checked(length).ok_or_else(malformed)?;
                rest = after;
                Value::Bytes(value)
            }
            5 => fixed::<4>(&mut rest).map(|bytes| Value::Number(u64::from(u32::from_le_bytes(bytes))))?,
            _ => return Err(malformed()),
        };
        found.push((field, value));
    }
    Ok(found)
}

/// Reads a `google.protobuf.Timestamp`; times before 1970 are none.
///
/// # Errors
/// When the bytes are no message.
pub(crate) fn time(bytes: &[u8]) -> Result<Option<SystemTime>> {
    let (mut seconds, mut nanos) = (0, 0);
    for (field, value) in fields(bytes)? {
        match field {
            1 => seconds = value.number(),
            2 => nanos = value.number(),
            _ => {}
        }
    }
    let nanos = u32::try_from(nanos).ok().filter(|nanos| *nanos < 1_000_000_000).ok_or_else(malformed)?;
    if seconds > i64::MAX as u64 {
        return Ok(None);
    }
    Ok(UNIX_EPOCH.checked_add(Duration::new(seconds, nanos)))
}

fn varint(rest: &mut &[u8]) -> Result<u64> {
    let mut value = 0u64;
    for at in 0..10 {
        let (&byte, after) = rest.split_first().ok_or_else(malformed)?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(malformed())
}

fn fixed<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N]> {
    let (value, after) = rest.split_first_chunk::<N>().ok_or_else(malformed)?;
    *rest = after;
    Ok(*value)
}

fn malformed() -> Error {
    Error::invalid_argument("malformed protobuf message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let at = UNIX_EPOCH + Duration::new(1_700_000_000, 5);
        let bytes = Writer::default().number(1, 300).bytes(2, b"abc").bytes(3, b"").time(4, Some(at)).finish();
        let fields = fields(&bytes).unwrap();
        assert_eq!(fields[0], (1, Value::Number(300)));
        assert_eq!(fields[1], (2, Value::Bytes(b"abc")));
        assert_eq!(fields.len(), 3);
        assert_eq!(time(fields[2].1.bytes()).unwrap(), Some(at));
    }

    #[test]
    fn addresses_and_json_are_no_messages() {
        for text in ["unix:///run/containerd/s/abc", r#"{"version":3,"address":"x"}"#, "\x0a\x7f", "\u{80}"] {
            assert!(fields(text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
