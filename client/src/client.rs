use std::{io, time::Duration};

use core_types::{Namespace, Scope};
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::Channel,
};

use crate::{Error, Result, connect};

/// Where the daemon listens.
pub const DEFAULT_ADDRESS: &str = "/run/containerd/containerd.sock";
/// The namespace of clients that do not name one.
pub const DEFAULT_NAMESPACE: &str = "default";
/// The snapshotter of clients that do not name one.
pub const DEFAULT_SNAPSHOTTER: &str = "overlayfs";
/// The runtime of clients that do not name one.
pub const DEFAULT_RUNTIME: &str = "io.containerd.runc.v2";

/// Metadata keys of the API.
const NAMESPACE_KEY: &str = "containerd-namespace";
const LEASE_KEY: &str = "containerd-lease";

/// Largest message taken from the daemon, as Go's client has it.
pub(crate) const MAX_MESSAGE: usize = 16 << 20;

/// A channel that sends namespace and lease with each call; what the generated clients run on.
pub type Service = InterceptedService<Channel, Scoped>;

/// Puts namespace and lease into a call's metadata.
#[derive(Clone, Debug)]
pub struct Scoped {
    namespace: MetadataValue<Ascii>,
    lease: Option<MetadataValue<Ascii>>,
}

impl Interceptor for Scoped {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let metadata = request.metadata_mut();
        metadata.insert(NAMESPACE_KEY, self.namespace.clone());
        if let Some(lease) = &self.lease {
            metadata.insert(LEASE_KEY, lease.clone());
        }
        Ok(request)
    }
}

/// A connection to a daemon, bound to a namespace and maybe a lease.
#[derive(Clone, Debug)]
pub struct Client {
    channel: Channel,
    scope: Scope,
    scoped: Scoped,
}

impl Client {
    /// Connects to the daemon's Unix socket, within 10 s.
    ///
    /// # Errors
    /// [`Error::Connect`] when no daemon answers there; InvalidArgument for a namespace that is no identifier.
    pub async fn connect(address: &str, namespace: &str) -> Result<Self> {
        Self::connect_within(address, namespace, connect::CONNECT_TIMEOUT).await
    }

    /// As [`connect`](Self::connect) with another time limit.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_within(address: &str, namespace: &str, timeout: Duration) -> Result<Self> {
        let namespace = Namespace::new(namespace)?;
        Self::over(connect::unix(address, timeout).await?, Scope::new(namespace))
    }

    /// Talks to a daemon in this process over streams that `connector` makes, for example the client ends of
    /// [`tokio::io::duplex`] pairs whose server ends are served. It is called again if a stream breaks.
    ///
    /// # Errors
    /// [`Error::Connect`] when the stream or the HTTP/2 handshake fails.
    pub async fn in_process<F, R, S>(connector: F, namespace: &str) -> Result<Self>
    where
        F: Fn() -> R + Clone + Send + Sync + 'static,
        R: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let namespace = Namespace::new(namespace)?;
        Self::over(connect::channel(connector).await?, Scope::new(namespace))
    }

    /// Uses a channel made elsewhere.
    ///
    /// # Errors
    /// InvalidArgument for a lease whose id does not fit in metadata.
    pub fn over(channel: Channel, scope: Scope) -> Result<Self> {
        let value = |text: &str| {
            MetadataValue::try_from(text).map_err(|_| Error::invalid(format!("{text:?} cannot be sent as metadata")))
        };
        let scoped = Scoped {
            namespace: value(scope.namespace.as_str())?,
            lease: scope.lease.as_deref().map(value).transpose()?,
        };
        Ok(Self { channel, scope, scoped })
    }

    /// The same connection in another namespace, without a lease.
    ///
    /// # Errors
    /// InvalidArgument when it is no identifier.
    pub fn in_namespace(&self, namespace: &str) -> Result<Self> {
        Self::over(self.channel.clone(), Scope::new(Namespace::new(namespace)?))
    }

    /// The same connection under a lease, which then holds what is made.
    ///
    /// # Errors
    /// InvalidArgument when the id does not fit in metadata.
    pub fn under_lease(&self, lease: &str) -> Result<Self> {
        Self::over(self.channel.clone(), self.scope.leased(lease))
    }

    /// The namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.scope.namespace
    }

    /// Id of the lease.
    pub fn lease(&self) -> Option<&str> {
        self.scope.lease.as_deref()
    }

    /// The channel with namespace and lease, for a generated client of [`crate::grpc`]:
    /// `TasksClient::new(client.service())`.
    pub fn service(&self) -> Service {
        InterceptedService::new(self.channel.clone(), self.scoped.clone())
    }
}

/// Clients of the services that this crate uses.
macro_rules! services {
    ($($method:ident: $($part:ident)::+;)*) => {
        impl Client {
            $(
                pub(crate) fn $method(&self) -> containerd_api_grpc::services::$($part)::+<Service> {
                    containerd_api_grpc::services::$($part)::+::new(self.service()).max_decoding_message_size(MAX_MESSAGE)
                }
            )*
        }
    };
}

services! {
    containers_service: containers::v1::containers_client::ContainersClient;
    content_service: content::v1::content_client::ContentClient;
    diff_service: diff::v1::diff_client::DiffClient;
    events_service: events::v1::events_client::EventsClient;
    images_service: images::v1::images_client::ImagesClient;
    introspection_service: introspection::v1::introspection_client::IntrospectionClient;
    leases_service: leases::v1::leases_client::LeasesClient;
    namespaces_service: namespaces::v1::namespaces_client::NamespacesClient;
    snapshots_service: snapshots::v1::snapshots_client::SnapshotsClient;
    streaming_service: streaming::v1::streaming_client::StreamingClient;
    tasks_service: tasks::v1::tasks_client::TasksClient;
    transfer_service: transfer::v1::transfer_client::TransferClient;
    version_service: version::v1::version_client::VersionClient;
}
