//! Records as bytes: fields one after the other, numbers as varints, text with its length in front.
//!
//! New fields are only ever appended. A reader that meets the end of a record where a field should begin takes the
//! field's default, and ignores what follows after the fields it knows; so older and newer records of the same
//! schema are read by both.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use core_events::Any;
use core_types::{Error, Labels, Result};

/// Builds a record.
#[derive(Default)]
pub(crate) struct Encoder(Vec<u8>);

impl Encoder {
    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn number(&mut self, mut value: u64) -> &mut Self {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
        self
    }

    pub(crate) fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.number(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    pub(crate) fn text(&mut self, value: &str) -> &mut Self {
        self.bytes(value.as_bytes())
    }

    /// Nanoseconds from the epoch; times before it become the epoch.
    pub(crate) fn time(&mut self, value: SystemTime) -> &mut Self {
        let since = value.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.number(since.as_secs()).number(u64::from(since.subsec_nanos()))
    }

    pub(crate) fn labels(&mut self, value: &Labels) -> &mut Self {
        self.number(value.len() as u64);
        for (key, value) in value {
            self.text(key).text(value);
        }
        self
    }

    pub(crate) fn any(&mut self, value: Option<&Any>) -> &mut Self {
        match value {
            None => self.number(0),
            Some(any) => self.number(1).text(&any.type_url).bytes(&any.value),
        }
    }

    pub(crate) fn extensions(&mut self, value: &BTreeMap<String, Any>) -> &mut Self {
        self.number(value.len() as u64);
        for (key, value) in value {
            self.text(key).any(Some(value));
        }
        self
    }
}

/// Reads a record.
pub(crate) struct Decoder<'a>(&'a [u8]);

fn damaged() -> Error {
    Error::data_loss("a metadata record is damaged: it ends within a field")
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(record: &'a [u8]) -> Self {
        Self(record)
    }

    pub(crate) fn number(&mut self) -> Result<u64> {
        if self.0.is_empty() {
            return Ok(0);
        }
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or_else(damaged)?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(damaged())
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = usize::try_from(self.number()?).map_err(|_| damaged())?;
        let (value, rest) = self.0.split_at_checked(length).ok_or_else(damaged)?;
        self.0 = rest;
        Ok(value)
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes.to_vec()).map_err(|_| Error::data_loss("a metadata record is damaged: no UTF-8"))
    }

    pub(crate) fn time(&mut self) -> Result<SystemTime> {
        let seconds = self.number()?;
        let nanos = u32::try_from(self.number()?).map_err(|_| damaged())?;
        SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos)).ok_or_else(damaged)
    }

    pub(crate) fn labels(&mut self) -> Result<Labels> {
        let count = self.number()?;
        (0..count).map(|_| Ok((self.text()?, self.text()?))).collect()
    }

    pub(crate) fn any(&mut self) -> Result<Option<Any>> {
        match self.number()? {
            0 => Ok(None),
            _ => Ok(Some(Any { type_url: self.text()?, value: self.bytes()?.to_vec().into() })),
        }
    }

    pub(crate) fn extensions(&mut self) -> Result<BTreeMap<String, Any>> {
        let count = self.number()?;
        (0..count).map(|_| Ok((self.text()?, self.any()?.ok_or_else(damaged)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back() {
        let labels = Labels::from([("a".to_owned(), "ä".to_owned())]);
        let any = Any { type_url: "t".into(), value: vec![0, 255].into() };
        let time = SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 987_654_321);
        let mut encoder = Encoder::default();
        encoder.number(u64::MAX).text("x").time(time).labels(&labels).any(Some(&any)).any(None);
        let bytes = encoder.finish();
        let mut decoder = Decoder::new(&bytes);
        assert_eq!(decoder.number().unwrap(), u64::MAX);
        assert_eq!(decoder.text().unwrap(), "x");
        assert_eq!(decoder.time().unwrap(), time);
        assert_eq!(decoder.labels().unwrap(), labels);
        assert_eq!(decoder.any().unwrap(), Some(any));
        assert_eq!(decoder.any().unwrap(), None);
        assert_eq!(decoder.text().unwrap(), "", "a field appended later has its default");
    }

    #[test]
    fn a_record_cut_within_a_field_is_data_loss() {
        let mut encoder = Encoder::default();
        encoder.text("hello");
        let bytes = encoder.finish();
        let error = Decoder::new(&bytes[..3]).text().unwrap_err();
        assert_eq!(error.kind(), core_types::ErrorKind::DataLoss);
    }
}
