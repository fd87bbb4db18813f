use std::{
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    sync::{Arc, Weak},
    time::Duration,
};

use core_types::{Error, Result};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::Semaphore,
};

use super::Inner;
use crate::peer::Plugin;

/// Plugins that may be joining at the same time; more wait to be accepted.
const JOINING: usize = 16;

/// Makes the socket and takes in who connects.
///
/// # Errors
/// What making it fails with.
pub(super) fn listen(inner: &Arc<Inner>) -> Result<()> {
    let path = &inner.config.socket_path;
    let failed = |error| Error::io(format!("make NRI socket {}", path.display()), error);
    if let Some(directory) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660)).map_err(failed)?;
    inner.tasks().spawn(accept(listener, Arc::downgrade(inner)));
    Ok(())
}

async fn accept(listener: UnixListener, inner: Weak<Inner>) {
    let joining = Arc::new(Semaphore::new(JOINING));
    loop {
        let Ok(place) = joining.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "NRI: accept a plugin");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Some(inner) = inner.upgrade() else { return };
        let mut tasks = inner.tasks();
        while tasks.try_join_next().is_some() {}
        let weak = Arc::downgrade(&inner);
        tasks.spawn(async move {
            if let Err(error) = join(stream, weak).await {
                tracing::warn!(%error, "NRI: plugin that connected is turned away");
            }
            drop(place);
        });
    }
}

async fn join(stream: UnixStream, inner: Weak<Inner>) -> Result<()> {
    let gone = || Error::unavailable("the runtime goes down");
    let (config, callbacks) = {
        let inner = inner.upgrade().ok_or_else(gone)?;
        (inner.config.clone(), inner.callbacks.clone())
    };
    let plugin = Plugin::connect(stream, &config, callbacks, None).await?;
    inner.upgrade().ok_or_else(gone)?.admit(plugin).await
}
