use anyhow::Result;
use containerd_sdk::Snapshotter;

use crate::output::{self, Table};

/// Usage snapshots.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Display size in bytes
    #[arg(short)]
    bytes: bool,
    /// Keys; all when none is given
    keys: Vec<String>,
}

pub(super) async fn run(snapshots: &Snapshotter, args: Args) -> Result<()> {
    let keys = if args.keys.is_empty() {
        snapshots.list(&[]).await?.into_iter().map(|info| info.name).collect()
    } else {
        args.keys
    };
    let mut table = Table::new(1, 1);
    table.row(["KEY", "SIZE", "INODES"]);
    for key in keys {
        let usage = snapshots.usage(&key).await?;
        let size = if args.bytes { usage.size.to_string() } else { output::bytes(usage.size.unsigned_abs()) };
        table.row([key, size, usage.inodes.to_string()]);
    }
    table.print()
}
