//! Creating a task, step by step, and undoing the steps when one fails.

use std::sync::Arc;

use core_types::{Error, ErrorKind, Result, ResultExt};

use crate::{
    CreateRequest, ShimClient,
    bootstrap::{Endpoint, OLDEST},
    bundle::Bundle,
    entry::{Entry, Link},
    log,
    manager::{CreateOptions, Inner, Reserved, blocking},
    supervise,
    task::{Task, within},
};

/// Creates the task whose id is reserved.
pub(crate) async fn create(inner: &Arc<Inner>, reserved: &Reserved, options: CreateOptions) -> Result<(Task, u32)> {
    let key = &reserved.key;
    // First what can fail without a trace.
    let binary = inner.resolver.resolve(&options.runtime)?;
    let sandbox = sandbox_endpoint(inner, reserved, &options)?;
    let sandbox_id = Some(options.sandbox_id.clone()).filter(|id| !id.is_empty());
    let bundle = make_bundle(inner, reserved, &options, binary.clone()).await?;
    let entry = Arc::new(Entry::new(key.clone(), bundle, binary, sandbox_id));
    match make_task(inner, &entry, sandbox, options).await {
        Ok((client, pid)) => {
            entry.set_link(Link::Up(client));
            inner.insert(entry.clone());
            supervise::watch(inner, &entry);
            Ok((inner.task(entry), pid))
        }
        Err(error) => {
            entry.release();
            let bundle = entry.bundle.clone();
            if let Err(error) = blocking(move || bundle.delete()).await {
                tracing::error!(id = key.id, namespace = %key.namespace, %error, "bundle of a failed task not removed");
            }
            Err(error)
        }
    }
}

async fn make_bundle(
    inner: &Arc<Inner>,
    reserved: &Reserved,
    options: &CreateOptions,
    binary: std::path::PathBuf,
) -> Result<Bundle> {
    let (layout, key, spec) = (inner.layout.clone(), reserved.key.clone(), options.spec.clone());
    let sandbox = options.sandbox_id.clone();
    blocking(move || {
        let made = match Bundle::create(&layout, &key.namespace, &key.id, spec.as_ref()) {
            // The table knows every task: this is what a failed removal left.
            Err(error) if error.is_already_exists() => {
                tracing::warn!(id = key.id, namespace = %key.namespace, "removing the bundle of an earlier task");
                layout.bundle(&key.namespace, &key.id).delete()?;
                Bundle::create(&layout, &key.namespace, &key.id, spec.as_ref())
            }
            made => made,
        };
        let bundle = made?;
        // Before the shim starts: should the daemon die in between, the next one knows how to clean up.
        let stored = bundle.store_binary(&binary).and_then(|()| match sandbox.as_str() {
            "" => Ok(()),
            sandbox => bundle.store_sandbox(sandbox),
        });
        if let Err(error) = stored {
            let _ = bundle.delete();
            return Err(error);
        }
        Ok(bundle)
    })
    .await
}

/// The shim of the sandbox, when the task goes there without a start of its own: that is so for shims that
/// speak task service 3. Older ones group by themselves, on their start action.
fn sandbox_endpoint(inner: &Inner, reserved: &Reserved, options: &CreateOptions) -> Result<Option<Endpoint>> {
    if options.sandbox_id.is_empty() {
        return Ok(None);
    }
    let endpoint = if options.task_address.is_empty() {
        let task = || inner.find(&reserved.key.namespace, &options.sandbox_id).and_then(|entry| entry.endpoint());
        inner.sandbox(&reserved.key.namespace, &options.sandbox_id).or_else(task)
    } else {
        Some(Endpoint::from_url(&options.task_address, options.task_version)?)
    };
    Ok(endpoint.filter(|endpoint| endpoint.version > OLDEST))
}

async fn make_task(
    inner: &Arc<Inner>,
    entry: &Arc<Entry>,
    sandbox: Option<Endpoint>,
    options: CreateOptions,
) -> Result<(Arc<dyn ShimClient>, u32)> {
    let endpoint = match sandbox {
        Some(endpoint) => endpoint,
        None => start(inner, entry, &options).await?,
    };
    entry.set_endpoint(endpoint.clone());
    let made = connect_and_create(inner, entry, endpoint, options).await;
    if made.is_err() {
        undo(inner, entry).await;
    }
    made.map_err(|error| error.context("failed to create shim task"))
}

async fn start(inner: &Arc<Inner>, entry: &Arc<Entry>, options: &CreateOptions) -> Result<Endpoint> {
    match log::follow(&entry.bundle.path, &entry.key.id) {
        Ok(handle) => entry.keep(handle),
        Err(error) => tracing::warn!(id = entry.key.id, %error, "the shim's log is not followed"),
    }
    let limit = inner.config.timeouts.start;
    match inner.runner.start(&entry.target(), options.options.as_ref(), limit).await {
        Ok(endpoint) => Ok(endpoint),
        Err(error) => {
            clean(inner, entry).await;
            Err(error.context(format_args!("failed to start shim for runtime {:?}", options.runtime)))
        }
    }
}

async fn connect_and_create(
    inner: &Arc<Inner>,
    entry: &Arc<Entry>,
    mut endpoint: Endpoint,
    options: CreateOptions,
) -> Result<(Arc<dyn ShimClient>, u32)> {
    let timeouts = &inner.config.timeouts;
    store_endpoint(entry, &endpoint).await?;
    let request = CreateRequest {
        id: entry.key.id.clone(),
        bundle: entry.bundle.path.to_string_lossy().into_owned(),
        rootfs: options.rootfs,
        io: options.io,
        checkpoint: options.checkpoint,
        options: options.options,
    };
    loop {
        let client = inner.connect(&entry.key.namespace, &endpoint, timeouts.load).await?;
        entry.set_link(Link::Up(client.clone()));
        let creating = client.create(request.clone());
        match within(timeouts.long, format!("create of task {}", entry.key.id), creating).await {
            Ok(pid) => return Ok((client, pid)),
            // A shim that runs since before an update of its binary speaks the version before.
            Err(error) if error.kind() == ErrorKind::Unimplemented && endpoint.version > OLDEST => {
                endpoint.version -= 1;
                entry.set_endpoint(endpoint.clone());
                store_endpoint(entry, &endpoint).await?;
            }
            Err(error) => return Err(error),
        }
    }
}

async fn store_endpoint(entry: &Arc<Entry>, endpoint: &Endpoint) -> Result<()> {
    let (path, endpoint) = (entry.bundle.path.clone(), endpoint.clone());
    blocking(move || endpoint.store(&path)).await.doing("keep the shim's address")
}

/// Ends the shim of a task that could not be created.
async fn undo(inner: &Arc<Inner>, entry: &Arc<Entry>) {
    let shared = entry.sandbox.is_some() || entry.endpoint().is_some_and(|endpoint| inner.is_shared(&endpoint));
    let limit = inner.config.timeouts.cleanup;
    let id = &entry.key.id;
    let asked = match entry.client() {
        Some(client) => {
            let deleted = within(limit, "delete", client.delete(id, "")).await;
            if !shared {
                inner.shutdown(&*client, id).await;
            }
            deleted.map(|_| ())
        }
        None => Err(Error::unavailable("no connection")),
    };
    // NotFound: the shim has nothing of it. Anything else is cleaned by the binary.
    if asked.is_err_and(|error| !error.is_not_found()) {
        kill(inner, entry, shared).await;
        clean(inner, entry).await;
    }
}

/// Kills a shim that does not listen, when it is this task's alone.
async fn kill(inner: &Arc<Inner>, entry: &Arc<Entry>, shared: bool) {
    let Some(client) = entry.client().filter(|_| !shared) else { return };
    let asked = within(inner.config.timeouts.state, "connect", client.connect(&entry.key.id)).await;
    let pid = asked.ok().and_then(|info| i32::try_from(info.shim_pid).ok());
    if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

async fn clean(inner: &Arc<Inner>, entry: &Arc<Entry>) {
    if let Err(error) = inner.runner.delete(&entry.target(), inner.config.timeouts.cleanup).await {
        tracing::debug!(id = entry.key.id, %error, "nothing cleaned after a failed start");
    }
}
