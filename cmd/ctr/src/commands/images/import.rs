use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use containerd_sdk::{Archive, Destination, ImageStore, Input, Source, api::types::transfer::ImageReference};
use core_types::Platform;

use crate::{
    commands::shared::{SnapshotterFlag, refuse_local},
    context::Context,
    output,
    progress::Display,
    values,
};

/// Import images from an OCI or Docker archive.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Base image name for added images, when provided only images with this name prefix are imported
    #[arg(long)]
    base_name: Option<String>,
    /// Whether to create digest images
    #[arg(long)]
    digests: bool,
    /// Skip applying --digests option to images named in the importing tar (use it in conjunction with --digests)
    #[arg(long)]
    skip_digest_for_named: bool,
    /// Image name to keep index as, by default index is discarded
    #[arg(long)]
    index_name: Option<String>,
    /// Imports content for all platforms, false by default
    #[arg(long)]
    all_platforms: bool,
    /// Imports content for specific platform
    #[arg(long)]
    platform: Option<String>,
    /// Skip unpacking the images, false by default
    #[arg(long)]
    no_unpack: bool,
    /// Run import locally rather than through transfer API (not available)
    #[arg(long)]
    local: bool,
    /// Compress uncompressed blobs when creating manifest (Docker format only)
    #[arg(long)]
    compress_blobs: bool,
    /// Drop layers after unpacking (not available)
    #[arg(long)]
    discard_unpacked_layers: bool,
    /// Synchronize the underlying filesystem when unpacking; the daemon's configuration decides
    #[arg(long)]
    sync_fs: bool,
    #[command(flatten)]
    snapshotter: SnapshotterFlag,
    /// Labels to attach to the image
    #[arg(long)]
    label: Vec<String>,
    /// Input file, `-` for standard input
    input: Option<PathBuf>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    refuse_local(args.local)?;
    if args.discard_unpacked_layers {
        bail!("\"--discard-unpacked-layers\" requires \"--local\" flag, which is not available");
    }
    if args.skip_digest_for_named && !args.digests {
        bail!("--skip-digest-for-named must be specified with --digests option");
    }
    let Some(path) = &args.input else { bail!("please provide an archive to import, - for standard input") };
    let reader: Input = if path.as_os_str() == "-" {
        Box::new(tokio::io::stdin())
    } else {
        Box::new(tokio::fs::File::open(path).await.with_context(|| format!("open {}", path.display()))?)
    };
    let store = store(&args)?;
    let archive = Archive { force_compress: args.compress_blobs, ..Archive::default() };
    let client = context.client().await?;
    let display = Display::new();
    client.transfer(Source::Archive(archive, reader), Destination::Store(store), Some(display.sink())).await?;
    display.finish();
    Ok(())
}

fn store(args: &Args) -> Result<ImageStore> {
    let today = || output::rfc3339(std::time::SystemTime::now())[..10].to_owned();
    let reference = ImageReference {
        name: args.base_name.clone().unwrap_or_else(|| format!("import-{}", today())),
        is_prefix: true,
        // A name that was made up here gives way to one in the archive.
        allow_overwrite: args.base_name.is_none(),
        add_digest: args.digests,
        skip_named_digest: args.digests && !args.skip_digest_for_named,
    };
    let platform = match &args.platform {
        Some(platform) if !args.all_platforms => Platform::parse(platform)?,
        _ => Platform::host(),
    };
    Ok(ImageStore {
        name: args.index_name.clone().unwrap_or_default(),
        labels: values::labels(&args.label),
        platforms: if args.all_platforms { Vec::new() } else { vec![platform.clone()] },
        unpack: if args.no_unpack { Vec::new() } else { vec![(platform, args.snapshotter.snapshotter.clone())] },
        extra_references: vec![reference],
        ..ImageStore::default()
    })
}
