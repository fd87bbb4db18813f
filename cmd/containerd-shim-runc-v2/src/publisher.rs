use std::{path::PathBuf, time::Duration};

use containerd_api::{
    services::events::ttrpc::v1::{ForwardRequest, events_ttrpc},
    types::Envelope,
};
use containerd_ttrpc::{Client, Context, Status};
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, sleep, timeout_at},
};

use crate::log::Log;

/// Events that wait for the daemon; more are dropped, and said so.
const QUEUE: usize = 4096;
/// How long the daemon may take to accept one.
const FORWARD: Duration = Duration::from_secs(5);
/// How often the daemon may refuse one before it is given up.
const TRIES: u32 = 5;
/// Pauses between tries while the daemon is away.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

/// Sends events to the daemon, in order, across its restarts.
#[derive(Debug)]
pub(crate) struct Publisher {
    queue: mpsc::Sender<Envelope>,
    log: Log,
}

impl Publisher {
    /// Starts to send to the daemon's ttrpc socket; without one events go nowhere.
    pub(crate) fn start(address: Option<&str>, namespace: &str, log: Log) -> (Self, JoinHandle<()>) {
        let (queue, events) = mpsc::channel(QUEUE);
        let path = address
            .filter(|address| !address.is_empty())
            .map(|address| PathBuf::from(address.strip_prefix("unix://").unwrap_or(address)));
        let task = Sender { path, namespace: namespace.to_owned(), client: None, log: log.clone() };
        (Self { queue, log }, tokio::spawn(task.run(events)))
    }

    /// Queues an event.
    pub(crate) fn publish(&self, event: Envelope) {
        if let Err(error) = self.queue.try_send(event) {
            self.log.warn(format_args!("event is dropped: the daemon has been away for too long: {error}"));
        }
    }
}

struct Sender {
    path: Option<PathBuf>,
    namespace: String,
    client: Option<Client>,
    log: Log,
}

impl Sender {
    async fn run(mut self, mut events: mpsc::Receiver<Envelope>) {
        while let Some(event) = events.recv().await {
            if self.path.is_some() {
                self.deliver(ForwardRequest { envelope: Some(event) }).await;
            }
        }
    }

    /// Sends until it is accepted, or refused for good.
    async fn deliver(&mut self, request: ForwardRequest) {
        let mut refusals = 0;
        let mut away = 0;
        loop {
            match self.forward(&request).await {
                Ok(()) => return,
                // The connection or the daemon is gone, which restarts are.
                Err(status) if matches!(status.code, UNAVAILABLE | DEADLINE_EXCEEDED) => {
                    self.client = None;
                    let pause = PAUSES.get(away).or(PAUSES.last()).copied().unwrap_or(FORWARD);
                    away += 1;
                    sleep(pause).await;
                }
                Err(status) => {
                    refusals += 1;
                    if refusals >= TRIES {
                        self.log.warn(format_args!("event is dropped: the daemon refuses it: {status}"));
                        return;
                    }
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn forward(&mut self, request: &ForwardRequest) -> Result<(), Status> {
        let end = Instant::now() + FORWARD;
        let client = match self.client.take().filter(|client| !client.is_closed()) {
            Some(client) => client,
            None => {
                let path = self.path.as_deref().unwrap_or(std::path::Path::new(""));
                match timeout_at(end, Client::connect(path)).await {
                    Ok(Ok(client)) => client,
                    Ok(Err(error)) => return Err(Status::new(UNAVAILABLE, error.to_string())),
                    Err(_) => return Err(Status::new(DEADLINE_EXCEEDED, "connecting takes too long")),
                }
            }
        };
        let mut context = Context::with_timeout(FORWARD);
        context.metadata.insert("containerd-namespace-ttrpc".to_owned(), vec![self.namespace.clone()]);
        events_ttrpc::Client::new(client.clone()).forward(&context, request).await?;
        self.client = Some(client);
        Ok(())
    }
}

const DEADLINE_EXCEEDED: i32 = 4;
const UNAVAILABLE: i32 = 14;
