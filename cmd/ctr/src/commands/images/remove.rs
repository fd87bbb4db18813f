use anyhow::Result;

use crate::{
    context::{Context, Failures, warn},
    output,
};

/// Remove one or more images by reference.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Synchronously remove image and all associated resources
    #[arg(long)]
    sync: bool,
    /// Images
    images: Vec<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let client = context.client().await?;
    let mut errors = Failures::default();
    for (at, name) in args.images.iter().enumerate() {
        let wait = args.sync && at + 1 == args.images.len();
        match client.delete_image(name, wait).await {
            Ok(()) => output::line(name)?,
            Err(error) if error.is_not_found() => warn(format!("{name}: image not found")),
            Err(error) => errors.note(&format!("unable to delete {name}"), error.into()),
        }
    }
    errors.result()
}
