use anyhow::{Result, bail};

/// Checkpoint a container.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Id of the container
    container: Option<String>,
}

pub(super) fn run(args: &Args) -> Result<()> {
    bail!("checkpoint is not available{}", args.container.as_deref().map(|id| format!(": {id}")).unwrap_or_default())
}
