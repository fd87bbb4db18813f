use std::{str::FromStr as _, time::Duration};

use anyhow::{Result, bail};
use core_types::{Labels, Platform};

/// A duration as Go writes it (`1m30s`, `0`, `250ms`).
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    humantime::Duration::from_str(text).map(Into::into).map_err(|error| error.to_string())
}

/// Labels from `key=value`; without a value it is `true`.
pub(crate) fn labels(texts: &[String]) -> Labels {
    let label = |text: &String| match text.split_once('=') {
        Some((key, value)) => (key.to_owned(), value.to_owned()),
        None => (text.clone(), "true".to_owned()),
    };
    texts.iter().map(label).collect()
}

/// Annotations from `key=value`.
pub(crate) fn annotations(texts: &[String]) -> Result<Labels> {
    let mut annotations = Labels::new();
    for text in texts {
        match text.split_once('=') {
            Some((key, value)) => annotations.insert(key.to_owned(), value.to_owned()),
            None => bail!("invalid key=value format annotation: {text}"),
        };
    }
    Ok(annotations)
}

/// Labels on one line, as they are shown.
pub(crate) fn label_line(labels: &Labels) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// Labels in a column, `-` for none.
pub(crate) fn label_column(labels: &Labels) -> String {
    if labels.is_empty() { "-".to_owned() } else { label_line(labels) }
}

/// Platforms by name.
pub(crate) fn platforms(texts: &[String]) -> Result<Vec<Platform>> {
    Ok(texts.iter().map(|text| Platform::parse(text)).collect::<core_types::Result<_>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_without_a_value_are_true() {
        let labels = labels(&["a=b=c".into(), "flag".into(), "empty=".into()]);
        assert_eq!(label_line(&labels), "a=b=c,empty=,flag=true");
        assert!(annotations(&["flag".into()]).is_err());
    }

    #[test]
    fn durations_are_gos() {
        assert_eq!(duration("1m30s").unwrap(), Duration::from_secs(90));
        assert_eq!(duration("0").unwrap(), Duration::ZERO);
        assert!(duration("soon").is_err());
    }
}
