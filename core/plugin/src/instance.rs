use std::{any::Any, collections::BTreeMap, pin::Pin, sync::Arc};

use core_types::Platform;

/// A future owned by the plugin set.
pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// Something to run once, later.
pub(crate) type Hook = Box<dyn FnOnce() -> BoxFuture<()> + Send>;

/// How clients reach a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// On the gRPC socket.
    Grpc,
    /// On the ttrpc socket.
    Ttrpc,
}

/// A service that a plugin offers. What `service` is, only the daemon and the plugin know: this crate knows
/// no RPC.
pub struct Offer {
    /// How it is reached.
    pub transport: Transport,
    /// The service, of a type that the server of this transport takes.
    pub service: Box<dyn Any + Send>,
}

/// What a plugin leaves behind when it started.
pub struct Instance {
    pub(crate) value: Arc<dyn Any + Send + Sync>,
    pub(crate) offers: Vec<Offer>,
    pub(crate) platforms: Vec<Platform>,
    pub(crate) capabilities: Vec<String>,
    pub(crate) exports: BTreeMap<String, String>,
    pub(crate) serving: Option<Hook>,
    pub(crate) closing: Option<Hook>,
}

impl Instance {
    /// An instance that others get as a `T`; for a trait, `T` is `Arc<dyn Trait>`.
    pub fn new<T: Any + Clone + Send + Sync>(value: T) -> Self {
        Self {
            value: Arc::new(value),
            offers: Vec::new(),
            platforms: Vec::new(),
            capabilities: Vec::new(),
            exports: BTreeMap::new(),
            serving: None,
            closing: None,
        }
    }

    /// Offers a service.
    #[must_use]
    pub fn offer<S: Any + Send>(mut self, transport: Transport, service: S) -> Self {
        self.offers.push(Offer { transport, service: Box::new(service) });
        self
    }

    /// Says which platform the plugin serves.
    #[must_use]
    pub fn platform(mut self, platform: Platform) -> Self {
        self.platforms.push(platform);
        self
    }

    /// Names a capability, as introspection shows it.
    #[must_use]
    pub fn capability(mut self, capability: impl Into<String>) -> Self {
        self.capabilities.push(capability.into());
        self
    }

    /// Exports a value, as introspection shows it (`root` of a snapshotter).
    #[must_use]
    pub fn export(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.exports.insert(key.into(), value.into());
        self
    }

    /// Runs `hook` once the sockets accept: the place for work that must not hold up the start.
    #[must_use]
    pub fn when_serving<F, R>(mut self, hook: F) -> Self
    where
        F: FnOnce() -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        self.serving = Some(Box::new(move || Box::pin(hook())));
        self
    }

    /// Runs `hook` when the daemon ends, in the reverse order of starting.
    #[must_use]
    pub fn on_close<F, R>(mut self, hook: F) -> Self
    where
        F: FnOnce() -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        self.closing = Some(Box::new(move || Box::pin(hook())));
        self
    }
}
