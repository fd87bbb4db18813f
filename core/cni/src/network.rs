use std::{collections::BTreeSet, path::Path};

use serde_json::{Map, Value, json};

use crate::{attachment::is_name, version::SpecVersion};

/// Most plugins in one network.
const PLUGINS: usize = 64;

/// A network: a named chain of plugins.
#[derive(Clone, Debug)]
pub struct Network {
    /// Its name, unique among attachments of a sandbox.
    pub name: String,
    /// The versions of the specification that it may be used with, lowest first; never empty.
    pub versions: Vec<SpecVersion>,
    /// CHECK is not to be run.
    pub disable_check: bool,
    /// GC is not to be run.
    pub disable_gc: bool,
    /// The plugins in the order in which they are added; never empty.
    pub plugins: Vec<Plugin>,
    /// The whole configuration as a list.
    source: Map<String, Value>,
}

/// One plugin of a network.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// Its type, which is the name of its binary.
    pub kind: String,
    /// The capabilities it wants to be told of.
    pub capabilities: BTreeSet<String>,
    /// Its configuration as written.
    pub config: Map<String, Value>,
}

impl Plugin {
    fn parse(value: Value) -> Result<Self, String> {
        let Value::Object(config) = value else {
            return Err("a plugin's configuration is not an object".into());
        };
        let kind = match config.get("type") {
            Some(Value::String(kind)) => kind.clone(),
            _ => return Err("a plugin has no \"type\"".into()),
        };
        if kind.is_empty() || kind.contains(['/', '\0']) || kind == "." || kind == ".." {
            return Err(format!("plugin type {kind:?} is not the name of a file"));
        }
        let mut capabilities = BTreeSet::new();
        match config.get("capabilities") {
            None | Some(Value::Null) => {}
            Some(Value::Object(declared)) => {
                for (name, wanted) in declared {
                    match wanted {
                        Value::Bool(true) => drop(capabilities.insert(name.clone())),
                        Value::Bool(false) => {}
                        _ => return Err(format!("capability {name:?} of plugin {kind:?} is neither true nor false")),
                    }
                }
            }
            Some(_) => return Err(format!("\"capabilities\" of plugin {kind:?} is not an object")),
        }
        Ok(Self { kind, capabilities, config })
    }
}

impl Network {
    /// The network in the text of a `.conflist` file. `more` are plugins from files of their own, which follow
    /// those in the list unless the list forbids it.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse_list(text: &[u8], more: impl FnOnce(&str) -> Result<Vec<Value>, String>) -> Result<Self, String> {
        let mut source = object(text)?;
        let name = name_of(&source)?;
        let mut plugins = match source.get("plugins") {
            None => Vec::new(),
            Some(Value::Array(plugins)) if plugins.is_empty() => return Err("\"plugins\" is empty".into()),
            Some(Value::Array(plugins)) => plugins.clone(),
            Some(_) => return Err("\"plugins\" is not a list".into()),
        };
        if !flag(&source, "loadOnlyInlinedPlugins")? {
            plugins.extend(more(&name)?);
        }
        source.insert("plugins".into(), Value::Array(plugins));
        Self::from_source(source)
    }

    /// The network in the text of a `.conf` or `.json` file, which has one plugin.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse_single(text: &[u8]) -> Result<Self, String> {
        let config = object(text)?;
        if !config.contains_key("type") && config.contains_key("plugins") {
            return Err("it is a list of plugins: name the file .conflist".into());
        }
        let mut source = Map::new();
        for key in ["name", "cniVersion"] {
            if let Some(value) = config.get(key) {
                source.insert(key.into(), value.clone());
            }
        }
        source.insert("plugins".into(), json!([config]));
        Self::from_source(source)
    }

    fn from_source(source: Map<String, Value>) -> Result<Self, String> {
        let plugins = match source.get("plugins") {
            Some(Value::Array(plugins)) => plugins.clone(),
            _ => Vec::new(),
        };
        if plugins.is_empty() {
            return Err("it has no plugins".into());
        }
        if plugins.len() > PLUGINS {
            return Err(format!("it has more than {PLUGINS} plugins"));
        }
        Ok(Self {
            name: name_of(&source)?,
            versions: versions_of(&source)?,
            disable_check: flag(&source, "disableCheck")?,
            disable_gc: flag(&source, "disableGC")?,
            plugins: plugins.into_iter().map(Plugin::parse).collect::<Result<_, _>>()?,
            source,
        })
    }

    /// The version to use if every plugin speaks all of them.
    pub(crate) fn highest(&self) -> SpecVersion {
        self.versions.last().copied().unwrap_or(SpecVersion::OLDEST)
    }

    /// The whole configuration as a list, complete in itself.
    pub(crate) fn source(&self) -> &Map<String, Value> {
        &self.source
    }

    /// This network with one version only, and its text to be parsed again without any other file.
    pub(crate) fn pinned(&self, version: SpecVersion) -> (Self, Vec<u8>) {
        let mut pinned = self.clone();
        pinned.versions = vec![version];
        pinned.source.shift_remove("cniVersions");
        pinned.source.insert("cniVersion".into(), json!(version.to_string()));
        if pinned.source.contains_key("plugins") {
            pinned.source.insert("loadOnlyInlinedPlugins".into(), Value::Bool(true));
        }
        let text = Value::Object(pinned.source.clone()).to_string().into_bytes();
        (pinned, text)
    }

    /// The network of `.conflist` text alone, as [`Network::pinned`] wrote it.
    pub(crate) fn parse_pinned(text: &[u8]) -> Result<Self, String> {
        Self::parse_list(text, |_| Ok(Vec::new()))
    }
}

impl Plugin {
    /// What the plugin reads from its standard input.
    pub(crate) fn input(&self, network: &str, version: SpecVersion, more: Map<String, Value>) -> Vec<u8> {
        let mut config = self.config.clone();
        config.insert("name".into(), json!(network));
        config.insert("cniVersion".into(), json!(version.to_string()));
        config.extend(more);
        Value::Object(config).to_string().into_bytes()
    }

    /// Of all capabilities, those that this plugin declares.
    pub(crate) fn runtime_config(&self, all: &Map<String, Value>) -> Map<String, Value> {
        all.iter()
            .filter(|(name, _)| self.capabilities.contains(*name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }
}

/// Whether a file of this name is a configuration, and whether it is a list.
pub(crate) fn is_configuration(name: &Path) -> Option<bool> {
    match name.extension()?.to_str()? {
        "conflist" => Some(true),
        "conf" | "json" => Some(false),
        _ => None,
    }
}

fn object(text: &[u8]) -> Result<Map<String, Value>, String> {
    match serde_json::from_slice(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("it is not a JSON object".into()),
        Err(error) => Err(format!("it is not JSON: {error}")),
    }
}

fn name_of(source: &Map<String, Value>) -> Result<String, String> {
    match source.get("name") {
        Some(Value::String(name)) if is_name(name) => Ok(name.clone()),
        Some(Value::String(name)) => {
            Err(format!("name {name:?}: only letters, digits, '_', '.' and '-', a letter or digit first"))
        }
        Some(_) => Err("\"name\" is not a text".into()),
        None => Err("it has no \"name\"".into()),
    }
}

fn versions_of(source: &Map<String, Value>) -> Result<Vec<SpecVersion>, String> {
    let mut named = Vec::new();
    match source.get("cniVersions") {
        None => {}
        Some(Value::Array(versions)) => {
            for version in versions {
                let text = version.as_str().ok_or("\"cniVersions\" holds something that is not a text")?;
                named.push(text.parse()?);
            }
        }
        Some(_) => return Err("\"cniVersions\" is not a list".into()),
    }
    match source.get("cniVersion") {
        None if named.is_empty() => named.push(SpecVersion::OLDEST),
        None => {}
        Some(Value::String(text)) => named.push(text.parse()?),
        Some(_) => return Err("\"cniVersion\" is not a text".into()),
    }
    named.sort();
    named.dedup();
    let lowest = named.first().copied().unwrap_or(SpecVersion::OLDEST);
    named.retain(|version| (SpecVersion::OLDEST..=SpecVersion::NEWEST).contains(version));
    if named.is_empty() {
        return Err(format!("version {lowest} is not known: {} to {} are", SpecVersion::OLDEST, SpecVersion::NEWEST));
    }
    Ok(named)
}

/// A switch, which may also be written as a text.
fn flag(source: &Map<String, Value>, key: &str) -> Result<bool, String> {
    match source.get(key) {
        None => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
        Some(_) => Err(format!("{key:?} is neither true nor false")),
    }
}

#[cfg(test)]
mod tests;
