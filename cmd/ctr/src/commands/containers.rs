use anyhow::Result;
use clap::Subcommand;

use crate::context::Context;

/// `containers create`.
mod create;
/// `containers delete`.
mod delete;
/// `containers info`.
mod info;
/// `containers label`.
mod label;
/// `containers list`.
mod list;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create container
    Create(Box<create::Args>),
    /// Delete one or more existing containers
    #[command(visible_aliases = ["del", "remove", "rm"])]
    Delete(delete::Args),
    /// Get info about a container
    Info(info::Args),
    /// List containers
    #[command(visible_alias = "ls")]
    List(list::Args),
    /// Set and clear labels for a container
    Label(label::Args),
}

impl Command {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        match self {
            Self::Create(args) => create::run(context, *args).await,
            Self::Delete(args) => delete::run(context, args).await,
            Self::Info(args) => info::run(context, args).await,
            Self::List(args) => list::run(context, args).await,
            Self::Label(args) => label::run(context, args).await,
        }
    }
}
