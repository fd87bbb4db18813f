//! Pulls with everything around the engine in memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

#[path = "support/memory.rs"]
#[allow(dead_code)]
mod memory;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use core_images::{PlatformSet, chain_ids};
use core_types::{Descriptor, Digest, Error, ErrorKind, Platform, Result, media_types};
use core_unpack::{Download, Engine, Fetcher, Limits, Request, UnpackTarget, ingest_reference};
use memory::{MemoryApplier, MemorySnapshotter, MemoryStore};
use tokio::sync::Notify;

#[derive(Default)]
struct Source {
    blobs: HashMap<Digest, Vec<u8>>,
    /// Break off once with an error after so many bytes of this blob.
    breaks: Mutex<BTreeMap<Digest, usize>>,
    /// Before the second half of this blob, wait until told.
    holds: Option<(Digest, Arc<Notify>)>,
    fetched: Mutex<Vec<(Digest, u64)>>,
    running: Arc<AtomicUsize>,
    most: AtomicUsize,
}

struct Pieces {
    bytes: Vec<u8>,
    at: usize,
    stop: Option<usize>,
    hold: Option<Arc<Notify>>,
    running: Arc<AtomicUsize>,
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Download for Pieces {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        tokio::task::yield_now().await;
        if self.stop.is_some_and(|stop| self.at >= stop) {
            return Err(Error::unavailable("the line is dead"));
        }
        if self.at >= self.bytes.len() / 2
            && let Some(hold) = self.hold.take()
        {
            hold.notified().await;
        }
        let end = (self.at + 10_000).min(self.bytes.len());
        let piece = Bytes::copy_from_slice(&self.bytes[self.at..end]);
        self.at = end;
        Ok((!piece.is_empty()).then_some(piece))
    }
}

#[async_trait]
impl Fetcher for Source {
    async fn fetch(&self, descriptor: &Descriptor, offset: u64) -> Result<Box<dyn Download>> {
        self.fetched.lock().unwrap().push((descriptor.digest.clone(), offset));
        let bytes = self.blobs.get(&descriptor.digest).ok_or_else(|| Error::not_found("no such blob"))?.clone();
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        Ok(Box::new(Pieces {
            bytes,
            at: usize::try_from(offset).unwrap(),
            stop: self.breaks.lock().unwrap().remove(&descriptor.digest),
            hold: self.holds.as_ref().filter(|hold| hold.0 == descriptor.digest).map(|hold| Arc::clone(&hold.1)),
            running: Arc::clone(&self.running),
        }))
    }
}

impl Source {
    fn add(&mut self, media_type: &str, bytes: Vec<u8>) -> Descriptor {
        let descriptor = Descriptor::new(media_type, Digest::of(&bytes), bytes.len() as u64);
        self.blobs.insert(descriptor.digest.clone(), bytes);
        descriptor
    }

    /// An image whose layers are their own uncompressed content.
    fn image(&mut self, architecture: &str, layers: &[Descriptor]) -> Descriptor {
        let diff_ids: Vec<&Digest> = layers.iter().map(|layer| &layer.digest).collect();
        let config = serde_json::json!({
            "architecture": architecture, "os": "linux", "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        let config = self.add(media_types::OCI_CONFIG, config.to_string().into_bytes());
        let manifest = serde_json::json!({"schemaVersion": 2, "config": config, "layers": layers});
        self.add(media_types::OCI_MANIFEST, manifest.to_string().into_bytes())
    }

    fn layers(&mut self, count: u8) -> Vec<Descriptor> {
        (0..count).map(|at| self.add(media_types::OCI_LAYER_GZIP, vec![at + 1; 200_000])).collect()
    }
}

struct World {
    engine: Arc<Engine>,
    store: MemoryStore,
    snapshotter: Arc<MemorySnapshotter>,
    applier: Arc<MemoryApplier>,
    source: Arc<Source>,
}

impl World {
    fn new(rebases: bool, source: Source) -> Self {
        Self {
            engine: Arc::new(Engine::new(Limits::default())),
            store: MemoryStore::default(),
            snapshotter: Arc::new(MemorySnapshotter::new(rebases)),
            applier: Arc::new(MemoryApplier::default()),
            source: Arc::new(source),
        }
    }

    fn request(&self, target: &Descriptor) -> Request {
        let fetcher: Arc<dyn Fetcher> = self.source.clone();
        Request {
            unpack: vec![UnpackTarget {
                platforms: PlatformSet::of(&[amd64()]),
                name: "memory".into(),
                snapshotter: self.snapshotter.clone(),
                applier: self.applier.clone(),
                sync: false,
            }],
            platforms: PlatformSet::of(&[amd64()]),
            origin: Some(("r.example".into(), "team/app".into())),
            ..Request::new("default", target.clone(), fetcher, Arc::new(self.store.clone()))
        }
    }

    async fn pull(&self, target: &Descriptor) -> Result<usize> {
        self.engine.pull(self.request(target)).await
    }
}

fn amd64() -> Platform {
    Platform::new("linux", "amd64", "")
}

fn chain(layers: &[Descriptor]) -> Vec<String> {
    let diff_ids: Vec<Digest> = layers.iter().map(|layer| layer.digest.clone()).collect();
    chain_ids(&diff_ids).iter().map(Digest::to_string).collect()
}

fn assert_unpacked(world: &World, layers: &[Descriptor]) {
    let committed = world.snapshotter.committed();
    let chain = chain(layers);
    for (at, name) in chain.iter().enumerate() {
        let parent = if at == 0 { "" } else { chain[at - 1].as_str() };
        assert_eq!(committed.get(name).map(String::as_str), Some(parent), "layer {at}");
    }
    assert_eq!(world.snapshotter.active(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn layers_are_streamed_unpacked_and_labelled_in_both_orders() {
    for rebases in [true, false] {
        let mut source = Source::default();
        let layers = source.layers(6);
        let manifest = source.image("amd64", &layers);
        let world = World::new(rebases, source);
        assert_eq!(world.pull(&manifest).await.unwrap(), 1);
        assert_unpacked(&world, &layers);
        assert!(world.applier.streamed.load(Ordering::SeqCst) >= 1);
        assert!(world.source.most.load(Ordering::SeqCst) <= 3);
        let labels = world.store.labels(&layers[0].digest);
        assert_eq!(labels["containerd.io/uncompressed"], layers[0].digest.to_string());
        assert_eq!(labels["containerd.io/distribution.source.r.example"], "team/app");
        let config = &world.store.labels(&manifest.digest)["containerd.io/gc.ref.content.config"];
        let config = world.store.labels(&Digest::parse(config).unwrap());
        assert_eq!(config["containerd.io/gc.ref.snapshot.memory"], *chain(&layers).last().unwrap());
        // Again: nothing is fetched a second time.
        let before = world.source.fetched.lock().unwrap().len();
        world.pull(&manifest).await.unwrap();
        assert_eq!(world.source.fetched.lock().unwrap().len(), before);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn layers_extracted_alone_mark_deletions_when_the_snapshotter_stacks_overlays() {
    for overlays in [true, false] {
        let mut source = Source::default();
        let layers = source.layers(4);
        let manifest = source.image("amd64", &layers);
        let mut world = World::new(true, source);
        world.snapshotter = Arc::new(MemorySnapshotter { rebases: true, overlays, ..MemorySnapshotter::default() });
        world.pull(&manifest).await.unwrap();
        // The lowest has nothing below it to hide.
        assert_eq!(world.applier.overlaid.load(Ordering::SeqCst), if overlays { 3 } else { 0 });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn layers_are_flushed_together_where_they_can_be() {
    for rebases in [true, false] {
        let mut source = Source::default();
        let layers = source.layers(4);
        let manifest = source.image("amd64", &layers);
        let mut world = World::new(rebases, source);
        let directory = Some(std::env::temp_dir());
        world.snapshotter = Arc::new(MemorySnapshotter { rebases, directory, ..MemorySnapshotter::default() });
        let mut request = world.request(&manifest);
        request.unpack[0].sync = true;
        world.engine.pull(request).await.unwrap();
        assert_unpacked(&world, &layers);
        // A layer whose stream came to nothing is extracted, and flushed, once more from the store.
        let flushed = world.applier.flushed.load(Ordering::SeqCst);
        assert!(if rebases { flushed == 0 } else { flushed >= 4 }, "{flushed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_committed_that_cannot_be_flushed() {
    let mut source = Source::default();
    let layers = source.layers(4);
    let manifest = source.image("amd64", &layers);
    let world = World::new(true, source);
    let mut request = world.request(&manifest);
    // The directories of this snapshotter are not there.
    request.unpack[0].sync = true;
    assert!(world.engine.pull(request).await.is_err());
    assert!(world.snapshotter.committed().is_empty());
    assert_eq!(world.snapshotter.active(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extraction_begins_before_the_download_ends() {
    let mut source = Source::default();
    let layers = source.layers(1);
    let manifest = source.image("amd64", &layers);
    let hold = Arc::new(Notify::new());
    source.holds = Some((layers[0].digest.clone(), Arc::clone(&hold)));
    let world = World::new(true, source);
    let read = Arc::clone(&world.applier.read);
    let pull = world.pull(&manifest);
    let release = async {
        tokio::time::timeout(Duration::from_secs(30), async {
            while read.load(Ordering::SeqCst) == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await
        .expect("nothing was extracted while the download stood still");
        hold.notify_one();
    };
    let (pulled, ()) = tokio::join!(pull, release);
    pulled.unwrap();
    assert_unpacked(&world, &layers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_line_leaves_parts_to_resume_and_no_snapshots() {
    let mut source = Source::default();
    let layers = source.layers(4);
    let manifest = source.image("amd64", &layers);
    source.breaks.get_mut().unwrap().insert(layers[1].digest.clone(), 50_000);
    let world = World::new(true, source);
    let error = world.pull(&manifest).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains(layers[1].digest.as_str()), "{error}");
    assert_eq!(world.snapshotter.active(), 0);
    assert_eq!(world.store.ingest_len(&ingest_reference(&layers[1])), Some(50_000));
    world.pull(&manifest).await.unwrap();
    assert_unpacked(&world, &layers);
    let resumed = world.source.fetched.lock().unwrap().contains(&(layers[1].digest.clone(), 50_000));
    assert!(resumed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_part_from_before_is_thrown_away() {
    let mut source = Source::default();
    let layers = source.layers(1);
    let manifest = source.image("amd64", &layers);
    let world = World::new(true, source);
    world.store.put_ingest(&ingest_reference(&layers[0]), &[9; 1000]);
    world.pull(&manifest).await.unwrap();
    assert_unpacked(&world, &layers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_bytes_are_never_committed() {
    let mut source = Source::default();
    let layers = source.layers(2);
    let manifest = source.image("amd64", &layers);
    source.blobs.insert(layers[1].digest.clone(), vec![7; 200_000]);
    let world = World::new(true, source);
    let error = world.pull(&manifest).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FailedPrecondition, "{error}");
    assert!(!world.store.has(&layers[1].digest));
    assert!(!world.snapshotter.committed().contains_key(&chain(&layers)[1]));
    assert_eq!(world.snapshotter.active(), 0);
    assert_eq!(world.store.ingest_len(&ingest_reference(&layers[1])), None);
    // Once the source has mended it, all is well.
    let mut blobs = world.source.blobs.clone();
    blobs.insert(layers[1].digest.clone(), vec![2; 200_000]);
    let world = World { source: Arc::new(Source { blobs, ..Source::default() }), ..world };
    world.pull(&manifest).await.unwrap();
    assert_unpacked(&world, &layers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_diff_id_than_configured_is_refused() {
    let mut source = Source::default();
    let layers = source.layers(1);
    let config = serde_json::json!({"architecture": "amd64", "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [Digest::of(b"other")]}});
    let config = source.add(media_types::OCI_CONFIG, config.to_string().into_bytes());
    let manifest = serde_json::json!({"schemaVersion": 2, "config": config, "layers": layers});
    let manifest = source.add(media_types::OCI_MANIFEST, manifest.to_string().into_bytes());
    let world = World::new(true, source);
    let error = world.pull(&manifest).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FailedPrecondition);
    assert!(world.snapshotter.committed().is_empty());
    assert_eq!(world.snapshotter.active(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_extraction_ends_the_pull() {
    let mut source = Source::default();
    let layers = source.layers(3);
    let manifest = source.image("amd64", &layers);
    let mut world = World::new(true, source);
    world.applier = Arc::new(MemoryApplier { fails_after: Some(20_000), ..MemoryApplier::default() });
    let error = world.pull(&manifest).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted, "{error}");
    assert_eq!(world.snapshotter.active(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_pull_cleans_up() {
    let mut source = Source::default();
    let layers = source.layers(3);
    let manifest = source.image("amd64", &layers);
    source.holds = Some((layers[1].digest.clone(), Arc::new(Notify::new())));
    let world = World::new(true, source);
    {
        let pull = world.pull(&manifest);
        tokio::pin!(pull);
        let half = async {
            while world.snapshotter.active() == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::select! {
            done = &mut pull => panic!("ended by itself: {done:?}"),
            () = half => {}
        }
    }
    let clean = async {
        while world.snapshotter.active() > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), clean).await.expect("snapshots of a cancelled pull remain");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshotter_that_knows_layers_spares_their_download() {
    let mut source = Source::default();
    let layers = source.layers(3);
    let manifest = source.image("amd64", &layers);
    let mut world = World::new(true, source);
    let remote = chain(&layers)[..2].to_vec();
    world.snapshotter = Arc::new(MemorySnapshotter { rebases: true, remote, ..MemorySnapshotter::default() });
    world.pull(&manifest).await.unwrap();
    assert_unpacked(&world, &layers);
    assert!(!world.store.has(&layers[0].digest) && !world.store.has(&layers[1].digest));
    assert!(world.store.has(&layers[2].digest));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_an_index_the_wanted_platform_is_fetched() {
    let mut source = Source::default();
    let layers = source.layers(2);
    let wanted = source.image("amd64", &layers[..1]);
    let other = source.image("s390x", &layers[1..]);
    let with = |descriptor: &Descriptor, architecture: &str| Descriptor {
        platform: Some(Platform::new("linux", architecture, "")),
        ..descriptor.clone()
    };
    let index = serde_json::json!({"schemaVersion": 2, "manifests": [with(&other, "s390x"), with(&wanted, "amd64")]});
    let index = source.add(media_types::OCI_INDEX, index.to_string().into_bytes());
    let world = World::new(true, source);
    assert_eq!(world.pull(&index).await.unwrap(), 1);
    assert!(!world.store.has(&other.digest) && !world.store.has(&layers[1].digest));
    let labels = world.store.labels(&index.digest);
    assert_eq!(labels["containerd.io/gc.ref.content.m.0"], other.digest.to_string());

    let none = PlatformSet::of(&[Platform::new("linux", "ppc64le", "")]);
    let error = world.engine.pull(Request { platforms: none, ..world.request(&index) }).await.unwrap_err();
    assert!(error.is_not_found(), "{error}");

    let request = Request { all_metadata: true, ..world.request(&index) };
    world.engine.pull(request).await.unwrap();
    assert!(world.store.has(&other.digest) && !world.store.has(&layers[1].digest));

    let request = Request { platforms: PlatformSet::all(), manifest_limit: 0, ..world.request(&index) };
    world.engine.pull(request).await.unwrap();
    assert!(world.store.has(&layers[1].digest));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_pulls_of_one_image_share_the_work() {
    let mut source = Source::default();
    let layers = source.layers(4);
    let manifest = source.image("amd64", &layers);
    let world = World::new(true, source);
    let (one, two) = tokio::join!(world.pull(&manifest), world.pull(&manifest));
    one.unwrap();
    two.unwrap();
    assert_unpacked(&world, &layers);
    let fetched = world.source.fetched.lock().unwrap();
    let layers_fetched = fetched.iter().filter(|(digest, _)| layers.iter().any(|l| l.digest == *digest)).count();
    assert_eq!(layers_fetched, 4);
}
