use std::collections::BTreeSet;

use anyhow::Result;
use containerd_sdk::api::{services::introspection::v1::Plugin, types::Platform};

use crate::{
    context::Context,
    output::{self, Table},
};

/// What the daemon puts into the error of a plugin that chose not to start.
const SKIPPED: &str = "skip plugin";

/// Lists containerd plugins.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print only the plugin ids
    #[arg(short, long)]
    quiet: bool,
    /// Print detailed information about each plugin
    #[arg(short, long)]
    detailed: bool,
    /// Filters, of which one must match
    filters: Vec<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let plugins = context.client().await?.plugins(&args.filters).await?;
    if args.quiet {
        return plugins.iter().try_for_each(|plugin| output::line(&plugin.id));
    }
    if args.detailed {
        return detailed(&plugins).print();
    }
    let mut table = Table::new(4, 4);
    table.row(["TYPE", "ID", "PLATFORMS", "STATUS"]);
    for plugin in &plugins {
        let status = match &plugin.init_err {
            None => "ok",
            Some(error) if error.message.contains(SKIPPED) => "skip",
            Some(_) => "error",
        };
        let platforms = platforms(&plugin.platforms);
        let platforms = if platforms.is_empty() { "-" } else { &platforms };
        table.row([plugin.r#type.as_str(), plugin.id.as_str(), platforms, status]);
    }
    table.print()
}

fn detailed(plugins: &[Plugin]) -> Table {
    let mut table = Table::new(4, 4);
    for (at, plugin) in plugins.iter().enumerate() {
        if at > 0 {
            table.row(["", "", ""]);
        }
        table.open_row(["Type:".to_owned(), format!(" {}", plugin.r#type)]);
        table.open_row(["ID:".to_owned(), format!(" {}", plugin.id)]);
        if !plugin.requires.is_empty() {
            table.row(["Requires:"]);
            for requirement in &plugin.requires {
                table.open_row([String::new(), format!(" {requirement}")]);
            }
        }
        if !plugin.platforms.is_empty() {
            table.open_row(["Platforms:".to_owned(), format!(" {}", platforms(&plugin.platforms))]);
        }
        if !plugin.exports.is_empty() {
            table.row(["Exports:"]);
            for (key, value) in &plugin.exports {
                table.open_row([String::new(), format!(" {key} "), format!(" {value}")]);
            }
        }
        if !plugin.capabilities.is_empty() {
            table.open_row(["Capabilities:".to_owned(), format!(" {}", plugin.capabilities.join(","))]);
        }
        if let Some(error) = &plugin.init_err {
            table.row(["Error:"]);
            table.open_row([String::new(), " Code:".to_owned(), format!(" {}", error.code)]);
            table.open_row([String::new(), " Message:".to_owned(), format!(" {}", error.message)]);
        }
    }
    table
}

fn platforms(platforms: &[Platform]) -> String {
    let name = |platform: &Platform| match platform.variant.as_str() {
        "" => format!("{}/{}", platform.os, platform.architecture),
        variant => format!("{}/{}/{variant}", platform.os, platform.architecture),
    };
    let names: BTreeSet<String> = platforms.iter().map(name).collect();
    names.into_iter().collect::<Vec<_>>().join(",")
}
