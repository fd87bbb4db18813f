use std::{collections::BTreeMap, path::PathBuf};

use core_events::Any;
use core_types::{Error, Result, ResultExt};
use prost::Message;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{ContainerFacts, Sandbox, SandboxFacts, SandboxState};

/// Extensions of records. Names are containerd's where there is one.
pub(crate) mod records {
    /// What is kept of a sandbox, JSON.
    pub(crate) const SANDBOX: &str = "io.cri-containerd.sandbox.metadata";
    /// Its `PodSandboxConfig`, encoded.
    pub(crate) const SANDBOX_CONFIG: &str = "io.cri-containerd.sandbox.config";
    /// What is kept of a container, JSON.
    pub(crate) const CONTAINER: &str = "io.cri-containerd.container.metadata";
    /// Its `ContainerConfig`, encoded.
    pub(crate) const CONTAINER_CONFIG: &str = "io.cri-containerd.container.config";
    /// Label that says what a record is.
    pub(crate) const KIND: &str = "io.cri-containerd.kind";
    /// Label value of containers.
    pub(crate) const KIND_CONTAINER: &str = "container";
    /// Label value of the first containers of pods.
    pub(crate) const KIND_SANDBOX: &str = "sandbox";
}

/// What is stored of a sandbox beside its configuration.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SandboxRecord {
    /// Its name.
    pub(crate) name: String,
    /// Its runtime handler.
    pub(crate) handler: String,
    /// What changes.
    pub(crate) state: SandboxState,
}

/// What is stored of a container beside its configuration.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ContainerRecord {
    name: String,
    sandbox_id: String,
    image_ref: String,
    log_path: Option<PathBuf>,
    stop_signal: String,
    #[serde(default)]
    user: Option<(i64, i64, Vec<i64>)>,
}

impl SandboxRecord {
    /// Reads a sandbox from its record.
    ///
    /// # Errors
    /// DataLoss when an extension is missing or cannot be read.
    pub(crate) fn read(record: &core_sandbox::Sandbox) -> Result<Sandbox> {
        let stored: Self = json(&record.extensions, records::SANDBOX)?;
        let facts = SandboxFacts {
            id: record.id.clone(),
            name: stored.name,
            config: message(&record.extensions, records::SANDBOX_CONFIG)?,
            handler: stored.handler,
            sandboxer: record.sandboxer.clone(),
        };
        Ok(Sandbox::new(facts, stored.state))
    }

    /// Extensions of a sandbox.
    ///
    /// # Errors
    /// Internal when it cannot be written.
    pub(crate) fn extensions(facts: &SandboxFacts, state: &SandboxState) -> Result<BTreeMap<String, Any>> {
        let stored = Self { name: facts.name.clone(), handler: facts.handler.clone(), state: state.clone() };
        Ok(BTreeMap::from([
            (records::SANDBOX.to_owned(), any_json("github.com/containerd/cri/pkg/store/sandbox/Metadata", &stored)?),
            (records::SANDBOX_CONFIG.to_owned(), any("runtime.v1.PodSandboxConfig", &facts.config)),
        ]))
    }
}

impl ContainerRecord {
    /// Reads what does not change of a container from its record.
    ///
    /// # Errors
    /// DataLoss when an extension is missing or cannot be read.
    pub(crate) fn read(record: &core_metadata::Container) -> Result<ContainerFacts> {
        let stored: Self = json(&record.extensions, records::CONTAINER)?;
        Ok(ContainerFacts {
            id: record.id.clone(),
            name: stored.name,
            sandbox_id: stored.sandbox_id,
            config: message(&record.extensions, records::CONTAINER_CONFIG)?,
            image_ref: stored.image_ref,
            log_path: stored.log_path,
            stop_signal: stored.stop_signal,
            snapshotter: record.snapshotter.clone(),
            user: stored.user,
        })
    }

    /// Extensions of a container.
    ///
    /// # Errors
    /// Internal when it cannot be written.
    pub(crate) fn extensions(facts: &ContainerFacts) -> Result<BTreeMap<String, Any>> {
        let stored = Self {
            name: facts.name.clone(),
            sandbox_id: facts.sandbox_id.clone(),
            image_ref: facts.image_ref.clone(),
            log_path: facts.log_path.clone(),
            stop_signal: facts.stop_signal.clone(),
            user: facts.user.clone(),
        };
        Ok(BTreeMap::from([
            (
                records::CONTAINER.to_owned(),
                any_json("github.com/containerd/cri/pkg/store/container/Metadata", &stored)?,
            ),
            (records::CONTAINER_CONFIG.to_owned(), any("runtime.v1.ContainerConfig", &facts.config)),
        ]))
    }
}

fn any(type_url: &str, message: &impl Message) -> Any {
    Any { type_url: type_url.to_owned(), value: message.encode_to_vec().into() }
}

fn any_json(type_url: &str, value: &impl Serialize) -> Result<Any> {
    let value = serde_json::to_vec(value).map_err(|error| Error::internal(format!("write {type_url}: {error}")))?;
    Ok(Any { type_url: type_url.to_owned(), value: value.into() })
}

fn extension<'a>(extensions: &'a BTreeMap<String, Any>, name: &str) -> Result<&'a Any> {
    extensions.get(name).ok_or_else(|| Error::data_loss(format!("record has no extension {name}")))
}

fn json<T: DeserializeOwned>(extensions: &BTreeMap<String, Any>, name: &str) -> Result<T> {
    serde_json::from_slice(&extension(extensions, name)?.value)
        .map_err(|error| Error::data_loss(error.to_string()))
        .doing(format_args!("read extension {name}"))
}

fn message<T: Message + Default>(extensions: &BTreeMap<String, Any>, name: &str) -> Result<T> {
    T::decode(&extension(extensions, name)?.value[..])
        .map_err(|error| Error::data_loss(error.to_string()))
        .doing(format_args!("read extension {name}"))
}
