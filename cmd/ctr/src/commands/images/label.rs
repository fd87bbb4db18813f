use anyhow::{Result, bail};

use crate::{context::Context, output, values};

/// Set and clear labels for an image.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Replace all labels
    #[arg(short, long)]
    replace_all: bool,
    /// Image
    name: Option<String>,
    /// Labels, as key=value
    labels: Vec<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let Some(name) = args.name else { bail!("please specify an image") };
    let client = context.client().await?;
    let image = client.label_image(&name, &values::labels(&args.labels), args.replace_all).await?;
    output::line(values::label_line(image.labels()))
}
