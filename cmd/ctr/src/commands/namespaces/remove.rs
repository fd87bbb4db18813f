use anyhow::{Result, bail};

use crate::{
    context::{Context, Failures},
    output,
};

/// Remove one or more namespaces, which must be empty.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Delete the namespace's cgroup
    #[arg(short, long)]
    cgroup: bool,
    /// Names
    names: Vec<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    if args.cgroup {
        bail!("--cgroup is not available: remove /sys/fs/cgroup/<namespace> by hand once it is empty");
    }
    let client = context.client().await?;
    let mut errors = Failures::default();
    for name in &args.names {
        match client.delete_namespace(name).await {
            Err(error) if !error.is_not_found() => {
                errors.note(&format!("unable to delete {name}"), error.into());
            }
            _ => output::line(name)?,
        }
    }
    errors.result()
}
