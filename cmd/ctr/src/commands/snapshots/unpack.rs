use anyhow::{Result, bail};
use containerd_sdk::Client;
use core_types::Digest;

use crate::output;

/// Unpack applies layers from a manifest to a snapshot.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Synchronize the underlying filesystem containing files when unpack images, false by default
    #[arg(long)]
    sync_fs: bool,
    /// Snapshotter name, when it is another than the command's
    #[arg(long)]
    snapshotter: Option<String>,
    /// Digest of the manifest or index
    digest: String,
}

pub(super) async fn run(client: &Client, snapshotter: &str, args: Args) -> Result<()> {
    let digest = Digest::parse(&args.digest)?;
    let snapshotter = args.snapshotter.as_deref().unwrap_or(snapshotter);
    let images = client.images(&[]).await?;
    let Some(image) = images.iter().find(|image| image.target().digest == digest) else {
        bail!("manifest not found");
    };
    image.unpack(snapshotter, args.sync_fs).await?;
    output::line(format!("unpacking {digest} ({})...done", image.target().media_type))
}
