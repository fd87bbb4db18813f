use anyhow::{Result, bail};
use clap::Subcommand;
use containerd_sdk::{Client, Task};

use crate::context::Context;

/// `tasks attach`.
mod attach;
/// `tasks checkpoint`.
mod checkpoint;
/// `tasks delete`.
mod delete;
/// `tasks exec`.
mod exec;
/// Following a process in the foreground.
pub(crate) mod foreground;
/// `tasks kill`.
mod kill;
/// `tasks list`.
mod list;
/// `tasks metrics`.
mod metrics;
/// `tasks pause`.
mod pause;
/// `tasks ps`.
mod ps;
/// `tasks resume`.
mod resume;
/// `tasks start`.
mod start;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Attach to the IO of a running container
    Attach(attach::Args),
    /// Checkpoint a container (not available)
    Checkpoint(checkpoint::Args),
    /// Delete one or more tasks
    #[command(visible_aliases = ["del", "remove", "rm"])]
    Delete(delete::Args),
    /// Execute additional processes in an existing container
    Exec(exec::Args),
    /// List tasks
    #[command(visible_alias = "ls")]
    List(list::Args),
    /// Signal a container (default: SIGTERM)
    Kill(kill::Args),
    /// Get a single data point of metrics for a task with the built-in Linux runtime
    #[command(visible_alias = "metric")]
    Metrics(metrics::Args),
    /// Pause an existing container
    Pause(pause::Args),
    /// List processes for container
    Ps(ps::Args),
    /// Resume a paused container
    Resume(resume::Args),
    /// Start a container that has been created
    Start(start::Args),
}

impl Command {
    pub(crate) async fn run(self, context: &Context) -> Result<()> {
        match self {
            Self::Attach(args) => attach::run(context, args).await,
            Self::Checkpoint(args) => checkpoint::run(&args),
            Self::Delete(args) => delete::run(context, args).await,
            Self::Exec(args) => exec::run(context, args).await,
            Self::List(args) => list::run(context, args).await,
            Self::Kill(args) => kill::run(context, args).await,
            Self::Metrics(args) => metrics::run(context, args).await,
            Self::Pause(args) => pause::run(context, args).await,
            Self::Ps(args) => ps::run(context, args).await,
            Self::Resume(args) => resume::run(context, args).await,
            Self::Start(args) => start::run(context, args).await,
        }
    }
}

/// The id of a container as it is given on the command line.
fn required(id: Option<String>) -> Result<String> {
    match id {
        Some(id) if !id.is_empty() => Ok(id),
        _ => bail!("container id must be provided"),
    }
}

/// The task of a container.
async fn task(client: &Client, id: &str) -> Result<Task> {
    Ok(client.container(id).await?.task().await?)
}
