use anyhow::{Result, bail};
use clap::Subcommand;

use crate::context::Context;

/// `content active`.
mod active;
/// `content delete`.
mod delete;
/// `content fetch`.
mod fetch;
/// `content get`.
mod get;
/// `content ingest`.
mod ingest;
/// `content label`.
mod label;
/// `content list`.
mod list;

/// Arguments of what is not there yet.
#[derive(Debug, clap::Args)]
pub(crate) struct Any {
    /// Arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Display active transfers
    Active(active::Args),
    /// Permanently delete one or more blobs
    #[command(visible_aliases = ["del", "remove", "rm"])]
    Delete(delete::Args),
    /// Edit a blob and return a new digest (not available yet)
    Edit(Any),
    /// Fetch all content for an image into containerd
    Fetch(fetch::Args),
    /// Retrieve objects from a remote (not available yet)
    FetchObject(Any),
    /// Retrieve blobs from a remote (not available yet)
    FetchBlob(Any),
    /// Get the data for an object
    Get(get::Args),
    /// Accept content into the store
    Ingest(ingest::Args),
    /// List all blobs in the store
    #[command(visible_alias = "ls")]
    List(list::Args),
    /// Push an object to a remote (not available yet)
    PushObject(Any),
    /// Add labels to content
    Label(label::Args),
}

impl Command {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        match self {
            Self::Active(args) => active::run(context, args).await,
            Self::Delete(args) => delete::run(context, args).await,
            Self::Edit(any) => not_yet("edit", &any),
            Self::Fetch(args) => fetch::run(context, args).await,
            Self::FetchObject(any) => not_yet("fetch-object", &any),
            Self::FetchBlob(any) => not_yet("fetch-blob", &any),
            Self::Get(args) => get::run(context, args).await,
            Self::Ingest(args) => ingest::run(context, args).await,
            Self::List(args) => list::run(context, args).await,
            Self::PushObject(any) => not_yet("push-object", &any),
            Self::Label(args) => label::run(context, args).await,
        }
    }
}

fn not_yet(command: &str, any: &Any) -> Result<()> {
    bail!("content {command} is not available yet: {}", any.args.join(" "))
}
