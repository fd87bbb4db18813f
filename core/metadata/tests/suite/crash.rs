//! What a crash leaves, and what a failure in a batch leaves.

use core_metadata::{Container, Dangling, Options, Runtime};
use core_snapshots::Snapshotter;
use core_types::{Digest, ErrorKind, Labels};

use crate::{World, backend::MemorySnapshotter, image, labels, refused, scope};

fn container(id: &str, value: Vec<u8>) -> Container {
    Container {
        runtime: Runtime { name: "r".into(), options: None },
        spec: Some(core_events::Any { type_url: "t".into(), value: value.into() }),
        ..Container::new(id)
    }
}

#[tokio::test]
async fn everything_is_there_after_opening_again() {
    let world = World::new().await;
    let a = scope("a");
    let digest = world.put(&a, b"x", Labels::new()).await.unwrap();
    world.db.images(&a).create(image("i", &digest)).await.unwrap();
    let made = world.db.containers(&a).create(container("c", vec![1; 100_000])).await.unwrap();
    let mounts = world.snapshots(&a).prepare("s", "", labels([("containerd.io/gc.root", "1")])).await.unwrap();
    let lease = world.db.leases(&a).create(Some("l".into()), Labels::new()).await.unwrap();
    let world = world.reopen().await;
    assert_eq!(world.db.containers(&a).get("c").await.unwrap(), made);
    assert_eq!(world.db.leases(&a).get("l").await.unwrap(), lease);
    assert_eq!(world.snapshots(&a).mounts("s").await.unwrap(), mounts);
    world.db.collect().await.unwrap();
    assert!(world.db.content(&a).reader(&digest).await.is_ok());
    let next = world.snapshots(&a).prepare("t", "", Labels::new()).await.unwrap();
    assert_ne!(next, mounts, "backend names are never given twice");
    assert_eq!(world.db.verify().await.unwrap(), []);
}

/// Files of a database as they are at a moment.
#[derive(Clone, PartialEq)]
struct Files {
    data: Vec<u8>,
    journals: [Vec<u8>; 2],
}

impl Files {
    fn of(world: &World) -> Self {
        let read = |name: &str| std::fs::read(world.path().join(name)).unwrap();
        Self { data: read("data.mdb"), journals: [read("journal.0"), read("journal.1")] }
    }

    /// Whether no checkpoint was between.
    fn same_checkpoint(&self, other: &Self) -> bool {
        (0..2).all(|at| self.journals[at][..8192] == other.journals[at][..8192])
    }

    async fn open(&self, backends: &World) -> World {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("metadata");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("data.mdb"), &self.data).unwrap();
        std::fs::write(path.join("journal.0"), &self.journals[0]).unwrap();
        std::fs::write(path.join("journal.1"), &self.journals[1]).unwrap();
        backends.at(directory).await
    }
}

/// Changes that were answered, and the files before and after them with no checkpoint between.
async fn changed_files() -> (World, Files, Files) {
    let mut world = World::new().await;
    let containers = world.db.containers(&scope("a"));
    for number in 0..50 {
        containers.create(container(&format!("old{number}"), vec![1; 3000])).await.unwrap();
    }
    drop(containers);
    loop {
        world = world.reopen().await;
        let before = Files::of(&world);
        let containers = world.db.containers(&scope("a"));
        for number in 0..50 {
            if let Ok(mut old) = containers.get(&format!("old{number}")).await {
                old.image = "changed".into();
                containers.update(old, &[]).await.unwrap();
            }
            let new = format!("new{number}");
            let _again = containers.delete(&new).await;
            containers.create(container(&new, vec![2; 5000])).await.unwrap();
        }
        let _again = containers.delete("old7").await;
        let after = Files::of(&world);
        if before.same_checkpoint(&after) {
            return (world, before, after);
        }
    }
}

async fn check_changed(world: &World) {
    let all = world.db.containers(&scope("a")).list(&[]).await.unwrap();
    assert_eq!(all.len(), 99);
    assert!(all.iter().all(|found| found.id.starts_with("new") || found.image == "changed"));
    assert!(all.iter().all(|found| found.id != "old7"));
    assert!(all.iter().all(|found| matches!(found.spec.as_ref().unwrap().value.len(), 3000 | 5000)));
    world.db.containers(&scope("a")).create(container("more", vec![3; 100_000])).await.unwrap();
}

#[tokio::test]
async fn what_was_answered_survives_whatever_order_the_disk_wrote_in() {
    let (world, before, after) = changed_files().await;
    // The process was killed: all is there.
    check_changed(&after.open(&world).await).await;
    // The power was cut: the pages that point to the new ones were written, the new ones were not.
    let mut cut = Files { data: before.data.clone(), ..after.clone() };
    cut.data[..8192].copy_from_slice(&after.data[..8192]);
    check_changed(&cut.open(&world).await).await;
    // Every second page was written.
    let mut cut = Files { data: before.data.clone(), ..after.clone() };
    cut.data.resize(after.data.len(), 0);
    for (page, new) in cut.data.chunks_mut(4096).zip(after.data.chunks(4096)).step_by(2) {
        page.copy_from_slice(new);
    }
    let world = cut.open(&world).await;
    check_changed(&world).await;
    let world = world.reopen().await;
    assert!(world.db.containers(&scope("a")).get("more").await.is_ok(), "and goes on well");
}

#[tokio::test]
async fn a_journal_that_ends_within_a_record_ends_before_it() {
    let (world, _, mut after) = changed_files().await;
    let at = usize::from(after.journals[1][8..16] > after.journals[0][8..16]);
    let end = after.journals[at].iter().rposition(|byte| *byte != 0).unwrap();
    after.journals[at][end - 1] ^= 1;
    let world = after.open(&world).await;
    let containers = world.db.containers(&scope("a"));
    assert!(containers.get("old7").await.is_ok(), "the last change is undone, no other one");
    assert_eq!(containers.list(&[]).await.unwrap().len(), 100);
}

#[tokio::test]
async fn data_without_a_record_is_found_after_a_crash() {
    let world = World::new().await;
    let a = scope("a");
    let kept = world.put(&a, b"kept", labels([("containerd.io/gc.root", "1")])).await.unwrap();
    let world = world.reopen().await;
    // As if the machine had stopped between the data and the record.
    let lost = world.content.put(b"lost");
    world.snapshotter.prepare("a/999/half", "", Labels::new()).await.unwrap();
    world.snapshotter.commit("a/1000/base", "a/999/half", None, Labels::new()).await.unwrap();
    world.snapshotter.prepare("a/1001/child", "a/1000/base", Labels::new()).await.unwrap();
    let ingest = core_content::WriterOptions { reference: "a/1002/r".into(), ..Default::default() };
    drop(core_content::Store::writer(&world.content, ingest).await.unwrap());
    world.db.collect().await.unwrap();
    assert!(world.content.has(&kept) && !world.content.has(&lost));
    assert!(world.snapshotter.names().is_empty() && world.content.ingests().is_empty());
}

#[tokio::test]
async fn a_record_without_data_is_reported() {
    let world = World::new().await;
    let a = scope("a");
    let digest = world.put(&a, b"x", labels([("containerd.io/gc.root", "1")])).await.unwrap();
    world.snapshots(&a).prepare("s", "", labels([("containerd.io/gc.root", "1")])).await.unwrap();
    world.content.lose(&digest);
    world.snapshotter.lose(&world.snapshotter.names()[0]);
    let lost = world.db.verify().await.unwrap();
    let expected =
        |backend: &str, name: &str| Dangling { namespace: "a".into(), backend: backend.into(), name: name.into() };
    assert_eq!(lost, [expected("content", digest.as_str()), expected("memory", "s")]);
    // It can be removed all the same.
    world.snapshots(&a).remove("s").await.unwrap();
    world.db.content(&a).delete(&digest).await.unwrap();
    world.db.collect().await.unwrap();
    assert_eq!(world.db.verify().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_failure_in_a_batch_undoes_only_itself() {
    let world = World::new().await;
    let containers = world.db.containers(&scope("a"));
    containers.create(container("taken", vec![])).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..200 {
        let containers = containers.clone();
        tasks.spawn(async move {
            // Every third fails within its transaction.
            let id = if number % 3 == 0 { "taken".to_owned() } else { format!("c{number}") };
            (number, containers.create(container(&id, vec![0; 1000])).await)
        });
    }
    for (number, outcome) in tasks.join_all().await {
        if number % 3 == 0 {
            refused(outcome, ErrorKind::AlreadyExists);
        } else {
            outcome.unwrap();
        }
    }
    assert_eq!(containers.list(&[]).await.unwrap().len(), 1 + 200 - 67);
}

#[tokio::test]
async fn an_open_database_is_not_opened_again() {
    let world = World::new().await;
    world.db.images(&scope("a")).create(image("i", &Digest::of(b"x"))).await.unwrap();
    let backends = core_metadata::Backends {
        content: std::sync::Arc::new(world.content.clone()),
        snapshotters: Default::default(),
        events: std::sync::Arc::new(world.heard.clone()),
    };
    refused(core_metadata::Database::open(&world.path(), backends).await.map(drop), ErrorKind::FailedPrecondition);
    let world = world.reopen().await;
    assert!(world.db.images(&scope("a")).get("i").await.is_ok());
}

#[tokio::test]
async fn a_journal_that_is_full_begins_anew() {
    let world = World::new().await;
    let containers = world.db.containers(&scope("a"));
    for number in 0..40 {
        // Some fill the journal a little, some do not fit into it at all.
        let size = if number % 8 == 7 { 5 << 20 } else { 200_000 };
        containers.create(container(&format!("c{number}"), vec![7; size])).await.unwrap();
    }
    let world = Files::of(&world).open(&world).await;
    assert_eq!(world.db.containers(&scope("a")).list(&[]).await.unwrap().len(), 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_map_grows_when_it_is_full() {
    let options = Options { map_size: Some(1 << 20), ..Options::default() };
    let world = World::with(MemorySnapshotter::default(), options).await;
    let containers = world.db.containers(&scope("a"));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..64 {
        let containers = containers.clone();
        tasks.spawn(async move { containers.create(container(&format!("c{number}"), vec![7; 100_000])).await });
    }
    for outcome in tasks.join_all().await {
        outcome.unwrap();
    }
    let all = containers.list(&[]).await.unwrap();
    assert_eq!(all.len(), 64);
    assert!(all.iter().all(|container| container.spec.as_ref().unwrap().value.len() == 100_000));
}

#[tokio::test]
async fn a_closed_database_answers_unavailable() {
    let world = World::new().await;
    world.db.close().await;
    let outcome = world.db.images(&scope("a")).create(image("i", &Digest::of(b"x"))).await;
    refused(outcome, ErrorKind::Unavailable);
    assert_eq!(world.db.images(&scope("a")).list(&[]).await.unwrap(), [], "reading goes on");
}
