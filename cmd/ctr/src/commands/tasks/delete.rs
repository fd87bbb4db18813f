use anyhow::{Context as _, Result};
use containerd_sdk::{Client, Process};

use crate::context::{Context, Failures, exit_with, warn};

/// Delete one or more tasks.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Force delete task process
    #[arg(short, long)]
    force: bool,
    /// Process ID to kill
    #[arg(long)]
    exec_id: Option<String>,
    /// Ids of the containers
    containers: Vec<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let client = context.client().await?;
    if let Some(exec) = &args.exec_id {
        let id = args.containers.first().context("container id must be provided")?;
        let mut process = super::task(&client, id).await?.load_process(exec).await?;
        return exit_with(delete(&mut process, args.force).await?);
    }
    let mut errors = Failures::default();
    for id in &args.containers {
        match delete_task(&client, id, args.force).await {
            Ok(0) => {}
            Ok(code) => warn(format!("task {id} exit with non-zero exit code {code}")),
            Err(error) => errors.note(&format!("unable to delete {id}"), error),
        }
    }
    errors.result()
}

async fn delete_task(client: &Client, id: &str, force: bool) -> Result<u32> {
    let mut task = client.container(id).await?.task_with_fifos().await?;
    delete(task.init_mut(), force).await
}

async fn delete(process: &mut Process, force: bool) -> Result<u32> {
    let status = if force { process.kill_and_delete().await? } else { process.delete().await? };
    Ok(status.code)
}
