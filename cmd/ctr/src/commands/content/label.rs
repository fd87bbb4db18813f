use anyhow::{Context as _, Result};
use core_types::Digest;

use crate::{context::Context, output, values};

/// Add labels to content; an empty value removes one.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Digest
    digest: Option<String>,
    /// Labels, as key=value
    labels: Vec<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let digest = Digest::parse(&args.digest.context("please specify a digest")?)?;
    let content = context.client().await?.content();
    let info = content.set_labels(&digest, &values::labels(&args.labels)).await?;
    output::line(values::label_line(&info.labels))
}
