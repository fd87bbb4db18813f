//! Leases, and what holds work in flight.

use core_content::WriterOptions;
use core_leases::Resource;
use core_types::{Digest, ErrorKind, Labels, Scope};

use crate::{World, labels, paths, refused, scope};

const PAST: &str = "2001-01-01T00:00:00Z";
const FUTURE: &str = "2999-01-01T00:00:00Z";

async fn leased(world: &World, id: &str, with: Labels) -> Scope {
    world.db.leases(&scope("a")).create(Some(id.into()), with).await.unwrap();
    scope("a").leased(id)
}

fn options(reference: &str) -> WriterOptions {
    WriterOptions { reference: reference.into(), ..WriterOptions::default() }
}

#[tokio::test]
async fn leases_are_made_listed_and_hold_resources() {
    let world = World::new().await;
    let leases = world.db.leases(&scope("a"));
    let made = leases.create(Some("l".into()), labels([("k", "v")])).await.unwrap();
    assert_eq!(leases.get("l").await.unwrap(), made);
    refused(leases.create(Some("l".into()), Labels::new()).await, ErrorKind::AlreadyExists);
    let named = leases.create(None, Labels::new()).await.unwrap();
    assert!(!named.id.is_empty());
    assert_eq!(leases.list(&paths(["labels.k==v"])).await.unwrap(), [made]);
    assert_eq!(leases.list(&[]).await.unwrap().len(), 2);
    let digest = Digest::of(b"x");
    let all =
        [Resource::content(&digest), Resource::image("i"), Resource::ingest("r"), Resource::snapshot("memory", "s")];
    for resource in &all {
        leases.add_resource("l", resource.clone()).await.unwrap();
        leases.add_resource("l", resource.clone()).await.unwrap();
    }
    assert_eq!(leases.resources("l").await.unwrap(), all);
    leases.remove_resource("l", all[0].clone()).await.unwrap();
    assert_eq!(leases.resources("l").await.unwrap(), all[1..]);
    let wrong = Resource { kind: "tasks".into(), id: "t".into() };
    refused(leases.add_resource("l", wrong).await, ErrorKind::Unimplemented);
    refused(leases.add_resource("no", all[0].clone()).await, ErrorKind::NotFound);
    refused(world.db.leases(&scope("b")).get("l").await, ErrorKind::NotFound);
    leases.delete("l", false).await.unwrap();
    refused(leases.resources("l").await, ErrorKind::NotFound);
    refused(leases.delete("l", false).await, ErrorKind::NotFound);
    leases.create(Some("l".into()), Labels::new()).await.unwrap();
    assert_eq!(leases.resources("l").await.unwrap(), [], "a new lease of the name holds nothing");
}

#[tokio::test]
async fn what_is_made_under_a_lease_lives_as_long_as_it() {
    let world = World::new().await;
    let under = leased(&world, "l", Labels::new()).await;
    let digest = world.put(&under, b"blob", Labels::new()).await.unwrap();
    world.snapshots(&under).prepare("s", "", Labels::new()).await.unwrap();
    world.put(&scope("a"), b"loose", Labels::new()).await.unwrap();
    let stats = world.db.collect().await.unwrap();
    assert_eq!((stats.blobs, stats.snapshots), (1, 0));
    assert!(world.content.has(&digest));
    world.db.leases(&scope("a")).delete("l", true).await.unwrap();
    assert!(!world.content.has(&digest), "a synchronous deletion has collected");
    assert!(world.snapshotter.names().is_empty());
    let gone = scope("a").leased("l");
    refused(world.put(&gone, b"blob", Labels::new()).await, ErrorKind::NotFound);
}

#[tokio::test]
async fn an_expired_lease_holds_nothing_and_goes() {
    let world = World::new().await;
    let old = leased(&world, "old", labels([("containerd.io/gc.expire", PAST)])).await;
    let new = leased(&world, "new", labels([("containerd.io/gc.expire", FUTURE)])).await;
    let bad = leased(&world, "bad", labels([("containerd.io/gc.expire", "soon")])).await;
    let one = world.put(&old, b"1", Labels::new()).await.unwrap();
    let two = world.put(&new, b"2", Labels::new()).await.unwrap();
    let three = world.put(&bad, b"3", Labels::new()).await.unwrap();
    let stats = world.db.collect().await.unwrap();
    assert_eq!(stats.leases, 1);
    assert!(!world.content.has(&one) && world.content.has(&two) && world.content.has(&three));
    refused(world.db.leases(&scope("a")).get("old").await, ErrorKind::NotFound);
}

#[tokio::test]
async fn a_flat_lease_holds_only_what_it_names() {
    let world = World::new().await;
    let config = world.put(&scope("a"), b"config", Labels::new()).await.unwrap();
    let refer = labels([("containerd.io/gc.ref.content.config", config.as_str())]);
    let flat = leased(&world, "flat", labels([("containerd.io/gc.flat", "1")])).await;
    let top = world.put(&flat, b"manifest", refer).await.unwrap();
    world.db.collect().await.unwrap();
    assert!(world.content.has(&top) && !world.content.has(&config));
}

#[tokio::test]
async fn an_open_writer_is_a_root_whatever_happens_to_its_lease() {
    let world = World::new().await;
    let under = leased(&world, "l", Labels::new()).await;
    let earlier = world.put(&under, b"earlier", Labels::new()).await.unwrap();
    let mut writer = world.db.content(&under).writer(options("r")).await.unwrap();
    writer.write(b"half"[..].into()).await.unwrap();
    world.db.leases(&scope("a")).delete("l", true).await.unwrap();
    assert!(world.content.has(&earlier), "what the lease held stays while work under it goes on");
    writer.write(b" whole"[..].into()).await.unwrap();
    let digest = writer.commit(10, None, Labels::new()).await.unwrap();
    world.db.collect().await.unwrap();
    assert!(world.content.has(&digest));
    drop(writer);
    world.db.collect().await.unwrap();
    assert_eq!(world.content.count(), 0, "with the writer the root has ended");
}

#[tokio::test]
async fn an_ingest_goes_with_its_lease_when_no_writer_is_open() {
    let world = World::new().await;
    let under = leased(&world, "l", Labels::new()).await;
    let mut writer = world.db.content(&under).writer(options("r")).await.unwrap();
    writer.write(b"half"[..].into()).await.unwrap();
    drop(writer);
    world.db.collect().await.unwrap();
    assert_eq!(world.db.content(&under).status("r").await.unwrap().offset, 4, "resumable");
    world.db.leases(&scope("a")).delete("l", true).await.unwrap();
    refused(world.db.content(&scope("a")).status("r").await, ErrorKind::NotFound);
    assert!(world.content.ingests().is_empty());
    // Without a lease it stays for a day.
    drop(world.db.content(&scope("a")).writer(options("r")).await.unwrap());
    world.db.collect().await.unwrap();
    assert_eq!(world.content.ingests().len(), 1);
}

#[tokio::test]
async fn a_hold_keeps_a_lease_that_expires() {
    let world = World::new().await;
    let under = leased(&world, "l", labels([("containerd.io/gc.expire", PAST)])).await;
    let hold = world.db.hold(&under);
    world.snapshots(&under).prepare("extract", "", Labels::new()).await.unwrap();
    world.db.collect().await.unwrap();
    assert!(world.snapshots(&under).stat("extract").await.is_ok());
    drop(hold);
    world.db.collect().await.unwrap();
    refused(world.snapshots(&scope("a")).stat("extract").await, ErrorKind::NotFound);
}

#[tokio::test]
async fn what_is_looked_at_under_a_lease_stays_for_it() {
    let world = World::new().await;
    let snapshots = world.snapshots(&scope("a"));
    snapshots.prepare("w", "", Labels::new()).await.unwrap();
    snapshots.commit("layer", "w", None, Labels::new()).await.unwrap();
    let digest = world.put(&scope("a"), b"x", Labels::new()).await.unwrap();
    let under = leased(&world, "l", Labels::new()).await;
    // An unpacker finds the layer there and goes on with the next; nothing else refers to it yet.
    world.snapshots(&under).stat("layer").await.unwrap();
    world.db.content(&under).info(&digest).await.unwrap();
    world.db.collect().await.unwrap();
    world.snapshots(&under).prepare("next", "layer", Labels::new()).await.unwrap();
    assert!(world.content.has(&digest));
    world.db.leases(&scope("a")).delete("l", true).await.unwrap();
    assert!(world.snapshotter.names().is_empty() && !world.content.has(&digest));
}

#[tokio::test]
async fn an_expiring_image_is_held_by_its_lease() {
    let world = World::new().await;
    let under = leased(&world, "l", Labels::new()).await;
    let digest = world.put(&scope("a"), b"x", Labels::new()).await.unwrap();
    let mut image = crate::image("i", &digest);
    image.labels = labels([("containerd.io/gc.expire", PAST)]);
    world.db.images(&under).create(image).await.unwrap();
    world.db.collect().await.unwrap();
    assert!(world.content.has(&digest));
    world.db.leases(&scope("a")).delete("l", true).await.unwrap();
    refused(world.db.images(&scope("a")).get("i").await, ErrorKind::NotFound);
    assert!(!world.content.has(&digest));
    assert!(world.heard.take().contains(&"a/images/delete".into()));
}
