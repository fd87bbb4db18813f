use anyhow::{Result, bail};
use containerd_sdk::{Client, Deletion, ProcessStatus};

use crate::context::{Context, Failures};

/// Delete one or more existing containers.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Do not clean up snapshot with container
    #[arg(long)]
    keep_snapshot: bool,
    /// Ids of the containers
    containers: Vec<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    if args.containers.is_empty() {
        bail!("must specify at least one container to delete");
    }
    let client = context.client().await?;
    let deletion = if args.keep_snapshot { Deletion::KeepSnapshot } else { Deletion::WithSnapshot };
    let mut errors = Failures::default();
    for id in &args.containers {
        if let Err(error) = delete(&client, id, deletion).await {
            errors.note(&format!("failed to delete container {id:?}"), error);
        }
    }
    errors.result()
}

async fn delete(client: &Client, id: &str, deletion: Deletion) -> Result<()> {
    let container = client.container(id).await?;
    match container.task_with_fifos().await {
        Ok(mut task) => match task.init().status().await? {
            ProcessStatus::Stopped | ProcessStatus::Created => {
                task.init_mut().delete().await?;
            }
            status => bail!("cannot delete a non stopped container: {}", status.as_str_name().to_lowercase()),
        },
        Err(error) if error.is_not_found() => {}
        // Only "not found" means that there is none.
        Err(error) => return Err(error.into()),
    }
    Ok(container.delete(deletion).await?)
}
