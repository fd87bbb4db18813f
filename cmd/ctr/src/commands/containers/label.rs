use anyhow::{Result, bail};

use crate::{context::Context, output, values};

/// Set and clear labels for a container.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Id of the container
    container: Option<String>,
    /// Labels, as key=value; an empty value clears
    labels: Vec<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let Some(id) = args.container.filter(|id| !id.is_empty()) else { bail!("container id must be provided") };
    let container = context.client().await?.container(&id).await?;
    let labels = container.set_labels(&values::labels(&args.labels)).await?;
    output::line(values::label_line(&labels))
}
