//! Import, push, pull, export: real stores, real snapshotters, a real registry.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, unreachable_pub)]

#[path = "../../../core/remotes/tests/support/docker.rs"]
mod docker;

use std::{
    collections::BTreeMap,
    io::Write,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use core_content::LocalStore;
use core_diff::{Differ, WalkingDiffer};
use core_events::Exchange;
use core_images::{PlatformSet, chain_ids};
use core_metadata::{Backends, Database};
use core_snapshots::Snapshotter;
use core_streaming::{ByteSink, FromReader};
use core_transfer::{
    Destination, Export, ImageReference, ImageStore, Import, Progress, ProgressSink, Registry, Source, Transferer,
    UnpackConfiguration,
};
use core_types::{Digest, ErrorKind, Labels, Namespace, Platform, Result, Scope, media_types};
use docker::DockerRegistry;
use plugin_transfer_local::{Config, transferer};

/// A daemon's worth of stores in a directory.
struct World {
    database: Database,
    transferer: Arc<dyn Transferer>,
    scope: Scope,
    _root: tempfile::TempDir,
}

impl World {
    async fn new() -> Option<Self> {
        Self::with(Config::default()).await
    }

    async fn with(config: Config) -> Option<Self> {
        let root = tempfile::tempdir().unwrap();
        let mut snapshotters: BTreeMap<String, Arc<dyn Snapshotter>> = BTreeMap::new();
        let native = plugin_snapshot_native::NativeSnapshotter::open(&root.path().join("native")).unwrap();
        snapshotters.insert("native".into(), Arc::new(native));
        let overlay = plugin_snapshot_overlay::OverlaySnapshotter::open(
            &root.path().join("overlayfs"),
            &plugin_snapshot_overlay::Config::default(),
        );
        match overlay {
            Ok(overlay) => drop(snapshotters.insert("overlayfs".into(), Arc::new(overlay))),
            Err(error) => {
                eprintln!("skipped: no overlay here: {error}");
                return None;
            }
        }
        let backends = Backends {
            content: Arc::new(LocalStore::open(root.path().join("content")).unwrap()),
            snapshotters,
            events: Arc::new(Exchange::new()),
        };
        let database = Database::open(&root.path().join("meta"), backends).await.unwrap();
        database.namespaces().create("test", Labels::new()).await.unwrap();
        let differ = Arc::new(WalkingDiffer::new());
        let differs = vec![("walking".to_owned(), Differ { applier: differ.clone(), comparer: differ })];
        let transferer = transferer(&config, database.clone(), &differs).unwrap();
        Some(Self { database, transferer, scope: Scope::new(Namespace::new("test").unwrap()), _root: root })
    }

    async fn transfer(&self, source: Source, destination: Destination) -> Result<Vec<Progress>> {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&seen);
        let sink: Arc<dyn ProgressSink> = Arc::new(move |progress| sink.lock().unwrap().push(progress));
        self.transferer.transfer(&self.scope, source, destination, Some(sink)).await?;
        Ok(std::mem::take(&mut *seen.lock().unwrap()))
    }

    async fn import(&self, archive: Vec<u8>, store: ImageStore) -> Result<Vec<Progress>> {
        let import = Import {
            stream: Box::new(FromReader(std::io::Cursor::new(archive))),
            media_type: String::new(),
            force_compress: false,
        };
        self.transfer(Source::Import(import), Destination::Store(store)).await
    }

    async fn export(&self, name: &str) -> Vec<u8> {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let export = Export {
            stream: Box::new(Collect(Arc::clone(&bytes))),
            media_type: String::new(),
            platforms: Vec::new(),
            all_platforms: false,
            skip_compatibility_manifest: false,
            skip_non_distributable: false,
        };
        self.transfer(Source::Store(named(name)), Destination::Export(export)).await.unwrap();
        std::mem::take(&mut *bytes.lock().unwrap())
    }

    /// Everything in the image's root file system, as the snapshotter shows it.
    async fn tree(&self, snapshotter: &str, top: &str) -> BTreeMap<PathBuf, String> {
        let snapshots = self.database.snapshotter(&self.scope, snapshotter).unwrap();
        let mounts = snapshots.view("look", top, Labels::new()).await.unwrap();
        let looking = std::thread::spawn(move || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
            nix::mount::mount(
                None::<&str>,
                "/",
                None::<&str>,
                nix::mount::MsFlags::MS_REC | nix::mount::MsFlags::MS_PRIVATE,
                None::<&str>,
            )
            .unwrap();
            core_mount::with_readonly_temp_mount(&mounts, |root| {
                let mut found = BTreeMap::new();
                collect(root, root, &mut found);
                Ok(found)
            })
        });
        let found = tokio::task::spawn_blocking(move || looking.join().unwrap()).await.unwrap().unwrap();
        snapshots.remove("look").await.unwrap();
        found
    }
}

fn collect(root: &Path, at: &Path, found: &mut BTreeMap<PathBuf, String>) {
    for entry in std::fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        let data = std::fs::symlink_metadata(&path).unwrap();
        let content =
            if data.is_file() { String::from_utf8(std::fs::read(&path).unwrap()).unwrap() } else { String::new() };
        let shown = format!("{:o} {} {content}", data.mode(), data.uid());
        found.insert(path.strip_prefix(root).unwrap().to_owned(), shown);
        if data.is_dir() {
            collect(root, &path, found);
        }
    }
}

struct Collect(Arc<Mutex<Vec<u8>>>);

#[async_trait]
impl ByteSink for Collect {
    async fn write(&mut self, data: Bytes) -> Result<()> {
        self.0.lock().unwrap().extend_from_slice(&data);
        Ok(())
    }

    async fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

fn named(name: &str) -> ImageStore {
    ImageStore { name: name.to_owned(), ..ImageStore::default() }
}

fn unpacking(name: &str, snapshotter: &str) -> ImageStore {
    ImageStore {
        platforms: vec![Platform::host()],
        unpacks: vec![UnpackConfiguration { platform: Platform::host(), snapshotter: snapshotter.to_owned() }],
        ..named(name)
    }
}

fn registry(reference: &str) -> Registry {
    Registry { reference: reference.to_owned(), ..Registry::default() }
}

fn layer(entries: &[(&str, &str)]) -> (Vec<u8>, Digest) {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_mtime(1_000_000);
        let is_directory = name.ends_with('/');
        header.set_entry_type(if is_directory { tar::EntryType::Directory } else { tar::EntryType::Regular });
        header.set_mode(if is_directory { 0o755 } else { 0o640 });
        header.set_size(content.len() as u64);
        tar.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    let tar = tar.into_inner().unwrap();
    let diff_id = Digest::of(&tar);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&tar).unwrap();
    (gzip.finish().unwrap(), diff_id)
}

/// An image with deletions and opaque directories, as an OCI layout in a tar.
struct Layout {
    blobs: BTreeMap<Digest, Vec<u8>>,
    manifests: Vec<serde_json::Value>,
    diff_ids: Vec<Digest>,
    layers: Vec<Digest>,
}

impl Layout {
    fn new() -> Self {
        let host = Platform::host();
        let layers = [
            layer(&[
                ("gone", "1"),
                ("d/", ""),
                ("d/x", "x1"),
                ("d/keep", "k"),
                ("e/", ""),
                ("e/old", "o"),
                ("f", "f1"),
            ]),
            layer(&[
                (".wh.gone", ""),
                ("d/", ""),
                ("d/.wh..wh..opq", ""),
                ("d/y", "y2"),
                ("e/", ""),
                ("e/.wh.old", ""),
            ]),
            layer(&[("e/", ""), ("e/new", &"n".repeat(300_000)), ("f", "f3"), ("gone", "again")]),
        ];
        let mut layout =
            Self { blobs: BTreeMap::new(), manifests: Vec::new(), diff_ids: Vec::new(), layers: Vec::new() };
        let mut described = Vec::new();
        for (bytes, diff_id) in layers {
            layout.diff_ids.push(diff_id);
            described.push(layout.blob(media_types::OCI_LAYER_GZIP, bytes));
        }
        layout.layers =
            described.iter().map(|layer| Digest::parse(layer["digest"].as_str().unwrap()).unwrap()).collect();
        let config = serde_json::json!({"os": host.os, "architecture": host.architecture,
            "rootfs": {"type": "layers", "diff_ids": layout.diff_ids}});
        let config = layout.blob(media_types::OCI_CONFIG, config.to_string().into_bytes());
        let manifest = serde_json::json!({"schemaVersion": 2, "mediaType": media_types::OCI_MANIFEST,
            "config": config, "layers": described});
        let mut manifest = layout.blob(media_types::OCI_MANIFEST, manifest.to_string().into_bytes());
        manifest["platform"] = serde_json::json!({"os": host.os, "architecture": host.architecture});
        manifest["annotations"] = serde_json::json!({"org.opencontainers.image.ref.name": "v1"});
        layout.manifests.push(manifest);
        layout
    }

    fn blob(&mut self, media_type: &str, bytes: Vec<u8>) -> serde_json::Value {
        let digest = Digest::of(&bytes);
        let described = serde_json::json!({"mediaType": media_type, "digest": digest, "size": bytes.len()});
        self.blobs.insert(digest, bytes);
        described
    }

    fn top(&self) -> String {
        chain_ids(&self.diff_ids).last().unwrap().to_string()
    }

    fn archive(&self) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        let mut add = |name: &str, bytes: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            tar.append_data(&mut header, name, bytes).unwrap();
        };
        add("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#);
        for (digest, bytes) in &self.blobs {
            add(&format!("blobs/sha256/{}", digest.hex()), bytes);
        }
        let index = serde_json::json!({"schemaVersion": 2, "manifests": self.manifests});
        add("index.json", index.to_string().as_bytes());
        tar.into_inner().unwrap()
    }

    fn prefix() -> ImageStore {
        ImageStore {
            extra_references: vec![ImageReference {
                name: "r.example/app".into(),
                is_prefix: true,
                ..ImageReference::default()
            }],
            ..ImageStore::default()
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_goes_in_out_and_around() {
    let (Some(registry_server), Some(world)) = (DockerRegistry::start(), World::new().await) else { return };
    let layout = Layout::new();
    world.import(layout.archive(), Layout::prefix()).await.unwrap();
    let remote = format!("{}/team/app:v1", registry_server.host);
    world.transfer(Source::Store(named("r.example/app:v1")), Destination::Registry(registry(&remote))).await.unwrap();

    let other = World::new().await.unwrap();
    let seen = other
        .transfer(Source::Registry(registry(&remote)), Destination::Store(unpacking(&remote, "overlayfs")))
        .await
        .unwrap();
    for event in ["waiting", "complete", "extracted", "saved"] {
        assert!(seen.iter().any(|progress| progress.event == event), "{event}");
    }
    let parallel = other.tree("overlayfs", &layout.top()).await;
    other
        .transfer(Source::Registry(registry(&remote)), Destination::Store(unpacking(&remote, "native")))
        .await
        .unwrap();
    let sequential = other.tree("native", &layout.top()).await;
    assert_eq!(parallel, sequential);
    let names: Vec<String> = parallel.keys().map(|path| path.display().to_string()).collect();
    assert_eq!(names, ["d", "d/y", "e", "e/new", "f", "gone"]);
    assert!(parallel[Path::new("f")].ends_with("f3"));

    // Leases are gone, and collecting takes nothing that the image needs.
    assert!(other.database.leases(&other.scope).list(&[]).await.unwrap().is_empty());
    other.database.collect().await.unwrap();
    let image = other.database.images(&other.scope).get(&remote).await.unwrap();
    let content = other.database.content(&other.scope);
    let check = core_images::check(content.as_ref(), &image.target, &PlatformSet::host()).await.unwrap();
    assert!(check.available && check.missing.is_empty(), "{check:?}");
    assert_eq!(other.tree("overlayfs", &layout.top()).await, parallel);

    // Out, and in again elsewhere.
    other.transfer(Source::Store(named(&remote)), Destination::Store(named("other.example/x:1"))).await.unwrap();
    let archive = other.export("other.example/x:1").await;
    let third = World::new().await.unwrap();
    let store = ImageStore {
        extra_references: vec![ImageReference {
            name: "other.example/x".into(),
            is_prefix: true,
            ..ImageReference::default()
        }],
        ..unpacking("", "overlayfs")
    };
    third.import(archive.clone(), store).await.unwrap();
    assert_eq!(third.tree("overlayfs", &layout.top()).await, parallel);
    let image = third.database.images(&third.scope).get("other.example/x:1").await.unwrap();
    assert_eq!(image.target.digest, Digest::parse(layout.manifests[0]["digest"].as_str().unwrap()).unwrap());
    skopeo_agrees(&registry_server.host, &archive);
}

/// Another program reads what was written: the registry's content, and the archive in both its forms.
fn skopeo_agrees(host: &str, archive: &[u8]) {
    if !Path::new("/usr/bin/skopeo").exists() {
        eprintln!("skipped: no skopeo here");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("image.tar");
    std::fs::write(&file, archive).unwrap();
    for (kind, name) in [("oci-archive", "oci"), ("docker-archive", "docker")] {
        let output = Command::new("/usr/bin/skopeo")
            .args(["copy", "--insecure-policy", "--dest-tls-verify=false"])
            .arg(format!("{kind}:{}", file.display()))
            .arg(format!("docker://{host}/skopeo/{name}:1"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{kind}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_skopeo_pushes_and_saves_is_read() {
    let (Some(server), Some(world)) = (DockerRegistry::start(), World::new().await) else { return };
    if !Path::new("/usr/bin/skopeo").exists() {
        eprintln!("skipped: no skopeo here");
        return;
    }
    let layout = Layout::new();
    let directory = tempfile::tempdir().unwrap();
    let oci = directory.path().join("oci.tar");
    std::fs::write(&oci, layout.archive()).unwrap();
    let docker = directory.path().join("docker.tar");
    let run = |from: String, to: String| {
        let output = Command::new("/usr/bin/skopeo")
            .args(["copy", "--insecure-policy", "--dest-tls-verify=false", &from, &to])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run(format!("oci-archive:{}", oci.display()), format!("docker://{}/a/b:1", server.host));
    run(format!("oci-archive:{}", oci.display()), format!("docker-archive:{}:busy/box:2", docker.display()));
    let remote = format!("{}/a/b:1", server.host);
    world
        .transfer(Source::Registry(registry(&remote)), Destination::Store(unpacking(&remote, "overlayfs")))
        .await
        .unwrap();
    let store = ImageStore {
        extra_references: vec![ImageReference {
            name: "any".into(),
            is_prefix: true,
            allow_overwrite: true,
            ..ImageReference::default()
        }],
        ..unpacking("", "native")
    };
    world.import(std::fs::read(&docker).unwrap(), store).await.unwrap();
    world.database.images(&world.scope).get("docker.io/busy/box:2").await.unwrap();
    let overlay = world.tree("overlayfs", &layout.top()).await;
    assert_eq!(overlay, world.tree("native", &layout.top()).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_may_lack_what_is_not_needed() {
    let Some(world) = World::new().await else { return };
    let mut layout = Layout::new();
    let absent = Digest::of(b"attestation");
    layout.manifests.push(serde_json::json!({
        "mediaType": media_types::OCI_MANIFEST, "digest": absent, "size": 11,
        "platform": {"os": "unknown", "architecture": "unknown"},
        "annotations": {"vnd.docker.reference.type": "attestation-manifest"},
    }));
    let other = Digest::of(b"other platform");
    layout.manifests.push(serde_json::json!({
        "mediaType": media_types::OCI_MANIFEST, "digest": other, "size": 14,
        "platform": {"os": "plan9", "architecture": "mips"},
    }));
    world.import(layout.archive(), Layout::prefix()).await.unwrap();

    let fresh = World::new().await.unwrap();
    let dropped = layout.layers[1].clone();
    layout.blobs.remove(&dropped);
    let error = fresh.import(layout.archive(), Layout::prefix()).await.unwrap_err();
    assert!(error.is_not_found() && error.message().contains(dropped.as_str()), "{error}");
    assert!(fresh.database.images(&fresh.scope).list(&[]).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_that_lies_is_refused() {
    let Some(world) = World::new().await else { return };
    let mut layout = Layout::new();
    let lying = layout.layers[0].clone();
    layout.blobs.insert(lying.clone(), vec![1; 100]);
    let error = world.import(layout.archive(), Layout::prefix()).await.unwrap_err();
    assert!(error.message().contains(lying.as_str()), "{error}");
    for garbage in [Vec::new(), vec![7; 4096], vec![0; 1024], layout.archive()[..5000].to_vec()] {
        assert!(world.import(garbage, Layout::prefix()).await.is_err());
    }
    // Nothing of it is in the way of the true one.
    assert!(world.database.content(&world.scope).list_statuses(&[]).await.unwrap().is_empty());
    world.import(Layout::new().archive(), Layout::prefix()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compressing_at_import_is_refused_for_every_archive() {
    let Some(world) = World::new().await else { return };
    let archive = Layout::new().archive();
    let import = Import {
        stream: Box::new(FromReader(std::io::Cursor::new(archive))),
        media_type: String::new(),
        force_compress: true,
    };
    let error = world.transfer(Source::Import(import), Destination::Store(Layout::prefix())).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unimplemented && error.message().contains("compress"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_are_unpacked_with_a_flush_too() {
    let config = "[[unpack_config]]\nsnapshotter = \"overlayfs\"\nsync_fs = true\n";
    let Some(world) = World::with(toml::from_str(config).unwrap()).await else { return };
    let layout = Layout::new();
    let store = ImageStore { unpacks: unpacking("", "overlayfs").unpacks, ..Layout::prefix() };
    world.import(layout.archive(), store).await.unwrap();
    assert_eq!(world.tree("overlayfs", &layout.top()).await.len(), 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stored_image_is_unpacked_and_keeps_its_name() {
    let Some(world) = World::new().await else { return };
    let layout = Layout::new();
    world.import(layout.archive(), Layout::prefix()).await.unwrap();
    let before = world.database.images(&world.scope).list(&[]).await.unwrap();
    for snapshotter in ["overlayfs", "native"] {
        let only_unpack = ImageStore { unpacks: unpacking("", snapshotter).unpacks, ..ImageStore::default() };
        world.transfer(Source::Store(named("r.example/app:v1")), Destination::Store(only_unpack)).await.unwrap();
        // The image holds what was unpacked.
        world.database.collect().await.unwrap();
        assert_eq!(world.tree(snapshotter, &layout.top()).await.len(), 6, "{snapshotter}");
    }
    assert_eq!(world.database.images(&world.scope).list(&[]).await.unwrap(), before);
    let unknown = ImageStore { unpacks: unpacking("", "none").unpacks, ..ImageStore::default() };
    let error =
        world.transfer(Source::Store(named("r.example/app:v1")), Destination::Store(unknown)).await.unwrap_err();
    assert!(error.is_not_found() && error.message().contains("none"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn layers_are_collected_once_they_are_unpacked() {
    let (Some(server), Some(world)) = (DockerRegistry::start(), World::new().await) else { return };
    let layout = Layout::new();
    world.import(layout.archive(), Layout::prefix()).await.unwrap();
    let remote = format!("{}/team/app:v1", server.host);
    world.transfer(Source::Store(named("r.example/app:v1")), Destination::Registry(registry(&remote))).await.unwrap();
    let other = World::new().await.unwrap();
    let pull = core_transfer::PullOptions { discard_layers: true, ..Default::default() };
    let source = Registry { pull, ..registry(&remote) };
    other.transfer(Source::Registry(source), Destination::Store(unpacking(&remote, "overlayfs"))).await.unwrap();
    other.database.collect().await.unwrap();
    let content = other.database.content(&other.scope);
    for layer in &layout.layers {
        assert!(content.info(layer).await.unwrap_err().is_not_found(), "{layer}");
    }
    assert_eq!(other.tree("overlayfs", &layout.top()).await.len(), 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_pulls_leave_nothing_and_can_be_repeated() {
    let (Some(server), Some(world)) = (DockerRegistry::start(), World::new().await) else { return };
    let layout = Layout::new();
    world.import(layout.archive(), Layout::prefix()).await.unwrap();
    let remote = format!("{}/team/app:v1", server.host);
    world.transfer(Source::Store(named("r.example/app:v1")), Destination::Registry(registry(&remote))).await.unwrap();
    let other = World::new().await.unwrap();
    for round in 0..12_u64 {
        let pull =
            other.transfer(Source::Registry(registry(&remote)), Destination::Store(unpacking(&remote, "overlayfs")));
        let _ = tokio::time::timeout(Duration::from_millis(3 * round), pull).await;
        other.database.collect().await.unwrap();
    }
    other
        .transfer(Source::Registry(registry(&remote)), Destination::Store(unpacking(&remote, "overlayfs")))
        .await
        .unwrap();
    assert_eq!(other.tree("overlayfs", &layout.top()).await.len(), 6);
    let snapshots = other.database.snapshotter(&other.scope, "overlayfs").unwrap();
    let clean = async {
        while snapshots.list(&[]).await.unwrap().iter().any(|info| info.name.starts_with("extract-")) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), clean).await.expect("extractions remain");
}
