//! Watching the shim of each task, and finding it again: after a restart of the daemon, or when the connection
//! broke. Only a socket that is gone or refuses means a dead shim; anything else is tried again.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use core_types::{Error, ErrorKind, Result};

use crate::{
    ShimClient,
    bootstrap::{Endpoint, OLDEST},
    entry::{Entry, Link},
    manager::{Inner, blocking},
    task::within,
};

/// The first pause between two attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// What an attempt to reach a shim came to.
enum Reached {
    /// Connected.
    Up(Arc<dyn ShimClient>),
    /// The shim lives and has no such task.
    Leaked(Arc<dyn ShimClient>),
    /// No shim.
    Dead(Error),
    /// Not known.
    Silent(Error),
}

/// Watches the shim of a task that is connected.
pub(crate) fn watch(inner: &Arc<Inner>, entry: &Arc<Entry>) {
    spawn(inner, entry, false);
}

/// Connects to the shim of a task that a daemon before this one left, then watches it.
pub(crate) fn adopt(inner: &Arc<Inner>, entry: &Arc<Entry>) {
    spawn(inner, entry, true);
}

fn spawn(inner: &Arc<Inner>, entry: &Arc<Entry>, adopting: bool) {
    let task = tokio::spawn(supervise(Arc::downgrade(inner), Arc::downgrade(entry), adopting));
    entry.keep(task.abort_handle());
}

/// Neither manager nor task is kept alive by this between two steps.
async fn supervise(manager: Weak<Inner>, task: Weak<Entry>, mut adopting: bool) {
    let mut pause = FIRST_PAUSE;
    loop {
        let Some(link) = task.upgrade().map(|entry| entry.link()) else { return };
        match link {
            Link::Gone(_) => return,
            Link::Up(client) => {
                client.closed().await;
                drop(client);
                let Some(entry) = task.upgrade() else { return };
                entry.set_link(Link::Connecting);
                pause = FIRST_PAUSE;
            }
            Link::Down(_) => tokio::time::sleep(pause).await,
            Link::Connecting => {}
        }
        let (Some(inner), Some(entry)) = (manager.upgrade(), task.upgrade()) else { return };
        match reach(&inner, &entry, adopting).await {
            Reached::Up(client) => {
                adopting = false;
                entry.set_link(Link::Up(client));
            }
            Reached::Silent(error) => {
                tracing::warn!(id = entry.key.id, namespace = %entry.key.namespace, %error, "shim does not answer, trying again");
                pause = if matches!(entry.link(), Link::Down(_)) { pause * 2 } else { FIRST_PAUSE };
                pause = pause.min(inner.config.timeouts.retry);
                entry.set_link(Link::Down(error.to_string()));
            }
            ended => return end(inner, entry, ended).await,
        }
    }
}

/// Runs on its own: ending a task ends its background tasks, and this was one.
async fn end(inner: Arc<Inner>, entry: Arc<Entry>, how: Reached) {
    let work = tokio::spawn(async move {
        let _ending = entry.ending.lock().await;
        if entry.is_gone() {
            return;
        }
        match how {
            Reached::Leaked(client) => {
                tracing::info!(id = entry.key.id, namespace = %entry.key.namespace, "ending a shim without a task");
                entry.set_link(Link::Up(client));
                inner.end(&entry, None).await;
            }
            Reached::Dead(error) => {
                tracing::info!(id = entry.key.id, namespace = %entry.key.namespace, reason = %error, "cleaning up after a dead shim");
                inner.bury(&entry).await;
            }
            Reached::Up(_) | Reached::Silent(_) => {}
        }
    });
    let _ = work.await;
}

async fn reach(inner: &Arc<Inner>, entry: &Arc<Entry>, adopting: bool) -> Reached {
    let endpoint = match entry.endpoint() {
        Some(endpoint) => endpoint,
        None => {
            let path = entry.bundle.path.clone();
            match blocking(move || Endpoint::load(&path)).await {
                Ok(endpoint) => endpoint,
                // A daemon before this one died before the shim answered.
                Err(error) => return Reached::Dead(error),
            }
        }
    };
    entry.set_endpoint(endpoint.clone());
    let limit = inner.config.timeouts.load;
    let attempt = tokio::time::timeout(limit, greet(inner, entry, endpoint, limit));
    match attempt.await {
        Err(_) => Reached::Silent(Error::deadline_exceeded(format!("no answer within {limit:?}"))),
        Ok(Err(error)) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::Unavailable => Reached::Dead(error),
            _ => Reached::Silent(error),
        },
        Ok(Ok(client)) if adopting => own(inner, entry, client).await,
        Ok(Ok(client)) => Reached::Up(client),
    }
}

/// Connects and asks who is there; falls back to the version before for a shim older than its binary.
async fn greet(
    inner: &Arc<Inner>,
    entry: &Arc<Entry>,
    mut endpoint: Endpoint,
    limit: Duration,
) -> Result<Arc<dyn ShimClient>> {
    loop {
        let client = inner.connect(&entry.key.namespace, &endpoint, limit).await?;
        match client.connect(&entry.key.id).await {
            Err(error) if error.kind() == ErrorKind::Unimplemented && endpoint.version > OLDEST => {
                endpoint.version -= 1;
                entry.set_endpoint(endpoint.clone());
            }
            // It answered, and that is the question here.
            Ok(_) => return Ok(client),
            Err(error) if error.is_not_found() => return Ok(client),
            Err(error) => return Err(error),
        }
    }
}

/// A shim without the task was started just before the daemon died. Only NotFound says so; a sandbox's shim
/// is none's task.
async fn own(inner: &Arc<Inner>, entry: &Arc<Entry>, client: Arc<dyn ShimClient>) -> Reached {
    let state = within(inner.config.timeouts.state, "state", client.state(&entry.key.id, "")).await;
    let sandbox = || inner.config.is_sandbox.as_ref().is_some_and(|is| is(&entry.key.namespace, &entry.key.id));
    match state {
        Err(error) if error.is_not_found() && !sandbox() => Reached::Leaked(client),
        _ => Reached::Up(client),
    }
}
