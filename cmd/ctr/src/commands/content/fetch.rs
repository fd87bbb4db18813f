use anyhow::{Result, bail};
use containerd_sdk::{Destination, ImageStore, Source};
use core_types::Platform;

use crate::{commands::shared::RegistryFlags, context::Context, progress::Display, values};

/// Fetch an image into containerd without unpacking it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    registry: RegistryFlags,
    /// Labels to attach to the image
    #[arg(long)]
    label: Vec<String>,
    /// Pull content from a specific platform
    #[arg(long)]
    platform: Vec<String>,
    /// Pull content from all platforms
    #[arg(long)]
    all_platforms: bool,
    /// Skips metadata for unused platforms (Image may be unable to be pushed without metadata)
    #[arg(long)]
    skip_metadata: bool,
    /// Pull manifests and configurations alone (not available)
    #[arg(long)]
    metadata_only: bool,
    /// Image
    reference: Option<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let Some(reference) = &args.reference else { bail!("please provide an image reference to fetch") };
    if args.metadata_only {
        bail!("--metadata-only is not available yet");
    }
    let mut platforms = values::platforms(&args.platform)?;
    if platforms.is_empty() && !args.all_platforms {
        platforms.push(Platform::host());
    }
    let store = ImageStore {
        name: reference.clone(),
        labels: values::labels(&args.label),
        platforms,
        all_metadata: !args.skip_metadata,
        ..ImageStore::default()
    };
    let registry = args.registry.registry(reference)?;
    let client = context.client().await?;
    let display = Display::new();
    client.transfer(Source::Registry(registry), Destination::Store(store), Some(display.sink())).await?;
    display.finish();
    Ok(())
}
