use anyhow::Result;

use crate::{
    context::Context,
    output::{self, Table},
    values,
};

/// List all active leases.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print only the lease id
    #[arg(short, long)]
    quiet: bool,
    /// Filters, of which one must match
    filters: Vec<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let leases = context.client().await?.leases(&args.filters).await?;
    if args.quiet {
        return leases.iter().try_for_each(|lease| output::line(lease.id()));
    }
    let mut table = Table::new(1, 1);
    table.row(["ID", "CREATED AT", "LABELS"]);
    for lease in &leases {
        table.row([lease.id().to_owned(), output::rfc3339(lease.created_at()), values::label_column(lease.labels())]);
    }
    table.print()
}
