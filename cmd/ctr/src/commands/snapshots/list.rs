use anyhow::Result;
use containerd_sdk::Snapshotter;

use crate::output::Table;

pub(super) async fn run(snapshots: &Snapshotter) -> Result<()> {
    let mut table = Table::new(1, 1);
    table.row(["KEY", "PARENT", "KIND"]);
    for info in snapshots.list(&[]).await? {
        table.row([info.name.as_str(), info.parent.as_str(), super::kind(info.kind)]);
    }
    table.print()
}
