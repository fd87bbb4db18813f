use anyhow::Result;

use crate::{
    context::Context,
    output::{Table, age, human_size},
};

/// Display active transfers.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Filters, of which one must match
    filters: Vec<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let ingests = context.client().await?.content().ingests(&args.filters).await?;
    let mut table = Table::with_tabs();
    table.row(["REF", "SIZE", "AGE"]);
    for ingest in ingests {
        let started = containerd_sdk::timestamp_to_system(ingest.started_at.as_ref());
        table.row([ingest.r#ref, human_size(ingest.offset.unsigned_abs()), age(started)]);
    }
    table.print()
}
