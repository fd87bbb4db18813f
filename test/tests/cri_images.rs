//! The image service of the CRI over the daemon's socket.

// Helpers of a test are tests too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use containerd_test::{
    Daemon, Registry, World, eventually,
    hostile::{Blob, Fault, File, Hostile, LAYER, digest, tar},
    skip_without,
};
use k8s_cri::v1::{
    AuthConfig, Image, ImageFilter, ImageFsInfoRequest, ImageSpec, ImageStatusRequest, ImageStatusResponse,
    ListImagesRequest, PullImageRequest, RemoveImageRequest, image_service_client::ImageServiceClient,
};
use nix::sys::signal::Signal;
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};

const SECTION: &str = "[plugins.\"io.containerd.cri.v1.images\"]";

/// A daemon and a client of its image service.
struct Node {
    client: ImageServiceClient<Channel>,
    daemon: Daemon,
    world: World,
}

fn spec(image: &str) -> Option<ImageSpec> {
    Some(ImageSpec { image: image.to_owned(), ..ImageSpec::default() })
}

async fn connect(daemon: &Daemon) -> Channel {
    let address = format!("unix://{}", daemon.address().display());
    Endpoint::try_from(address).unwrap().timeout(Duration::from_secs(120)).connect().await.unwrap()
}

impl Node {
    /// None where the tests cannot run.
    async fn start() -> Option<Self> {
        if skip_without(&["ctr", "busybox", "docker-registry", "skopeo", "umoci"]) {
            return None;
        }
        let world = World::new();
        let daemon = Daemon::start(&world);
        let client = ImageServiceClient::new(connect(&daemon).await);
        Some(Self { client, daemon, world })
    }

    /// Starts the daemon anew with this at the end of its configuration.
    async fn restart_with(&mut self, more: &str) {
        self.daemon.configure(more);
        self.daemon.end(Signal::SIGTERM);
        self.daemon.restart();
        self.client = ImageServiceClient::new(connect(&self.daemon).await);
    }

    async fn pull_as(&mut self, image: &str, auth: Option<AuthConfig>) -> Result<String, Status> {
        let request = PullImageRequest { image: spec(image), auth, sandbox_config: None };
        self.client.pull_image(request).await.map(|answer| answer.into_inner().image_ref)
    }

    async fn pull(&mut self, image: &str) -> String {
        self.pull_as(image, None).await.unwrap()
    }

    async fn list(&mut self) -> Vec<Image> {
        self.client.list_images(ListImagesRequest::default()).await.unwrap().into_inner().images
    }

    async fn verbose(&mut self, image: &str) -> Result<ImageStatusResponse, Status> {
        let request = ImageStatusRequest { image: spec(image), verbose: true };
        self.client.image_status(request).await.map(tonic::Response::into_inner)
    }

    async fn status(&mut self, image: &str) -> Option<Image> {
        self.verbose(image).await.unwrap().image
    }

    async fn remove(&mut self, image: &str) {
        self.client.remove_image(RemoveImageRequest { image: spec(image) }).await.unwrap();
    }

    /// Waits until the list is as wanted.
    async fn until(&mut self, what: &str, wanted: impl Fn(&[Image]) -> bool) -> Vec<Image> {
        let begun = Instant::now();
        loop {
            let images = self.list().await;
            if wanted(&images) {
                return images;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "not within a minute: {what}: {images:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Names in the image store.
    fn names(&self) -> Vec<String> {
        let names = self.daemon.ctr(&["-n", "k8s.io", "images", "ls", "-q"]).ok();
        names.lines().map(str::to_owned).collect()
    }
}

#[tokio::test]
async fn an_image_is_known_by_all_its_names() {
    let Some(mut node) = Node::start().await else { return };
    let (_registry, name) = Registry::with_busybox(&node.world);
    let id = node.pull(&name).await;
    assert!(id.starts_with("sha256:"), "{id}");
    let images = node.list().await;
    let [image] = images.as_slice() else { panic!("{images:?}") };
    assert_eq!((image.id.as_str(), image.repo_tags.as_slice()), (id.as_str(), &[name.clone()][..]));
    let [by_digest] = image.repo_digests.as_slice() else { panic!("{image:?}") };
    assert!(image.size > 100_000 && !image.pinned, "{image:?}");
    assert_eq!(node.names().len(), 3);

    let hex = id.strip_prefix("sha256:").unwrap();
    for known in [name.as_str(), by_digest, &id, hex, &hex[..12]] {
        assert_eq!(node.status(known).await.as_ref(), Some(image), "{known}");
    }
    assert_eq!(node.status("127.0.0.1:1/none:1").await, None);
    let filter = |image: &str| ListImagesRequest { filter: Some(ImageFilter { image: spec(image) }) };
    assert_eq!(node.client.list_images(filter(&name)).await.unwrap().into_inner().images.len(), 1);
    assert_eq!(node.client.list_images(filter("none:1")).await.unwrap().into_inner().images.len(), 0);

    let info = node.verbose(&id).await.unwrap().info;
    let info: serde_json::Value = serde_json::from_str(&info["info"]).unwrap();
    assert!(info["chainID"].as_str().unwrap().starts_with("sha256:"), "{info}");
    assert_eq!(info["imageSpec"]["config"]["Cmd"], serde_json::json!(["/bin/sh"]));
    assert_eq!(info["imageSpec"]["rootfs"]["type"], "layers");

    node.remove(&hex[..12]).await;
    assert_eq!(node.list().await, []);
    assert_eq!(node.names(), Vec::<String>::new());
    node.remove(&name).await;

    // By digest there is no tag.
    assert_eq!(node.pull(by_digest).await, id);
    let image = node.status(&id).await.unwrap();
    assert_eq!((image.repo_tags.len(), image.repo_digests.as_slice()), (0, &[by_digest.clone()][..]));
    node.remove(by_digest).await;
    assert_eq!(node.list().await, []);
}

#[tokio::test]
async fn what_others_do_with_images_is_seen() {
    let Some(mut node) = Node::start().await else { return };
    let (_registry, name) = Registry::with_busybox(&node.world);
    node.daemon.ctr(&["-n", "default", "images", "pull", &name]).ok();
    node.daemon.ctr(&["-n", "k8s.io", "images", "pull", &name]).ok();
    let images = node.until("the image is listed", |images| images.len() == 1 && !images[0].repo_tags.is_empty()).await;
    let id = images[0].id.clone();
    eventually("the image has its id as name", || node.names().contains(&id).then_some(()));
    let labels = || node.daemon.ctr(&["-n", "k8s.io", "images", "ls"]).ok();
    eventually("the image is marked", || {
        labels().lines().filter(|line| line.contains("io.cri-containerd.image=managed")).nth(1).map(drop)
    });
    node.daemon.ctr(&["-n", "k8s.io", "images", "tag", &name, "example.com/other:1"]).ok();
    node.until("the second tag", |images| images[0].repo_tags.len() == 2).await;
    node.daemon.ctr(&["-n", "k8s.io", "images", "rm", &name]).ok();
    node.until("one tag less", |images| images[0].repo_tags == ["example.com/other:1"]).await;

    // A new daemon knows them before it serves.
    node.restart_with("").await;
    assert_eq!(node.status("example.com/other:1").await.unwrap().id, id);
    node.remove("example.com/other:1").await;
    assert_eq!(node.list().await, []);
    assert_eq!(node.daemon.ctr(&["-n", "default", "images", "ls", "-q"]).ok().trim(), name);
}

#[tokio::test]
async fn pinned_images_and_what_file_systems_hold() {
    let Some(mut node) = Node::start().await else { return };
    let (_registry, name) = Registry::with_busybox(&node.world);
    let more = format!(
        "{SECTION}\nstats_collect_period = 1\n[plugins.\"io.containerd.cri.v1.images\".pinned_images]\nsandbox = \"{name}\""
    );
    node.restart_with(&more).await;
    node.pull(&name).await;
    assert!(node.status(&name).await.unwrap().pinned);
    assert!(node.names().len() == 3);

    let root = node.daemon.root().join("io.containerd.snapshotter.v1.overlayfs");
    let begun = Instant::now();
    loop {
        let answer = node.client.image_fs_info(ImageFsInfoRequest {}).await.unwrap().into_inner();
        let first = &answer.image_filesystems[0];
        assert_eq!(first.fs_id.as_ref().unwrap().mountpoint, root.display().to_string());
        assert!(first.timestamp > 0);
        let (bytes, inodes) = (first.used_bytes.unwrap().value, first.inodes_used.unwrap().value);
        if bytes > 100_000 && inodes > 10 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{answer:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Only kubelet's own collection leaves pinned images alone.
    node.remove(&name).await;
    assert_eq!(node.list().await, []);
}

/// Offers an image of one layer, so big that it comes in several pieces.
fn offer(registry: &Hostile, image: &str) -> (String, String) {
    let bytes = tar(&[File::Regular("data", &"x".repeat(300_000))]);
    let diff_id = digest(&bytes);
    let layer = Blob::new(LAYER, bytes);
    let name = registry.image(image, &[(layer, diff_id.clone())]);
    (name, diff_id)
}

#[tokio::test]
async fn credentials_are_for_one_pull() {
    let Some(mut node) = Node::start().await else { return };
    let registry = Hostile::start();
    let (name, _) = offer(&registry, "secret");
    registry.demand("Basic dTpw");
    let user = |username: &str, password: &str, server: &str| {
        Some(AuthConfig {
            username: username.into(),
            password: password.into(),
            server_address: server.into(),
            ..AuthConfig::default()
        })
    };
    for auth in [None, user("u", "wrong", ""), user("u", "p", "https://elsewhere.example")] {
        let refused = node.pull_as(&name, auth).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
        assert!(!refused.message().contains("wrong"), "{refused}");
    }
    assert_eq!(node.list().await, []);
    let host = name.split('/').next().unwrap();
    node.pull_as(&name, user("u", "p", &format!("http://{host}/v2/"))).await.unwrap();
    node.remove(&name).await;
    node.pull_as(&name, Some(AuthConfig { auth: "dTpw".into(), ..AuthConfig::default() })).await.unwrap();
    node.remove(&name).await;
    let refused = node.pull_as(&name, None).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    registry.demand("Bearer token");
    node.pull_as(&name, Some(AuthConfig { registry_token: "token".into(), ..AuthConfig::default() })).await.unwrap();
}

#[tokio::test]
async fn parallel_pulls_of_one_image_are_one() {
    let Some(mut node) = Node::start().await else { return };
    let registry = Hostile::start();
    let (name, layer) = offer(&registry, "shared");
    // The first answer comes late enough for all to join.
    registry.fault(&layer, Fault::Stall(1000, Duration::from_secs(2)), 1);
    let mut pulls = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let (mut client, request) =
            (node.client.clone(), PullImageRequest { image: spec(&name), ..Default::default() });
        pulls.spawn(async move { client.pull_image(request).await.map(|answer| answer.into_inner().image_ref) });
    }
    let ids: Vec<String> = pulls.join_all().await.into_iter().collect::<Result<_, _>>().unwrap();
    assert!(ids.iter().all(|id| *id == ids[0]));
    let mut asked: HashMap<String, usize> = HashMap::new();
    for request in registry.asked() {
        if request.method == "GET" && request.from == 0 {
            *asked.entry(request.path).or_default() += 1;
        }
    }
    assert!(asked.values().all(|times| *times == 1), "{asked:?}");
    assert_eq!(node.list().await.len(), 1);
}

#[tokio::test]
async fn a_pull_that_stands_still_is_given_up() {
    let Some(mut node) = Node::start().await else { return };
    node.restart_with(&format!("{SECTION}\nimage_pull_progress_timeout = \"1s\"")).await;
    let registry = Hostile::start();
    let (name, layer) = offer(&registry, "slow");
    registry.fault(&layer, Fault::Stall(1000, Duration::from_secs(20)), 1);
    let begun = Instant::now();
    let refused = node.pull_as(&name, None).await.unwrap_err();
    assert_eq!(refused.code(), Code::DeadlineExceeded, "{refused}");
    assert!(refused.message().contains("image_pull_progress_timeout"), "{refused}");
    assert!(begun.elapsed() < Duration::from_secs(18), "{:?}", begun.elapsed());
    assert_eq!(node.list().await, []);
    registry.heal();
    let id = node.pull(&name).await;
    assert_eq!(node.status(&name).await.unwrap().id, id);
}

#[tokio::test]
async fn wrong_requests_are_told_so() {
    let Some(mut node) = Node::start().await else { return };
    let registry = Hostile::start();
    let (name, _) = offer(&registry, "some");
    for image in ["", "UPPER", "a b", "a/../b", "http://x/y", "x@sha256:1", "a\0b", &"a".repeat(5000)] {
        let refused = node.pull_as(image, None).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{image:.20}: {refused}");
    }
    let missing = node.pull_as(&name.replace("some", "other"), None).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound, "{missing}");
    let bad = AuthConfig { auth: "!".into(), ..AuthConfig::default() };
    registry.demand("Basic dTpw");
    let refused = node.pull_as(&name, Some(bad)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    let refused = node.verbose("").await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    let refused = node.client.remove_image(RemoveImageRequest::default()).await.unwrap_err();
    assert!(refused.message().contains("image.image"), "{refused}");
    for image in ["UPPER", "a b", "sha256:", "sha256:zz", "../../x"] {
        assert_eq!(node.status(image).await, None, "{image}");
    }
    // The streaming list is newer than the crate's interface.
    let mut client = containerd_api_cri::v1::image_service_client::ImageServiceClient::new(connect(&node.daemon).await);
    let mut images =
        client.stream_images(containerd_api_cri::v1::StreamImagesRequest::default()).await.unwrap().into_inner();
    assert!(images.message().await.unwrap().is_none());
}
