use anyhow::Result;
use containerd_sdk::{Client, Snapshotter, api::services::snapshots::v1::Kind};
use core_mount::Mount;
use core_types::{Descriptor, Error, Labels, media_types};
use tokio::{io::AsyncWriteExt as _, sync::Mutex};

use crate::{context::warn, values};

/// Get the diff of two snapshots.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Media type to use for creating diff
    #[arg(long, default_value = media_types::OCI_LAYER_GZIP)]
    media_type: String,
    /// Content upload reference to use
    #[arg(long = "ref", default_value = "", hide_default_value = true)]
    reference: String,
    /// Keep diff content. up to creator to delete it
    #[arg(long)]
    keep: bool,
    /// Labels to attach to the layer
    #[arg(long)]
    label: Vec<String>,
    /// First snapshot
    id_a: String,
    /// Second snapshot
    id_b: Option<String>,
}

pub(super) async fn run(client: &Client, snapshots: &Snapshotter, args: Args) -> Result<()> {
    let name = snapshots.name().to_owned();
    Ok(client
        .with_lease(|client| async move {
            let snapshots = client.snapshotter(&name);
            let layer = make(&client, &snapshots, &args).await?;
            let out = Mutex::new(tokio::io::stdout());
            let content = client.content();
            content
                .read(&layer.digest, |piece| {
                    let out = &out;
                    async move {
                        let written = out.lock().await.write_all(&piece).await;
                        Ok(written.map_err(|error| Error::io("write layer", error))?)
                    }
                })
                .await?;
            Ok(out.lock().await.flush().await.map_err(|error| Error::io("write layer", error))?)
        })
        .await?)
}

async fn make(client: &Client, snapshots: &Snapshotter, args: &Args) -> containerd_sdk::Result<Descriptor> {
    let mut labels = values::labels(&args.label);
    if args.keep {
        labels.extend(super::root_label());
    }
    // With one snapshot, it is the upper one and its parent the lower.
    let (lower, upper) = match &args.id_b {
        Some(upper) => (args.id_a.clone(), upper.clone()),
        None => (snapshots.stat(&args.id_a).await?.parent, args.id_a.clone()),
    };
    let lower = seen(snapshots, &lower).await?;
    let upper = match seen(snapshots, &upper).await {
        Ok(upper) => upper,
        Err(error) => {
            forget(snapshots, &lower).await;
            return Err(error);
        }
    };
    let layer = client.make_diff(&lower.mounts, &upper.mounts, &args.media_type, &args.reference, labels).await;
    forget(snapshots, &upper).await;
    forget(snapshots, &lower).await;
    layer
}

/// The mounts of a snapshot, and the view that was made for them.
struct Seen {
    mounts: Vec<Mount>,
    view: Option<String>,
}

async fn seen(snapshots: &Snapshotter, key: &str) -> containerd_sdk::Result<Seen> {
    if !key.is_empty() && snapshots.stat(key).await?.kind != i32::from(Kind::Committed) {
        return Ok(Seen { mounts: snapshots.mounts(key).await?, view: None });
    }
    let view = format!("{key}-view-{}", std::process::id());
    Ok(Seen { mounts: snapshots.view(&view, key, Labels::new()).await?, view: Some(view) })
}

async fn forget(snapshots: &Snapshotter, seen: &Seen) {
    if let Some(view) = &seen.view
        && let Err(error) = snapshots.remove(view).await
    {
        warn(format!("view {view} stays: {error}"));
    }
}
