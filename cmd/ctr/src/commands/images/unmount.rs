use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::{commands::shared::SnapshotterFlag, context::Context, output};

/// Unmount the image rootfs from the specified target.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    snapshotter: SnapshotterFlag,
    /// Remove the snapshot after a successful unmount
    #[arg(long)]
    rm: bool,
    /// Where it is mounted
    target: Option<PathBuf>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let Some(target) = args.target else { bail!("please provide a target path to unmount from") };
    let client = context.client().await?;
    let place = target.clone();
    tokio::task::spawn_blocking(move || core_mount::unmount_all(&place)).await??;
    if args.rm {
        let key = target.to_string_lossy();
        match client.delete_lease(&key, false).await {
            Err(error) if !error.is_not_found() => return Err(error).context("error deleting lease"),
            _ => {}
        }
        match client.snapshotter(&args.snapshotter.snapshotter).remove(&key).await {
            Err(error) if !error.is_not_found() => return Err(error).context("error removing snapshot"),
            _ => {}
        }
    }
    output::line(target.display())
}
