//! What refers to what.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use core_events::Any;
use core_metadata::{Container, Runtime, Sandbox};
use core_types::{Digest, ErrorKind, Labels, Scope};

use crate::{World, image, labels, refused, scope};

async fn blob(world: &World, scope: &Scope, name: &str, refer: &[(&str, &Digest)]) -> Digest {
    let labels = refer.iter().map(|(key, digest)| ((*key).to_owned(), digest.to_string())).collect();
    world.put(scope, name.as_bytes(), labels).await.unwrap()
}

async fn layer(world: &World, name: &str, parent: &str, labels: Labels) {
    let (snapshots, work) = (world.snapshots(&scope("a")), format!("work-{name}"));
    snapshots.prepare(&work, parent, Labels::new()).await.unwrap();
    snapshots.commit(name, &work, None, labels).await.unwrap();
}

async fn names(world: &World) -> Vec<String> {
    world.snapshots(&scope("a")).list(&[]).await.unwrap().into_iter().map(|info| info.name).collect()
}

#[tokio::test]
async fn an_image_keeps_all_that_its_labels_reach() {
    let world = World::new().await;
    let a = scope("a");
    layer(&world, "base", "", Labels::new()).await;
    layer(&world, "top", "base", Labels::new()).await;
    layer(&world, "other", "base", Labels::new()).await;
    let one = blob(&world, &a, "layer", &[]).await;
    let mut config = labels([("containerd.io/gc.ref.snapshot.memory", "top")]);
    config.insert("other".into(), "label".into());
    let config = world.put(&a, b"config", config).await.unwrap();
    let refer = [("containerd.io/gc.ref.content.l.0", &one), ("containerd.io/gc.ref.content.config", &config)];
    let manifest = blob(&world, &a, "manifest", &refer).await;
    let index = blob(&world, &a, "index", &[("containerd.io/gc.ref.content.m.0", &manifest)]).await;
    let loose = blob(&world, &a, "loose", &[("containerd.io/gc.ref.content", &one)]).await;
    world.db.images(&a).create(image("i", &index)).await.unwrap();
    let stats = world.db.collect().await.unwrap();
    assert_eq!((stats.blobs, stats.snapshots), (1, 1));
    assert!(!world.content.has(&loose));
    assert_eq!(names(&world).await, ["base", "top"]);
    for digest in [&one, &config, &manifest, &index] {
        assert!(world.content.has(digest));
    }
    world.db.images(&a).delete("i", None).await.unwrap();
    let stats = world.db.collect().await.unwrap();
    assert_eq!((stats.blobs, stats.snapshots), (4, 2), "a whole chain goes at once");
    assert!(world.content.count() == 0 && world.snapshotter.names().is_empty());
}

#[tokio::test]
async fn references_do_not_cross_namespaces() {
    let world = World::new().await;
    let other = blob(&world, &scope("b"), "x", &[]).await;
    let top = blob(&world, &scope("a"), "top", &[("containerd.io/gc.ref.content", &other)]).await;
    world.db.images(&scope("a")).create(image("i", &top)).await.unwrap();
    world.db.collect().await.unwrap();
    assert!(!world.content.has(&other));
}

#[tokio::test]
async fn roots_by_label_and_images_by_label() {
    let world = World::new().await;
    let a = scope("a");
    let root = world.put(&a, b"root", labels([("containerd.io/gc.root", "1")])).await.unwrap();
    let until = labels([("containerd.io/gc.expire", "2999-01-01T00:00:00Z")]);
    let until = world.put(&a, b"until", until).await.unwrap();
    let past = labels([("containerd.io/gc.expire", "1999-01-01T00:00:00Z")]);
    let past = world.put(&a, b"past", past).await.unwrap();
    let target = blob(&world, &a, "target", &[]).await;
    let mut expired = image("expired", &target);
    expired.labels = labels([("containerd.io/gc.expire", "1999-01-01T00:00:00Z")]);
    world.db.images(&a).create(expired.clone()).await.unwrap();
    let mut referring = image("referring", &root);
    referring.labels = labels([("containerd.io/gc.ref.image", "expired")]);
    world.db.images(&a).create(referring).await.unwrap();
    layer(&world, "rooted", "", labels([("containerd.io/gc.root.x", "1")])).await;
    layer(&world, "loose", "", Labels::new()).await;
    world.db.collect().await.unwrap();
    assert!(world.content.has(&root) && world.content.has(&until) && !world.content.has(&past));
    assert!(world.content.has(&target), "by way of an image that another one names");
    assert_eq!(names(&world).await, ["rooted"]);
    world.db.images(&a).delete("referring", None).await.unwrap();
    world.db.collect().await.unwrap();
    refused(world.db.images(&a).get("expired").await, ErrorKind::NotFound);
    assert!(!world.content.has(&target));
}

#[tokio::test]
async fn containers_and_sandboxes_keep_what_they_use() {
    let world = World::new().await;
    let a = scope("a");
    layer(&world, "image", "", Labels::new()).await;
    world.snapshots(&a).prepare("rootfs", "image", Labels::new()).await.unwrap();
    let spec = blob(&world, &a, "spec", &[]).await;
    let info = blob(&world, &a, "info", &[]).await;
    let container = Container {
        runtime: Runtime { name: "r".into(), options: None },
        spec: Some(Any { type_url: "t".into(), value: Default::default() }),
        snapshotter: "memory".into(),
        snapshot_key: "rootfs".into(),
        labels: labels([("containerd.io/gc.ref.content", spec.as_str())]),
        ..Container::new("c")
    };
    world.db.containers(&a).create(container).await.unwrap();
    let mut sandbox = Sandbox::new("s");
    sandbox.labels = labels([("containerd.io/gc.ref.content", info.as_str())]);
    world.db.sandboxes(&a).create(sandbox).await.unwrap();
    world.db.collect().await.unwrap();
    assert_eq!(names(&world).await, ["image", "rootfs"]);
    assert!(world.content.has(&spec) && world.content.has(&info));
    world.db.containers(&a).delete("c").await.unwrap();
    world.db.sandboxes(&a).delete("s").await.unwrap();
    world.db.collect().await.unwrap();
    assert!(names(&world).await.is_empty() && world.content.count() == 0);
}

#[tokio::test]
async fn an_object_can_tie_itself_to_another() {
    let world = World::new().await;
    let a = scope("a");
    let top = blob(&world, &a, "top", &[]).await;
    let tied = blob(&world, &a, "tied", &[("containerd.io/gc.bref.content", &top)]).await;
    let to_image = world.put(&a, b"signature", labels([("containerd.io/gc.bref.image.sig", "i")])).await.unwrap();
    let to_none = world.put(&a, b"none", labels([("containerd.io/gc.bref.image", "none")])).await.unwrap();
    layer(&world, "tied", "", labels([("containerd.io/gc.bref.content.x", top.as_str())])).await;
    world.db.images(&a).create(image("i", &top)).await.unwrap();
    world.db.collect().await.unwrap();
    assert!(world.content.has(&tied) && world.content.has(&to_image) && !world.content.has(&to_none));
    assert_eq!(names(&world).await, ["tied"]);
    world.db.images(&a).delete("i", None).await.unwrap();
    world.db.collect().await.unwrap();
    assert!(world.content.count() == 0 && names(&world).await.is_empty());
}

#[tokio::test]
async fn a_shared_ingest_keeps_the_blob_it_stands_for() {
    let world = World::new().await;
    let digest = blob(&world, &scope("a"), "x", &[]).await;
    let options = core_content::WriterOptions { reference: "r".into(), total: 0, expected: Some(digest.clone()) };
    let mut writer = world.db.content(&scope("b")).writer(options).await.unwrap();
    world.db.content(&scope("a")).delete(&digest).await.unwrap();
    world.db.collect().await.unwrap();
    assert!(world.content.has(&digest));
    writer.commit(0, None, Labels::new()).await.unwrap();
    assert!(world.db.content(&scope("b")).reader(&digest).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_ask_together_get_one_collection() {
    let world = World::new().await;
    let changes = Arc::new(AtomicUsize::new(0));
    let dirty = Arc::clone(&changes);
    world.db.on_mutation(move |is_dirty| {
        if is_dirty {
            dirty.fetch_add(1, Ordering::SeqCst);
        }
    });
    let digest = blob(&world, &scope("a"), "x", &[]).await;
    assert_eq!(changes.load(Ordering::SeqCst), 0);
    world.db.content(&scope("a")).delete(&digest).await.unwrap();
    assert_eq!(changes.load(Ordering::SeqCst), 1);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let db = world.db.clone();
        tasks.spawn(async move { db.collect().await.unwrap() });
    }
    tasks.join_all().await;
    assert!(!world.content.has(&digest));
}
