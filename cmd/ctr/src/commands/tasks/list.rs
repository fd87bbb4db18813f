use anyhow::Result;
use containerd_sdk::ProcessStatus;

use crate::{
    context::Context,
    output::{self, Table},
};

/// List tasks.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print only the task id
    #[arg(short, long)]
    quiet: bool,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let tasks = context.client().await?.tasks().await?;
    if args.quiet {
        return tasks.iter().try_for_each(|task| output::line(&task.id));
    }
    let mut table = Table::new(4, 4);
    table.row(["TASK", "PID", "STATUS"]);
    for task in tasks {
        let status = ProcessStatus::try_from(task.status).unwrap_or(ProcessStatus::Unknown);
        table.open_row([task.id, task.pid.to_string(), status.as_str_name().to_owned()]);
    }
    table.print()
}
