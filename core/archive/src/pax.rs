use crate::{Error, Result, Timestamp, Xattrs, error::shown, sparse};

/// What extended header records of interest say.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) path: Option<Vec<u8>>,
    pub(crate) link: Option<Vec<u8>>,
    pub(crate) size: Option<u64>,
    pub(crate) uid: Option<u64>,
    pub(crate) gid: Option<u64>,
    pub(crate) mtime: Option<Timestamp>,
    pub(crate) atime: Option<Timestamp>,
    pub(crate) xattrs: Xattrs,
    pub(crate) sparse: sparse::PaxRecords,
}

/// Parses the body of an extended header: records of `length key=value\n`.
pub(crate) fn parse(mut body: &[u8]) -> Result<Records> {
    let mut records = Records::default();
    while !body.is_empty() {
        // GNU tar and others may pad with NUL bytes.
        if body.iter().all(|byte| *byte == 0) {
            break;
        }
        let (key, value, rest) = split(body).ok_or_else(|| Error::invalid("malformed PAX record"))?;
        body = rest;
        take(&mut records, key, value)?;
    }
    Ok(records)
}

fn split(body: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let blank = body.iter().take(20).position(|byte| *byte == b' ')?;
    let length = usize::try_from(decimal(&body[..blank])?).ok()?;
    let record = body.get(blank + 1..length)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=')?;
    let (key, value) = (&record[..equals], &record[equals + 1..]);
    (!key.is_empty()).then_some((key, value, &body[length..]))
}

fn take(records: &mut Records, key: &[u8], value: &[u8]) -> Result<()> {
    let wrong = || Error::invalid(format_args!("PAX record {} with value {}", shown(key), shown(value)));
    // An empty value takes the record back.
    let number = || if value.is_empty() { Ok(None) } else { decimal(value).map(Some).ok_or_else(wrong) };
    let time = || if value.is_empty() { Ok(None) } else { timestamp(value).map(Some).ok_or_else(wrong) };
    let name = || {
        if value.contains(&0) {
            return Err(wrong());
        }
        Ok((!value.is_empty()).then(|| value.to_vec()))
    };
    match key {
        b"path" => records.path = name()?,
        b"linkpath" => records.link = name()?,
        b"size" => records.size = number()?,
        b"uid" => records.uid = number()?,
        b"gid" => records.gid = number()?,
        b"mtime" => records.mtime = time()?,
        b"atime" => records.atime = time()?,
        _ => {
            if let Some(attribute) = key.strip_prefix(b"SCHILY.xattr.") {
                records.xattrs.retain(|(known, _)| known != attribute);
                records.xattrs.push((attribute.to_vec(), value.to_vec()));
            } else if let Some(key) = key.strip_prefix(b"GNU.sparse.") {
                records.sparse.take(key, value)?;
            }
        }
    }
    Ok(())
}

/// A number of decimal digits.
pub(crate) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |value, digit| {
        digit.is_ascii_digit().then(|| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')))?
    })
}

/// Seconds with a fraction, maybe negative.
fn timestamp(text: &[u8]) -> Option<Timestamp> {
    let (negative, text) = text.strip_prefix(b"-").map_or((false, text), |rest| (true, rest));
    let point = text.iter().position(|byte| *byte == b'.').unwrap_or(text.len());
    let seconds = i64::try_from(decimal(&text[..point])?).ok()?;
    let fraction = text.get(point + 1..).unwrap_or_default();
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = fraction.iter().copied().chain(std::iter::repeat(b'0')).take(9);
    let nanos = digits.fold(0_u32, |value, digit| value * 10 + u32::from(digit - b'0'));
    Some(match (negative, nanos) {
        (false, _) => Timestamp { seconds, nanos },
        (true, 0) => Timestamp { seconds: -seconds, nanos },
        (true, _) => Timestamp { seconds: -seconds - 1, nanos: 1_000_000_000 - nanos },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_round_down_to_the_second_on_both_sides_of_the_epoch() {
        assert_eq!(timestamp(b"12.000000345"), Some(Timestamp { seconds: 12, nanos: 345 }));
        assert_eq!(timestamp(b"-1.25"), Some(Timestamp { seconds: -2, nanos: 750_000_000 }));
        assert_eq!(timestamp(b"-3"), Some(Timestamp { seconds: -3, nanos: 0 }));
        assert_eq!(timestamp(b"1.1234567899"), Some(Timestamp { seconds: 1, nanos: 123_456_789 }));
        for bad in [&b""[..], b"1.x", b"x", b"--1", b"99999999999999999999"] {
            assert_eq!(timestamp(bad), None);
        }
    }

    #[test]
    fn records_are_read_and_broken_ones_refused() {
        let records = parse(b"12 path=a/b\n29 SCHILY.xattr.user.k=\xff\n=\0v\n12 path=a/c\n").unwrap();
        assert_eq!(records.path.as_deref(), Some(&b"a/c"[..]));
        assert_eq!(records.xattrs, [(b"user.k".to_vec(), b"\xff\n=\0v".to_vec())]);
        for bad in [&b"12 path=a/b"[..], b"99 path=a\n", b"x\n", b"0 \n", b"3 \n", b"8 =abc\n\n", b"10 path=\0\n"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
