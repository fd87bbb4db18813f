//! Containers, images, sandboxes and namespaces.

use core_events::Any;
use core_metadata::{Container, Runtime, Sandbox};
use core_types::{Digest, ErrorKind, Labels, Platform};

use crate::{World, image, labels, paths, refused, scope};

fn any(value: &[u8]) -> Any {
    Any { type_url: "types.containerd.io/x".into(), value: value.to_vec().into() }
}

fn container(id: &str) -> Container {
    Container {
        runtime: Runtime { name: "io.containerd.runc.v2".into(), options: Some(any(b"options")) },
        spec: Some(any(&[0, 159, 146, 150])),
        ..Container::new(id)
    }
}

#[tokio::test]
async fn a_container_is_stored_byte_for_byte_and_changes_by_path() {
    let world = World::new().await;
    let containers = world.db.containers(&scope("a"));
    let mut made = container("c1");
    made.labels = labels([("keep", "1"), ("drop", "1"), ("empty", "")]);
    made.extensions.insert("e".into(), any(b"1"));
    let made = containers.create(made).await.unwrap();
    assert_eq!(made.labels, labels([("keep", "1"), ("drop", "1")]), "a label without a value is none");
    assert_eq!(containers.get("c1").await.unwrap(), made);
    refused(containers.create(container("c1")).await, ErrorKind::AlreadyExists);

    let mut change = container("c1");
    change.labels = labels([("new", "2")]);
    change.image = "image".into();
    change.extensions.insert("f".into(), any(b"2"));
    let fields = paths(["labels.new", "labels.drop", "extensions.f", "image"]);
    let updated = containers.update(change.clone(), &fields).await.unwrap();
    assert_eq!(updated.labels, labels([("keep", "1"), ("new", "2")]));
    assert_eq!((updated.extensions.len(), updated.image.as_str()), (2, "image"));
    assert_eq!((updated.created_at, updated.spec.clone()), (made.created_at, made.spec.clone()));
    assert!(updated.updated_at >= made.updated_at);

    for field in ["snapshot_key", "runtime", "id", "nonsense"] {
        refused(containers.update(change.clone(), &paths([field])).await, ErrorKind::InvalidArgument);
    }
    let mut other = change.clone();
    other.runtime.name = "other".into();
    refused(containers.update(other, &[]).await, ErrorKind::InvalidArgument);
    let mut other = change.clone();
    other.snapshotter = "other".into();
    refused(containers.update(other, &[]).await, ErrorKind::InvalidArgument);
    assert_eq!(containers.update(change, &[]).await.unwrap().labels, labels([("new", "2")]));

    containers.delete("c1").await.unwrap();
    refused(containers.get("c1").await, ErrorKind::NotFound);
    refused(containers.delete("c1").await, ErrorKind::NotFound);
}

#[tokio::test]
async fn what_makes_no_container_is_refused() {
    let world = World::new().await;
    let containers = world.db.containers(&scope("a"));
    let refuse = async |change: fn(&mut Container)| {
        let mut wrong = container("c");
        change(&mut wrong);
        refused(containers.create(wrong).await, ErrorKind::InvalidArgument);
    };
    refuse(|c| c.id = "../x".into()).await;
    refuse(|c| c.id = String::new()).await;
    refuse(|c| c.spec = None).await;
    refuse(|c| c.runtime.name = String::new()).await;
    refuse(|c| c.snapshot_key = "k".into()).await;
    refuse(|c| {
        c.labels.insert("k".into(), "v".repeat(4096));
    })
    .await;
    assert_eq!(containers.list(&[]).await.unwrap(), []);
}

#[tokio::test]
async fn filters_choose_and_namespaces_do_not_see_each_other() {
    let world = World::new().await;
    for namespace in ["a", "ab", "b"] {
        let mut made = container("c");
        made.image = format!("image-{namespace}");
        world.db.containers(&scope(namespace)).create(made).await.unwrap();
    }
    let containers = world.db.containers(&scope("a"));
    assert_eq!(containers.list(&[]).await.unwrap().len(), 1);
    assert_eq!(containers.list(&paths(["image==image-a"])).await.unwrap().len(), 1);
    assert_eq!(containers.list(&paths(["image==image-b"])).await.unwrap().len(), 0);
    assert_eq!(containers.list(&paths(["image==no", "runtime.name~=runc"])).await.unwrap().len(), 1);
    refused(containers.list(&paths(["image==\""])).await, ErrorKind::InvalidArgument);
    containers.delete("c").await.unwrap();
    assert!(world.db.containers(&scope("ab")).get("c").await.is_ok());
}

#[tokio::test]
async fn images_change_by_path_and_say_so() {
    let world = World::new().await;
    let images = world.db.images(&scope("a"));
    let (one, two) = (Digest::of(b"1"), Digest::of(b"2"));
    let mut made = image("docker.io/library/x:latest", &one);
    made.target.platform = Some(Platform::new("linux", "arm64", "v8"));
    made.target.annotations = labels([("a", "1")]);
    let made = images.create(made).await.unwrap();
    assert_eq!(images.get(&made.name).await.unwrap(), made);
    refused(images.create(made.clone()).await, ErrorKind::AlreadyExists);
    let mut change = image(&made.name, &two);
    change.labels = labels([("l", "1")]);
    let updated = images.update(change.clone(), &paths(["target"])).await.unwrap();
    assert_eq!((&updated.target, updated.labels.len()), (&change.target, 0));
    let updated = images.update(change.clone(), &paths(["labels.l"])).await.unwrap();
    assert_eq!(updated.labels, change.labels);
    refused(images.update(change, &paths(["name"])).await, ErrorKind::InvalidArgument);
    let found = images.list(&paths([&format!("target.digest=={two}")])).await.unwrap();
    assert_eq!(found, std::slice::from_ref(&updated));
    refused(images.delete(&made.name, Some(&made.target)).await, ErrorKind::NotFound);
    images.delete(&made.name, Some(&updated.target)).await.unwrap();
    refused(images.delete(&made.name, None).await, ErrorKind::NotFound);
    refused(images.create(image("", &one)).await, ErrorKind::InvalidArgument);
    let mut empty = image("x", &one);
    empty.target.size = 0;
    refused(images.create(empty).await, ErrorKind::InvalidArgument);
    let heard = world.heard.take();
    assert_eq!(heard, ["a/images/create", "a/images/update", "a/images/update", "a/images/delete"]);
}

#[tokio::test]
async fn names_beyond_a_key_stay_apart() {
    let world = World::new().await;
    let images = world.db.images(&scope("a"));
    let long = "x".repeat(2000);
    for end in ["a", "b"] {
        images.create(image(&format!("{long}{end}"), &Digest::of(end.as_bytes()))).await.unwrap();
    }
    assert_eq!(images.get(&format!("{long}a")).await.unwrap().target.digest, Digest::of(b"a"));
    assert_eq!(images.list(&[]).await.unwrap().len(), 2);
    images.delete(&format!("{long}a"), None).await.unwrap();
    assert_eq!(images.list(&[]).await.unwrap()[0].name, format!("{long}b"));
}

#[tokio::test]
async fn sandboxes_are_kept() {
    let world = World::new().await;
    let sandboxes = world.db.sandboxes(&scope("a"));
    let mut made = Sandbox::new("s1");
    made.spec = Some(any(b"spec"));
    made.sandboxer = "podsandbox".into();
    let made = sandboxes.create(made).await.unwrap();
    assert_eq!(sandboxes.get("s1").await.unwrap(), made);
    refused(sandboxes.create(made.clone()).await, ErrorKind::AlreadyExists);
    let mut change = made.clone();
    change.labels = labels([("l", "1")]);
    change.spec = None;
    let updated = sandboxes.update(change.clone(), &paths(["labels.l"])).await.unwrap();
    assert_eq!((updated.labels.len(), updated.spec.clone()), (1, made.spec.clone()));
    assert_eq!(sandboxes.update(change.clone(), &[]).await.unwrap().spec, None);
    refused(sandboxes.update(change, &paths(["sandboxer"])).await, ErrorKind::InvalidArgument);
    assert_eq!(sandboxes.list(&paths(["labels.l==1"])).await.unwrap().len(), 1);
    sandboxes.delete("s1").await.unwrap();
    refused(sandboxes.get("s1").await, ErrorKind::NotFound);
}

#[tokio::test]
async fn a_namespace_goes_only_when_it_is_empty() {
    let world = World::new().await;
    let namespaces = world.db.namespaces();
    namespaces.create("a", labels([("k", "v")])).await.unwrap();
    refused(namespaces.create("a", Labels::new()).await, ErrorKind::AlreadyExists);
    refused(namespaces.create("../a", Labels::new()).await, ErrorKind::InvalidArgument);
    let updated = namespaces.update("a", labels([("n", "1")]), &paths(["labels.n"])).await.unwrap();
    assert_eq!(updated, labels([("k", "v"), ("n", "1")]));
    assert_eq!(namespaces.get("a").await.unwrap(), updated);
    world.db.containers(&scope("a")).create(container("c")).await.unwrap();
    world.snapshots(&scope("a")).prepare("s", "", Labels::new()).await.unwrap();
    world.db.containers(&scope("made-by-use")).create(container("c")).await.unwrap();
    let names: Vec<String> = namespaces.list().await.unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a", "made-by-use"]);
    let error = namespaces.delete("a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FailedPrecondition);
    assert!(error.message().contains("containers") && error.message().contains("snapshots on \"memory\""), "{error}");
    world.db.containers(&scope("a")).delete("c").await.unwrap();
    world.snapshots(&scope("a")).remove("s").await.unwrap();
    namespaces.delete("a").await.unwrap();
    refused(namespaces.get("a").await, ErrorKind::NotFound);
    refused(namespaces.delete("a").await, ErrorKind::NotFound);
    let heard = world.heard.take();
    assert!(heard.contains(&"a/namespaces/create".into()) && heard.contains(&"a/namespaces/delete".into()));
}
