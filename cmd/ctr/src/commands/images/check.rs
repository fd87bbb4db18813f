use anyhow::{Result, anyhow};
use containerd_sdk::Image;

use crate::{
    commands::shared::SnapshotterFlag,
    context::{Context, Failures},
    output::{self, Table, bytes},
};

/// Check existing images to ensure all content is available locally.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print only the ready image refs (fully downloaded and unpacked)
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    snapshotter: SnapshotterFlag,
    /// Filters, of which one must match
    filters: Vec<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let images = context.client().await?.images(&args.filters).await?;
    let mut errors = Failures::default();
    let mut table = Table::new(1, 1);
    table.row(["REF", "TYPE", "DIGEST", "STATUS", "SIZE", "UNPACKED"]);
    for image in &images {
        let (status, size, complete) = match state(image).await {
            Ok(state) => state,
            Err(error) => {
                errors.note(&format!("unable to check {}", image.name()), error);
                ("error".to_owned(), "-".to_owned(), false)
            }
        };
        let unpacked = match image.is_unpacked(&args.snapshotter.snapshotter).await {
            Ok(unpacked) => unpacked,
            Err(error) if error.is_not_found() => false,
            Err(error) => {
                errors.note(&format!("unable to check unpack for {}", image.name()), anyhow!(error));
                false
            }
        };
        if args.quiet {
            if complete && unpacked {
                output::line(image.name())?;
            }
        } else {
            let target = image.target();
            let digest = target.digest.to_string();
            table.open_row([image.name(), &target.media_type, &digest, &status, &size, &unpacked.to_string()]);
        }
    }
    if !args.quiet && !images.is_empty() {
        table.print()?;
    }
    errors.result()
}

async fn state(image: &Image) -> Result<(String, String, bool)> {
    let check = image.check().await?;
    let sum = |parts: &[core_types::Descriptor]| parts.iter().map(|part| part.size).sum::<u64>();
    let (present, required) = (sum(&check.present), sum(&check.required));
    let have = check.present.len();
    if !check.available {
        return Ok((format!("unavailable ({have}/?)"), format!("{}/?", bytes(present)), false));
    }
    let complete = check.missing.is_empty();
    let word = if complete { "complete" } else { "incomplete" };
    Ok((
        format!("{word} ({have}/{})", check.required.len()),
        format!("{}/{}", bytes(present), bytes(required)),
        complete,
    ))
}
