//! The client library against the daemon, over its socket and within one process: from the registry to a removed
//! container.

// Helpers of a test are tests too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::{
    fs,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use containerd::InProcess;
use containerd_sdk::{Client, Pull, Registry as RegistryOptions, Streams};
use containerd_test::{Daemon, Registry, World, skip_without};
use tokio::{io::AsyncWrite, runtime::Runtime};

/// Layers made of snapshots and applied to them.
#[path = "sdk/layers.rs"]
mod layers;
/// The life of a container.
#[path = "sdk/life.rs"]
mod life;

const NEEDED: [&str; 6] = ["runc", "ctr", "docker-registry", "skopeo", "umoci", "busybox"];

/// A runtime whose threads are in the private namespace of the calling thread.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Fails rather than hang.
async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), work).await.expect("within two minutes")
}

async fn pull(client: &Client, name: &str) -> containerd_sdk::Image {
    let registry = RegistryOptions { default_scheme: "http".into(), ..RegistryOptions::new(name) };
    client.pull(name, Pull { registry, ..Pull::default() }).await.unwrap()
}

/// What a process wrote.
#[derive(Clone, Default)]
struct Collected(Arc<Mutex<Vec<u8>>>);

impl Collected {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl AsyncWrite for Collected {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Streams with a given input, and what comes out of them.
fn streams(world: &World, input: &'static [u8]) -> (Streams, Collected, Collected) {
    let (out, err) = (Collected::default(), Collected::default());
    let streams = Streams {
        stdin: Some(Box::new(input)),
        stdout: Some(Box::new(out.clone())),
        stderr: Some(Box::new(err.clone())),
        terminal: false,
        fifo_dir: fifos(world),
    };
    (streams, out, err)
}

fn fifos(world: &World) -> PathBuf {
    world.dir().join("fifos")
}

#[test]
fn over_the_socket() {
    if skip_without(&NEEDED) {
        return;
    }
    let world = World::new();
    let daemon = Daemon::start(&world);
    let (_registry, name) = Registry::with_busybox(&world);
    runtime().block_on(within(async {
        let client = Client::connect(daemon.address().to_str().unwrap(), "sdk").await.unwrap();
        layers::there_and_back(&client).await;
        life::whole(&world, &client, &name).await;
    }));
}

/// A configuration for a daemon in this process.
fn configuration(world: &World) -> PathBuf {
    let dir = world.dir().join("within");
    fs::create_dir(&dir).unwrap();
    let path = dir.join("config.toml");
    let shown = dir.display();
    let text = format!(
        "version = 2\nroot = \"{shown}/root\"\nstate = \"{shown}/state\"\n[grpc]\naddress = \"{shown}/containerd.sock\"\n"
    );
    fs::write(&path, text).unwrap();
    path
}

async fn client_of(daemon: &InProcess) -> Client {
    let connector = daemon.connector();
    let connect = move || std::future::ready(connector.connect());
    Client::in_process(connect, "sdk").await.unwrap()
}

#[test]
fn within_one_process() {
    if skip_without(&NEEDED) {
        return;
    }
    let world = World::new();
    let (_registry, name) = Registry::with_busybox(&world);
    let config = configuration(&world);
    runtime().block_on(within(async {
        let daemon = InProcess::start(&config).await.unwrap();
        let client = client_of(&daemon).await;
        // Nothing but this process has the lock, and there is no other program that could answer.
        assert!(InProcess::start(&config).await.err().unwrap().to_string().contains("another containerd"));
        assert!(world.command_lines().iter().all(|line| !line.starts_with(Daemon::programs().to_str().unwrap())));
        life::whole(&world, &client, &name).await;
        let connector = daemon.connector();
        daemon.stop().await;
        assert_eq!(connector.connect().unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
        assert!(client.version().await.is_err());
    }));
}

#[test]
fn a_container_outlives_the_daemon_in_a_process() {
    if skip_without(&NEEDED) {
        return;
    }
    let world = World::new();
    let (_registry, name) = Registry::with_busybox(&world);
    let config = configuration(&world);
    runtime().block_on(within(async {
        let daemon = InProcess::start(&config).await.unwrap();
        let client = client_of(&daemon).await;
        let image = pull(&client, &name).await;
        let container = life::sleeper(&client, &image).await;
        life::start_detached(&container).await;
        drop(client);
        daemon.stop().await;
        let daemon = InProcess::start(&config).await.unwrap();
        let client = client_of(&daemon).await;
        let container = client.container(container.id()).await.unwrap();
        life::end(&container).await;
        daemon.stop().await;
    }));
}

/// Names in a directory; none when it is not there.
fn entries(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
