//! Blobs and ingests.

use core_content::WriterOptions;
use core_metadata::Options;
use core_types::{Digest, ErrorKind, Labels};

use crate::{World, backend::MemorySnapshotter, labels, paths, refused, scope};

fn options(reference: &str, expected: Option<&Digest>) -> WriterOptions {
    WriterOptions { reference: reference.into(), total: 0, expected: expected.cloned() }
}

#[tokio::test]
async fn programs_inherit_no_descriptor_of_the_database() {
    let _world = World::new().await;
    let output = std::process::Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("/proc/") && !text.contains(".mdb"), "{text}");
}

#[tokio::test]
async fn a_blob_belongs_to_the_namespace_that_wrote_it() {
    let world = World::new().await;
    let (a, b) = (scope("a"), scope("b"));
    let digest = world.put(&a, b"hello", labels([("l", "1")])).await.unwrap();
    let info = world.db.content(&a).info(&digest).await.unwrap();
    assert_eq!((info.size, info.labels), (5, labels([("l", "1")])));
    let mut buffer = [0; 5];
    world.db.content(&a).reader(&digest).await.unwrap().read_at(&mut buffer, 0).unwrap();
    assert_eq!(&buffer, b"hello");
    refused(world.db.content(&b).info(&digest).await, ErrorKind::NotFound);
    refused(world.db.content(&b).reader(&digest).await.map(drop), ErrorKind::NotFound);
    refused(world.db.content(&b).delete(&digest).await, ErrorKind::NotFound);
    refused(world.put(&a, b"hello", Labels::new()).await, ErrorKind::AlreadyExists);
    assert_eq!(world.heard.take(), ["a/content/create"]);
}

#[tokio::test]
async fn content_that_another_namespace_has_is_not_sent_again() {
    let world = World::new().await;
    let (a, b) = (scope("a"), scope("b"));
    let digest = world.put(&a, b"hello", labels([("l", "a")])).await.unwrap();
    let content = world.db.content(&b);
    let mut writer = content.writer(options("r", Some(&digest))).await.unwrap();
    assert_eq!(writer.status().offset, 5, "all of it is there");
    assert!(world.content.ingests().is_empty(), "nothing is written");
    writer.commit(5, Some(&digest), labels([("l", "b")])).await.unwrap();
    assert_eq!(content.info(&digest).await.unwrap().labels, labels([("l", "b")]));
    // Labels are each namespace's own.
    let mut change = content.info(&digest).await.unwrap();
    change.labels = labels([("m", "1")]);
    let updated = content.update(change.clone(), &paths(["labels.m", "labels.l"])).await.unwrap();
    assert_eq!(updated.labels, labels([("m", "1")]));
    refused(content.update(change, &paths(["size"])).await, ErrorKind::InvalidArgument);
    assert_eq!(world.db.content(&a).info(&digest).await.unwrap().labels, labels([("l", "a")]));
    // One namespace lets go, the other keeps it.
    world.db.content(&a).delete(&digest).await.unwrap();
    world.put(&b, b"other", labels([("containerd.io/gc.root", "1")])).await.unwrap();
    world.db.content(&b).update(updated_root(&world, &digest).await, &[]).await.unwrap();
    world.db.collect().await.unwrap();
    assert!(world.content.has(&digest));
    content.delete(&digest).await.unwrap();
    world.db.collect().await.unwrap();
    assert!(!world.content.has(&digest));
}

async fn updated_root(world: &World, digest: &Digest) -> core_content::Info {
    let mut info = world.db.content(&scope("b")).info(digest).await.unwrap();
    info.labels.insert("containerd.io/gc.root".into(), "1".into());
    info
}

#[tokio::test]
async fn a_shared_writer_can_be_written_after_all() {
    let world = World::new().await;
    let digest = world.put(&scope("a"), b"hello", Labels::new()).await.unwrap();
    let content = world.db.content(&scope("b"));
    let mut writer = content.writer(options("r", Some(&digest))).await.unwrap();
    writer.write(b" world"[..].into()).await.unwrap();
    let both = writer.commit(11, None, Labels::new()).await.unwrap();
    assert_eq!(both, Digest::of(b"hello world"));
    let mut writer = content.writer(options("s", Some(&digest))).await.unwrap();
    writer.truncate(0).await.unwrap();
    writer.write(b"hello"[..].into()).await.unwrap();
    writer.commit(5, Some(&digest), Labels::new()).await.unwrap();
    assert_eq!(content.list(&[]).await.unwrap().len(), 2);
}

#[tokio::test]
async fn isolated_namespaces_send_their_own() {
    let options_isolated = Options { isolated: true, ..Options::default() };
    let world = World::with(MemorySnapshotter::default(), options_isolated).await;
    let digest = world.put(&scope("a"), b"hello", Labels::new()).await.unwrap();
    let writer = world.db.content(&scope("b")).writer(options("r", Some(&digest))).await.unwrap();
    assert_eq!(writer.status().offset, 0);
    drop(writer);
    let shareable = labels([("containerd.io/namespace.shareable", "true")]);
    world.db.namespaces().update("a", shareable, &[]).await.unwrap();
    let writer = world.db.content(&scope("b")).writer(options("s", Some(&digest))).await.unwrap();
    assert_eq!(writer.status().offset, 5);
}

#[tokio::test]
async fn the_same_reference_in_two_namespaces_is_two_ingests() {
    let world = World::new().await;
    let (a, b) = (world.db.content(&scope("a")), world.db.content(&scope("b")));
    let mut one = a.writer(options("layer", None)).await.unwrap();
    let mut two = b.writer(options("layer", None)).await.unwrap();
    one.write(b"1"[..].into()).await.unwrap();
    two.write(b"22"[..].into()).await.unwrap();
    refused(a.writer(options("layer", None)).await.map(drop), ErrorKind::Unavailable);
    assert_eq!(a.status("layer").await.unwrap().offset, 1);
    assert_eq!(b.list_statuses(&paths(["ref==layer"])).await.unwrap()[0].offset, 2);
    drop(one);
    let mut one = a.writer(options("layer", None)).await.unwrap();
    assert_eq!(one.status().offset, 1, "resumed");
    one.write(b"1"[..].into()).await.unwrap();
    one.commit(2, None, Labels::new()).await.unwrap();
    refused(a.status("layer").await, ErrorKind::NotFound);
    drop(two);
    b.abort("layer").await.unwrap();
    refused(b.abort("layer").await, ErrorKind::NotFound);
    assert!(world.content.ingests().is_empty());
}

#[tokio::test]
async fn a_commit_that_is_refused_can_be_tried_again() {
    let world = World::new().await;
    let content = world.db.content(&scope("a"));
    let mut writer = content.writer(options("r", None)).await.unwrap();
    writer.write(b"hello"[..].into()).await.unwrap();
    refused(writer.commit(4, None, Labels::new()).await, ErrorKind::FailedPrecondition);
    refused(writer.commit(5, Some(&Digest::of(b"no")), Labels::new()).await, ErrorKind::FailedPrecondition);
    let long = labels([("k", &"v".repeat(5000))]);
    refused(writer.commit(5, None, long).await, ErrorKind::InvalidArgument);
    writer.commit(5, Some(&Digest::of(b"hello")), Labels::new()).await.unwrap();
    refused(writer.commit(5, None, Labels::new()).await, ErrorKind::FailedPrecondition);
    refused(content.writer(options("", None)).await.map(drop), ErrorKind::InvalidArgument);
}
