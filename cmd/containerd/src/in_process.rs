use std::{io, path::Path};

use tokio::{io::DuplexStream, sync::mpsc};
use tokio_stream::{StreamExt as _, wrappers::UnboundedReceiverStream};

use crate::{config, lock, server};

/// Bytes on their way in one direction of a connection.
const BUFFER: usize = 64 << 10;

/// The daemon as part of this program, reached over pipes in memory as well as over its sockets.
///
/// Shims are programs of their own as ever, and publish their events on the ttrpc socket; containers outlive the
/// daemon. It shares the process: its signals, its environment (`PATH` finds shims) and its mount namespace.
pub struct InProcess {
    daemon: server::Daemon,
    connector: Connector,
    _lock: lock::RootLock,
}

/// Makes connections to a daemon in this process; what `containerd_sdk::Client::in_process` takes.
#[derive(Clone, Debug)]
pub struct Connector(mpsc::UnboundedSender<DuplexStream>);

impl Connector {
    /// A connection, which the daemon serves.
    ///
    /// # Errors
    /// ConnectionRefused when the daemon has ended.
    pub fn connect(&self) -> io::Result<DuplexStream> {
        let (mine, theirs) = tokio::io::duplex(BUFFER);
        self.0.send(theirs).map_err(|_| io::Error::new(io::ErrorKind::ConnectionRefused, "the daemon has ended"))?;
        Ok(mine)
    }
}

impl InProcess {
    /// Starts a daemon with the configuration file, in a tokio runtime that has timers and input and output.
    ///
    /// # Errors
    /// What is wrong with the file; another daemon on the same root; what keeps plugins or listeners from starting.
    pub async fn start(config: &Path) -> anyhow::Result<Self> {
        let (config, _) = config::load(config)?;
        server::prepare(&config)?;
        let lock = lock::take(Path::new(&config.root))?;
        let mut daemon = server::Daemon::start(&config).await?;
        let (sender, accepted) = mpsc::unbounded_channel();
        daemon.serve_on(UnboundedReceiverStream::new(accepted).map(Ok::<_, io::Error>));
        Ok(Self { daemon, connector: Connector(sender), _lock: lock })
    }

    /// What makes connections to it.
    pub fn connector(&self) -> Connector {
        self.connector.clone()
    }

    /// Ends it; running requests have a moment, containers stay.
    pub async fn stop(self) {
        self.daemon.stop().await;
    }
}
