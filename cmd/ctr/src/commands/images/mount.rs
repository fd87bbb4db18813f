use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use containerd_sdk::{Client, Image};
use core_mount::Mount;
use core_types::{Labels, Platform};

use crate::{
    commands::shared::SnapshotterFlag,
    context::{Context, warn},
    output, values,
};

/// Mount an image rootfs to a specified path; undo with unmount.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    snapshotter: SnapshotterFlag,
    /// Enable write support on the mount
    #[arg(long)]
    rw: bool,
    /// Mount the image for the specified platform
    #[arg(long)]
    platform: Option<String>,
    /// Synchronize the underlying filesystem containing files when unpack images, false by default
    #[arg(long)]
    sync_fs: bool,
    /// Set the expiration time for the mount and snapshots
    #[arg(short = 'x', long, default_value = "1h", value_parser = values::duration)]
    expiration: Duration,
    /// Image
    reference: Option<String>,
    /// Where to; without it, only a single directory can be shown
    target: Option<PathBuf>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let Some(reference) = &args.reference else { bail!("please provide an image reference to mount") };
    let key = match &args.target {
        Some(target) => target.to_string_lossy().into_owned(),
        None => format!("ctr-images-mount-{}", std::process::id()),
    };
    let client = context.client().await?;
    let mut image = client.image(reference).await?;
    if let Some(platform) = &args.platform {
        image = image.for_platform(&Platform::parse(platform)?);
    }
    let mine = match client.create_lease(Some(&key), Labels::new(), args.expiration).await {
        Ok(_) => true,
        Err(error) if error.is_already_exists() => false,
        Err(error) => return Err(error.into()),
    };
    let leased = client.under_lease(&key)?;
    let done = mount(&leased, &image, &args, &key).await;
    if done.is_err()
        && mine
        && let Err(error) = client.delete_lease(&key, false).await
    {
        warn(format!("failed to give back lease {key}: {error}"));
    }
    output::line(done?.display())
}

async fn mount(client: &Client, image: &Image, args: &Args, key: &str) -> Result<PathBuf> {
    let snapshots = client.snapshotter(&args.snapshotter.snapshotter);
    image.unpack(snapshots.name(), args.sync_fs).await.context("error unpacking image")?;
    let chain = image.chain_ids().await?;
    let top = chain.last().map(ToString::to_string).unwrap_or_default();
    output::line(&top)?;
    let made = if args.rw {
        snapshots.prepare(key, &top, Labels::new()).await
    } else {
        snapshots.view(key, &top, Labels::new()).await
    };
    let mounts = match made {
        Err(error) if error.is_already_exists() => snapshots.mounts(key).await?,
        made => made?,
    };
    let Some(target) = &args.target else { return single_directory(&mounts) };
    let (list, place) = (mounts.clone(), target.clone());
    let mounted = tokio::task::spawn_blocking(move || core_mount::mount_all(&list, &place)).await?;
    if let Err(error) = mounted {
        if let Err(left) = snapshots.remove(key).await
            && !left.is_not_found()
        {
            warn(format!("Error cleaning up snapshot after mount error: {left}"));
        }
        return Err(error).context(format!("failed to mount at {}", target.display()));
    }
    Ok(target.clone())
}

fn single_directory(mounts: &[Mount]) -> Result<PathBuf> {
    match mounts {
        [mount] if mount.kind == "bind" => Ok(PathBuf::from(&mount.source)),
        _ => bail!("the image needs a mount: please provide a target path"),
    }
}
