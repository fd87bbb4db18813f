use std::{
    io::{self, Write as _},
    time::{Duration, SystemTime},
};

use anyhow::Result;
use serde_json::Value;

/// Columns of text, laid out as Go's `tabwriter` does.
mod table;

pub(crate) use table::Table;

/// Writes a line to standard output.
pub(crate) fn line(text: impl std::fmt::Display) -> Result<()> {
    Ok(writeln!(io::stdout().lock(), "{text}")?)
}

/// Writes text as it is to standard output.
pub(crate) fn text(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Writes JSON, indented by four blanks.
pub(crate) fn json(value: &Value) -> Result<()> {
    line(pretty(value, b"    ")?)
}

/// JSON indented by `indent`.
pub(crate) fn pretty(value: &Value, indent: &[u8]) -> Result<String> {
    let mut bytes = Vec::new();
    let format = serde_json::ser::PrettyFormatter::with_indent(indent);
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, format);
    serde::Serialize::serialize(value, &mut serializer)?;
    Ok(String::from_utf8(bytes)?)
}

/// A size in units of 1024, as image and snapshot lists show it.
pub(crate) fn bytes(size: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (value, unit) = scaled(size, 1024.0, &UNITS);
    format!("{value:.1} {unit}")
}

/// A size in units of 1000 with four digits, as content lists show it.
pub(crate) fn human_size(size: u64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let (value, unit) = scaled(size, 1000.0, &UNITS);
    let decimals = match value {
        value if value >= 1000.0 => 0,
        value if value >= 100.0 => 1,
        value if value >= 10.0 => 2,
        _ => 3,
    };
    let digits = format!("{value:.decimals$}");
    let digits = if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { &digits };
    format!("{digits}{unit}")
}

#[allow(clippy::cast_precision_loss)] // shown with few digits
fn scaled<'a>(size: u64, base: f64, units: &[&'a str]) -> (f64, &'a str) {
    let mut value = size as f64;
    let mut at = 0;
    while value >= base && at + 1 < units.len() {
        value /= base;
        at += 1;
    }
    (value, units[at])
}

/// A time span in words.
pub(crate) fn human_duration(span: Duration) -> String {
    let seconds = span.as_secs();
    let minutes = seconds / 60;
    let hours = (seconds + 1800) / 3600;
    match (seconds, minutes, hours) {
        (0, ..) => "Less than a second".into(),
        (1, ..) => "1 second".into(),
        (..60, ..) => format!("{seconds} seconds"),
        (_, 1, _) => "About a minute".into(),
        (_, ..60, _) => format!("{minutes} minutes"),
        (_, _, 1) => "About an hour".into(),
        (_, _, ..48) => format!("{hours} hours"),
        (_, _, ..336) => format!("{} days", hours / 24),
        (_, _, ..1440) => format!("{} weeks", hours / 24 / 7),
        (_, _, ..17520) => format!("{} months", hours / 24 / 30),
        _ => format!("{} years", hours / 24 / 365),
    }
}

/// How long ago a time was, in words.
pub(crate) fn age(time: SystemTime) -> String {
    human_duration(SystemTime::now().duration_since(time).unwrap_or_default())
}

/// A time as RFC 3339, to the second.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    prost_types::Timestamp { seconds: i64::try_from(seconds).unwrap_or(i64::MAX), nanos: 0 }.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(bytes(0), "0.0 B");
        assert_eq!(bytes(2_147_483), "2.0 MiB");
        assert_eq!(human_size(527), "527B");
        assert_eq!(human_size(2_207_176), "2.207MB");
        assert_eq!(human_size(77_100_000), "77.1MB");
        assert_eq!(human_size(1000), "1kB");
    }

    #[test]
    fn spans() {
        for (seconds, words) in [
            (0, "Less than a second"),
            (59, "59 seconds"),
            (61, "About a minute"),
            (3600, "About an hour"),
            (7200, "2 hours"),
            (200_000, "2 days"),
            (1_500_000, "2 weeks"),
        ] {
            assert_eq!(human_duration(Duration::from_secs(seconds)), words);
        }
    }
}
