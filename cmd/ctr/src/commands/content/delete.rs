use anyhow::Result;
use core_types::Digest;

use crate::{
    context::{Context, Failures},
    output,
};

/// Delete one or more blobs permanently; those deleted are printed.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Digests
    digests: Vec<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let content = context.client().await?.content();
    let mut errors = Failures::default();
    for text in &args.digests {
        let doing = format!("could not delete {text}");
        let digest = match Digest::parse(text) {
            Ok(digest) => digest,
            Err(error) => {
                errors.note(&doing, error.into());
                continue;
            }
        };
        match content.delete(&digest).await {
            Ok(()) => output::line(&digest)?,
            Err(error) if error.is_not_found() => {}
            Err(error) => errors.note(&doing, error.into()),
        }
    }
    errors.result()
}
