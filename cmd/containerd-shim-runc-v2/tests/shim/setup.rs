//! A world for one test: /run on a tmpfs, bundles, a running shim and a stand-in for the daemon.

use std::{
    cell::RefCell,
    fs::{self, File},
    future::Future,
    io::Read,
    os::unix::fs::{OpenOptionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use containerd_api::{
    any, runc::v1::Options, services::events::ttrpc::v1 as events, task::v3 as api, task::v3::task_ttrpc, types,
};
use containerd_ttrpc::{Client, Context, Router, Server, Status};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
};
use prost::Message;
use serde_json::{Value, json};

pub(crate) const LIMIT: Duration = Duration::from_secs(60);
const TTRPC: &str = "/run/daemon.ttrpc";

/// A test with a runtime: skips with a reason where that cannot run containers.
pub(crate) fn with_runtime<F: Future<Output = ()>>(runtime: &'static str, test: impl FnOnce(World) -> F) {
    if let Err(why) = isolate(runtime) {
        eprintln!("skipped: {why}");
        return;
    }
    let event_loop = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    event_loop.block_on(async {
        let world = World::new(runtime);
        let _shims = KillShims(world.shims.clone());
        tokio::time::timeout(LIMIT * 2, test(world)).await.expect("the test hangs");
    });
}

/// Ends what a failed test leaves running.
struct KillShims(std::rc::Rc<RefCell<Vec<i32>>>);

impl Drop for KillShims {
    fn drop(&mut self) {
        for pid in self.0.borrow().iter() {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(*pid), nix::sys::signal::Signal::SIGKILL);
        }
    }
}

pub(crate) fn with_runc<F: Future<Output = ()>>(test: impl FnOnce(World) -> F) {
    with_runtime("runc", test);
}

/// Gives this thread, and what it starts, mounts of its own with an empty /run.
fn isolate(runtime: &str) -> Result<(), String> {
    if !nix::unistd::geteuid().is_root() {
        return Err("needs root".into());
    }
    unshare(CloneFlags::CLONE_NEWNS).map_err(|error| format!("no mount namespace: {error}"))?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).map_err(|error| error.to_string())?;
    mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), none).map_err(|error| error.to_string())?;
    if runtime == "crun" {
        // crun refuses hosts with both versions of cgroups: show it one.
        let _ = umount2("/sys/fs/cgroup/unified", MntFlags::MNT_DETACH);
    }
    let dir = bundle("probe", &json!(["true"]), &json!({}));
    root_tree(&dir.join("rootfs"));
    let output = Command::new(runtime)
        .args(["--root", "/run/probe-state", "run", "--bundle"])
        .arg(&dir)
        .arg(unique("probe"))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{runtime}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{runtime} cannot run containers here: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Containers are named for the process, so that tests in parallel have cgroups of their own.
pub(crate) fn unique(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

/// A root file system that borrows the programs of the host.
fn root_tree(root: &Path) {
    for dir in ["usr", "proc", "dev", "tmp", "etc"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    for name in ["bin", "lib", "lib64", "sbin"] {
        if fs::symlink_metadata(Path::new("/").join(name)).is_ok() {
            let _ = symlink(format!("usr/{name}"), root.join(name));
        }
    }
}

fn bundle(id: &str, args: &Value, extra: &Value) -> PathBuf {
    let dir = Path::new("/run/bundles").join(id);
    fs::create_dir_all(&dir).unwrap();
    let caps = json!(["CAP_KILL", "CAP_CHOWN", "CAP_DAC_OVERRIDE"]);
    let mut spec = json!({
        "ociVersion": "1.0.2",
        "process": process(args),
        "root": {"path": "rootfs"},
        "hostname": "test",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
             "options": ["newinstance", "ptmxmode=0666", "mode=0620"]},
            {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]}
        ],
        "linux": {
            "cgroupsPath": format!("/shim-test-{}", unique(id)),
            "namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}]
        }
    });
    spec["process"]["capabilities"] = json!({"bounding": caps, "effective": caps, "permitted": caps});
    for (key, value) in extra.as_object().unwrap() {
        match key.as_str() {
            "terminal" => spec["process"]["terminal"] = value.clone(),
            "namespaces" => spec["linux"]["namespaces"] = value.clone(),
            "resources" => spec["linux"]["resources"] = value.clone(),
            _ => spec[key] = value.clone(),
        }
    }
    fs::write(dir.join("config.json"), spec.to_string()).unwrap();
    dir
}

/// A process specification.
pub(crate) fn process(args: &Value) -> Value {
    json!({
        "terminal": false, "user": {"uid": 0, "gid": 0}, "args": args, "cwd": "/",
        "env": ["PATH=/usr/bin:/usr/sbin:/bin", "TERM=xterm"]
    })
}

/// An event: topic and container, process or exec.
pub(crate) type Seen = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

pub(crate) struct World {
    runtime: &'static str,
    pub(crate) seen: Seen,
    pub(crate) shims: std::rc::Rc<RefCell<Vec<i32>>>,
    daemon: RefCell<Option<tokio::task::JoinHandle<()>>>,
}

impl World {
    fn new(runtime: &'static str) -> Self {
        Self { runtime, seen: Seen::default(), shims: Default::default(), daemon: RefCell::default() }
    }

    /// Starts to take events like a daemon.
    pub(crate) fn daemon(&self) {
        let _ = fs::remove_file(TTRPC);
        let listener = tokio::net::UnixListener::bind(TTRPC).unwrap();
        let seen = self.seen.clone();
        let mut router = Router::default();
        router.unary(events::events_ttrpc::SERVICE, "Forward", move |_, request: events::ForwardRequest| {
            let envelope = request.envelope.unwrap();
            assert_eq!(envelope.namespace, "testing");
            seen.lock().unwrap().push((envelope.topic, envelope.event.unwrap().value));
            async { Ok::<_, Status>(()) }
        });
        let server = tokio::spawn(Server::serve(listener, Arc::new(router), std::future::pending()));
        if let Some(old) = self.daemon.replace(Some(server)) {
            old.abort();
        }
    }

    pub(crate) fn stop_daemon(&self) {
        if let Some(old) = self.daemon.take() {
            old.abort();
        }
    }

    /// Topics so far, in order.
    pub(crate) fn topics(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|(topic, _)| topic.clone()).collect()
    }

    /// Waits until a topic was seen so many times.
    pub(crate) async fn topic(&self, topic: &str, count: usize) {
        until(&format!("{topic} in {:?}", self.topics()), || {
            self.topics().iter().filter(|seen| *seen == topic).count() >= count
        })
        .await;
    }

    /// Makes a bundle and runs the start action in it, as the daemon does.
    pub(crate) fn bundle(&self, id: &str, args: Value, extra: Value) -> PathBuf {
        let dir = bundle(id, &args, &extra);
        root_tree(&Path::new("/run/roots").join(id));
        dir
    }

    /// Output of the shim's binary for an action.
    pub(crate) fn action(&self, id: &str, dir: &Path, action: &str, input: &[u8], env: &[(&str, &str)]) -> Vec<u8> {
        let stdin = Path::new("/run").join(unique("input"));
        fs::write(&stdin, input).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_containerd-shim-runc-v2"))
            .args(["-namespace", "testing", "-address", "/run/daemon.sock", "-publish-binary", "/none", "-id", id])
            .arg(action)
            .current_dir(dir)
            .env_remove("MAX_SHIM_VERSION")
            .env("TTRPC_ADDRESS", TTRPC)
            .envs(env.iter().copied())
            .stdin(File::open(&stdin).unwrap())
            .output()
            .unwrap();
        assert!(output.status.success(), "{action}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stderr.is_empty(), "{action}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// A shim for a bundle, found by the old plain address.
    pub(crate) async fn shim(&self, id: &str, dir: &Path) -> Shim {
        let address = String::from_utf8(self.action(id, dir, "start", &[], &[])).unwrap();
        self.connect(&address, id).await
    }

    pub(crate) async fn connect(&self, address: &str, id: &str) -> Shim {
        let path = address.trim().strip_prefix("unix://").unwrap();
        let client = Client::connect(Path::new(path)).await.unwrap();
        let task = task_ttrpc::Client::new(client.clone());
        let shim = Shim { client, task, id: id.to_owned(), runtime: self.runtime };
        let connected = shim.task.connect(&shim.context(), &api::ConnectRequest { id: id.into() }).await.unwrap();
        self.shims.borrow_mut().push(connected.shim_pid as i32);
        shim
    }
}

pub(crate) struct Shim {
    pub(crate) client: Client,
    pub(crate) task: task_ttrpc::Client,
    pub(crate) id: String,
    runtime: &'static str,
}

impl Shim {
    pub(crate) fn context(&self) -> Context {
        Context::with_timeout(LIMIT)
    }

    /// Creates the container of a bundle with its root mounted by the shim.
    pub(crate) async fn create(&self, id: &str, dir: &Path, io: &Streams) -> Result<u32, Status> {
        let options = Options { binary_name: self.runtime.into(), root: "/run/state".into(), ..Default::default() };
        let root = types::Mount {
            r#type: "bind".into(),
            source: format!("/run/roots/{id}"),
            options: vec!["rbind".into(), "rw".into()],
            ..Default::default()
        };
        let request = api::CreateTaskRequest {
            id: id.into(),
            bundle: dir.to_str().unwrap().into(),
            rootfs: vec![root],
            terminal: io.terminal,
            stdin: io.stdin.clone(),
            stdout: io.stdout.clone(),
            stderr: io.stderr.clone(),
            options: Some(any::pack("containerd.runc.v1.Options", &options)),
            ..Default::default()
        };
        Ok(self.task.create(&self.context(), &request).await?.pid)
    }

    pub(crate) async fn start(&self, exec_id: &str) -> Result<u32, Status> {
        let request = api::StartRequest { id: self.id.clone(), exec_id: exec_id.into() };
        Ok(self.task.start(&self.context(), &request).await?.pid)
    }

    pub(crate) async fn wait(&self, exec_id: &str) -> Result<u32, Status> {
        let request = api::WaitRequest { id: self.id.clone(), exec_id: exec_id.into() };
        Ok(self.task.wait(&self.context(), &request).await?.exit_status)
    }

    pub(crate) async fn kill(&self, exec_id: &str, signal: u32, all: bool) -> Result<(), Status> {
        let request = api::KillRequest { id: self.id.clone(), exec_id: exec_id.into(), signal, all };
        self.task.kill(&self.context(), &request).await
    }

    pub(crate) async fn delete(&self, exec_id: &str) -> Result<api::DeleteResponse, Status> {
        let request = api::DeleteRequest { id: self.id.clone(), exec_id: exec_id.into() };
        self.task.delete(&self.context(), &request).await
    }

    pub(crate) async fn state(&self, exec_id: &str) -> Result<api::StateResponse, Status> {
        let request = api::StateRequest { id: self.id.clone(), exec_id: exec_id.into() };
        self.task.state(&self.context(), &request).await
    }

    pub(crate) async fn exec(&self, exec_id: &str, args: Value, io: &Streams) -> Result<(), Status> {
        let spec = prost_types::Any {
            type_url: "types.containerd.io/opencontainers/runtime-spec/1/Process".into(),
            value: process(&args).to_string().into_bytes(),
        };
        let request = api::ExecProcessRequest {
            id: self.id.clone(),
            exec_id: exec_id.into(),
            terminal: io.terminal,
            stdin: io.stdin.clone(),
            stdout: io.stdout.clone(),
            stderr: io.stderr.clone(),
            spec: Some(spec),
        };
        self.task.exec(&self.context(), &request).await
    }

    /// Tells the shim to end and sees that it does.
    pub(crate) async fn shutdown(&self) {
        let request = api::ShutdownRequest { id: self.id.clone(), now: false };
        self.task.shutdown(&self.context(), &request).await.unwrap();
        tokio::time::timeout(LIMIT, self.client.closed()).await.unwrap();
    }
}

/// FIFOs of a process, and the readers' side of them.
#[derive(Default)]
pub(crate) struct Streams {
    pub(crate) stdin: String,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) terminal: bool,
    out: Option<File>,
    err: Option<File>,
}

impl Streams {
    pub(crate) fn new(name: &str) -> Self {
        let fifo = |kind: &str| {
            let path = format!("/run/{name}.{kind}");
            nix::unistd::mkfifo(path.as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
            path
        };
        let open = |path: &str| File::options().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path).unwrap();
        let (stdin, stdout, stderr) = (fifo("in"), fifo("out"), fifo("err"));
        let (out, err) = (Some(open(&stdout)), Some(open(&stderr)));
        Self { stdin, stdout, stderr, terminal: false, out, err }
    }

    pub(crate) fn terminal(name: &str) -> Self {
        Self { terminal: true, ..Self::new(name) }
    }

    /// Writes to standard input and closes this side of it.
    pub(crate) fn input(&self, text: &str) {
        fs::write(&self.stdin, text).unwrap();
    }

    /// Reads what is there until `wanted` has come.
    pub(crate) async fn output(&mut self, wanted: &str) -> String {
        read_until(self.out.as_mut().unwrap(), wanted).await
    }

    /// What is there of standard error.
    pub(crate) fn errors_now(&mut self) -> String {
        let mut text = Vec::new();
        // An error says that there is nothing more now.
        let _ = self.err.as_mut().unwrap().read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    pub(crate) async fn errors(&mut self, wanted: &str) -> String {
        read_until(self.err.as_mut().unwrap(), wanted).await
    }
}

async fn read_until(file: &mut File, wanted: &str) -> String {
    let end = tokio::time::Instant::now() + LIMIT;
    let mut text = String::new();
    let mut buffer = [0; 4096];
    while !text.contains(wanted) {
        match file.read(&mut buffer) {
            Ok(count @ 1..) => text.push_str(&String::from_utf8_lossy(&buffer[..count])),
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
        assert!(tokio::time::Instant::now() < end, "{wanted:?} did not come, but {text:?}");
    }
    text
}

pub(crate) async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = tokio::time::Instant::now() + LIMIT;
    while !done() {
        assert!(tokio::time::Instant::now() < end, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Decodes what an action printed.
pub(crate) fn decode<M: Message + Default>(bytes: &[u8]) -> M {
    M::decode(bytes).unwrap()
}
