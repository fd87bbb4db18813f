use anyhow::Result;

use crate::{
    context::Context,
    output::{self, Table, age, human_size},
    values,
};

/// List blobs in the content store.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print only the blob digest
    #[arg(short, long)]
    quiet: bool,
    /// Filters, of which one must match
    filters: Vec<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let blobs = context.client().await?.content().list(&args.filters).await?;
    if args.quiet {
        return blobs.iter().try_for_each(|blob| output::line(&blob.digest));
    }
    let mut table = Table::with_tabs();
    table.open_row(["DIGEST", "SIZE", "AGE", "LABELS"]);
    for blob in blobs {
        let created = containerd_sdk::timestamp_to_system(blob.created_at.as_ref());
        let labels = values::label_column(&blob.labels);
        table.open_row([blob.digest, human_size(blob.size.unsigned_abs()), age(created), labels]);
    }
    table.print()
}
