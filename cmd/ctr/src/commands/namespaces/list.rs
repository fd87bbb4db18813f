use anyhow::Result;

use crate::{
    context::Context,
    output::{self, Table},
    values,
};

/// List namespaces.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print only the namespace name
    #[arg(short, long)]
    quiet: bool,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let namespaces = context.client().await?.namespaces().await?;
    if args.quiet {
        return namespaces.iter().try_for_each(|(name, _)| output::line(name));
    }
    let mut table = Table::new(1, 1);
    table.row(["NAME", "LABELS"]);
    for (name, labels) in &namespaces {
        table.row([name.clone(), values::label_line(labels)]);
    }
    table.print()
}
