use anyhow::Result;
use clap::Subcommand;
use core_mount::Mount;
use serde_json::json;

use crate::{commands::shared::SnapshotterFlag, context::Context, output};

/// `snapshots commit`.
mod commit;
/// `snapshots diff`.
mod diff;
/// `snapshots info`.
mod info;
/// `snapshots label`.
mod label;
/// `snapshots list`.
mod list;
/// `snapshots mounts`.
mod mounts;
/// `snapshots prepare` and `snapshots view`.
mod prepare;
/// `snapshots delete`.
mod remove;
/// `snapshots tree`.
mod tree;
/// `snapshots unpack`.
mod unpack;
/// `snapshots usage`.
mod usage;

/// Manage snapshots.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    snapshotter: SnapshotterFlag,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Commit an active snapshot into the provided name
    Commit(commit::Args),
    /// Get the diff of two snapshots; the second one is the first one's parent unless it is given
    Diff(diff::Args),
    /// Get info about a snapshot
    Info(info::Args),
    /// List snapshots
    #[command(visible_alias = "ls")]
    List,
    /// Mount gets mount commands for the snapshots
    #[command(visible_aliases = ["m", "mount"])]
    Mounts(mounts::Args),
    /// Prepare a snapshot from a committed snapshot
    Prepare(prepare::Args),
    /// Remove snapshots
    #[command(visible_aliases = ["del", "remove", "rm"])]
    Delete(remove::Args),
    /// Add labels to a snapshot
    Label(label::Args),
    /// Display tree view of snapshot branches
    Tree,
    /// Unpack applies layers from a manifest to a snapshot
    Unpack(unpack::Args),
    /// Usage snapshots
    Usage(usage::Args),
    /// Create a read-only snapshot from a committed snapshot
    View(prepare::Args),
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        let client = context.client().await?;
        let snapshots = client.snapshotter(&self.snapshotter.snapshotter);
        match self.command {
            Command::Commit(args) => commit::run(&snapshots, args).await,
            Command::Diff(args) => diff::run(&client, &snapshots, args).await,
            Command::Info(args) => info::run(&snapshots, args).await,
            Command::List => list::run(&snapshots).await,
            Command::Mounts(args) => mounts::run(&snapshots, args).await,
            Command::Prepare(args) => prepare::run(&snapshots, args, prepare::Kind::Active).await,
            Command::Delete(args) => remove::run(&snapshots, args).await,
            Command::Label(args) => label::run(&snapshots, args).await,
            Command::Tree => tree::run(&snapshots).await,
            Command::Unpack(args) => unpack::run(&client, snapshots.name(), args).await,
            Command::Usage(args) => usage::run(&snapshots, args).await,
            Command::View(args) => prepare::run(&snapshots, args, prepare::Kind::View).await,
        }
    }
}

/// How a snapshot's kind is written.
fn kind(kind: i32) -> &'static str {
    use containerd_sdk::api::services::snapshots::v1::Kind;
    match Kind::try_from(kind) {
        Ok(Kind::View) => "View",
        Ok(Kind::Active) => "Active",
        Ok(Kind::Committed) => "Committed",
        _ => "Unknown",
    }
}

/// Mounts as commands.
fn print_commands(target: &str, mounts: &[Mount]) -> Result<()> {
    for mount in mounts {
        let options = if mount.options.is_empty() { String::new() } else { format!(" -o {}", mount.options.join(",")) };
        let place = match mount.target.trim_start_matches('/') {
            "" => target.to_owned(),
            below => format!("{}/{below}", target.trim_end_matches('/')),
        };
        output::line(format!("mount -t {} {} {place}{options}", mount.kind, mount.source))?;
    }
    Ok(())
}

/// Mounts as JSON.
fn print_json(mounts: &[Mount]) -> Result<()> {
    let mount = |mount: &Mount| json!({"Type": mount.kind, "Source": mount.source, "Target": mount.target, "Options": mount.options});
    output::json(&mounts.iter().map(mount).collect())
}

/// A label that keeps an object from collection, set now.
fn root_label() -> core_types::Labels {
    let now = output::rfc3339(std::time::SystemTime::now());
    core_types::Labels::from([(core_types::labels::GC_ROOT.to_owned(), now)])
}
