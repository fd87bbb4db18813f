use anyhow::{Result, bail};
use containerd_sdk::Snapshotter;

/// Mount gets mount commands for the snapshots.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Mounts the snapshot mounts as a temp mount and returns a bind mount (not available yet)
    #[arg(long)]
    temp: bool,
    /// Where the commands mount
    target: String,
    /// Key
    key: String,
}

pub(super) async fn run(snapshots: &Snapshotter, args: Args) -> Result<()> {
    if args.temp {
        bail!("--temp is not available yet");
    }
    super::print_commands(&args.target, &snapshots.mounts(&args.key).await?)
}
