use anyhow::{Result, bail};

use crate::{context::Context, output};

/// Delete a lease.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Synchronously remove leases and all unreferenced resources
    #[arg(long)]
    sync: bool,
    /// Ids
    ids: Vec<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let Some(last) = args.ids.last().cloned() else { bail!("please specify a lease id") };
    let client = context.client().await?;
    for id in &args.ids {
        client.delete_lease(id, args.sync && *id == last).await?;
        output::line(id)?;
    }
    Ok(())
}
