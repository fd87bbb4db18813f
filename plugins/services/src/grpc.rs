use std::{
    collections::BTreeMap,
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use containerd_ttrpc::Router;
use futures::Stream;
use tonic::{Status, body::Body, server::NamedService};
use tower::{Service, ServiceExt, util::BoxCloneSyncService};

/// The longest message taken and sent, in bytes (containerd `defaults.DefaultMaxRecvMsgSize`).
pub const MAX_MESSAGE_SIZE: usize = 16 << 20;

/// A stream of answers.
pub type BoxStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

type Handler = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, Infallible>;
type Answer = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

/// A gRPC service that a plugin offers.
pub struct GrpcService {
    name: &'static str,
    handler: Handler,
}

impl GrpcService {
    /// Wraps a generated server.
    pub fn new<S>(service: S) -> Self
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        Self { name: S::NAME, handler: BoxCloneSyncService::new(service) }
    }

    /// Its full name, `containerd.services.content.v1.Content`.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

/// A ttrpc service that a plugin offers: adds itself to a router.
pub struct TtrpcService(pub Box<dyn FnOnce(&mut Router) + Send>);

/// Serves requests by the service that their path names.
#[derive(Clone, Default)]
pub struct GrpcRouter {
    services: Arc<BTreeMap<&'static str, Handler>>,
    requests: Arc<AtomicU64>,
}

impl GrpcRouter {
    /// A router of these services. Of two with the same name the last counts.
    pub fn new(services: impl IntoIterator<Item = GrpcService>) -> Self {
        let services = services.into_iter().map(|service| (service.name, service.handler)).collect();
        Self { services: Arc::new(services), requests: Arc::default() }
    }

    /// How many requests there were so far.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Names of the services.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.services.keys().copied()
    }
}

impl Service<http::Request<Body>> for GrpcRouter {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Answer {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let name = request.uri().path().split('/').nth(1).unwrap_or_default();
        match self.services.get(name).cloned() {
            Some(handler) => Box::pin(handler.oneshot(request)),
            None => {
                let status = Status::unimplemented(format!("unknown service {name}: this daemon does not offer it"));
                Box::pin(async move { Ok(status.into_http()) })
            }
        }
    }
}

/// A generated server with the message sizes of the API, as a [`GrpcService`].
macro_rules! serve {
    ($server:path, $service:expr) => {
        $crate::grpc::serve_shared!($server, std::sync::Arc::new($service))
    };
}
pub(crate) use serve;

/// As [`serve`], for a service that others hold too.
macro_rules! serve_shared {
    ($server:path, $service:expr) => {{
        use $server as Server;
        $crate::GrpcService::new(
            Server::from_arc($service)
                .max_decoding_message_size($crate::MAX_MESSAGE_SIZE)
                .max_encoding_message_size($crate::MAX_MESSAGE_SIZE),
        )
    }};
}
pub(crate) use serve_shared;
