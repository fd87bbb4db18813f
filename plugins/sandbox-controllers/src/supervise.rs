//! Watching the shim of a sandbox, and finding it again after a restart of the daemon or a broken connection. Only a
//! socket that is gone or refuses means a dead shim; anything else is tried again.

use std::{
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use core_sandbox::{READY, SandboxExit};
use core_types::{Error, ErrorKind};

use crate::{
    controller::Inner,
    entry::{Entry, Link},
    remote::Remote,
};

/// The first pause between two attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// What a sandbox is said to have ended with whose shim was lost.
const LOST: u32 = 255;

/// Watches a sandbox until it is gone. One that a daemon before this one left is connected first.
pub(crate) fn spawn(inner: &Arc<Inner>, entry: &Arc<Entry>, adopting: bool) {
    let task = tokio::spawn(supervise(Arc::downgrade(inner), Arc::clone(entry), adopting));
    entry.keep(task.abort_handle());
}

async fn supervise(manager: Weak<Inner>, entry: Arc<Entry>, mut adopting: bool) {
    let mut pause = FIRST_PAUSE;
    loop {
        match entry.link() {
            Link::Gone => return,
            Link::Up(remote) => {
                watch(&manager, &entry, &remote).await;
                entry.set_link(Link::Connecting);
                pause = FIRST_PAUSE;
            }
            Link::Down(_) => {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            Link::Connecting => {}
        }
        let Some(inner) = manager.upgrade() else { return };
        let (limit, longest) = (inner.shims.timeouts().load, inner.shims.timeouts().retry);
        let shim = &entry.shim;
        let reached = match shim.endpoint() {
            Ok(endpoint) => Remote::connect(shim.namespace(), shim.id(), endpoint, limit).await,
            Err(error) => Err(error),
        };
        match reached {
            Ok(remote) if adopting => match adopt(&inner, &entry, Arc::new(remote)).await {
                Ok(()) => adopting = false,
                Err(error) => silent(&entry, &error),
            },
            Ok(remote) => entry.set_link(Link::Up(Arc::new(remote))),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unavailable) => {
                return bury(inner, entry, error).await;
            }
            Err(error) => silent(&entry, &error),
        }
        pause = pause.min(longest);
    }
}

fn silent(entry: &Entry, error: &Error) {
    tracing::warn!(id = entry.shim.id(), namespace = %entry.shim.namespace(), %error, "shim of a sandbox does not answer, trying again");
    entry.set_link(Link::Down(error.to_string()));
}

/// Waits for the loss of the connection; the end of the sandbox on the way is told.
async fn watch(manager: &Weak<Inner>, entry: &Entry, remote: &Remote) {
    let mut states = entry.state.subscribe();
    loop {
        let (started, ended) = {
            let state = states.borrow_and_update();
            (state.started, state.exit.is_some())
        };
        if !started || ended {
            tokio::select! {
                () = remote.closed() => return,
                _ = states.changed() => continue,
            }
        }
        let exit = tokio::select! {
            () = remote.closed() => return,
            exit = remote.wait() => exit,
        };
        match (exit, manager.upgrade()) {
            (Ok(exit), Some(inner)) => entry.end(&*inner.events, at(exit)).await,
            (Ok(_), None) => return,
            (Err(error), _) => {
                if error.kind() != ErrorKind::Unavailable {
                    tracing::warn!(id = entry.shim.id(), %error, "the end of a sandbox cannot be waited for, only its shim's");
                }
                return remote.closed().await;
            }
        }
    }
}

/// An end, which has a time.
pub(crate) fn at(exit: SandboxExit) -> SandboxExit {
    SandboxExit { exited_at: exit.exited_at.or_else(|| Some(SystemTime::now())), ..exit }
}

/// Takes over a shim that a daemon before this one started. When it says that it has no such sandbox, that daemon died
/// before it could say so to anybody.
async fn adopt(inner: &Arc<Inner>, entry: &Arc<Entry>, remote: Arc<Remote>) -> Result<(), Error> {
    match remote.status(false, inner.shims.timeouts().load).await {
        Ok(status) => {
            entry.state.send_modify(|state| {
                state.started = status.created_at.is_some() || status.state == READY;
                state.link = Link::Up(remote);
            });
            Ok(())
        }
        Err(error) if error.is_not_found() => {
            tracing::info!(id = entry.shim.id(), namespace = %entry.shim.namespace(), "ending a shim without a sandbox");
            let (inner, entry) = (Arc::clone(inner), Arc::clone(entry));
            // On its own: that ends this task.
            tokio::spawn(async move {
                let _changing = entry.changing.lock().await;
                inner.end_shim(&entry.shim, Some(&remote)).await;
                inner.forget(&entry);
            });
            std::future::pending().await
        }
        Err(error) => Err(error),
    }
}

/// Cleans up after a dead shim.
async fn bury(inner: Arc<Inner>, entry: Arc<Entry>, why: Error) {
    // On its own: that ends this task.
    let work = tokio::spawn(async move {
        let _changing = entry.changing.lock().await;
        if entry.is_gone() {
            return;
        }
        tracing::info!(id = entry.shim.id(), namespace = %entry.shim.namespace(), reason = %why, "cleaning up after the dead shim of a sandbox");
        let exit = inner.shims.clean(&entry.shim).await.map(|exit| (exit.status, exit.exited_at));
        let (status, exited_at) = exit.unwrap_or((LOST, None));
        entry.end(&*inner.events, at(SandboxExit { status, exited_at })).await;
        inner.forget(&entry);
    });
    let _ = work.await;
}
