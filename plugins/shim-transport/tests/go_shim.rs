//! The task manager with the Go project's shim and runc, in a mount namespace with an own `/run`.
//! Without root, the shim, runc or busybox it says so and passes.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use containerd_ttrpc::{Router, Server};
use core_events::{Envelope, Event, Publisher};
use core_mount::Mount;
use core_runtime_v2::{Any, Config, CreateOptions, ExecRequest, Status, Task, TaskManager, Timeouts};
use core_types::{Namespace, Result};
use plugin_shim_transport::{TtrpcConnector, register_events};

/// The shim: the Go project's as distributions install it, or the one that `SHIM_UNDER_TEST` names.
fn shim() -> String {
    std::env::var("SHIM_UNDER_TEST").unwrap_or_else(|_| "/usr/bin/containerd-shim-runc-v2".to_owned())
}

const SPEC: &str = "types.containerd.io/opencontainers/runtime-spec/1/Spec";
const PROCESS: &str = "types.containerd.io/opencontainers/runtime-spec/1/Process";

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Heard {
    fn count(&self, topic: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|heard| *heard == topic).count()
    }
}

impl Publisher for Heard {
    fn publish(&self, _namespace: &Namespace, topic: &str, _event: Event) -> Result<()> {
        self.0.lock().unwrap().push(topic.to_owned());
        Ok(())
    }
}

/// Ends what the test started, also when it fails.
#[derive(Default)]
struct Started(Vec<u32>);

impl Drop for Started {
    fn drop(&mut self) {
        for pid in self.0.drain(..) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), nix::sys::signal::SIGKILL);
        }
    }
}

struct Bed {
    dir: tempfile::TempDir,
    namespace: Namespace,
    heard: Arc<Heard>,
    started: Started,
}

/// What is missing to run, or a private `/run`.
fn prepare() -> std::result::Result<(), String> {
    if !nix::unistd::geteuid().is_root() {
        return Err("needs root".into());
    }
    let shim = shim();
    for tool in [&[shim.as_str()][..], &["/usr/sbin/runc", "/usr/bin/runc"], &["/bin/busybox", "/usr/bin/busybox"]] {
        if !tool.iter().any(|path| Path::new(path).exists()) {
            return Err(format!("{} is not installed", tool[0]));
        }
    }
    core_sys::private_mount_namespace().map_err(|error| format!("no mount namespace: {error}"))?;
    let flags = nix::mount::MsFlags::empty();
    nix::mount::mount(Some("tmpfs"), "/run", Some("tmpfs"), flags, Some("mode=755"))
        .map_err(|error| format!("no tmpfs on /run: {error}"))
}

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("rootfs/bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(dir.path().join("rootfs/proc")).unwrap();
        let busybox = ["/bin/busybox", "/usr/bin/busybox"].map(Path::new).into_iter().find(|path| path.exists());
        std::fs::copy(busybox.unwrap(), bin.join("busybox")).unwrap();
        let namespace = Namespace::new(&format!("t{}", std::process::id())).unwrap();
        Self { dir, namespace, heard: Arc::default(), started: Started::default() }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("sock.ttrpc")
    }

    /// Serves what shims publish.
    fn serve(&self) {
        let mut router = Router::default();
        let heard = self.heard.clone();
        let forward = move |envelope: Envelope| heard.publish(&envelope.namespace, &envelope.topic, envelope.event);
        register_events(&mut router, Arc::new(forward));
        let listener = tokio::net::UnixListener::bind(self.socket()).unwrap();
        tokio::spawn(Server::serve(listener, Arc::new(router), std::future::pending()));
    }

    fn manager(&self) -> TaskManager {
        let path = |name| self.dir.path().join(name);
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let mut config = Config::new(path("root"), path("state"), text(path("sock")), text(self.socket()));
        let long = Duration::from_secs(60);
        config.timeouts = Timeouts { load: long, cleanup: long, shutdown: long, state: long, ..Timeouts::default() };
        TaskManager::new(config, Arc::new(TtrpcConnector::default()), self.heard.clone()).unwrap()
    }

    fn options(&self, id: &str) -> CreateOptions {
        let spec = serde_json::json!({
            "ociVersion": "1.0.2",
            "process": process(&["/bin/busybox", "sleep", "1000"]),
            "root": {"path": "rootfs"},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
            "linux": {
                "cgroupsPath": format!("/{}/{id}", self.namespace),
                "namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}, {"type": "network"}],
            },
        });
        let rootfs = Mount {
            kind: "bind".into(),
            source: self.dir.path().join("rootfs").to_string_lossy().into_owned(),
            options: vec!["rbind".into()],
            ..Mount::default()
        };
        CreateOptions {
            runtime: shim(),
            // An older shim reads options from standard input and nothing else: BinaryName is runc.
            options: Some(Any {
                type_url: "containerd.runc.v1.Options".into(),
                value: b"\x32\x04runc".to_vec().into(),
            }),
            spec: Some(Any { type_url: SPEC.into(), value: spec.to_string().into() }),
            rootfs: vec![rootfs],
            ..CreateOptions::default()
        }
    }

    async fn create(&mut self, manager: &TaskManager, id: &str) -> Task {
        let (task, pid) = manager.create(&self.namespace, id, self.options(id)).await.unwrap();
        let info = task.connect().await.unwrap();
        assert_eq!(info.task_pid, pid);
        self.started.0.extend([info.task_pid, info.shim_pid]);
        task
    }

    fn is_clean(&self) -> bool {
        ["root", "state"].iter().all(|place| {
            let dir = self.dir.path().join(place).join(self.namespace.as_str());
            std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none())
        })
    }
}

fn process(args: &[&str]) -> serde_json::Value {
    serde_json::json!({"args": args, "cwd": "/", "env": ["PATH=/bin"], "user": {"uid": 0, "gid": 0}})
}

async fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !so() {
        assert!(Instant::now() < until, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn run(test: impl AsyncFnOnce(Bed)) {
    if let Err(why) = prepare() {
        eprintln!("skipped: {why}");
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test(Bed::new()));
    runtime.shutdown_background();
}

#[test]
fn a_container_lives_in_the_go_shim_across_a_restart() {
    run(async |mut bed| {
        bed.serve();
        let manager = bed.manager();
        let task = bed.create(&manager, "c1").await;
        assert_eq!(task.endpoint().unwrap().protocol, "ttrpc");
        assert_eq!(task.state("").await.unwrap().status, Status::Created);
        task.start("").await.unwrap();
        assert_eq!(task.state("").await.unwrap().status, Status::Running);
        let exec = ExecRequest {
            exec_id: "e1".into(),
            spec: Some(Any {
                type_url: PROCESS.into(),
                value: process(&["/bin/busybox", "sh", "-c", "exit 7"]).to_string().into(),
            }),
            ..ExecRequest::default()
        };
        task.exec(exec).await.unwrap();
        task.start("e1").await.unwrap();
        let exit = task.wait("e1").await.unwrap();
        assert_eq!(exit.status, 7);
        assert!(exit.exited_at.is_some());
        assert_eq!(task.delete_process("e1").await.unwrap().status, 7);
        assert!(!task.pids().await.unwrap().is_empty());
        drop((task, manager));

        let manager = bed.manager();
        assert_eq!(manager.load().await.unwrap(), 1);
        manager.settled().await;
        let task = manager.get(&bed.namespace, "c1").unwrap();
        assert_eq!(task.state("").await.unwrap().status, Status::Running);
        let waiting = tokio::spawn({
            let task = task.clone();
            async move { task.wait("").await }
        });
        task.kill("", 9, false).await.unwrap();
        assert_eq!(waiting.await.unwrap().unwrap().status, 137);
        let exit = manager.delete(&bed.namespace, "c1").await.unwrap();
        assert_eq!(exit.status, 137);
        assert!(exit.exited_at.is_some());
        assert!(manager.delete(&bed.namespace, "c1").await.unwrap_err().is_not_found());
        assert!(bed.is_clean());
        eventually("the shim publishes", || bed.heard.count("/tasks/delete") == 1).await;
        assert_eq!(bed.heard.count("/tasks/exit"), 2, "the exec's and init's");
    });
}

#[test]
fn a_killed_shim_is_cleaned_up() {
    run(async |mut bed| {
        bed.serve();
        let manager = bed.manager();
        let task = bed.create(&manager, "c1").await;
        task.start("").await.unwrap();
        let info = task.connect().await.unwrap();
        let shim = nix::unistd::Pid::from_raw(info.shim_pid as i32);
        nix::sys::signal::kill(shim, nix::sys::signal::SIGKILL).unwrap();
        let exit = task.wait("").await.unwrap();
        assert_eq!(exit.status, 137);
        eventually("the task is gone", || manager.list(None).is_empty()).await;
        assert_eq!((bed.heard.count("/tasks/exit"), bed.heard.count("/tasks/delete")), (1, 1));
        assert!(bed.is_clean());
        // A zombie when nobody collects orphans here.
        let stat = format!("/proc/{}/stat", info.task_pid);
        eventually("the container is dead", || {
            std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))
        })
        .await;
    });
}

#[test]
fn a_missing_program_fails_create_and_leaves_nothing() {
    run(async |bed| {
        bed.serve();
        let manager = bed.manager();
        let mut options = bed.options("c1");
        let text = String::from_utf8(options.spec.as_ref().unwrap().value.to_vec()).unwrap();
        let text = text.replace("/bin/busybox", "/no/such/program");
        options.spec = Some(Any { type_url: SPEC.into(), value: text.into() });
        let error = manager.create(&bed.namespace, "c1", options).await.err().unwrap();
        assert!(error.message().contains("/no/such/program"), "{error}");
        assert!(bed.is_clean());
        assert!(manager.list(None).is_empty());
        assert_eq!((bed.heard.count("/tasks/exit"), bed.heard.count("/tasks/create")), (0, 0));
    });
}
