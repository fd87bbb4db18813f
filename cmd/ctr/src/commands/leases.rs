use anyhow::Result;
use clap::Subcommand;

use crate::context::Context;

/// `leases create`.
mod create;
/// `leases delete`.
mod delete;
/// `leases list`.
mod list;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List all active leases
    #[command(visible_alias = "ls")]
    List(list::Args),
    /// Create lease
    Create(create::Args),
    /// Delete a lease
    #[command(visible_aliases = ["del", "remove", "rm"])]
    Delete(delete::Args),
}

impl Command {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        match self {
            Self::List(args) => list::run(context, args).await,
            Self::Create(args) => create::run(context, args).await,
            Self::Delete(args) => delete::run(context, args).await,
        }
    }
}
