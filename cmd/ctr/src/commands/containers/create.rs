use anyhow::Result;

use crate::{
    commands::{
        run::{create::Order, flags::ContainerFlags},
        shared::{RuntimeFlags, SnapshotterFlag},
    },
    context::Context,
};

/// Create container.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    runtime: RuntimeFlags,
    #[command(flatten)]
    snapshotter: SnapshotterFlag,
    #[command(flatten)]
    container: ContainerFlags,
    /// Image or root file system, id of the container, command; with --config the id alone
    #[arg(trailing_var_arg = true, value_name = "Image|RootFS CONTAINER [COMMAND] [ARG...]")]
    args: Vec<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let order = Order {
        container: &args.container,
        run: None,
        runtime: &args.runtime,
        snapshotter: &args.snapshotter.snapshotter,
        args: &args.args,
    };
    order.check()?;
    order.create(&context.client().await?).await?;
    Ok(())
}
