use std::collections::BTreeSet;

use anyhow::Result;
use containerd_sdk::Image;

use crate::{
    context::{Context, warn},
    output::{self, Table, bytes},
    values,
};

/// List images known to containerd.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print only the image refs
    #[arg(short, long)]
    quiet: bool,
    /// Filters, of which one must match
    filters: Vec<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let images = context.client().await?.images(&args.filters).await?;
    if args.quiet {
        return images.iter().try_for_each(|image| output::line(image.name()));
    }
    let mut table = Table::new(1, 1);
    table.row(["REF", "TYPE", "DIGEST", "SIZE", "PLATFORMS", "LABELS"]);
    for image in &images {
        let size = image.size().await.unwrap_or_else(|error| {
            warn(format!("failed calculating size for image {}: {error}", image.name()));
            0
        });
        table.row([
            image.name().to_owned(),
            image.target().media_type.clone(),
            image.target().digest.to_string(),
            bytes(size),
            platforms(image).await,
            values::label_column(image.labels()),
        ]);
    }
    table.print()
}

async fn platforms(image: &Image) -> String {
    match image.platforms().await {
        Ok(platforms) if !platforms.is_empty() => {
            let names: BTreeSet<String> = platforms.iter().map(ToString::to_string).collect();
            names.into_iter().collect::<Vec<_>>().join(",")
        }
        Ok(_) => "-".to_owned(),
        Err(error) => {
            warn(format!("failed resolving platform for image {}: {error}", image.name()));
            "-".to_owned()
        }
    }
}
