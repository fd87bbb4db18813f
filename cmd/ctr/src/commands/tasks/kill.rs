use anyhow::{Result, bail};

use crate::{commands::run::create::STOP_SIGNAL_LABEL, context::Context, signals};

/// Signal a container.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Signal to send to the container
    #[arg(short, long)]
    signal: Option<String>,
    /// Process ID to kill
    #[arg(long)]
    exec_id: Option<String>,
    /// Send signal to all processes inside the container
    #[arg(short, long)]
    all: bool,
    /// Id of the container
    container: Option<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let id = super::required(args.container)?;
    if args.all && args.exec_id.is_some() {
        bail!("specify an exec-id or all; not both");
    }
    let client = context.client().await?;
    let container = client.container(&id).await?;
    let labelled = container.record().labels.get(STOP_SIGNAL_LABEL).cloned();
    let signal = args.signal.or(labelled).unwrap_or_else(|| "SIGTERM".to_owned());
    let signal = signals::parse(&signal)?;
    let task = container.task().await?;
    match &args.exec_id {
        Some(exec) => task.load_process(exec).await?.kill(signal, false).await?,
        None => task.init().kill(signal, args.all).await?,
    }
    Ok(())
}
