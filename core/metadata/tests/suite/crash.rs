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
    let expected = |backend: &str, name: &str| Dangling {
        namespace: "a".into(),
        backend: backend.into(),
        name: name.into(),
    };
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
