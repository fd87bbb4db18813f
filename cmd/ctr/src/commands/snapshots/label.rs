use anyhow::Result;
use containerd_sdk::Snapshotter;

use crate::{output, values};

/// Add labels to a snapshot; an empty value removes one.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Key
    key: String,
    /// Labels, as key=value
    labels: Vec<String>,
}

pub(super) async fn run(snapshots: &Snapshotter, args: Args) -> Result<()> {
    let info = snapshots.set_labels(&args.key, &values::labels(&args.labels)).await?;
    output::line(values::label_line(&info.labels))
}
