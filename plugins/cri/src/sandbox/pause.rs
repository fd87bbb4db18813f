//! The controller `podsandbox`: a pod is held by a container that does nothing, which has its namespaces.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use core_events::Any;
use core_metadata::Container;
use core_mount::Mount;
use core_oci::{ImageConfig, SPEC_TYPE_URL};
use core_runtime_v2::{CreateOptions as TaskOptions, Task};
use core_sandbox::{
    Controller, CreateOptions, Instance, NOT_READY, READY, Runtime, Sandbox as Record, SandboxExit, SandboxStatus,
};
use core_types::{Error, Labels, Namespace, Platform, Result, ResultExt};
use plugin_cri_spec::{LocalHost, SandboxInput, SandboxSpec};

use super::run::ignore_missing;
use crate::{
    blocking,
    cri::Cri,
    handler::Handler,
    netns,
    store::{Sandbox, SandboxRecord, records},
};

/// How long a killed pause container may take to go.
const GRACE: Duration = Duration::from_secs(10);

/// The controller. It is a part of the service that it is given to after both are made.
#[derive(Default)]
pub(crate) struct PauseController(OnceLock<std::sync::Weak<Cri>>);

impl PauseController {
    /// Ties it to its service.
    pub(crate) fn bind(&self, cri: &Arc<Cri>) {
        let _ = self.0.set(Arc::downgrade(cri));
    }

    fn cri(&self) -> Result<Arc<Cri>> {
        let bound = self.0.get().and_then(std::sync::Weak::upgrade);
        bound.ok_or_else(|| Error::unavailable("the runtime service is not there yet"))
    }
}

#[async_trait]
impl Controller for PauseController {
    async fn create(&self, _: &Namespace, record: &Record, options: CreateOptions) -> Result<()> {
        let cri = self.cri()?;
        let sandbox = SandboxRecord::read(record)?;
        let handler = cri.handler(&sandbox)?;
        let image = cri.images.ensure_pause_image(&sandbox.facts.config, &handler.name).await.doing("pause image")?;
        let snapshotter = cri.images.snapshotter_for(&handler.name).to_owned();
        let image_config = cri.images.config(&image).await?;
        let made = specification(&cri, &handler, &sandbox, &image, image_config, options.netns).await?;
        let rootfs = self.snapshot(&cri, &sandbox, &snapshotter, &image).await?;
        let spec = Any { type_url: SPEC_TYPE_URL.into(), value: made.spec.to_vec()?.into() };
        let record = container_record(record, &sandbox, &handler, &image.reference(), &snapshotter, spec.clone());
        cri.container_records().create(record).await?;
        let options = TaskOptions {
            runtime: handler.shim().to_owned(),
            options: handler.options.clone(),
            spec: Some(spec),
            rootfs,
            ..TaskOptions::default()
        };
        cri.tasks.create(&cri.namespace, sandbox.id(), options).await.map(drop)
    }

    async fn start(&self, namespace: &Namespace, id: &str) -> Result<Instance> {
        let pid = self.task(namespace, id)?.start("").await?;
        Ok(Instance { pid, created_at: Some(SystemTime::now()), ..Instance::default() })
    }

    async fn platform(&self, _: &Namespace, _: &str) -> Result<Platform> {
        Ok(Platform::host())
    }

    async fn stop(&self, namespace: &Namespace, id: &str, grace: Duration) -> Result<()> {
        let cri = self.cri()?;
        let Some(task) = found(cri.tasks.get(namespace, id))? else {
            return Ok(());
        };
        ignore_missing(task.kill("", 9, true).await)?;
        match tokio::time::timeout(grace, task.wait("")).await {
            Ok(exit) => ignore_missing(exit.map(drop))?,
            Err(_) => {
                return Err(Error::deadline_exceeded(format!(
                    "pause container {id} still runs {grace:?} after SIGKILL"
                )));
            }
        }
        ignore_missing(cri.tasks.delete(namespace, id).await.map(drop))
    }

    async fn wait(&self, namespace: &Namespace, id: &str) -> Result<SandboxExit> {
        let exit = self.task(namespace, id)?.wait("").await?;
        Ok(SandboxExit { status: exit.status, exited_at: exit.exited_at })
    }

    async fn status(&self, namespace: &Namespace, id: &str, _: bool) -> Result<SandboxStatus> {
        let state = self.task(namespace, id)?.state("").await?;
        let running = state.status == core_runtime_v2::Status::Running;
        Ok(SandboxStatus {
            pid: state.pid,
            state: if running { READY } else { NOT_READY }.to_owned(),
            exited_at: state.exited_at,
            ..SandboxStatus::default()
        })
    }

    async fn shutdown(&self, namespace: &Namespace, id: &str) -> Result<()> {
        self.stop(namespace, id, GRACE).await?;
        let cri = self.cri()?;
        let Some(record) = found(cri.container_records().get(id).await)? else {
            return Ok(());
        };
        ignore_missing(cri.snapshotter(&record.snapshotter)?.remove(&record.snapshot_key).await)?;
        ignore_missing(cri.container_records().delete(id).await)
    }

    async fn metrics(&self, namespace: &Namespace, id: &str) -> Result<Any> {
        self.task(namespace, id)?.stats().await
    }
}

/// The specification of the pause container.
async fn specification(
    cri: &Arc<Cri>,
    handler: &Arc<Handler>,
    sandbox: &Sandbox,
    image: &plugin_cri_images::Image,
    image_config: ImageConfig,
    netns: Option<PathBuf>,
) -> Result<SandboxSpec> {
    let (cri, handler, facts, image_name) =
        (Arc::clone(cri), Arc::clone(handler), sandbox.facts.clone(), image.reference());
    blocking(move || {
        let path = |path: PathBuf| path.to_string_lossy().into_owned();
        let user_namespace = cri.layout.user_namespace(&facts.id);
        let user_namespace = netns::exists(&user_namespace).then(|| path(user_namespace));
        let input = SandboxInput {
            id: &facts.id,
            config: &facts.config,
            image_name: &image_name,
            image: &image_config,
            rootfs: None,
            network_namespace: &netns.map(path).unwrap_or_default(),
            user_namespace: user_namespace.as_deref(),
            shm: &path(cri.layout.shm(&facts.id)),
            resolv_conf: &path(cri.layout.sandbox_root(&facts.id).join("resolv.conf")),
            selinux_level: None,
            options: &cri.spec_options,
            handler: &crate::container::spec::handler_options(&cri, &handler),
        };
        plugin_cri_spec::sandbox_spec(&input, &cri.host, &LocalHost).map_err(Error::from)
    })
    .await
}

impl PauseController {
    fn task(&self, namespace: &Namespace, id: &str) -> Result<Task> {
        self.cri()?.tasks.get(namespace, id)
    }

    async fn snapshot(
        &self,
        cri: &Cri,
        sandbox: &Sandbox,
        snapshotter: &str,
        image: &plugin_cri_images::Image,
    ) -> Result<Vec<Mount>> {
        let parent = cri.images.ensure_unpacked(image, snapshotter).await?;
        let labels = crate::container::snapshot_labels(&sandbox.facts.config)?;
        // Under the lease of the pod until the record of the container holds it.
        let snapshots = cri.database.snapshotter(&cri.scope.leased(sandbox.id()), snapshotter)?;
        snapshots.prepare(sandbox.id(), &parent, labels).await.doing("snapshot of the pause image")
    }
}

fn container_record(
    record: &Record,
    sandbox: &Sandbox,
    handler: &Handler,
    image: &str,
    snapshotter: &str,
    spec: Any,
) -> Container {
    let mut container = Container::new(&record.id);
    container.labels = Labels::from_iter(sandbox.facts.config.labels.clone());
    container.labels.insert(records::KIND.into(), records::KIND_SANDBOX.into());
    container.image = image.to_owned();
    container.runtime = Runtime { name: handler.config.runtime_type.clone(), options: handler.options.clone() };
    container.spec = Some(spec);
    container.snapshotter = snapshotter.to_owned();
    container.snapshot_key.clone_from(&record.id);
    container.sandbox_id.clone_from(&record.id);
    container.extensions.clone_from(&record.extensions);
    container
}

/// What is there, None when it is not.
pub(crate) fn found<T>(outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Err(error) if error.is_not_found() => Ok(None),
        outcome => outcome.map(Some),
    }
}
