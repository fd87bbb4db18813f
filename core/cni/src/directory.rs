use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, UNIX_EPOCH},
};

use serde_json::Value;

use crate::{
    error::{Error, Result},
    network::{Network, is_configuration},
};

/// Largest configuration file in bytes.
const FILE: u64 = 1 << 20;
/// Most configuration files that are looked at.
const FILES: usize = 1024;
/// A file that changed so shortly before it was read may change again without new times: their clock is coarse.
const SETTLED: Duration = Duration::from_secs(1);

/// The configuration directory.
///
/// It is looked at with each use, and read again when a file's identity, size or times differ. That needs no
/// watcher, which could miss a directory that is replaced, mounted over or made only later.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    max: usize,
    loaded: Mutex<Option<Loaded>>,
}

#[derive(Debug)]
struct Loaded {
    seen: Vec<Seen>,
    /// Whether all files were old enough for their times to tell of the next change.
    settled: bool,
    networks: Arc<Vec<Network>>,
}

/// What tells one state of a file from another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    path: PathBuf,
    list: bool,
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Directory {
    /// `max` is the number of networks that are used, 0 for all.
    pub(crate) fn new(path: PathBuf, max: usize) -> Self {
        Self { path, max, loaded: Mutex::new(None) }
    }

    /// The networks as they are configured now.
    pub(crate) fn networks(&self) -> Result<Arc<Vec<Network>>> {
        let (seen, plugin_files) = self.look()?;
        let mut all = seen.clone();
        all.extend(plugin_files);
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = &*loaded
            && loaded.settled
            && loaded.seen == all
        {
            return Ok(Arc::clone(&loaded.networks));
        }
        // A file that cannot be used is tried again with the next use.
        *loaded = None;
        let settled = all.iter().all(Seen::is_settled);
        let networks = Arc::new(self.read(&seen)?);
        *loaded = Some(Loaded { seen: all, settled, networks: Arc::clone(&networks) });
        Ok(networks)
    }

    fn read(&self, files: &[Seen]) -> Result<Vec<Network>> {
        let mut networks: Vec<Network> = Vec::new();
        for file in files {
            let bad = |reason| Error::BadConfig { file: file.path.clone(), reason };
            let text = read_bounded(&file.path).map_err(|error| bad(error.to_string()))?;
            let network = if file.list {
                Network::parse_list(&text, |name| self.plugins_of(name))
            } else {
                Network::parse_single(&text)
            }
            .map_err(bad)?;
            if networks.iter().any(|other| other.name == network.name) {
                return Err(bad(format!("another file has a network {:?} too", network.name)));
            }
            networks.push(network);
        }
        Ok(networks)
    }

    /// The files to use, and all others that may take part: `<network>/*.conf`.
    fn look(&self) -> Result<(Vec<Seen>, Vec<Seen>)> {
        let failed =
            |path: &Path, error: io::Error| Error::BadConfig { file: path.to_owned(), reason: error.to_string() };
        let (mut files, mut plugins) = (Vec::new(), Vec::new());
        for path in self.entries(&self.path)? {
            let metadata = match fs::metadata(&path) {
                Ok(metadata) => metadata,
                // Gone since it was listed, or a link that leads nowhere yet.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(&path, error)),
            };
            if metadata.is_dir() {
                for plugin in self.entries(&path)? {
                    if let Ok(metadata) = fs::metadata(&plugin) {
                        plugins.push(Seen::new(plugin, false, &metadata));
                    }
                }
            } else if let Some(list) = is_configuration(&path) {
                files.push(Seen::new(path, list, &metadata));
            }
        }
        if files.is_empty() {
            return Err(Error::NoConfig { dir: self.path.clone() });
        }
        if self.max > 0 {
            files.truncate(self.max);
        }
        Ok((files, plugins))
    }

    /// The plugins that belong to a list and are in files of their own, in the order of the files' names.
    fn plugins_of(&self, network: &str) -> Result<Vec<Value>, String> {
        let mut plugins = Vec::new();
        for path in self.entries(&self.path.join(network)).map_err(|error| error.to_string())? {
            if path.extension().is_some_and(|extension| extension == "conf") {
                let text = read_bounded(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                let plugin = serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))?;
                plugins.push(plugin);
            }
        }
        Ok(plugins)
    }

    /// What a directory holds, in the order of names; nothing if it is not there.
    fn entries(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        let failed = |error: io::Error| Error::BadConfig { file: dir.to_owned(), reason: error.to_string() };
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut paths = Vec::new();
        for entry in entries {
            if paths.len() == FILES {
                return Err(failed(io::Error::other(format!("more than {FILES} entries"))));
            }
            paths.push(entry.map_err(failed)?.path());
        }
        paths.sort();
        Ok(paths)
    }
}

impl Seen {
    fn new(path: PathBuf, list: bool, metadata: &fs::Metadata) -> Self {
        Self {
            path,
            list,
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    fn is_settled(&self) -> bool {
        let changed = u64::try_from(self.changed.0).map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
        // The fraction of the second that is left out here only makes it seem older by less than that.
        changed.is_ok_and(|changed| changed.elapsed().is_ok_and(|age| age > SETTLED + Duration::from_secs(1)))
    }
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    // Asked before it is opened: opening a FIFO would wait for a writer.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut text = Vec::new();
    File::open(path)?.take(FILE + 1).read_to_end(&mut text)?;
    if text.len() as u64 > FILE {
        return Err(io::Error::other(format!("larger than {FILE} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
