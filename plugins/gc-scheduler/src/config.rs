use std::time::Duration;

use core_types::duration;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Section `io.containerd.gc.v1.scheduler`; names, meaning and defaults are containerd's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// The share of time that collections may take, 0 to 0.5; 0 for no limit but a second between them.
    pub pause_threshold: f64,
    /// Deletions after which a collection comes at once; 0 for no such number.
    pub deletion_threshold: u64,
    /// Changes of any kind after which the next collection is not left out; 0 for no such number.
    pub mutation_threshold: u64,
    /// From the event that asks for a collection to the collection.
    #[serde(serialize_with = "write", deserialize_with = "read")]
    pub schedule_delay: Duration,
    /// From the start to the first collection; with 0 there is none before something is deleted.
    #[serde(serialize_with = "write", deserialize_with = "read")]
    pub startup_delay: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            pause_threshold: 0.02,
            deletion_threshold: 0,
            mutation_threshold: 100,
            schedule_delay: Duration::ZERO,
            startup_delay: Duration::from_millis(100),
        }
    }
}

fn write<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&duration::format(*duration))
}

fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    parse(&text).ok_or_else(|| serde::de::Error::custom(format!("{text:?} is no duration, write 100ms, 1.5s or 2m")))
}

/// A duration; a negative one counts as 0.
fn parse(text: &str) -> Option<Duration> {
    match text.strip_prefix('-') {
        Some(rest) => duration::parse(rest).map(|_| Duration::ZERO),
        None => duration::parse(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        let millis = |text: &str| parse(text).map(|duration| duration.as_millis());
        assert_eq!(millis("0ms"), Some(0));
        assert_eq!(millis("100ms"), Some(100));
        assert_eq!(millis("1.5s"), Some(1500));
        assert_eq!(millis("1m0.25s"), Some(60_250));
        assert_eq!(millis("-1s"), Some(0));
        for wrong in ["", "5", "s", "1 s", "1x", "1..2s"] {
            assert_eq!(millis(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_defaults_come_back_from_their_text() {
        let text = toml::to_string(&Config::default()).unwrap();
        assert!(text.contains("startup_delay = \"100ms\"") && text.contains("schedule_delay = \"0s\""), "{text}");
        assert_eq!(toml::from_str::<Config>(&text).unwrap(), Config::default());
    }
}
