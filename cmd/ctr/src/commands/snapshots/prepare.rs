use anyhow::Result;
use containerd_sdk::Snapshotter;
use core_types::Labels;

/// What is made.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Active,
    View,
}

/// Make a snapshot on a committed snapshot.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Mount target path, will print mount, if provided
    #[arg(short, long)]
    target: Option<String>,
    /// Print out snapshot mounts as JSON
    #[arg(long)]
    mounts: bool,
    /// Key
    key: String,
    /// Parent
    #[arg(default_value = "", hide_default_value = true)]
    parent: String,
}

pub(super) async fn run(snapshots: &Snapshotter, args: Args, kind: Kind) -> Result<()> {
    let mounts = match kind {
        Kind::Active => snapshots.prepare(&args.key, &args.parent, super::root_label()).await?,
        Kind::View => snapshots.view(&args.key, &args.parent, Labels::new()).await?,
    };
    if let Some(target) = &args.target {
        super::print_commands(target, &mounts)?;
    }
    if args.mounts {
        super::print_json(&mounts)?;
    }
    Ok(())
}
