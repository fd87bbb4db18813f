//! Durations as Go writes them (`1m30s`, `1.5h`, `100ms`), which configuration files and labels use.

use std::time::Duration;

/// Units, the longer names first.
const UNITS: [(&str, f64); 8] =
    [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("μs", 1e-6), ("ms", 1e-3), ("h", 3600.0), ("m", 60.0), ("s", 1.0)];

/// Reads a duration: numbers, maybe with a fraction, each with a unit; or `0`. None for anything else and for
/// negative ones.
pub fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|&end| end > 0)?;
        let (number, after) = rest.split_at(digits);
        let (unit, scale) = UNITS.iter().find(|(unit, _)| after.starts_with(unit))?;
        seconds += number.parse::<f64>().ok()? * scale;
        rest = &after[unit.len()..];
    }
    (!text.is_empty()).then(|| Duration::try_from_secs_f64(seconds).ok()).flatten()
}

/// Writes a duration, to the millisecond: `4h0m0s`, `1m30s`, `100ms`, `0s`.
pub fn format(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    if seconds == 0 && millis > 0 {
        return format!("{millis}ms");
    }
    let fraction = if millis > 0 { format!(".{millis:03}").trim_end_matches('0').to_owned() } else { String::new() };
    let last = format!("{}{fraction}s", seconds % 60);
    match (seconds / 3600, seconds / 60 % 60) {
        (0, 0) => last,
        (0, minutes) => format!("{minutes}m{last}"),
        (hours, minutes) => format!("{hours}h{minutes}m{last}"),
    }
}

/// For `#[serde(with = "core_types::duration::text")]`: a duration as text.
pub mod text {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// Writes the text.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::format(*value))
    }

    /// Reads the text.
    ///
    /// # Errors
    /// When it is no duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::parse(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is no duration, write 100ms, 1.5s or 2m")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_go_does() {
        for (text, millis) in [("5s", 5_000), ("1m30s", 90_000), ("100ms", 100), ("4h0m0s", 14_400_000), ("0s", 0)] {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
            assert_eq!(format(Duration::from_millis(millis)), text);
        }
        assert_eq!(parse("1.5h"), Some(Duration::from_secs(5400)));
        assert_eq!(parse("0"), Some(Duration::ZERO));
        assert_eq!(format(Duration::from_millis(1500)), "1.5s");
        for wrong in ["", "5", "s", "-1s", "1x", "1s2", "..s", "99999999999999999999h"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
