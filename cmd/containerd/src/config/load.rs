//! Reading the file and what it imports.

use std::{
    collections::{HashSet, VecDeque},
    fs, io,
    path::{Component, Path, PathBuf},
};

use toml::Value;

use super::{
    migrate::migrate,
    schema::{Config, VERSION},
};

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// A file cannot be read.
    #[error("read configuration {}: {source}", .path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is no TOML, or holds something of another type.
    #[error("{}:{line}:{column}: {message}", .path.display())]
    Syntax {
        /// Which.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
        /// What is wrong there.
        message: String,
    },
    /// The file is newer than this program.
    #[error("{}: expected containerd config version equal to or less than `{VERSION}`, got `{version}`", .path.display())]
    Version {
        /// Which.
        path: PathBuf,
        /// Its version.
        version: i64,
    },
    /// An imported file is newer than the one that imports it.
    #[error("{}: drop-in config version {version} higher than root config version {root}", .path.display())]
    DropIn {
        /// Which.
        path: PathBuf,
        /// Its version.
        version: i64,
        /// The version of the first file.
        root: i64,
    },
    /// A plugin is not named by type and id.
    #[error("invalid plugin URI {0:?} in disabled_plugins or required_plugins, expect io.containerd.x.vx.id")]
    PluginName(String),
}

/// Something in the file that does no harm and should be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Remark {
    /// A key that means nothing.
    UnknownKey {
        /// In which file.
        file: PathBuf,
        /// Where, `debug.colour`.
        key: String,
    },
    /// The file is of an older version.
    Migrated {
        /// Which file.
        file: PathBuf,
        /// Its version.
        from: i64,
    },
}

/// Lays the file, and then what it imports, over the defaults.
///
/// # Errors
/// See [`ConfigError`].
pub(crate) fn load(path: &Path) -> Result<(Config, Vec<Remark>), ConfigError> {
    let mut whole = Config::defaults();
    let mut remarks = Vec::new();
    let mut loaded = HashSet::new();
    let mut pending = VecDeque::from([path.to_owned()]);
    let mut root = None;
    while let Some(path) = pending.pop_front() {
        if !loaded.insert(path.clone()) {
            continue;
        }
        let mut config = read(&path, &mut remarks)?;
        let root = *root.get_or_insert(config.version);
        if config.version > root {
            return Err(ConfigError::DropIn { path, version: config.version, root });
        }
        if config.version > VERSION {
            return Err(ConfigError::Version { path, version: config.version });
        }
        if config.version < VERSION {
            remarks.push(Remark::Migrated { file: path.clone(), from: config.version });
            migrate(&mut config);
        }
        for import in &config.imports {
            pending.extend(resolve(&path, import));
        }
        merge(&mut whole, config);
    }
    match whole.disabled_plugins.iter().chain(&whole.required_plugins).find(|name| !name.contains('.')) {
        Some(name) => Err(ConfigError::PluginName(name.clone())),
        None => Ok((whole, remarks)),
    }
}

fn read(path: &Path, remarks: &mut Vec<Remark>) -> Result<Config, ConfigError> {
    let text = fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    let syntax = |error: toml::de::Error| {
        let before = text.get(..error.span().map_or(0, |span| span.start)).unwrap_or(&text);
        ConfigError::Syntax {
            path: path.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before.len() - before.rfind('\n').map_or(0, |newline| newline + 1) + 1,
            message: error.message().to_owned(),
        }
    };
    let parsed = toml::de::Deserializer::parse(&text).map_err(syntax)?;
    serde_ignored::deserialize(parsed, |key| {
        remarks.push(Remark::UnknownKey { file: path.to_owned(), key: key.to_string() });
    })
    .map_err(syntax)
}

/// Lays `from` over `to`: what is not set leaves what is there, lists are joined, sections of plugins are laid
/// over each other key by key, entries of the other tables are replaced whole.
fn merge(to: &mut Config, from: Config) {
    let text = |to: &mut String, from: String| {
        if !from.is_empty() {
            *to = from;
        }
    };
    text(&mut to.root, from.root);
    text(&mut to.state, from.state);
    text(&mut to.temp, from.temp);
    text(&mut to.debug.level, from.debug.level);
    text(&mut to.debug.format, from.debug.format);
    text(&mut to.cgroup.path, from.cgroup.path);
    to.debug.log_trace_id |= from.debug.log_trace_id;
    if from.oom_score != 0 {
        to.oom_score = from.oom_score;
    }
    let join = |to: &mut Vec<String>, from: Vec<String>| {
        for item in from {
            if !to.contains(&item) {
                to.push(item);
            }
        }
    };
    join(&mut to.disabled_plugins, from.disabled_plugins);
    join(&mut to.required_plugins, from.required_plugins);
    join(&mut to.imports, from.imports);
    to.proxy_plugins.extend(from.proxy_plugins);
    to.timeouts.extend(from.timeouts);
    to.stream_processors.extend(from.stream_processors);
    core_plugin::overlay(&mut to.plugins, from.plugins);
}

/// The files that an import names: relative to the importing file, `*` for any part of a name.
fn resolve(parent: &Path, import: &str) -> Vec<PathBuf> {
    let path = parent.parent().unwrap_or(Path::new("/")).join(import);
    if !import.contains('*') {
        return vec![path];
    }
    let mut found = vec![PathBuf::new()];
    for part in path.components() {
        let pattern = part.as_os_str().to_string_lossy();
        found = match part {
            Component::Normal(_) if pattern.contains('*') => {
                found.iter().flat_map(|directory| matching(directory, &pattern)).collect()
            }
            _ => found.into_iter().map(|path| path.join(part)).collect(),
        };
    }
    found.retain(|path| path.exists());
    found
}

fn matching(directory: &Path, pattern: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut found: Vec<_> = names.filter(|name| matches(pattern, name)).map(|name| directory.join(name)).collect();
    found.sort();
    found
}

/// Whether a name fits a pattern in which `*` stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut last = None;
    for part in parts {
        if let Some(part) = last.replace(part) {
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
    }
    last.map_or(rest.is_empty(), |last| rest.ends_with(last))
}

/// Whether a section is what TOML calls a table; sections of plugins have to be.
pub(crate) fn sections(config: &Config) -> impl Iterator<Item = (String, toml::Table)> + '_ {
    config.plugins.iter().filter_map(|(uri, section)| match section {
        Value::Table(table) => Some((uri.clone(), table.clone())),
        _ => {
            tracing::warn!(plugin = %uri, "Ignoring section of a plugin that is no table");
            None
        }
    })
}
