use anyhow::Result;
use containerd_sdk::DEFAULT_FIFO_DIR;

use super::foreground::{self, Session};
use crate::context::Context;

/// Attach to the IO of a running container.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Id of the container
    container: Option<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let id = super::required(args.container)?;
    let client = context.client().await?;
    let container = client.container(&id).await?;
    let session = Session::new(context, container.spec()?.terminal())?;
    let streams = session.streams(DEFAULT_FIFO_DIR.as_ref())?;
    let mut task = container.attach(streams).await?;
    let waiting = tokio::spawn(task.init().wait());
    let forwarding = foreground::forwarding(task.init(), &session)?;
    foreground::finish(task.init_mut(), &session, waiting, forwarding).await
}
