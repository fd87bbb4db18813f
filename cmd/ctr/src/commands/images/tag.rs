use anyhow::{Result, bail};
use containerd_sdk::{Destination, ImageStore, Source};

use crate::{commands::shared::refuse_local, context::Context, output};

/// Give an image more names.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Force target_ref to be created, regardless if it already exists
    #[arg(long)]
    force: bool,
    /// Run tag locally rather than through transfer API (not available)
    #[arg(long)]
    local: bool,
    /// Skip the strict check for reference names
    #[arg(long)]
    skip_reference_check: bool,
    /// Image
    source: Option<String>,
    /// New names
    targets: Vec<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    refuse_local(args.local)?;
    let Some(source) = &args.source else { bail!("please provide an image reference to tag from") };
    if args.targets.is_empty() {
        bail!("please provide an image reference to tag to");
    }
    let client = context.client().await?;
    let named = |name: &String| ImageStore { name: name.clone(), ..ImageStore::default() };
    for target in &args.targets {
        if !args.skip_reference_check && !is_reference(target) {
            bail!("error parsing reference: {target:?} is not a valid repository/tag");
        }
        client.transfer(Source::Store(named(source)), Destination::Store(named(target)), None).await?;
        output::line(target)?;
    }
    Ok(())
}

/// A loose look at a name: the characters that references are made of, with no empty part.
fn is_reference(name: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || "._-/:@[]+".contains(c);
    let path = name.split(['@', ':']).next().unwrap_or_default();
    !path.is_empty() && name.chars().all(known) && name.split(['/', ':', '@']).all(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::is_reference;

    #[test]
    fn names() {
        assert!(is_reference("docker.io/library/busybox:1.36"));
        assert!(is_reference("localhost:5000/x@sha256:abc"));
        for bad in ["", "a//b", "a b", "x:", "/x", "a\n"] {
            assert!(!is_reference(bad), "{bad:?}");
        }
    }
}
