use anyhow::{Result, bail};
use containerd_sdk::{Destination, ImageStore, Source};

use crate::{
    commands::shared::{RegistryFlags, refuse_local},
    context::Context,
    progress::Display,
    values,
};

/// Pushes an image reference from containerd.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    registry: RegistryFlags,
    /// Digest of manifest (not available)
    #[arg(long)]
    manifest: Option<String>,
    /// Media type of manifest digest (not available)
    #[arg(long)]
    manifest_type: Option<String>,
    /// Push content from a specific platform
    #[arg(long)]
    platform: Vec<String>,
    /// Set the max concurrent uploaded layers for each push (not available)
    #[arg(long)]
    max_concurrent_uploaded_layers: Option<u32>,
    /// Push content from local client rather than using transfer service (not available)
    #[arg(long)]
    local: bool,
    /// Allow pushing blobs that are marked as non-distributable (not available)
    #[arg(long)]
    allow_non_distributable_blobs: bool,
    /// Name in the registry
    remote: Option<String>,
    /// Name here, when it is another
    local_name: Option<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let Some(remote) = &args.remote else { bail!("please provide a remote image reference to push") };
    refuse_local(args.local)?;
    let needing_local = [
        ("manifest", args.manifest.is_some()),
        ("manifest-type", args.manifest_type.is_some()),
        ("max-concurrent-uploaded-layers", args.max_concurrent_uploaded_layers.is_some()),
        ("allow-non-distributable-blobs", args.allow_non_distributable_blobs),
    ];
    if let Some((flag, _)) = needing_local.iter().find(|(_, set)| *set) {
        bail!("\"--{flag}\" requires \"--local\" flag, which is not available");
    }
    let store = ImageStore {
        name: args.local_name.clone().unwrap_or_else(|| remote.clone()),
        platforms: values::platforms(&args.platform)?,
        ..ImageStore::default()
    };
    let registry = args.registry.registry(remote)?;
    let client = context.client().await?;
    let display = Display::new();
    client.transfer(Source::Store(store), Destination::Registry(registry), Some(display.sink())).await?;
    display.finish();
    Ok(())
}
