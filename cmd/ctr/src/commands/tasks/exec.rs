use std::path::PathBuf;

use anyhow::{Result, bail};
use containerd_sdk::{Container, DEFAULT_FIFO_DIR, Process};
use serde_json::{Map, Value, json};

use super::foreground::{self, Session};
use crate::context::Context;

/// Execute additional processes in an existing container.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Working directory of the new process
    #[arg(long)]
    cwd: Option<String>,
    /// Allocate a TTY for the container
    #[arg(short, long)]
    tty: bool,
    /// Detach from the task after it has started execution
    #[arg(short, long)]
    detach: bool,
    /// Exec specific id for the process
    #[arg(long, required = true)]
    exec_id: String,
    /// Directory used for storing IO FIFOs
    #[arg(long)]
    fifo_dir: Option<PathBuf>,
    /// Log uri for custom shim logging
    #[arg(long)]
    log_uri: Option<String>,
    /// User id or name
    #[arg(long)]
    user: Option<String>,
    /// Id of the container and the command
    #[arg(trailing_var_arg = true, value_name = "CONTAINER CMD [ARG...]")]
    args: Vec<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let id = super::required(args.args.first().cloned())?;
    if args.log_uri.is_some() && args.fifo_dir.is_some() {
        bail!("can't use log-uri with fifo-dir");
    }
    if args.args.len() < 2 {
        bail!("a command must be provided");
    }
    let client = context.client().await?;
    let container = client.container(&id).await?;
    let process = process(&container, &args).await?;
    let task = container.task().await?;
    let session = Session::new(context, args.tty)?;
    let fifo_dir = args.fifo_dir.clone().unwrap_or_else(|| DEFAULT_FIFO_DIR.into());
    let stdio = session.stdio(false, args.log_uri.as_deref(), &fifo_dir, args.detach)?;
    let mut process: Process = task.exec(&args.exec_id, process, stdio).await?;
    if !args.detach {
        return foreground::run(&mut process, &session).await;
    }
    if let Err(error) = process.start().await {
        foreground::clean_up(&mut process).await;
        return Err(error.into());
    }
    process.detach();
    Ok(())
}

/// The container's process with another command.
async fn process(container: &Container, args: &Args) -> Result<Map<String, Value>> {
    let mut spec = container.spec()?;
    spec.set_args(&args.args[1..]);
    if let Some(cwd) = &args.cwd {
        spec.set_cwd(cwd);
    }
    if let Some(user) = &args.user {
        spec.set_user(&container.resolve_user(user).await?);
    }
    let mut process = spec.process();
    process.insert("terminal".into(), json!(args.tty));
    Ok(process)
}
