use core_types::{Error, Result};
use serde::{Serialize, de::DeserializeOwned};
use toml::{Table, Value};

/// Lays `above` over `below`: tables are joined key by key, everything else is replaced.
pub fn overlay(below: &mut Table, above: Table) {
    for (key, value) in above {
        match (below.get_mut(&key), value) {
            (Some(Value::Table(old)), Value::Table(new)) => overlay(old, new),
            (_, value) => {
                below.insert(key, value);
            }
        }
    }
}

/// The shape of a plugin's section.
pub(crate) struct Section {
    /// What counts when the file is silent.
    pub(crate) default: Table,
    /// Checks a section and lists the keys it does not know.
    pub(crate) unknown: fn(Table) -> Result<Vec<String>>,
}

impl Section {
    pub(crate) fn of<T: Serialize + DeserializeOwned>(default: &T) -> Result<Self> {
        let default =
            Table::try_from(default).map_err(|error| Error::internal(format!("default configuration: {error}")))?;
        Ok(Self { default, unknown: unknown_keys::<T> })
    }

    /// The defaults with the file's section over them.
    pub(crate) fn with(&self, section: Option<&Table>) -> Table {
        let mut whole = self.default.clone();
        if let Some(section) = section {
            overlay(&mut whole, section.clone());
        }
        whole
    }
}

/// Reads a section.
pub(crate) fn read<T: DeserializeOwned>(section: Table) -> Result<T> {
    section.try_into().map_err(|error: toml::de::Error| Error::invalid_argument(error.message().to_owned()))
}

fn unknown_keys<T: DeserializeOwned>(section: Table) -> Result<Vec<String>> {
    let mut unknown = Vec::new();
    let read: std::result::Result<T, toml::de::Error> =
        serde_ignored::deserialize(Value::Table(section), |path| unknown.push(path.to_string()));
    read.map_err(|error| Error::invalid_argument(error.message().to_owned()))?;
    Ok(unknown)
}
