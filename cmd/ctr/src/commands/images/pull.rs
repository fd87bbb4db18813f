use anyhow::{Result, bail};
use containerd_sdk::{Destination, ImageStore, Source};
use core_types::Platform;

use crate::{
    commands::shared::{RegistryFlags, SnapshotterFlag, refuse_local},
    context::Context,
    output,
    progress::Display,
    values,
};

/// Fetch and prepare an image for use in containerd.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    registry: RegistryFlags,
    #[command(flatten)]
    snapshotter: SnapshotterFlag,
    /// Labels to attach to the image
    #[arg(long)]
    label: Vec<String>,
    /// Pull content from a specific platform
    #[arg(long)]
    platform: Vec<String>,
    /// Pull content and metadata from all platforms
    #[arg(long)]
    all_platforms: bool,
    /// (Deprecated: use skip-metadata) Pull metadata for all platforms
    #[arg(long, hide = true)]
    all_metadata: bool,
    /// Skips metadata for unused platforms (Image may be unable to be pushed without metadata)
    #[arg(long)]
    skip_metadata: bool,
    /// Print the resulting image's chain ID
    #[arg(long)]
    print_chainid: bool,
    /// Set the max concurrent downloads for each pull (not available: the daemon's configuration decides)
    #[arg(long)]
    max_concurrent_downloads: Option<u32>,
    /// Fetch content from local client rather than using transfer service (not available)
    #[arg(long)]
    local: bool,
    /// Synchronize the underlying filesystem when unpacking; the daemon's configuration decides
    #[arg(long)]
    sync_fs: bool,
    /// Image
    reference: Option<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let Some(reference) = &args.reference else { bail!("please provide an image reference to pull") };
    refuse_local(args.local)?;
    if args.max_concurrent_downloads.is_some() {
        bail!("\"--max-concurrent-downloads\" requires \"--local\" flag, which is not available");
    }
    let mut platforms = values::platforms(&args.platform)?;
    if args.all_platforms && !platforms.is_empty() {
        bail!("cannot specify both --platform and --all-platforms");
    }
    if platforms.is_empty() && !args.all_platforms {
        platforms.push(Platform::host());
    }
    let unpack = platforms.iter().map(|platform| (platform.clone(), args.snapshotter.snapshotter.clone()));
    let store = ImageStore {
        name: reference.clone(),
        labels: values::labels(&args.label),
        unpack: unpack.collect(),
        all_metadata: args.all_metadata || !args.skip_metadata,
        platforms: platforms.clone(),
        ..ImageStore::default()
    };
    let registry = args.registry.registry(reference)?;
    let client = context.client().await?;
    context.debug(format!("pulling {reference}"));
    let display = Display::new();
    client.transfer(Source::Registry(registry), Destination::Store(store), Some(display.sink())).await?;
    display.finish();
    if args.print_chainid {
        for platform in &platforms {
            let chain = client.image(reference).await?.for_platform(platform).chain_ids().await?;
            let top = chain.last().map(ToString::to_string).unwrap_or_default();
            output::line(format!("image chain ID: {top}"))?;
        }
    }
    Ok(())
}
