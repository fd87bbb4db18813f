//! What all parts of the service share.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use core_cni::Cni;
use core_events::Exchange;
use core_metadata::{Containers, Database, Leases, Sandboxes};
use core_runtime_v2::TaskManager;
use core_sandbox::{Controller, Controllers};
use core_snapshots::Snapshotter;
use core_types::{Namespace, Result, Scope};
use plugin_cri_images::Images;
use plugin_cri_spec::Host;
use plugin_nri::Nri;

use crate::{
    config::RuntimeConfig,
    feed::Feed,
    flight::Flights,
    handler::{Handler, Handlers},
    layout::Layout,
    names::Names,
    netns,
    node::Features,
    stats::Sampler,
    store::{Container, Sandbox, Table},
};

/// The namespace of everything Kubernetes makes.
pub(crate) const NAMESPACE: &str = "k8s.io";

/// The service: its settings, what it works with, and what runs.
pub(crate) struct Cri {
    pub(crate) config: RuntimeConfig,
    pub(crate) layout: Layout,
    pub(crate) handlers: Handlers,
    pub(crate) host: Host,
    pub(crate) spec_options: plugin_cri_spec::Options,
    pub(crate) features: Features,
    pub(crate) namespace: Namespace,
    pub(crate) scope: Scope,
    pub(crate) database: Database,
    pub(crate) tasks: Arc<TaskManager>,
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) images: Images,
    pub(crate) nri: Nri,
    pub(crate) networks: Networks,
    pub(crate) controllers: Controllers,
    pub(crate) sandboxes: Table<Sandbox>,
    pub(crate) containers: Table<Container>,
    pub(crate) names: Names,
    pub(crate) feed: Feed,
    pub(crate) sampler: Sampler,
    /// Pods being started, by name and configuration.
    pub(crate) starting: Flights<(String, Vec<u8>), String>,
    /// Containers being made, by name and configuration.
    pub(crate) creating: Flights<(String, Vec<u8>), String>,
    /// Pods being stopped or removed, by id.
    pub(crate) stopping: Flights<String, ()>,
    pub(crate) removing: Flights<String, ()>,
}

impl Cri {
    /// Records of containers.
    pub(crate) fn container_records(&self) -> Containers {
        self.database.containers(&self.scope)
    }

    /// Records of sandboxes.
    pub(crate) fn sandbox_records(&self) -> Sandboxes {
        self.database.sandboxes(&self.scope)
    }

    /// Leases.
    pub(crate) fn leases(&self) -> Leases {
        self.database.leases(&self.scope)
    }

    /// The snapshotter of a handler.
    ///
    /// # Errors
    /// When it is not there.
    pub(crate) fn snapshotter(&self, name: &str) -> Result<Arc<dyn Snapshotter>> {
        self.database.snapshotter(&self.scope, name)
    }

    /// The controller that runs a pod.
    ///
    /// # Errors
    /// NotFound; says which there are.
    pub(crate) fn controller(&self, name: &str) -> Result<Arc<dyn Controller>> {
        self.controllers.get(name)
    }

    /// The handler of a pod.
    ///
    /// # Errors
    /// InvalidArgument when its configuration was taken away.
    pub(crate) fn handler(&self, sandbox: &Sandbox) -> Result<Arc<Handler>> {
        self.handlers.get(&sandbox.facts.handler)
    }

    /// Where network namespaces are pinned.
    pub(crate) fn network_namespaces(&self) -> PathBuf {
        if self.config.netns_mounts_under_state_dir {
            self.layout.network_namespaces()
        } else {
            netns::DIRECTORY.into()
        }
    }
}

/// The networks of pods: common ones, and those of handlers with a directory of their own.
pub(crate) struct Networks {
    pub(crate) common: Arc<Cni>,
    pub(crate) by_handler: BTreeMap<String, Arc<Cni>>,
}

impl Networks {
    /// The networks for pods of a handler.
    pub(crate) fn of(&self, handler: &str) -> &Arc<Cni> {
        self.by_handler.get(handler).unwrap_or(&self.common)
    }
}
