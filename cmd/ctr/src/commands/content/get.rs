use anyhow::{Context as _, Result};
use core_types::{Digest, Error};
use tokio::{io::AsyncWriteExt as _, sync::Mutex};

use crate::context::Context;

/// Get the data for an object.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Digest
    digest: Option<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let digest = Digest::parse(&args.digest.context("please specify a digest")?)?;
    let content = context.client().await?.content();
    let out = Mutex::new(tokio::io::stdout());
    content
        .read(&digest, |piece| {
            let out = &out;
            async move {
                let written = out.lock().await.write_all(&piece).await;
                Ok(written.map_err(|error| Error::io("write blob", error))?)
            }
        })
        .await?;
    Ok(out.lock().await.flush().await?)
}
