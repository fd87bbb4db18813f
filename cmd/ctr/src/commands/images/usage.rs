use anyhow::{Context as _, Result, bail};

use crate::{
    commands::shared::SnapshotterFlag,
    context::Context,
    output::{Table, bytes},
};

/// Display usage of snapshots for a given image ref.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    snapshotter: SnapshotterFlag,
    /// Image
    reference: Option<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let Some(reference) = &args.reference else { bail!("please provide an image reference") };
    let client = context.client().await?;
    let image = client.image(reference).await?;
    let snapshots = client.snapshotter(&args.snapshotter.snapshotter);
    if !image.is_unpacked(snapshots.name()).await? {
        bail!("image {reference} isn't unpacked in snapshotter {}", snapshots.name());
    }
    let mut table = Table::new(1, 1);
    table.row(["KEY", "SIZE", "INODES"]);
    let mut key = image.chain_ids().await?.last().map(ToString::to_string).unwrap_or_default();
    while !key.is_empty() {
        let usage = snapshots.usage(&key).await.with_context(|| format!("failed to get usage for snapshot {key}"))?;
        table.row([key.clone(), bytes(usage.size.unsigned_abs()), usage.inodes.to_string()]);
        key = snapshots.stat(&key).await?.parent;
    }
    table.print()
}
