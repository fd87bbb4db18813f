//! The daemon as a process: starting, refusing, serving, ending.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::{
    fs,
    io::{Read, Write},
    os::unix::net::{UnixDatagram, UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};

use containerd_api::services::introspection::v1::PluginsRequest;
use containerd_api_grpc::services::{
    introspection::v1::introspection_client::IntrospectionClient, version::v1::version_client::VersionClient,
};
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

/// For what has to happen, on a slow machine.
const PATIENCE: Duration = Duration::from_secs(30);

struct Daemon {
    child: Child,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::write(place.path("config.toml"), "version = 4\n").unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_containerd"));
        command
            .arg("--config")
            .arg(self.path("config.toml"))
            .arg("--root")
            .arg(self.path("root"))
            .arg("--state")
            .arg(self.path("state"))
            .arg("--address")
            .arg(self.path("c.sock"))
            .env_remove("NOTIFY_SOCKET")
            .stderr(Stdio::piped());
        command
    }

    /// Starts a daemon and waits until it says that it is ready.
    fn start(&self) -> Daemon {
        let notify = self.path("notify.sock");
        let _ = fs::remove_file(&notify);
        let socket = UnixDatagram::bind(&notify).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let child = self.command().env("NOTIFY_SOCKET", &notify).stderr(Stdio::null()).spawn().unwrap();
        let daemon = Daemon { child };
        let mut said = [0; 64];
        let length = socket.recv(&mut said).unwrap();
        assert_eq!(&said[..length], b"READY=1");
        daemon
    }

    /// Runs a daemon that is not meant to start.
    fn refused(&self) -> Output {
        let mut child = Daemon { child: self.command().spawn().unwrap() };
        let status = ended(&mut child);
        let mut stderr = Vec::new();
        child.child.stderr.take().unwrap().read_to_end(&mut stderr).unwrap();
        Output { status, stdout: Vec::new(), stderr }
    }

    async fn channel(&self) -> Channel {
        let path = self.path("c.sock");
        let connect = move |_| {
            let path = path.clone();
            async move { tokio::net::UnixStream::connect(path).await.map(hyper_util::rt::TokioIo::new) }
        };
        Endpoint::from_static("http://localhost").connect_with_connector(tower::service_fn(connect)).await.unwrap()
    }
}

fn ended(daemon: &mut Daemon) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = daemon.child.try_wait().unwrap() {
            return status;
        }
        assert!(Instant::now() < deadline, "the daemon did not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn terminate(daemon: &Daemon) {
    let pid = nix::unistd::Pid::from_raw(daemon.child.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
}

fn listens(path: &Path) -> bool {
    UnixStream::connect(path).is_ok()
}

#[tokio::test]
async fn it_serves_and_ends_cleanly() {
    let place = Place::new();
    let mut daemon = place.start();
    let version = VersionClient::new(place.channel().await).version(()).await.unwrap().into_inner().version;
    assert!(version.starts_with("v2.3."), "{version}");
    let mut introspection = IntrospectionClient::new(place.channel().await);
    let request = PluginsRequest { filters: vec!["type==io.containerd.grpc.v1".into()] };
    let plugins = introspection.plugins(request).await.unwrap().into_inner().plugins;
    for id in ["containers", "content", "images", "tasks", "snapshots", "transfer"] {
        assert!(plugins.iter().any(|plugin| plugin.id == id && plugin.init_err.is_none()), "{id}");
    }
    let server = introspection.server(()).await.unwrap().into_inner();
    assert_eq!((server.pid, server.uuid.len()), (daemon.child.id().into(), 36));
    let uuid = server.uuid;
    assert!(listens(&place.path("c.sock.ttrpc")));

    let told = Instant::now();
    terminate(&daemon);
    assert!(ended(&mut daemon).success());
    assert!(told.elapsed() < Duration::from_secs(20), "{:?}", told.elapsed());
    assert!(!place.path("c.sock").exists());

    // The uuid is the installation's, not the process's.
    let _again = place.start();
    let server = IntrospectionClient::new(place.channel().await).server(()).await.unwrap().into_inner();
    assert_eq!(server.uuid, uuid);
}

#[tokio::test]
async fn requests_without_end_do_not_keep_it() {
    use containerd_api::services::events::v1::SubscribeRequest;
    use containerd_api_grpc::services::events::v1::events_client::EventsClient;

    let place = Place::new();
    let mut daemon = place.start();
    let mut client = EventsClient::new(place.channel().await);
    let _events = client.subscribe(SubscribeRequest::default()).await.unwrap();
    terminate(&daemon);
    assert!(ended(&mut daemon).success());
}

#[test]
fn a_second_daemon_is_refused_and_the_first_goes_on() {
    let place = Place::new();
    let daemon = place.start();
    let output = place.refused();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains("another containerd is running"), "{stderr}");
    assert!(stderr.contains(&format!("pid {}", daemon.child.id())), "{stderr}");
    assert!(listens(&place.path("c.sock")));
}

#[test]
fn a_killed_daemon_leaves_nothing_in_the_way() {
    let place = Place::new();
    let daemon = place.start();
    drop(daemon);
    assert!(place.path("c.sock").exists());
    assert!(!listens(&place.path("c.sock")));
    let _again = place.start();
    assert!(listens(&place.path("c.sock")));
}

#[test]
fn a_mistake_in_the_file_is_told_with_its_line() {
    let place = Place::new();
    let path = place.path("config.toml");
    fs::write(&path, "version = 4\n[debug\n").unwrap();
    let output = place.refused();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains(&format!("{}:2:", path.display())), "{stderr}");
    assert!(!place.path("root").exists());
}

#[test]
fn a_required_plugin_that_is_missing_ends_the_start() {
    let place = Place::new();
    let mut file = fs::OpenOptions::new().append(true).open(place.path("config.toml")).unwrap();
    writeln!(file, "required_plugins = ['io.containerd.snapshotter.v1.nowhere']").unwrap();
    let output = place.refused();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("io.containerd.snapshotter.v1.nowhere"), "{stderr}");
}

#[test]
fn commands_print_and_do_not_start() {
    let run = |arguments: &[&str]| Command::new(env!("CARGO_BIN_EXE_containerd")).args(arguments).output().unwrap();
    let version = String::from_utf8(run(&["--version"]).stdout).unwrap();
    assert!(version.split(' ').nth(2).is_some_and(|version| version.starts_with("v2.3.")), "{version}");

    let default = String::from_utf8(run(&["config", "default"]).stdout).unwrap();
    assert!(default.contains("version = 4") && default.contains("io.containerd.server.v1.grpc"), "{default}");

    let place = Place::new();
    let path = place.path("old.toml");
    fs::write(&path, "version = 2\nodd = 1\n[grpc]\naddress = '/x.sock'\n").unwrap();
    for command in ["dump", "migrate"] {
        let output = run(&["--config", path.to_str().unwrap(), "config", command]);
        let (stdout, stderr) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(stdout.contains("version = 4") && stdout.contains("\"/x.sock.ttrpc\""), "{stdout}");
        assert!(stderr.contains("key=odd"), "{stderr}");
        assert!(!stdout.contains("[grpc]"), "{stdout}");
    }
}

#[tokio::test]
async fn a_shim_publishes_by_running_the_daemons_program() {
    use containerd_api_grpc::services::events::v1::events_client::EventsClient;
    use prost::Message;

    let place = Place::new();
    let _daemon = place.start();
    let event = prost_types::Any { type_url: "containerd.events.TaskOOM".into(), value: vec![0x0a, 1, b'c'] };
    let publish = |address: PathBuf, input: Vec<u8>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_containerd"));
        command.arg("--address").arg(address).args(["publish", "--topic", "/tasks/oom", "--namespace", "shims"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&input).unwrap();
        child.wait_with_output().unwrap()
    };
    let mut events = EventsClient::new(place.channel().await);
    let filters = vec!["topic==\"/tasks/oom\"".to_owned()];
    let mut heard = events
        .subscribe(containerd_api::services::events::v1::SubscribeRequest { filters })
        .await
        .unwrap()
        .into_inner();
    let (address, input) = (place.path("c.sock"), event.encode_to_vec());
    let done = tokio::task::spawn_blocking(move || publish(address, input)).await.unwrap();
    assert!(done.status.success(), "{done:?}");
    let envelope = tokio::time::timeout(PATIENCE, heard.message()).await.unwrap().unwrap().unwrap();
    assert_eq!((envelope.namespace.as_str(), envelope.topic.as_str()), ("shims", "/tasks/oom"));
    assert_eq!(envelope.event.unwrap(), event);

    let nobody = place.path("nobody.sock");
    let done = tokio::task::spawn_blocking(move || publish(nobody, Vec::new())).await.unwrap();
    assert!(!done.status.success() && String::from_utf8_lossy(&done.stderr).contains("nobody.sock"), "{done:?}");
}
