use anyhow::{Result, bail};
use clap::Subcommand;

use crate::context::Context;

/// `images check`.
mod check;
/// `images export`.
mod export;
/// `images import`.
mod import;
/// `images label`.
mod label;
/// `images list`.
mod list;
/// `images mount`.
mod mount;
/// `images pull`.
mod pull;
/// `images push`.
mod push;
/// `images delete`.
mod remove;
/// `images tag`.
mod tag;
/// `images unmount`.
mod unmount;
/// `images usage`.
mod usage;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check existing images to ensure all content is available locally
    Check(check::Args),
    /// Export images
    Export(export::Args),
    /// Import images
    Import(import::Args),
    /// List images known to containerd
    #[command(visible_alias = "ls")]
    List(list::Args),
    /// Mount an image to a target path
    Mount(mount::Args),
    /// Unmount the image from the target
    Unmount(unmount::Args),
    /// Pull an image from a remote
    Pull(Box<pull::Args>),
    /// Push an image to a remote
    Push(push::Args),
    /// Remove one or more images by reference
    #[command(visible_aliases = ["del", "remove", "rm"])]
    Delete(remove::Args),
    /// Tag an image
    Tag(tag::Args),
    /// Set and clear labels for an image
    Label(label::Args),
    /// Convert an image (not available yet)
    Convert {
        /// Source and target
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Display usage of snapshots for a given image ref
    Usage(usage::Args),
}

impl Command {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        match self {
            Self::Check(args) => check::run(context, args).await,
            Self::Export(args) => export::run(context, args).await,
            Self::Import(args) => import::run(context, args).await,
            Self::List(args) => list::run(context, args).await,
            Self::Mount(args) => mount::run(context, args).await,
            Self::Unmount(args) => unmount::run(context, args).await,
            Self::Pull(args) => pull::run(context, *args).await,
            Self::Push(args) => push::run(context, args).await,
            Self::Delete(args) => remove::run(context, args).await,
            Self::Tag(args) => tag::run(context, args).await,
            Self::Label(args) => label::run(context, args).await,
            Self::Convert { args } => bail!("converting images is not available yet: {}", args.join(" ")),
            Self::Usage(args) => usage::run(context, args).await,
        }
    }
}
