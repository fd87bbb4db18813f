//! Making a container: record, root file system, specification. Nothing runs yet.

use std::{path::PathBuf, sync::Arc};

use containerd_api_cri::v1::{ContainerConfig, ContainerEventType, CreateContainerRequest};
use core_events::Any;
use core_metadata::Container as Record;
use core_oci::SPEC_TYPE_URL;
use core_sandbox::Runtime;
use core_types::{Error, Labels, Result, ResultExt};
use plugin_cri_images::Image;
use plugin_cri_io::{ContainerIo, IoOptions};
use prost::Message;

use super::{spec, volumes};
use crate::{
    blocking,
    cri::Cri,
    events,
    handler::Handler,
    layout, names,
    sandbox::{run::ignore_missing, validate},
    store::{Container, ContainerFacts, ContainerRecord, Sandbox, Status, records},
    undo::Undo,
};

/// CreateContainer. Goes on when the caller gives up; the same request again joins it.
///
/// # Errors
/// InvalidArgument for a wrong request, NotFound for a pod or an image that is not there, FailedPrecondition for a pod
/// that does not run, AlreadyExists when the name is taken, else the failing step's.
pub(crate) async fn create(cri: &Arc<Cri>, request: CreateContainerRequest) -> Result<String> {
    let sandbox = cri.sandboxes.get(&request.pod_sandbox_id)?;
    let mut config = request.config.ok_or_else(|| Error::invalid_argument("config must be set"))?;
    let name = check(&mut config, &sandbox)?;
    if !sandbox.is_ready() {
        return Err(Error::failed_precondition(format!("sandbox {} is not running", sandbox.id())));
    }
    let key = (name.clone(), config.encode_to_vec());
    let work = || {
        let (cri, sandbox) = (Arc::clone(cri), Arc::clone(&sandbox));
        async move { make(&cri, &sandbox, name, config).await }
    };
    cri.creating.run(key, work).await
}

/// Checks a request; answers the container's name.
fn check(config: &mut ContainerConfig, sandbox: &Sandbox) -> Result<String> {
    let metadata = config.metadata.as_ref().ok_or_else(|| Error::invalid_argument("config.metadata must be set"))?;
    validate::text("config.metadata.name", &metadata.name)?;
    if metadata.name.is_empty() {
        return Err(Error::invalid_argument("config.metadata.name must not be empty"));
    }
    validate::path("config.log_path", &config.log_path)?;
    let image = config.image.as_ref().map(|image| image.image.as_str()).unwrap_or_default();
    validate::text("config.image.image", image)?;
    if image.is_empty() {
        return Err(Error::invalid_argument("config.image.image must not be empty"));
    }
    super::stop::requested_signal(config)?;
    let pod = sandbox.facts.config.metadata.clone().unwrap_or_default();
    Ok(names::container(metadata, &pod))
}

async fn make(cri: &Arc<Cri>, sandbox: &Arc<Sandbox>, name: String, config: ContainerConfig) -> Result<String> {
    let id = names::new_id()?;
    cri.names.reserve(&name, &id)?;
    let mut undo = Undo::default();
    match steps(cri, sandbox, &id, &name, config, &mut undo).await {
        Ok(()) => Ok(id),
        Err(error) => {
            // What could not be undone is found by the next start of the daemon.
            undo.run(&id).await;
            cri.names.release(&name);
            Err(error.context(format_args!("container {name:?}")))
        }
    }
}

async fn steps(
    cri: &Arc<Cri>,
    sandbox: &Arc<Sandbox>,
    id: &str,
    name: &str,
    mut config: ContainerConfig,
    undo: &mut Undo,
) -> Result<()> {
    let handler = cri.handler(sandbox)?;
    let reference = config.image.as_ref().map(|image| image.image.clone()).unwrap_or_default();
    let image = cri.images.resolve(&reference)?;
    let image = image.ok_or_else(|| Error::not_found(format!("image {reference:?} is not there, pull it first")))?;
    let image_config = cri.images.config(&image).await?;
    let snapshotter = cri.images.snapshotter_for(&handler.name).to_owned();

    make_directories(cri, id, undo).await?;
    let mounts = make_snapshot(cri, sandbox, id, &image, &snapshotter, undo).await?;
    volumes::resolve_images(cri, sandbox, &handler, &mut config).await?;
    let made = spec::container(cri, sandbox, &handler, id, &config, &image, &image_config, &mounts).await?;
    let mut oci = made.spec;
    volumes::make(mounts, made.volumes).await?;
    let facts = ContainerFacts {
        id: id.to_owned(),
        name: name.to_owned(),
        sandbox_id: sandbox.id().to_owned(),
        image_ref: image.id.clone(),
        log_path: log_path(sandbox, &config),
        stop_signal: image_config.config.stop_signal.clone(),
        snapshotter,
        user: spec::user(&oci),
        config,
    };
    // A plugin that joins meanwhile gets the container once, either told now or listed afterwards.
    let _joining = cri.nri.block_sync().await;
    crate::nri::adjust(cri, sandbox, &facts, &mut oci).await?;
    create_record(cri, &facts, &handler, &image, oci.to_vec()?, undo).await?;
    let io = open_streams(cri, &facts).await?;
    let status = Status { resources: spec::resources(&oci).encode_to_vec(), ..Status::created() };
    let container = Arc::new(Container::new(facts, status, cri.layout.status(id), Some(Arc::new(io))));
    container.update(|_| Ok(()))?;
    cri.containers.insert(id, Arc::clone(&container));
    events::container(cri, &container, ContainerEventType::ContainerCreatedEvent);
    crate::nri::created(cri, sandbox, &container).await;
    Ok(())
}

async fn make_directories(cri: &Arc<Cri>, id: &str, undo: &mut Undo) -> Result<()> {
    let (root, state) = (cri.layout.container_root(id), cri.layout.container_state(id));
    undo.push("remove the directories", remove_directories(cri, id));
    blocking(move || layout::make_directory(&root, 0o755).and_then(|()| layout::make_directory(&state, 0o755))).await
}

/// Removes the directories of a container.
pub(crate) fn remove_directories(cri: &Cri, id: &str) -> impl Future<Output = Result<()>> + Send + 'static {
    let (root, state) = (cri.layout.container_root(id), cri.layout.container_state(id));
    blocking(move || layout::remove_directory(&state).and_then(|()| layout::remove_directory(&root)))
}

async fn make_snapshot(
    cri: &Arc<Cri>,
    sandbox: &Sandbox,
    id: &str,
    image: &Image,
    snapshotter: &str,
    undo: &mut Undo,
) -> Result<Vec<core_mount::Mount>> {
    let parent = cri.images.ensure_unpacked(image, snapshotter).await.doing("unpack the image")?;
    let labels = super::snapshot_labels(&sandbox.facts.config)?;
    // Under the lease of the pod until the record of the container holds it.
    let scope = cri.scope.leased(sandbox.id());
    let snapshots = cri.database.snapshotter(&scope, snapshotter)?;
    let mounts = snapshots.prepare(id, &parent, labels).await.doing("make the root file system")?;
    let id = id.to_owned();
    undo.push("remove the root file system", async move { ignore_missing(snapshots.remove(&id).await) });
    Ok(mounts)
}

async fn create_record(
    cri: &Arc<Cri>,
    facts: &ContainerFacts,
    handler: &Handler,
    image: &Image,
    spec: Vec<u8>,
    undo: &mut Undo,
) -> Result<()> {
    let mut record = Record::new(&facts.id);
    record.labels = Labels::from_iter(facts.config.labels.clone());
    record.labels.insert(records::KIND.into(), records::KIND_CONTAINER.into());
    record.image = image.reference();
    record.runtime = Runtime { name: handler.config.runtime_type.clone(), options: handler.options.clone() };
    record.spec = Some(Any { type_url: SPEC_TYPE_URL.into(), value: spec.into() });
    record.snapshotter.clone_from(&facts.snapshotter);
    record.snapshot_key.clone_from(&facts.id);
    record.sandbox_id.clone_from(&facts.sandbox_id);
    record.extensions = ContainerRecord::extensions(facts)?;
    cri.container_records().create(record).await?;
    let (records, id) = (cri.container_records(), facts.id.clone());
    undo.push("delete the record", async move { ignore_missing(records.delete(&id).await) });
    Ok(())
}

/// Where the log of a container is; None for none.
fn log_path(sandbox: &Sandbox, config: &ContainerConfig) -> Option<PathBuf> {
    let directory = &sandbox.facts.config.log_directory;
    if directory.is_empty() || config.log_path.is_empty() {
        return None;
    }
    // A path that starts with a slash stays below the directory.
    Some(PathBuf::from(directory).join(config.log_path.trim_start_matches('/')))
}

async fn open_streams(cri: &Cri, facts: &ContainerFacts) -> Result<ContainerIo> {
    let options = io_options(cri, &facts.config);
    ContainerIo::create(&cri.layout.container_state(&facts.id).join("io"), &facts.id, options).await
}

/// What streams a container has.
pub(crate) fn io_options(cri: &Cri, config: &ContainerConfig) -> IoOptions {
    IoOptions {
        stdin: config.stdin,
        stdin_once: config.stdin_once,
        tty: config.tty,
        max_line: usize::try_from(cri.config.max_container_log_line_size).ok().filter(|longest| *longest > 0),
    }
}
