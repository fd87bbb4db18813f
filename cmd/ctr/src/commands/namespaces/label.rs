use anyhow::Result;

use crate::{context::Context, values};

/// Set and clear labels for a namespace; an empty value clears the label.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name
    name: Option<String>,
    /// Labels, as key=value
    labels: Vec<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let name = super::required(args.name)?;
    if args.labels.is_empty() {
        return Ok(());
    }
    Ok(context.client().await?.label_namespace(&name, &values::labels(&args.labels)).await?)
}
