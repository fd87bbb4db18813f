use std::path::PathBuf;

use anyhow::Result;
use containerd_sdk::DEFAULT_FIFO_DIR;

use super::foreground::{self, Session};
use crate::{commands::run::task_options, context::Context};

/// Start a container that has been created.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Disable use of pivot-root (linux only)
    #[arg(long)]
    no_pivot: bool,
    /// Send all IO to /dev/null
    #[arg(long)]
    null_io: bool,
    /// Log uri
    #[arg(long)]
    log_uri: Option<String>,
    /// Directory used for storing IO FIFOs
    #[arg(long)]
    fifo_dir: Option<PathBuf>,
    /// File path to write the task's pid
    #[arg(long)]
    pid_file: Option<PathBuf>,
    /// Detach from the task after it has started execution
    #[arg(short, long)]
    detach: bool,
    /// Id of the container
    container: Option<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let id = super::required(args.container)?;
    let client = context.client().await?;
    let container = client.container(&id).await?;
    let session = Session::new(context, container.spec()?.terminal())?;
    let fifo_dir = args.fifo_dir.unwrap_or_else(|| DEFAULT_FIFO_DIR.into());
    let stdio = session.stdio(args.null_io, args.log_uri.as_deref(), &fifo_dir, args.detach)?;
    let mut task = container.new_task(stdio, task_options(&container, args.no_pivot)?).await?;
    if let Some(path) = &args.pid_file
        && let Err(error) = foreground::write_pid_file(path, task.init().pid())
    {
        foreground::clean_up(task.init_mut()).await;
        return Err(error);
    }
    if !args.detach {
        return foreground::run(task.init_mut(), &session).await;
    }
    if let Err(error) = task.init_mut().start().await {
        foreground::clean_up(task.init_mut()).await;
        return Err(error.into());
    }
    task.into_init().detach();
    Ok(())
}
