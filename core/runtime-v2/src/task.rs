//! A task as the services see it.

use std::{future::Future, sync::Arc, time::Duration};

use core_types::{Error, ErrorKind, Labels, Namespace, Result, ResultExt, identifiers};

use crate::{
    Any, ExecRequest, ExitStatus, KillRequest, Process, ShimClient, ShimInfo, State, Status,
    config::Timeouts,
    entry::{Entry, Link},
};

/// One task: a container with its shim. Requests go to the shim, each with a deadline.
#[derive(Clone)]
pub struct Task {
    pub(crate) entry: Arc<Entry>,
    pub(crate) timeouts: Timeouts,
}

impl Task {
    /// Id of the container.
    pub fn id(&self) -> &str {
        &self.entry.key.id
    }

    /// Its namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.entry.key.namespace
    }

    /// Id of the sandbox that it belongs to.
    pub fn sandbox_id(&self) -> Option<&str> {
        self.entry.sandbox.as_deref()
    }

    /// Path of the bundle.
    pub fn bundle(&self) -> &std::path::Path {
        &self.entry.bundle.path
    }

    /// How the shim is reached, once that is known.
    pub fn endpoint(&self) -> Option<crate::Endpoint> {
        self.entry.endpoint()
    }

    /// The shim, for what this type has no method for.
    ///
    /// # Errors
    /// Unavailable when it does not answer, NotFound when the task is no more.
    pub async fn client(&self) -> Result<Arc<dyn ShimClient>> {
        let mut links = self.entry.links();
        let settled = links.wait_for(|link| !matches!(link, Link::Connecting));
        let link = match tokio::time::timeout(self.timeouts.load, settled).await {
            Ok(Ok(link)) => link.clone(),
            Ok(Err(_)) => Link::Gone(None),
            Err(_) => Link::Down(format!("no connection within {:?}", self.timeouts.load)),
        };
        match link {
            Link::Up(client) => Ok(client),
            Link::Gone(_) => Err(self.not_found()),
            Link::Down(why) => Err(Error::unavailable(format!(
                "the shim of task {} does not answer, it is tried again in the background: {why}",
                self.id()
            ))),
            Link::Connecting => Err(Error::unavailable(format!("the shim of task {} is being connected", self.id()))),
        }
    }

    pub(crate) fn not_found(&self) -> Error {
        Error::not_found(format!("task {} not found", self.id()))
    }

    async fn call<T, F>(&self, what: &str, limit: Duration, request: impl FnOnce(Arc<dyn ShimClient>) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let client = self.client().await?;
        within(limit, format!("{what} of task {}", self.id()), request(client)).await
    }

    /// State of a process; the first one for an empty `exec_id`.
    ///
    /// # Errors
    /// NotFound, Unavailable, DeadlineExceeded after two seconds.
    pub async fn state(&self, exec_id: &str) -> Result<State> {
        let id = self.id();
        self.call("state", self.timeouts.state, |client| async move { client.state(id, exec_id).await }).await
    }

    /// As [`state`](Self::state) of the first process; Unknown when the shim does not answer, none when there
    /// is no such task any more.
    pub async fn state_or_unknown(&self) -> Option<State> {
        match tokio::time::timeout(self.timeouts.state, self.state("")).await {
            Ok(Ok(state)) => Some(state),
            Ok(Err(error)) if error.is_not_found() => None,
            Ok(Err(_)) | Err(_) => Some(State {
                id: self.id().to_owned(),
                bundle: self.bundle().to_string_lossy().into_owned(),
                status: Status::Unknown,
                ..State::default()
            }),
        }
    }

    /// Starts a process; answers its pid.
    ///
    /// # Errors
    /// The shim's.
    pub async fn start(&self, exec_id: &str) -> Result<u32> {
        let id = self.id();
        self.call("start", self.timeouts.long, |client| async move { client.start(id, exec_id).await }).await
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// The shim's; DeadlineExceeded when it does not answer.
    pub async fn kill(&self, exec_id: &str, signal: u32, all: bool) -> Result<()> {
        let request = KillRequest { id: self.id().to_owned(), exec_id: exec_id.to_owned(), signal, all };
        self.call("kill", self.timeouts.short, |client| async move { client.kill(request).await }).await
    }

    /// Adds a process.
    ///
    /// # Errors
    /// InvalidArgument for a name that is no identifier; the shim's.
    pub async fn exec(&self, mut request: ExecRequest) -> Result<()> {
        identifiers::validate(&request.exec_id).doing("invalid exec id")?;
        self.id().clone_into(&mut request.id);
        self.call("exec", self.timeouts.long, |client| async move { client.exec(request).await }).await
    }

    /// Forgets a process that ended; for the first one see [`TaskManager::delete`](crate::TaskManager::delete).
    ///
    /// # Errors
    /// InvalidArgument for an empty name; the shim's.
    pub async fn delete_process(&self, exec_id: &str) -> Result<ExitStatus> {
        identifiers::validate(exec_id).doing("invalid exec id")?;
        let id = self.id();
        self.call("delete of a process", self.timeouts.long, |client| async move { client.delete(id, exec_id).await })
            .await
    }

    /// All processes.
    ///
    /// # Errors
    /// The shim's.
    pub async fn pids(&self) -> Result<Vec<Process>> {
        let id = self.id();
        self.call("pids", self.timeouts.short, |client| async move { client.pids(id).await }).await
    }

    /// Freezes the container.
    ///
    /// # Errors
    /// The shim's.
    pub async fn pause(&self) -> Result<()> {
        let id = self.id();
        self.call("pause", self.timeouts.long, |client| async move { client.pause(id).await }).await
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// The shim's.
    pub async fn resume(&self) -> Result<()> {
        let id = self.id();
        self.call("resume", self.timeouts.long, |client| async move { client.resume(id).await }).await
    }

    /// Sets the size of a terminal.
    ///
    /// # Errors
    /// The shim's.
    pub async fn resize_pty(&self, exec_id: &str, width: u32, height: u32) -> Result<()> {
        let id = self.id();
        let request = |client: Arc<dyn ShimClient>| async move { client.resize_pty(id, exec_id, width, height).await };
        self.call("resize", self.timeouts.short, request).await
    }

    /// Closes standard input.
    ///
    /// # Errors
    /// The shim's.
    pub async fn close_io(&self, exec_id: &str) -> Result<()> {
        let id = self.id();
        self.call(
            "close of standard input",
            self.timeouts.short,
            |client| async move { client.close_io(id, exec_id).await },
        )
        .await
    }

    /// Changes resource limits.
    ///
    /// # Errors
    /// The shim's.
    pub async fn update(&self, resources: Option<Any>, annotations: Labels) -> Result<()> {
        let id = self.id();
        self.call("update", self.timeouts.long, |client| async move { client.update(id, resources, annotations).await })
            .await
    }

    /// Resource usage.
    ///
    /// # Errors
    /// The shim's.
    pub async fn stats(&self) -> Result<Any> {
        let id = self.id();
        self.call("stats", self.timeouts.short, |client| async move { client.stats(id).await }).await
    }

    /// Pids of the shim and of the first process.
    ///
    /// # Errors
    /// The shim's.
    pub async fn connect(&self) -> Result<ShimInfo> {
        let id = self.id();
        self.call("connect", self.timeouts.short, |client| async move { client.connect(id).await }).await
    }

    /// Waits for the end of a process, also across the loss of its shim: then what is known of the first
    /// process's end is the answer.
    ///
    /// # Errors
    /// The shim's; Unavailable for another process of a lost shim.
    pub async fn wait(&self, exec_id: &str) -> Result<ExitStatus> {
        let mut links = self.entry.links();
        loop {
            let link = links.borrow_and_update().clone();
            let lost = match link {
                Link::Gone(Some(exit)) if exec_id.is_empty() => return Ok(exit),
                Link::Gone(_) if exec_id.is_empty() => return Err(self.not_found()),
                Link::Gone(_) => {
                    return Err(Error::unavailable(format!(
                        "the shim of task {} is gone, with process {exec_id}",
                        self.id()
                    )));
                }
                Link::Up(client) => tokio::select! {
                    answer = client.wait(self.id(), exec_id) => match answer {
                        Err(error) if error.kind() == ErrorKind::Unavailable => Some(error),
                        answer => return answer,
                    },
                    _ = links.changed() => continue,
                },
                Link::Connecting | Link::Down(_) => None,
            };
            let Some(lost) = lost else {
                if links.changed().await.is_err() {
                    return Err(self.not_found());
                }
                continue;
            };
            // The supervisor notices the loss too and changes the link; else the shim itself said so.
            let limit = self.timeouts.load + self.timeouts.cleanup;
            if !matches!(tokio::time::timeout(limit, links.changed()).await, Ok(Ok(()))) {
                return Err(lost);
            }
        }
    }
}

/// Bounds a request to a shim.
pub(crate) async fn within<T>(
    limit: Duration,
    what: impl std::fmt::Display,
    request: impl Future<Output = Result<T>>,
) -> Result<T> {
    match tokio::time::timeout(limit, request).await {
        Ok(answer) => answer,
        Err(_) => Err(Error::deadline_exceeded(format!("{what}: the shim did not answer within {limit:?}"))),
    }
}
