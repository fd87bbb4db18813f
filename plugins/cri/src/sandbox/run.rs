//! Starting a pod, step by step. A failure at any step undoes all before it.

use std::{path::Path, sync::Arc};

use containerd_api_cri::v1::{ContainerEventType, PodSandboxConfig, RunPodSandboxRequest};
use core_events::Any;
use core_sandbox::{CreateOptions, Runtime};
use core_types::{Error, Labels, Result, ResultExt};
use prost::Message;

use super::{files, network, validate, watch};
use crate::{
    blocking,
    cri::Cri,
    events,
    handler::Handler,
    layout, names, netns,
    store::{Sandbox, SandboxFacts, SandboxRecord, SandboxState},
    undo::Undo,
};

/// RunPodSandbox. Goes on when the caller gives up; the same request again joins it.
///
/// # Errors
/// InvalidArgument for a wrong request, AlreadyExists when the name is taken, else the failing step's.
pub(crate) async fn run(cri: &Arc<Cri>, request: RunPodSandboxRequest) -> Result<String> {
    let config = request.config.ok_or_else(|| Error::invalid_argument("config must be set"))?;
    let name = validate::sandbox(&config)?;
    let handler = cri.handlers.get(&request.runtime_handler)?;
    let key = (name.clone(), config.encode_to_vec());
    let work = || {
        let (cri, handler) = (Arc::clone(cri), Arc::clone(&handler));
        async move { start(&cri, name, config, request.runtime_handler, &handler).await }
    };
    cri.starting.run(key, work).await
}

async fn start(
    cri: &Arc<Cri>,
    name: String,
    config: PodSandboxConfig,
    handler_name: String,
    handler: &Arc<Handler>,
) -> Result<String> {
    let id = names::new_id()?;
    cri.names.reserve(&name, &id)?;
    let facts = SandboxFacts {
        id: id.clone(),
        name: name.clone(),
        config,
        handler: handler_name,
        sandboxer: handler.config.sandboxer.clone(),
    };
    let state = SandboxState { created_at: crate::store::now(), ..SandboxState::default() };
    let sandbox = Arc::new(Sandbox::new(facts, state));
    let mut undo = Undo::default();
    let outcome = steps(cri, &sandbox, handler, &mut undo).await;
    match outcome {
        Ok(()) => Ok(id),
        Err(error) => {
            if undo.run(&id).await {
                cri.names.release(&name);
            } else {
                // Shown as not ready, so that a removal can try again.
                sandbox.stop();
                cri.sandboxes.insert(&id, sandbox);
            }
            Err(error.context(format_args!("sandbox {name:?}")))
        }
    }
}

async fn steps(cri: &Arc<Cri>, sandbox: &Arc<Sandbox>, handler: &Arc<Handler>, undo: &mut Undo) -> Result<()> {
    let id = sandbox.id().to_owned();
    let netns = match sandbox.facts.host_network() {
        true => None,
        false => Some(netns::new_path(&cri.network_namespaces())?),
    };
    sandbox.update(|state| state.netns.clone_from(&netns));
    // The first thing on disk: it leads an early end of the daemon to all that is made after it.
    let mut record = record(sandbox, handler)?;
    create_record(cri, &record, undo).await?;
    hold(cri, &id, undo).await?;
    make_files(cri, sandbox, undo).await?;
    if let Some(netns) = &netns {
        make_network_namespace(cri, sandbox, netns, undo).await?;
    }

    let controller = cri.controller(&sandbox.facts.sandboxer)?;
    let options = CreateOptions {
        options: Some(Any {
            type_url: "runtime.v1.PodSandboxConfig".into(),
            value: sandbox.facts.config.encode_to_vec().into(),
        }),
        netns: netns.clone(),
        annotations: sandbox.facts.config.annotations.clone().into_iter().collect(),
        ..CreateOptions::default()
    };
    if let Some(netns) = netns {
        let (cri, sandbox) = (Arc::clone(cri), Arc::clone(sandbox));
        undo.push("detach the networks", async move { network::detach(&cri, &sandbox, Some(netns)).await });
    }
    {
        let (controller, namespace, id) = (Arc::clone(&controller), cri.namespace.clone(), id.clone());
        undo.push("shut the sandbox down", async move { controller.shutdown(&namespace, &id).await });
    }
    // The networks are attached while the sandbox is prepared; it starts when both are done.
    let attached = network::attach(cri, sandbox);
    let created = controller.create(&cri.namespace, &record, options);
    let (attached, created) = tokio::join!(attached, created);
    attached.doing("attach the networks")?;
    created?;
    let instance = controller.start(&cri.namespace, &id).await?;
    sandbox.update(|state| {
        state.complete = true;
        state.pid = instance.pid;
        state.address = instance.address;
        state.version = instance.version;
    });
    record.extensions = SandboxRecord::extensions(&sandbox.facts, &sandbox.state())?;
    record.labels.extend(instance.labels);
    cri.sandbox_records().update(record, &["extensions".to_owned(), "labels".to_owned()]).await?;
    // A plugin that joins meanwhile gets the pod once, either told now or listed afterwards.
    let _joining = cri.nri.block_sync().await;
    crate::nri::run_pod(cri, sandbox).await.doing("NRI: run the pod")?;
    sandbox.update(|state| state.ready = Some(true));
    cri.sandboxes.insert(&id, Arc::clone(sandbox));
    events::sandbox(cri, sandbox, ContainerEventType::ContainerCreatedEvent);
    watch::start(cri, sandbox, controller);
    events::sandbox(cri, sandbox, ContainerEventType::ContainerStartedEvent);
    Ok(())
}

/// A lease keeps what the sandbox uses while it lives.
async fn hold(cri: &Arc<Cri>, id: &str, undo: &mut Undo) -> Result<()> {
    cri.leases().create(Some(id.to_owned()), Labels::new()).await?;
    let (leases, id) = (cri.leases(), id.to_owned());
    undo.push("delete the lease", async move { ignore_missing(leases.delete(&id, false).await) });
    Ok(())
}

fn record(sandbox: &Sandbox, handler: &Handler) -> Result<core_sandbox::Sandbox> {
    let mut record = core_sandbox::Sandbox::new(sandbox.id());
    record.labels.insert("name".into(), sandbox.facts.name.clone());
    record.runtime = Runtime { name: handler.shim().to_owned(), options: handler.options.clone() };
    record.sandboxer.clone_from(&sandbox.facts.sandboxer);
    record.extensions = SandboxRecord::extensions(&sandbox.facts, &sandbox.state())?;
    Ok(record)
}

async fn create_record(cri: &Arc<Cri>, record: &core_sandbox::Sandbox, undo: &mut Undo) -> Result<()> {
    cri.sandbox_records().create(record.clone()).await?;
    let (records, id) = (cri.sandbox_records(), record.id.clone());
    undo.push("delete the record", async move { ignore_missing(records.delete(&id).await) });
    Ok(())
}

async fn make_network_namespace(cri: &Arc<Cri>, sandbox: &Sandbox, path: &Path, undo: &mut Undo) -> Result<()> {
    let mappings = super::user_namespace(&sandbox.facts.config)?;
    let user = cri.layout.user_namespace(sandbox.id());
    let path = path.to_owned();
    undo.push("remove the network namespace", netns::removed(path.clone()));
    blocking(move || match mappings {
        None => netns::create(&path),
        Some(mappings) => netns::create_owned(&path, &mappings, &user),
    })
    .await
}

async fn make_files(cri: &Arc<Cri>, sandbox: &Arc<Sandbox>, undo: &mut Undo) -> Result<()> {
    let (layout, id) = (cri.layout.clone(), sandbox.id().to_owned());
    undo.push("remove the files", remove_files(cri, &id));
    let (cri, sandbox) = (Arc::clone(cri), Arc::clone(sandbox));
    blocking(move || files::make(&layout, &cri.host, &id, &sandbox.facts.config)).await
}

/// Removes the files of a sandbox.
pub(crate) fn remove_files(cri: &Cri, id: &str) -> impl Future<Output = Result<()>> + Send + 'static {
    let (root, state) = (cri.layout.sandbox_root(id), cri.layout.sandbox_state(id));
    blocking(move || layout::remove_directory(&state).and_then(|()| layout::remove_directory(&root)))
}

/// Gone already is as good as removed.
pub(crate) fn ignore_missing(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(error) if error.is_not_found() => Ok(()),
        outcome => outcome,
    }
}
