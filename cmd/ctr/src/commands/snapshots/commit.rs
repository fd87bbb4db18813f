use anyhow::Result;
use containerd_sdk::Snapshotter;

/// Commit an active snapshot into the provided name.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the committed snapshot
    key: String,
    /// Key of the active snapshot
    active: String,
}

pub(super) async fn run(snapshots: &Snapshotter, args: Args) -> Result<()> {
    Ok(snapshots.commit(&args.key, &args.active, super::root_label()).await?)
}
