use anyhow::Result;
use containerd_sdk::{Snapshotter, timestamp_to_system};
use serde_json::json;

use crate::output::{self, rfc3339};

/// Get info about a snapshot.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Key
    key: String,
}

pub(super) async fn run(snapshots: &Snapshotter, args: Args) -> Result<()> {
    let info = snapshots.stat(&args.key).await?;
    let mut shown = json!({"Kind": super::kind(info.kind), "Name": info.name});
    if !info.parent.is_empty() {
        shown["Parent"] = json!(info.parent);
    }
    if !info.labels.is_empty() {
        shown["Labels"] = json!(info.labels);
    }
    shown["Created"] = json!(rfc3339(timestamp_to_system(info.created_at.as_ref())));
    shown["Updated"] = json!(rfc3339(timestamp_to_system(info.updated_at.as_ref())));
    output::json(&shown)
}
