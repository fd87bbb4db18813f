use anyhow::Result;

use crate::context::Context;

/// Pause an existing container.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Id of the container
    container: Option<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let id = super::required(args.container)?;
    Ok(super::task(&context.client().await?, &id).await?.pause().await?)
}
