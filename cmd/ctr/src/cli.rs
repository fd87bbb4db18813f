use std::time::Duration;

use anyhow::{Result, bail};
use clap::{ArgAction, Args, Parser, Subcommand};
use containerd_sdk::{DEFAULT_ADDRESS, DEFAULT_NAMESPACE};

use crate::{
    commands::{
        containers, content, events, images, info, leases, namespaces, plugins, run, snapshots, tasks, version,
    },
    context::Context,
    signals, values,
};

/// Command line client for administration and debugging of containerd
#[derive(Debug, Parser)]
#[command(name = "ctr", version, disable_version_flag = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    globals: Globals,
    /// Print the version
    #[arg(short = 'v', long, action = ArgAction::Version)]
    version: Option<bool>,
    #[command(subcommand)]
    command: Command,
}

/// Flags before the command.
#[derive(Debug, Args)]
pub(crate) struct Globals {
    /// Enable debug output in logs
    #[arg(long)]
    pub(crate) debug: bool,
    /// Address for containerd's GRPC server
    #[arg(short, long, env = "CONTAINERD_ADDRESS", default_value = DEFAULT_ADDRESS)]
    pub(crate) address: String,
    /// Total timeout for ctr commands
    #[arg(long, default_value = "0", value_parser = values::duration)]
    pub(crate) timeout: Duration,
    /// Timeout for connecting to containerd
    #[arg(long, default_value = "0", value_parser = values::duration)]
    pub(crate) connect_timeout: Duration,
    /// Namespace to use with commands
    #[arg(short, long, env = "CONTAINERD_NAMESPACE", default_value = DEFAULT_NAMESPACE)]
    pub(crate) namespace: String,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Provides information about containerd plugins
    #[command(subcommand, visible_alias = "plugin")]
    Plugins(plugins::Command),
    /// Print the client and server versions
    Version,
    /// Manage containers
    #[command(subcommand, visible_aliases = ["c", "container"])]
    Containers(containers::Command),
    /// Manage content
    #[command(subcommand)]
    Content(content::Command),
    /// Display containerd events
    #[command(visible_alias = "event")]
    Events(events::Args),
    /// Manage images
    #[command(subcommand, visible_aliases = ["image", "i"])]
    Images(images::Command),
    /// Manage leases
    #[command(subcommand)]
    Leases(leases::Command),
    /// Manage namespaces
    #[command(subcommand, visible_aliases = ["namespace", "ns"])]
    Namespaces(namespaces::Command),
    /// Run a container
    Run(Box<run::Args>),
    /// Manage snapshots
    #[command(visible_alias = "snapshot")]
    Snapshots(snapshots::Args),
    /// Manage tasks
    #[command(subcommand, visible_aliases = ["t", "task"])]
    Tasks(tasks::Command),
    /// Print the server info
    Info,
}

impl Cli {
    /// Runs the command, within the total timeout when there is one.
    pub(crate) async fn run(self) -> Result<()> {
        let timeout = self.globals.timeout;
        // Commands that follow a process end it at the deadline, which takes a moment.
        let follows = matches!(self.command, Command::Run(_) | Command::Tasks(_));
        let limit = if follows { timeout + signals::STOP_LIMIT } else { timeout };
        let command = dispatch(Context::new(self.globals), self.command);
        if timeout.is_zero() {
            return command.await;
        }
        match tokio::time::timeout(limit, command).await {
            Ok(result) => result,
            Err(_) => bail!("context deadline exceeded: the command took longer than {timeout:?} (--timeout)"),
        }
    }
}

async fn dispatch(context: Context, command: Command) -> Result<()> {
    match command {
        Command::Plugins(command) => command.run(&context).await,
        Command::Version => version::run(&context).await,
        Command::Containers(command) => command.run(&context).await,
        Command::Content(command) => command.run(&context).await,
        Command::Events(args) => events::run(&context, args).await,
        Command::Images(command) => command.run(&context).await,
        Command::Leases(command) => command.run(&context).await,
        Command::Namespaces(command) => command.run(&context).await,
        Command::Run(args) => run::run(&context, *args).await,
        Command::Snapshots(args) => args.run(&context).await,
        Command::Tasks(command) => command.run(&context).await,
        Command::Info => info::run(&context).await,
    }
}

#[cfg(test)]
mod tests;
