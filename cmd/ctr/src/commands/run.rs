use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use containerd_sdk::{Container, DEFAULT_FIFO_DIR, Deletion, NewTask, Stdio};

use crate::{
    commands::{
        shared::{RuntimeFlags, SnapshotterFlag},
        tasks::foreground::{self, Session},
    },
    context::{Context, error_text, warn},
};

/// Making the container's record and root file system.
pub(crate) mod create;
/// Flags that shape the specification.
pub(crate) mod flags;
/// From flags to a specification.
mod spec;

use flags::{ContainerFlags, RunFlags};

/// Run a container.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Remove the container after running, cannot be used with --detach
    #[arg(long)]
    pub(crate) rm: bool,
    /// Send all IO to /dev/null
    #[arg(long)]
    null_io: bool,
    /// Log uri
    #[arg(long)]
    log_uri: Option<String>,
    /// Detach from the task after it has started execution, cannot be used with --rm
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// Directory used for storing IO FIFOs
    #[arg(long)]
    fifo_dir: Option<PathBuf>,
    /// Dump the generated OCI config to a file
    #[arg(long)]
    dump_config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) run: RunFlags,
    #[command(flatten)]
    runtime: RuntimeFlags,
    #[command(flatten)]
    snapshotter: SnapshotterFlag,
    #[command(flatten)]
    pub(crate) container: ContainerFlags,
    /// Image or root file system, id of the container, command; with --config the id alone
    #[arg(trailing_var_arg = true, value_name = "Image|RootFS ID [COMMAND] [ARG...]")]
    pub(crate) args: Vec<String>,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<()> {
    if args.rm && args.detach {
        bail!("flags --detach and --rm cannot be specified together");
    }
    let order = create::Order {
        container: &args.container,
        run: Some(&args.run),
        runtime: &args.runtime,
        snapshotter: &args.snapshotter.snapshotter,
        args: &args.args,
    };
    order.check()?;
    let client = context.client().await?;
    let container = order.create(&client).await?;
    let result = run_task(context, &container, &args).await;
    if args.rm
        && let Err(error) = container.delete(Deletion::WithSnapshot).await
    {
        warn(format!("failed to cleanup container: {error}"));
    }
    result
}

async fn run_task(context: &Context, container: &Container, args: &Args) -> Result<()> {
    if let Some(path) = &args.dump_config {
        let json = crate::output::pretty(&container.spec()?.into_value(), b"  ")?;
        std::fs::write(path, json).with_context(|| format!("write {}", path.display()))?;
    }
    let tty = args.container.tty;
    if tty && args.null_io {
        bail!("tty and null-io cannot be used together");
    }
    let fifo_dir = args.fifo_dir.clone().unwrap_or_else(|| DEFAULT_FIFO_DIR.into());
    let mut session = Session::new(context, tty)?;
    let stdio = session.stdio(args.null_io, args.log_uri.as_deref(), &fifo_dir, args.detach)?;
    run_new_task(container, stdio, &mut session, args).await
}

async fn run_new_task(container: &Container, stdio: Stdio, session: &mut Session, args: &Args) -> Result<()> {
    let options = task_options(container, args.container.no_pivot)?;
    let mut task = container.new_task(stdio, options).await?;
    if let Some(path) = &args.container.pid_file {
        let written = foreground::write_pid_file(path, task.init().pid());
        if let Err(error) = written {
            foreground::clean_up(task.init_mut()).await;
            return Err(error);
        }
    }
    if args.detach {
        if let Err(error) = task.init_mut().start().await {
            foreground::clean_up(task.init_mut()).await;
            return Err(error.into());
        }
        task.into_init().detach();
        return Ok(());
    }
    foreground::run(task.init_mut(), session).await
}

/// The options of a task that follow from the specification.
pub(crate) fn task_options(container: &Container, no_pivot_root: bool) -> Result<NewTask> {
    let spec = container.spec()?;
    let host = |list: &str| {
        let id = spec.get(&format!("/linux/{list}/0/hostID"))?.as_u64()?;
        u32::try_from(id).ok()
    };
    let io_owner = match (host("uidMappings"), host("gidMappings")) {
        (None, None) => None,
        (uid, gid) => Some((uid.unwrap_or(0), gid.unwrap_or(0))),
    };
    Ok(NewTask { no_pivot_root, io_owner })
}

/// Removes a snapshot that a failed creation has left.
pub(crate) async fn remove_snapshot(snapshotter: &containerd_sdk::Snapshotter, key: &str) {
    if let Err(error) = snapshotter.remove(key).await
        && !error.is_not_found()
    {
        warn(format!("failed to remove snapshot {key}: {}", error_text(&error.into())));
    }
}
