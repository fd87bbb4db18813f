use anyhow::{Context as _, Result};
use containerd_sdk::Snapshotter;

/// Remove snapshots.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keys
    #[arg(required = true)]
    keys: Vec<String>,
}

pub(super) async fn run(snapshots: &Snapshotter, args: Args) -> Result<()> {
    for key in &args.keys {
        snapshots.remove(key).await.with_context(|| format!("failed to remove {key:?}"))?;
    }
    Ok(())
}
