use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use containerd_api_cri::v1::{ContainerConfig, ContainerState};
use core_types::{Error, Result};
use plugin_cri_io::ContainerIo;
use tokio::sync::watch;

use super::{Identified, Phase, Status};

/// A container: what was asked for, its state and its streams.
pub(crate) struct Container {
    /// What does not change.
    pub(crate) facts: ContainerFacts,
    status: Mutex<Status>,
    ended: watch::Sender<bool>,
    io: Mutex<Option<Arc<ContainerIo>>>,
    /// Where its status is kept.
    file: PathBuf,
    /// Whether the stop signal went out.
    pub(crate) signalled: std::sync::atomic::AtomicBool,
}

/// What does not change of a container.
#[derive(Clone, Debug)]
pub(crate) struct ContainerFacts {
    /// Its id.
    pub(crate) id: String,
    /// Its name.
    pub(crate) name: String,
    /// The pod it is in.
    pub(crate) sandbox_id: String,
    /// What was asked for.
    pub(crate) config: ContainerConfig,
    /// Id of its image.
    pub(crate) image_ref: String,
    /// Its log; None for none.
    pub(crate) log_path: Option<PathBuf>,
    /// The signal its image wants to be stopped with; empty for SIGTERM.
    pub(crate) stop_signal: String,
    /// Snapshotter of its root file system.
    pub(crate) snapshotter: String,
    /// The user its process starts as: user id, group id, more groups.
    pub(crate) user: Option<(i64, i64, Vec<i64>)>,
}

impl Identified for Container {
    const KIND: &'static str = "container";
}

impl Container {
    /// A container in a state; its status is kept in `file`.
    pub(crate) fn new(facts: ContainerFacts, status: Status, file: PathBuf, io: Option<Arc<ContainerIo>>) -> Self {
        let ended = status.finished_at != 0;
        Self {
            facts,
            status: Mutex::new(status),
            ended: watch::Sender::new(ended),
            io: Mutex::new(io),
            file,
            signalled: Default::default(),
        }
    }

    /// Its id.
    pub(crate) fn id(&self) -> &str {
        &self.facts.id
    }

    /// Its state now.
    pub(crate) fn status(&self) -> Status {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes its state and keeps it on disk.
    ///
    /// # Errors
    /// What `change` says, then nothing changed; what writing says, then memory is ahead of the file.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut Status) -> Result<T>) -> Result<T> {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = status.clone();
        let outcome = change(&mut next)?;
        let stored = next.store(&self.file);
        let ended = next.finished_at != 0;
        *status = next;
        drop(status);
        self.ended.send_if_modified(|was| std::mem::replace(was, ended) != *was);
        stored.map(|()| outcome)
    }

    /// Changes what is not kept on disk.
    ///
    /// # Errors
    /// What `change` says, then nothing changed.
    pub(crate) fn update_memory(&self, change: impl FnOnce(&mut Status) -> Result<()>) -> Result<()> {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = status.clone();
        change(&mut next)?;
        *status = next;
        Ok(())
    }

    /// Enters a phase, which no other may be in.
    ///
    /// # Errors
    /// FailedPrecondition when another operation is at it.
    pub(crate) fn enter(&self, phase: Phase, allowed: impl FnOnce(&Status) -> Result<()>) -> Result<()> {
        self.update_memory(|status| {
            let doing = match status.phase {
                Phase::Idle => None,
                Phase::Starting => Some("started"),
                Phase::Removing => Some("removed"),
            };
            if let Some(doing) = doing {
                return Err(Error::failed_precondition(format!("container {} is being {doing}", self.id())));
            }
            allowed(status)?;
            status.phase = phase;
            Ok(())
        })
    }

    /// Leaves the phase.
    pub(crate) fn leave(&self) {
        let _ = self.update_memory(|status| {
            status.phase = Phase::Idle;
            Ok(())
        });
    }

    /// The CRI's state.
    pub(crate) fn state(&self) -> ContainerState {
        self.status().state()
    }

    /// Waits for its end, for as long as `limit`; answers whether it ended.
    pub(crate) async fn ended(&self, limit: Duration) -> bool {
        let mut ended = self.ended.subscribe();
        tokio::time::timeout(limit, ended.wait_for(|ended| *ended)).await.is_ok_and(|seen| seen.is_ok())
    }

    /// Its streams; None when they could not be opened again.
    pub(crate) fn io(&self) -> Option<Arc<ContainerIo>> {
        self.io.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes its streams away.
    pub(crate) fn take_io(&self) -> Option<Arc<ContainerIo>> {
        self.io.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
