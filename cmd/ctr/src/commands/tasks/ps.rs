use anyhow::Result;
use containerd_sdk::api::{any, runc::v1::ProcessDetails};

use crate::{context::Context, output::Table};

/// Name of what runc's shim tells of a process.
const DETAILS: &str = "containerd.runc.v1.ProcessDetails";

/// List processes for container.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Id of the container
    container: Option<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let id = super::required(args.container)?;
    let task = super::task(&context.client().await?, &id).await?;
    let mut table = Table::new(1, 4);
    table.open_row(["PID", "INFO"]);
    for process in task.pids().await? {
        let info = match &process.info {
            None => "-".to_owned(),
            Some(info) => match any::unpack::<ProcessDetails>(DETAILS, info) {
                Ok(details) => format!("exec_id:{:?}", details.exec_id),
                Err(_) => info.type_url.clone(),
            },
        };
        table.open_row([process.pid.to_string(), info]);
    }
    table.print()
}
