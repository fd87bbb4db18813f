use std::{
    net::IpAddr,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use containerd_api_cri::v1::{NamespaceMode, NamespaceOption, PodSandboxConfig, PodSandboxState};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::Identified;

/// A pod: what was asked for, and its state.
pub(crate) struct Sandbox {
    /// What does not change.
    pub(crate) facts: SandboxFacts,
    state: Mutex<SandboxState>,
    stopped: watch::Sender<bool>,
}

/// What does not change of a pod.
#[derive(Clone, Debug)]
pub(crate) struct SandboxFacts {
    /// Its id.
    pub(crate) id: String,
    /// Its name.
    pub(crate) name: String,
    /// What was asked for.
    pub(crate) config: PodSandboxConfig,
    /// The runtime handler that was asked for; empty for the default.
    pub(crate) handler: String,
    /// Name of the controller that runs it.
    pub(crate) sandboxer: String,
}

/// What changes of a pod. Kept in its record, but for what the controller knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SandboxState {
    /// Whether it can take containers. None: not known.
    #[serde(skip)]
    pub(crate) ready: Option<bool>,
    /// Pid of its first process; 0 for none.
    #[serde(skip)]
    pub(crate) pid: u32,
    /// When it was made, nanoseconds since 1970.
    pub(crate) created_at: i64,
    /// Whether it was started wholly; what is left of another goes at the next start of the daemon.
    pub(crate) complete: bool,
    /// Its network namespace; None with the host's network.
    pub(crate) netns: Option<PathBuf>,
    /// Its addresses, the preferred first.
    pub(crate) ips: Vec<IpAddr>,
    /// Whether its networks were attached.
    pub(crate) attached: bool,
    /// What the CNI plugins answered, for people.
    pub(crate) cni_result: serde_json::Value,
    /// Limits beside those of its containers, as last told: `LinuxContainerResources`, encoded.
    pub(crate) overhead: Vec<u8>,
    /// Limits of the whole pod, likewise.
    pub(crate) resources: Vec<u8>,
    /// SELinux label of its processes; empty without SELinux.
    pub(crate) process_label: String,
    /// Where the task service of its shim is, when its controller says so.
    pub(crate) address: String,
    /// Version of that service.
    pub(crate) version: u32,
}

impl Identified for Sandbox {
    const KIND: &'static str = "sandbox";
}

impl Sandbox {
    /// A sandbox in a state.
    pub(crate) fn new(facts: SandboxFacts, state: SandboxState) -> Self {
        let stopped = state.ready == Some(false);
        Self { facts, state: Mutex::new(state), stopped: watch::Sender::new(stopped) }
    }

    /// Its id.
    pub(crate) fn id(&self) -> &str {
        &self.facts.id
    }

    /// Its state now.
    pub(crate) fn state(&self) -> SandboxState {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes its state; answers the new one.
    pub(crate) fn update(&self, change: impl FnOnce(&mut SandboxState)) -> SandboxState {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        let now = state.clone();
        drop(state);
        self.stopped.send_if_modified(|stopped| std::mem::replace(stopped, now.ready == Some(false)) != *stopped);
        now
    }

    /// Marks it as not ready.
    pub(crate) fn stop(&self) {
        self.update(|state| {
            state.ready = Some(false);
            state.pid = 0;
        });
    }

    /// Whether it can take containers.
    pub(crate) fn is_ready(&self) -> bool {
        self.state().ready == Some(true)
    }

    /// The CRI's state.
    pub(crate) fn cri_state(&self) -> PodSandboxState {
        if self.is_ready() { PodSandboxState::SandboxReady } else { PodSandboxState::SandboxNotready }
    }

    /// The namespaces it was asked to have.
    pub(crate) fn namespaces(&self) -> NamespaceOption {
        namespaces(&self.facts.config)
    }
}

/// The namespaces that a configuration asks for.
pub(crate) fn namespaces(config: &PodSandboxConfig) -> NamespaceOption {
    let security = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    security.and_then(|security| security.namespace_options.clone()).unwrap_or_default()
}

impl SandboxFacts {
    /// Whether it uses the host's network.
    pub(crate) fn host_network(&self) -> bool {
        namespaces(&self.config).network == NamespaceMode::Node as i32
    }
}
