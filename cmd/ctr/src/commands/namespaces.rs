use anyhow::{Result, bail};
use clap::Subcommand;

use crate::context::Context;

/// `namespaces create`.
mod create;
/// `namespaces label`.
mod label;
/// `namespaces list`.
mod list;
/// `namespaces remove`.
mod remove;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a new namespace
    #[command(visible_alias = "c")]
    Create(create::Args),
    /// List namespaces
    #[command(visible_alias = "ls")]
    List(list::Args),
    /// Remove one or more namespaces
    #[command(visible_alias = "rm")]
    Remove(remove::Args),
    /// Set and clear labels for a namespace
    Label(label::Args),
}

impl Command {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        match self {
            Self::Create(args) => create::run(context, args).await,
            Self::List(args) => list::run(context, args).await,
            Self::Remove(args) => remove::run(context, args).await,
            Self::Label(args) => label::run(context, args).await,
        }
    }
}

fn required(name: Option<String>) -> Result<String> {
    match name {
        Some(name) if !name.is_empty() => Ok(name),
        _ => bail!("please specify a namespace"),
    }
}
