use core_plugin::{Instance, Registration, Requirement, types};
use core_types::Error;
use plugin_services::MAX_MESSAGE_SIZE;
use serde::{Deserialize, Serialize};

use crate::config::DEFAULT_ADDRESS;

/// Where and how to listen: sections `io.containerd.server.v1.grpc` and `.ttrpc`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listener {
    /// Path of the socket.
    pub(crate) address: String,
    /// Its owner.
    pub(crate) uid: u32,
    /// Its group.
    pub(crate) gid: u32,
}

/// The gRPC listener has limits besides. They are taken and have no effect: every service has the API's own.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct GrpcListener {
    #[serde(flatten)]
    listener: Listener,
    max_recv_message_size: usize,
    max_send_message_size: usize,
}

/// The listeners. Their instances say where to listen; the daemon listens when all plugins have started.
pub(super) fn plugins() -> Vec<Registration> {
    let owner = |address: String| Listener {
        address,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    };
    let grpc = GrpcListener {
        listener: owner(DEFAULT_ADDRESS.into()),
        max_recv_message_size: MAX_MESSAGE_SIZE,
        max_send_message_size: MAX_MESSAGE_SIZE,
    };
    vec![
        Registration::new(types::SERVER, "grpc", |context| async move {
            let config: GrpcListener = context.config()?;
            if config.listener.address.is_empty() {
                return Err(Error::invalid_argument("grpc address cannot be empty").into());
            }
            for limit in [config.max_recv_message_size, config.max_send_message_size] {
                if limit != MAX_MESSAGE_SIZE {
                    tracing::warn!(limit, "message size limits are fixed to {MAX_MESSAGE_SIZE} bytes");
                }
            }
            Ok(Instance::new(config.listener))
        })
        .config(&grpc)
        .requires(Requirement::optional(types::GRPC)),
        Registration::new(types::SERVER, "ttrpc", |context| async move {
            let config: Listener = context.config()?;
            if config.address.is_empty() {
                return Err(core_plugin::InitError::skip("no address"));
            }
            Ok(Instance::new(config))
        })
        .config(&owner(format!("{DEFAULT_ADDRESS}.ttrpc")))
        .requires(Requirement::optional(types::TTRPC))
        .requires(Requirement::optional(types::GRPC)),
    ]
}
