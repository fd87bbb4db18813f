//! What runs sandboxes.

use std::{collections::BTreeMap, path::PathBuf, time::Duration, time::SystemTime};

use async_trait::async_trait;
use core_events::Any;
use core_mount::Mount;
use core_types::{Labels, Namespace, Platform, Result};

use crate::Sandbox;

/// What a sandbox is made with, besides its record.
#[derive(Clone, Debug, Default)]
pub struct CreateOptions {
    /// Its root file system; empty when the controller brings its own.
    pub rootfs: Vec<Mount>,
    /// What the client says of it; for pods the CRI's `PodSandboxConfig`.
    pub options: Option<Any>,
    /// The network namespace to join, none for the host's.
    pub netns: Option<PathBuf>,
    /// Annotations.
    pub annotations: Labels,
}

/// A sandbox that runs.
#[derive(Clone, Debug, Default)]
pub struct Instance {
    /// Pid of its first process on the host; 0 when there is none.
    pub pid: u32,
    /// When it was started.
    pub created_at: Option<SystemTime>,
    /// Where its task service is (`<protocol>+<address>`); empty when it has none of its own.
    pub address: String,
    /// Version of that task service.
    pub version: u32,
    /// What the controller says of it.
    pub labels: Labels,
    /// The specification that it runs by, when the controller made one.
    pub spec: Option<Any>,
}

/// State of a sandbox.
#[derive(Clone, Debug, Default)]
pub struct SandboxStatus {
    /// Pid of its first process on the host; 0 when there is none.
    pub pid: u32,
    /// `SANDBOX_READY` or `SANDBOX_NOTREADY`.
    pub state: String,
    /// More, for people.
    pub info: BTreeMap<String, String>,
    /// When it was started.
    pub created_at: Option<SystemTime>,
    /// When it ended.
    pub exited_at: Option<SystemTime>,
    /// Where its task service is; empty when it has none of its own.
    pub address: String,
    /// Version of that task service.
    pub version: u32,
    /// More, for programs that know the controller.
    pub extra: Option<Any>,
}

/// How a sandbox ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SandboxExit {
    /// Exit code of its first process.
    pub status: u32,
    /// When it ended.
    pub exited_at: Option<SystemTime>,
}

/// The state of a sandbox that can take containers.
pub const READY: &str = "SANDBOX_READY";
/// The state of any other.
pub const NOT_READY: &str = "SANDBOX_NOTREADY";

/// Runs sandboxes (containerd `io.containerd.sandbox.controller.v1`). Records are the store's; a controller owns what
/// runs. All is per namespace.
#[async_trait]
pub trait Controller: Send + Sync {
    /// Prepares a sandbox; nothing runs yet. AlreadyExists when it is there.
    async fn create(&self, namespace: &Namespace, sandbox: &Sandbox, options: CreateOptions) -> Result<()>;
    /// Starts a sandbox that was prepared. When it fails nothing runs.
    async fn start(&self, namespace: &Namespace, id: &str) -> Result<Instance>;
    /// The platform of its containers.
    async fn platform(&self, namespace: &Namespace, id: &str) -> Result<Platform>;
    /// Stops it; what still runs after `grace` is killed. One that is stopped is no error.
    async fn stop(&self, namespace: &Namespace, id: &str, grace: Duration) -> Result<()>;
    /// Waits for its end.
    async fn wait(&self, namespace: &Namespace, id: &str) -> Result<SandboxExit>;
    /// Its state.
    async fn status(&self, namespace: &Namespace, id: &str, verbose: bool) -> Result<SandboxStatus>;
    /// Removes what is left of it; one that is gone is no error.
    async fn shutdown(&self, namespace: &Namespace, id: &str) -> Result<()>;
    /// Usage of its own processes (`io.containerd.cgroups.*.Metrics`); an `Any` without a type when it has none.
    async fn metrics(&self, namespace: &Namespace, id: &str) -> Result<Any>;
    /// Takes over what changed in its record: `fields` of `sandbox`, all of it when there are none. Most have nothing
    /// to do then.
    async fn update(&self, _namespace: &Namespace, _sandbox: &Sandbox, _fields: &[String]) -> Result<()> {
        Ok(())
    }
}
