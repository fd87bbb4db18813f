use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, atomic::AtomicBool},
};

use core_cgroups::Cgroup;
use core_mount::Mount;
use core_types::{Error, Result};
use tokio::sync::watch;

use crate::{
    Container, Event, ExitRecord, Host, OciRuntime, Process, RuntimeOptions, Stdio,
    console::ConsoleSocket,
    runtime::{NO_MESSAGE, Streams},
    stdio::{Owner, ProcessIo},
};

/// Where the runtime writes init's id; the same place as containerd's, for those that look.
const PID_FILE: &str = "init.pid";

/// What a container is made from.
#[derive(Clone, Debug, Default)]
pub struct CreateConfig {
    /// Its id.
    pub id: String,
    /// Its bundle: `config.json` is there.
    pub bundle: PathBuf,
    /// Mounts that make its root file system in `<bundle>/rootfs`; empty when it is there already.
    pub rootfs: Vec<Mount>,
    /// Init's streams.
    pub stdio: Stdio,
    /// Which runtime, and how.
    pub runtime: RuntimeOptions,
    /// Who owns init's streams.
    pub io_uid: u32,
    /// Group of init's streams.
    pub io_gid: u32,
}

/// Runs what can wait for a disk away from the event loop.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(Error::internal(format!("blocking work ended early: {error}"))))
}

impl Container {
    /// Mounts the root file system and has the runtime make the container; init waits for the start.
    ///
    /// # Errors
    /// What mounting says; the runtime's own message. Then nothing is left behind and no event is sent.
    pub async fn create(host: &Host, config: CreateConfig) -> Result<Arc<Self>> {
        let rootfs = (!config.rootfs.is_empty()).then(|| config.bundle.join("rootfs"));
        if let Some(target) = rootfs.clone() {
            let mounts = config.rootfs.clone();
            blocking(move || mount_rootfs(&mounts, &target)).await?;
        }
        // A record of an earlier life of the bundle must not be taken for this one's.
        ExitRecord::remove(&config.bundle);
        let made = Self::make(host, &config, rootfs.clone()).await;
        if made.is_err()
            && let Some(target) = rootfs
        {
            // The first error is the one to report; what stays mounted is undone by the delete action.
            let _ = blocking(move || core_mount::unmount_all(&target)).await;
        }
        made
    }

    async fn make(host: &Host, config: &CreateConfig, rootfs: Option<PathBuf>) -> Result<Arc<Self>> {
        let reaper = &host.reaper;
        let runtime = OciRuntime::new(reaper.clone(), config.runtime.clone(), &host.namespace, &config.bundle);
        let owner = Owner { id: &config.id, namespace: &host.namespace, uid: config.io_uid, gid: config.io_gid };
        let pid_file = config.bundle.join(PID_FILE);
        let call = async |console: Option<&Path>, streams| {
            runtime.create(&config.id, &config.bundle, &pid_file, console, streams).await
        };
        let window = reaper.window();
        let io = launch(&config.stdio, owner, host, call).await?;
        let pid = match (io, read_pid(&pid_file)) {
            (Ok(io), Ok(pid)) => (pid, io),
            (io, pid) => {
                let error = io.err().or(pid.err()).unwrap_or_else(|| Error::internal("no process"));
                let _ = runtime.delete(&config.id, true).await;
                return Err(error);
            }
        };
        let (pid, io) = pid;
        let exit = reaper.watch(pid);
        drop(window);
        let init = Process::new(&config.id, config.stdio.clone());
        init.set_created(pid, io);
        let cgroup = Cgroup::of_process(pid).ok();
        let container = Arc::new(Self {
            host: host.clone(),
            id: config.id.clone(),
            bundle: config.bundle.clone(),
            rootfs,
            runtime,
            owner: (config.io_uid, config.io_gid),
            init: Arc::new(init),
            execs: Mutex::new(HashMap::new()),
            busy: watch::Sender::new(0),
            init_exited: AtomicBool::new(false),
            oom_kills: cgroup.as_ref().and_then(Cgroup::oom_kills).unwrap_or(0).into(),
            cgroup,
            oom_task: Mutex::new(None),
        });
        host.emit(Event::Create {
            id: config.id.clone(),
            bundle: config.bundle.display().to_string(),
            rootfs: config.rootfs.clone(),
            stdio: config.stdio.clone(),
            checkpoint: String::new(),
            pid,
        });
        container.watch_oom();
        tokio::spawn(container.clone().init_exit(exit));
        Ok(container)
    }
}

/// Calls the runtime with the streams of a process. The outer error is the call's, the inner one that of
/// connecting the terminal afterwards, when there is a process already.
pub(crate) async fn launch(
    stdio: &Stdio,
    owner: Owner<'_>,
    host: &Host,
    call: impl AsyncFnOnce(Option<&Path>, Streams) -> Result<()>,
) -> Result<Result<ProcessIo>> {
    if !stdio.terminal {
        let (mut io, streams) = ProcessIo::open(stdio, owner, &host.reaper).await?;
        if let Err(error) = call(None, Streams::Container(streams)).await {
            return Err(match io.complaint() {
                // What the runtime logged is the better text, and usually the same.
                Some(complaint) if error.message().ends_with(NO_MESSAGE) => error.context(complaint),
                _ => error,
            });
        }
        return Ok(io.connect().map(|()| io));
    }
    let socket = ConsoleSocket::new()?;
    call(Some(&socket.path()), Streams::Capture(None)).await?;
    let connect = async {
        let master = socket.receive().await?;
        ProcessIo::open_console(stdio, owner, &host.reaper, master).await
    };
    Ok(connect.await)
}

fn mount_rootfs(mounts: &[Mount], target: &Path) -> Result<()> {
    let mut builder = fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o711);
    match builder.create(target) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Error::io(format_args!("make {}", target.display()), error));
        }
        _ => {}
    }
    core_mount::mount_all(mounts, target).map_err(|error| error.context("failed to mount rootfs component"))
}

/// The process id that the runtime wrote.
pub(crate) fn read_pid(path: &Path) -> Result<u32> {
    let doing = || format!("read the process id from {}", path.display());
    let text = fs::read_to_string(path).map_err(|error| Error::io(doing(), error))?;
    match text.trim().parse() {
        Ok(pid) if pid > 0 => Ok(pid),
        _ => Err(Error::internal(format!("{}: {text:?} is none", doing()))),
    }
}
