use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use core_types::{Error, Result};
use serde::Deserialize;

use super::{edits::Edits, yaml};

/// Largest file that is read.
const MAX_FILE: u64 = 8 << 20;

/// A file that describes the devices of one kind.
#[derive(Debug)]
pub(super) struct SpecFile {
    pub(super) path: PathBuf,
    /// Place of its directory in the list: higher wins.
    pub(super) priority: usize,
    /// `vendor/class`.
    pub(super) kind: String,
    /// Changes that go with any of its devices.
    pub(super) edits: Edits,
    pub(super) devices: BTreeMap<String, Edits>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    cdi_version: String,
    kind: String,
    #[serde(default)]
    devices: Vec<Device>,
    #[serde(default)]
    container_edits: Edits,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    name: String,
    #[serde(default)]
    container_edits: Edits,
}

impl SpecFile {
    pub(super) fn read(path: &Path, priority: usize) -> Result<Self> {
        let failed = |error| Error::io("read", error);
        let metadata = fs::metadata(path).map_err(failed)?;
        if !metadata.is_file() || metadata.len() > MAX_FILE {
            return Err(Error::invalid_argument(format!("is not a file of at most {MAX_FILE} bytes")));
        }
        let text = fs::read(path).map_err(failed)?;
        let written = if path.extension().is_some_and(|end| end == "json") {
            serde_json::from_slice(&text)
        } else {
            serde_json::from_value(yaml::parse(&text)?)
        };
        let written = written.map_err(|error| Error::invalid_argument(error.to_string()))?;
        Self::check(path, priority, written)
    }

    fn check(path: &Path, priority: usize, written: Written) -> Result<Self> {
        let invalid = |reason: String| Err(Error::invalid_argument(reason));
        let version = written.cdi_version.trim_start_matches('v');
        if !["0.", "1."].iter().any(|major| version.starts_with(major)) {
            return invalid(format!("cdiVersion {:?} is not supported", written.cdi_version));
        }
        check_kind(&written.kind)?;
        written.container_edits.check()?;
        let mut devices = BTreeMap::new();
        for device in written.devices {
            check_device(&device.name)?;
            device.container_edits.check()?;
            if devices.contains_key(&device.name) {
                return invalid(format!("device {:?} is described twice", device.name));
            }
            devices.insert(device.name, device.container_edits);
        }
        Ok(Self { path: path.to_owned(), priority, kind: written.kind, edits: written.container_edits, devices })
    }
}

/// Splits `vendor/class=device` in kind and device.
pub(super) fn split_name(name: &str) -> Result<(&str, &str)> {
    let (kind, device) = name.split_once('=').ok_or_else(|| {
        Error::invalid_argument(format!("CDI device name {name:?} is not of the form vendor/class=device"))
    })?;
    check_kind(kind)?;
    check_device(device)?;
    Ok((kind, device))
}

fn check_kind(kind: &str) -> Result<()> {
    let good = kind.split_once('/').is_some_and(|(vendor, class)| {
        let letter = |text: &str| text.starts_with(|c: char| c.is_ascii_alphabetic());
        letter(vendor) && is_name(vendor, b"_-.") && letter(class) && is_name(class, b"_-")
    });
    match good {
        true => Ok(()),
        false => Err(Error::invalid_argument(format!("CDI kind {kind:?} is not of the form vendor/class"))),
    }
}

fn check_device(name: &str) -> Result<()> {
    match is_name(name, b"_-.:") {
        true => Ok(()),
        false => Err(Error::invalid_argument(format!("{name:?} is no name of a CDI device"))),
    }
}

/// Letters and digits, at both ends, with `between` inside.
fn is_name(text: &str, between: &[u8]) -> bool {
    let end = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    end(text.bytes().next())
        && end(text.bytes().last())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || between.contains(&byte))
}
