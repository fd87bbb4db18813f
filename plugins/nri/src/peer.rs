//! One plugin: its connection, its subscription, and the rule that its failure is its own.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
    time::Duration,
};

use containerd_api_nri::v1alpha1::{
    ConfigureRequest, ConfigureResponse, Container, ContainerUpdate, Empty, Event, PodSandbox, RegisterPluginRequest,
    StateChangeEvent, SynchronizeRequest, SynchronizeResponse, UpdateContainersRequest, UpdateContainersResponse,
    ValidateContainerAdjustmentRequest, ValidateContainerAdjustmentResponse,
};
use containerd_ttrpc::{Client, Context, Router, Server, Status};
use core_types::{Error, ErrorKind, Result, ResultExt};
use prost::Message;
use tokio::{net::UnixStream, process::Child, sync::mpsc, task::JoinSet};

use crate::{Config, RuntimeCallbacks, events, mux};

const PLUGIN_SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";
const RUNTIME_SERVICE: &str = "nri.pkg.api.v1alpha1.Runtime";
/// Version of NRI that the runtime speaks.
const NRI_VERSION: &str = "v0.12.0";
/// Bytes of pods and containers in one message of a synchronization; a message can have 4 MiB.
const SYNC_BYTES: usize = 3 << 20;
/// The gRPC code of an answer that did not come in time.
const DEADLINE_EXCEEDED: i32 = 4;
/// The gRPC code of a method that a plugin lacks.
const UNIMPLEMENTED: i32 = 12;

/// The name by which a plugin is known before it has told its own.
pub(crate) struct Identity {
    pub(crate) index: String,
    pub(crate) name: String,
}

/// A plugin that is registered and configured.
pub(crate) struct Plugin {
    pub(crate) index: String,
    pub(crate) name: String,
    client: Client,
    events: i32,
    /// Whether it named its events; one that did not gets all, and need not have all methods.
    chose: bool,
    timeout: Duration,
    closed: AtomicBool,
    /// Events, by their bits, that it takes as changes of state.
    state_changes: AtomicI32,
    held: Mutex<Held>,
}

/// What ends with the plugin.
struct Held {
    tasks: JoinSet<()>,
    /// Killed when dropped.
    child: Option<Child>,
}

impl Plugin {
    /// Takes in a plugin: waits for its registration, configures it. `identity` is what its file says, for one that
    /// the runtime started.
    ///
    /// # Errors
    /// DeadlineExceeded, InvalidArgument for an invalid index, name or subscription, Unavailable when it hangs up.
    pub(crate) async fn connect(
        stream: UnixStream,
        config: &Config,
        callbacks: Arc<dyn RuntimeCallbacks>,
        launched: Option<(Identity, String, Child)>,
    ) -> Result<Self> {
        let mut tasks = JoinSet::new();
        let (read, write) = stream.into_split();
        let (to_plugin, to_runtime) = mux::split(read, write, &mut tasks);
        let client = Client::from_halves(to_plugin.read, to_plugin.write);
        let (registered, mut registration) = mpsc::channel(1);
        let ready = Arc::new(AtomicBool::new(false));
        let router = Arc::new(router(registered, callbacks, ready.clone(), launched.is_some()));
        tasks.spawn(Server::serve_halves(to_runtime.read, to_runtime.write, router));
        let (fixed, settings, child) = match launched {
            Some((identity, settings, child)) => (Some(identity), settings, Some(child)),
            None => (None, String::new(), None),
        };
        let limit = config.plugin_registration_timeout;
        let told = tokio::select! {
            told = registration.recv() => told.ok_or_else(|| Error::unavailable("it hung up before it registered"))??,
            () = client.closed() => match registration.try_recv() {
                Ok(Err(error)) => return Err(error),
                _ => return Err(Error::unavailable("it hung up before it registered")),
            },
            () = tokio::time::sleep(limit) => {
                return Err(Error::deadline_exceeded(format!("it did not register within {limit:?}")));
            }
        };
        let identity = fixed.unwrap_or(told);
        let events = configure(&client, config, settings).await?;
        let (events, chose) = if events == 0 { (events::ALL, false) } else { (events, true) };
        ready.store(true, Ordering::Release);
        Ok(Self {
            index: identity.index,
            name: identity.name,
            client,
            events,
            chose,
            timeout: config.plugin_request_timeout,
            closed: AtomicBool::new(false),
            state_changes: AtomicI32::new(0),
            held: Mutex::new(Held { tasks, child }),
        })
    }

    /// `NN-name`.
    pub(crate) fn full_name(&self) -> String {
        format!("{}-{}", self.index, self.name)
    }

    /// Whether it wants an event.
    pub(crate) fn wants(&self, event: Event) -> bool {
        self.events & events::bit(event) != 0
    }

    /// Whether it is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) || self.client.is_closed()
    }

    /// Resolves when its connection is gone.
    pub(crate) async fn gone(&self) {
        self.client.closed().await;
    }

    /// Lets it go: ends the connection, and the process when it is the runtime's.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.tasks.abort_all();
        if let Some(mut child) = held.child.take() {
            let _ = child.start_kill();
        }
    }

    /// Tells it that the runtime goes down, and lets it go.
    pub(crate) async fn shutdown(&self) {
        let limit = self.timeout.min(Duration::from_secs(1));
        let context = Context::with_timeout(limit);
        let told = self.client.call::<_, Empty>(PLUGIN_SERVICE, "Shutdown", &context, &Empty {});
        if let Err(error) = told.await {
            tracing::debug!(plugin = self.full_name(), %error, "NRI: shutdown");
        }
        self.close();
    }

    /// Calls a hook. Nothing comes of it when the plugin does not want the event, and when it fails to answer, in
    /// which case it is let go.
    ///
    /// # Errors
    /// The plugin's refusal.
    pub(crate) async fn call<Q: Message, A: Message + Default>(&self, event: Event, request: &Q) -> Result<Option<A>> {
        if !self.wants(event) || self.is_closed() {
            return Ok(None);
        }
        match self.raw(events::method(event), request).await {
            Ok(answer) => Ok(Some(answer)),
            Err(status) if status.code == UNIMPLEMENTED => Ok(None),
            Err(status) if self.is_fatal(&status) => {
                self.give_up(event, &status);
                Ok(None)
            }
            Err(status) => Err(self.refusal(status)),
        }
    }

    /// Asks it whether an adjustment is right. Here a plugin that fails to answer counts as one that refuses.
    ///
    /// # Errors
    /// PermissionDenied when it is not, and what keeps the plugin from answering.
    pub(crate) async fn validate(&self, request: &ValidateContainerAdjustmentRequest) -> Result<()> {
        let event = Event::ValidateContainerAdjustment;
        let answer = match self.raw(events::method(event), request).await {
            Err(status) if status.code == UNIMPLEMENTED && !self.chose => return Ok(()),
            Err(status) => {
                if self.is_fatal(&status) {
                    self.give_up(event, &status);
                }
                return Err(self.refusal(status));
            }
            Ok(answer) => answer,
        };
        let ValidateContainerAdjustmentResponse { reject, reason } = answer;
        if !reject {
            return Ok(());
        }
        let reason = if reason.is_empty() { "it gives no reason" } else { &reason };
        let name = self.full_name();
        Err(Error::permission_denied(format!("NRI validator {name} rejected the adjustment: {reason}")))
    }

    fn give_up(&self, event: Event, status: &Status) {
        let event = events::method(event);
        tracing::error!(plugin = self.full_name(), event, error = %status, "NRI: plugin is let go");
        self.close();
    }

    /// Tells an event. A plugin that lacks the method gets it as a change of state, as plugins of older versions do.
    ///
    /// # Errors
    /// The plugin's refusal.
    pub(crate) async fn tell<Q: Message>(&self, event: Event, request: &Q, state: &StateChangeEvent) -> Result<()> {
        if !self.wants(event) || self.is_closed() {
            return Ok(());
        }
        let old = self.state_changes.load(Ordering::Relaxed) & events::bit(event) != 0;
        let mut outcome = match old {
            true => self.raw::<_, Empty>("StateChange", state).await,
            false => self.raw::<_, Empty>(events::method(event), request).await,
        };
        let unknown = outcome.as_ref().is_err_and(|status| status.code == UNIMPLEMENTED);
        if !old && unknown && events::is_state_change(event) {
            self.state_changes.fetch_or(events::bit(event), Ordering::Relaxed);
            outcome = self.raw::<_, Empty>("StateChange", state).await;
        }
        match outcome {
            Ok(_) => Ok(()),
            Err(status) if status.code == UNIMPLEMENTED => Ok(()),
            Err(status) if self.is_fatal(&status) => {
                self.give_up(event, &status);
                Ok(())
            }
            Err(status) => Err(self.refusal(status)),
        }
    }

    async fn raw<Q: Message, A: Message + Default>(&self, method: &str, request: &Q) -> Result<A, Status> {
        self.client.call(PLUGIN_SERVICE, method, &Context::with_timeout(self.timeout), request).await
    }

    /// Whether the connection is of no use any more.
    fn is_fatal(&self, status: &Status) -> bool {
        status.code == DEADLINE_EXCEEDED || self.is_closed()
    }

    fn refusal(&self, status: Status) -> Error {
        Error::new(ErrorKind::from_code(status.code), format!("NRI plugin {}: {status}", self.full_name()))
    }

    /// Tells it of everything there is, in messages of a size that can be sent; the updates it wants.
    ///
    /// # Errors
    /// What keeps it from answering, FailedPrecondition when it cannot take more than one message.
    pub(crate) async fn synchronize(
        &self,
        pods: &[PodSandbox],
        containers: &[Container],
    ) -> Result<Vec<ContainerUpdate>> {
        let mut parts = split(pods, containers).into_iter().peekable();
        while let Some(part) = parts.next() {
            let more = parts.peek().is_some();
            let request = SynchronizeRequest { more, ..part };
            let answer: SynchronizeResponse =
                self.raw("Synchronize", &request).await.map_err(|status| self.refusal(status))?;
            if !more {
                return Ok(answer.update);
            }
            if !answer.more || !answer.update.is_empty() {
                return Err(Error::failed_precondition("it cannot be synchronized in more than one message"));
            }
        }
        Ok(Vec::new())
    }
}

/// Pods and containers in messages of a size that can be sent; at least one.
fn split(pods: &[PodSandbox], containers: &[Container]) -> Vec<SynchronizeRequest> {
    let (mut parts, mut part, mut size) = (Vec::new(), SynchronizeRequest::default(), 0);
    let mut room = |part: &mut SynchronizeRequest, bytes: usize| {
        if size > 0 && size + bytes > SYNC_BYTES {
            parts.push(std::mem::take(part));
            size = 0;
        }
        size += bytes;
    };
    for pod in pods {
        room(&mut part, pod.encoded_len() + 8);
        part.pods.push(pod.clone());
    }
    for container in containers {
        room(&mut part, container.encoded_len() + 8);
        part.containers.push(container.clone());
    }
    parts.push(part);
    parts
}

async fn configure(client: &Client, config: &Config, settings: String) -> Result<i32> {
    let millis = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    let request = ConfigureRequest {
        config: settings,
        runtime_name: "containerd".into(),
        runtime_version: env!("CARGO_PKG_VERSION").into(),
        registration_timeout: millis(config.plugin_registration_timeout),
        request_timeout: millis(config.plugin_request_timeout),
        nri_version: NRI_VERSION.into(),
    };
    let context = Context::with_timeout(config.plugin_request_timeout);
    let answer: Result<ConfigureResponse, Status> = client.call(PLUGIN_SERVICE, "Configure", &context, &request).await;
    let answer = answer.map_err(|status| Error::new(ErrorKind::from_code(status.code), status.message));
    match answer.doing("configure")?.events {
        mask if mask & !events::ALL != 0 => {
            Err(Error::invalid_argument(format!("it subscribes to events that there are not: {mask:#x}")))
        }
        mask => Ok(mask),
    }
}

/// Checks the index of a plugin.
pub(crate) fn check_index(index: &str) -> Result<()> {
    let fits = index.len() == 2 && index.bytes().all(|byte| byte.is_ascii_digit());
    fits.then_some(()).ok_or_else(|| Error::invalid_argument(format!("plugin index {index:?} is not two digits")))
}

/// Checks the name of a plugin.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte);
    match !name.is_empty() && name.len() <= 256 && name.bytes().all(fits) {
        true => Ok(()),
        false => Err(Error::invalid_argument(format!("plugin name {name:?} has characters other than a-zA-Z0-9_.+-"))),
    }
}

/// What a plugin can call.
fn router(
    registered: mpsc::Sender<Result<Identity>>,
    callbacks: Arc<dyn RuntimeCallbacks>,
    ready: Arc<AtomicBool>,
    named: bool,
) -> Router {
    let mut router = Router::default();
    router.unary(RUNTIME_SERVICE, "RegisterPlugin", move |_, request: RegisterPluginRequest| {
        let registered = registered.clone();
        async move {
            let RegisterPluginRequest { plugin_name: name, plugin_idx: index, .. } = request;
            let checked = if named { Ok(()) } else { check_name(&name).and_then(|()| check_index(&index)) };
            let answer = checked.as_ref().map(|()| Empty {}).map_err(|error| Status::new(3, error.message()));
            let told = registered.try_send(checked.map(|()| Identity { index, name }));
            told.map_err(|_| Status::new(6, "the plugin is registered already"))?;
            answer
        }
    });
    router.unary(RUNTIME_SERVICE, "UpdateContainers", move |_, request: UpdateContainersRequest| {
        let (callbacks, ready) = (callbacks.clone(), ready.clone());
        async move {
            if !ready.load(Ordering::Acquire) {
                return Err(Status::new(9, "register before asking for updates"));
            }
            let failed = callbacks.update_containers(request.update).await;
            let failed = failed.map_err(|error| Status::new(error.kind().code(), error.to_string()))?;
            Ok(UpdateContainersResponse { failed })
        }
    });
    router
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_synchronized_is_cut_into_messages_that_can_be_sent() {
        let pod = PodSandbox { name: "x".repeat(1 << 20), ..PodSandbox::default() };
        let container = Container { name: "y".repeat(1 << 20), ..Container::default() };
        let parts = split(&vec![pod; 4], &vec![container; 3]);
        assert!(parts.len() > 1);
        assert!(parts.iter().all(|part| part.encoded_len() < 4 << 20));
        assert_eq!(
            parts
                .iter()
                .map(|part| (part.pods.len(), part.containers.len()))
                .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)),
            (4, 3)
        );
        assert_eq!(split(&[], &[]).len(), 1);
    }
}
