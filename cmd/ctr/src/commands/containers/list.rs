use anyhow::Result;

use crate::{
    context::Context,
    output::{self, Table},
};

/// List containers.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print only the container id
    #[arg(short, long)]
    quiet: bool,
    /// Filters, of which one must match
    filters: Vec<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let containers = context.client().await?.containers(&args.filters).await?;
    if args.quiet {
        return containers.iter().try_for_each(|container| output::line(container.id()));
    }
    let mut table = Table::new(4, 4);
    table.row(["CONTAINER", "IMAGE", "RUNTIME"]);
    for container in &containers {
        let record = container.record();
        let image = if record.image.is_empty() { "-" } else { &record.image };
        let runtime = record.runtime.as_ref().map(|runtime| runtime.name.as_str()).unwrap_or_default();
        table.row([container.id(), image, runtime]);
    }
    table.print()
}
