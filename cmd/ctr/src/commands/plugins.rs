use anyhow::Result;
use clap::Subcommand;

use crate::context::Context;

/// `plugins list`.
mod list;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists containerd plugins
    #[command(visible_alias = "ls")]
    List(list::Args),
}

impl Command {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        match self {
            Self::List(args) => list::run(context, args).await,
        }
    }
}
