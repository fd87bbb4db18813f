use anyhow::{Context as _, Result};
use core_types::{Digest, Labels};

use crate::context::Context;

/// Ingest standard input into the local content store.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Validate against provided size
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    expected_size: u64,
    /// Verify content against expected digest
    #[arg(long)]
    expected_digest: Option<String>,
    /// Name of the ingest
    key: Option<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let expected = args.expected_digest.as_deref().map(Digest::parse).transpose()?;
    let key = args.key.filter(|key| !key.is_empty()).context("must specify a transaction reference")?;
    let content = context.client().await?.content();
    let input = tokio::io::stdin();
    content.ingest(&key, input, args.expected_size, expected.as_ref(), Labels::new()).await?;
    Ok(())
}
