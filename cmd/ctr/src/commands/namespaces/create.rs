use anyhow::Result;

use crate::{context::Context, values};

/// Create a new namespace; it must be unique.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name
    name: Option<String>,
    /// Labels, as key=value
    labels: Vec<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let name = super::required(args.name)?;
    Ok(context.client().await?.create_namespace(&name, values::labels(&args.labels)).await?)
}
