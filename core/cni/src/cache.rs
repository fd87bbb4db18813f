use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// What the specification's library calls this form of record.
const KIND: &str = "cniCacheV1";
/// A result of 1 MiB, a configuration of 1 MiB in base64 and what belongs to them.
const RECORD: u64 = 4 << 20;

/// One attachment on disk, in the form of the specification's own library.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    kind: String,
    pub(crate) container_id: String,
    #[serde(serialize_with = "to_base64", deserialize_with = "from_base64")]
    pub(crate) config: Vec<u8>,
    pub(crate) if_name: String,
    pub(crate) network_name: String,
    #[serde(default)]
    pub(crate) netns: PathBuf,
    #[serde(default, deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub(crate) cni_args: Vec<(String, String)>,
    #[serde(default, deserialize_with = "null_is_empty", skip_serializing_if = "Map::is_empty")]
    pub(crate) capability_args: Map<String, Value>,
    /// Absent as long as the attachment is only begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<Value>,
}

impl Record {
    /// The record of an attachment that is about to be begun.
    pub(crate) fn begun(network: &str, id: &str, ifname: &str, config: Vec<u8>) -> Self {
        Self {
            kind: KIND.into(),
            container_id: id.to_owned(),
            config,
            if_name: ifname.to_owned(),
            network_name: network.to_owned(),
            netns: PathBuf::new(),
            cni_args: Vec::new(),
            capability_args: Map::new(),
            result: None,
        }
    }

    fn file_name(&self) -> String {
        format!("{}-{}-{}", self.network_name, self.container_id, self.if_name)
    }
}

/// The directory of records.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    base: PathBuf,
    results: PathBuf,
}

impl Cache {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { base: dir.to_owned(), results: dir.join("results") }
    }

    /// Puts a record in the place of an earlier one; on disk when this returns.
    pub(crate) fn put(&self, record: &Record) -> Result<()> {
        let name = record.file_name();
        let path = self.results.join(&name);
        let new = self.unfinished(&name);
        let write = || {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.results)?;
            let text = serde_json::to_vec(record)?;
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.results)?.sync_all()
        };
        write().map_err(|source| Error::Cache { path: path.clone(), source })
    }

    /// Takes a record away if it is there, and what is left of one that was not written wholly.
    pub(crate) fn remove(&self, network: &str, id: &str, ifname: &str) -> Result<()> {
        let name = format!("{network}-{id}-{ifname}");
        for path in [self.unfinished(&name), self.results.join(&name)] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::Cache { path, source: error });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Where a record is written; beside the results, so that a left-over is not taken for one.
    fn unfinished(&self, name: &str) -> PathBuf {
        self.base.join(format!(".{name}"))
    }

    /// The records of one sandbox, or all of them, in the order of their file names. What is no record is left out.
    pub(crate) fn list(&self, id: Option<&str>) -> Result<Vec<Record>> {
        let failed = |source| Error::Cache { path: self.results.clone(), source };
        let entries = match fs::read_dir(&self.results) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let part = id.map(|id| format!("-{id}-"));
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            let of_sandbox = |part: &String| name.to_str().is_some_and(|name| name.contains(part.as_str()));
            if part.as_ref().is_none_or(of_sandbox) {
                names.push(name);
            }
        }
        names.sort();
        // A record under another's name could not be removed by what it says.
        let records = names.iter().filter_map(|name| {
            read(&self.results.join(name)).filter(|record| name.to_str() == Some(record.file_name().as_str()))
        });
        Ok(records.filter(|record| id.is_none_or(|id| record.container_id == id)).collect())
    }
}

fn read(path: &Path) -> Option<Record> {
    let read = || -> io::Result<Record> {
        let mut text = Vec::new();
        File::open(path)?.take(RECORD).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    };
    match read() {
        Ok(record) if record.kind == KIND && !record.network_name.is_empty() && !record.if_name.is_empty() => {
            Some(record)
        }
        Ok(_) => None,
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "not a record of a network attachment");
            None
        }
    }
}

fn to_base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(bytes))
}

fn from_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
    STANDARD.decode(text).map_err(serde::de::Error::custom)
}

fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_those_of_the_library_and_others_files_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path());
        assert!(cache.list(None).unwrap().is_empty());
        let mut record = Record::begun("net", "id1", "eth0", b"{}".to_vec());
        cache.put(&record).unwrap();
        record.result = Some(serde_json::json!({"ips": []}));
        record.cni_args = vec![("A".into(), "b".into())];
        cache.put(&record).unwrap();
        cache.put(&Record::begun("net", "id12", "eth0", Vec::new())).unwrap();
        let results = dir.path().join("results");
        fs::write(results.join("other-id1-eth0"), "not json").unwrap();
        let library = r#"{"kind":"cniCacheV1","containerId":"id1","config":"e30=","ifName":"eth1","networkName":"z",
            "netns":"/n","cniArgs":[["K","v"]],"capabilityArgs":null,"result":{"cniVersion":"1.0.0"}}"#;
        fs::write(results.join("z-id1-eth1"), library).unwrap();

        let found = cache.list(Some("id1")).unwrap();
        assert_eq!(found.iter().map(|record| record.network_name.as_str()).collect::<Vec<_>>(), ["net", "z"]);
        assert_eq!(found[0].result, record.result);
        assert_eq!(found[1].config, b"{}");
        assert_eq!(found[1].cni_args, [("K".to_owned(), "v".to_owned())]);
        assert_eq!(cache.list(None).unwrap().len(), 3);
        let text = fs::read_to_string(results.join("net-id1-eth0")).unwrap();
        assert!(text.contains(r#""cniArgs":[["A","b"]]"#) && text.contains(r#""config":"e30=""#), "{text}");

        fs::write(dir.path().join(".net-id1-eth0"), "half").unwrap();
        cache.remove("net", "id1", "eth0").unwrap();
        assert!(!dir.path().join(".net-id1-eth0").exists());
        cache.remove("net", "id1", "eth0").unwrap();
        assert_eq!(cache.list(Some("id1")).unwrap().len(), 1);
        assert!(results.join("other-id1-eth0").exists());
    }
}
