//! Snapshots.

use core_snapshots::Kind;
use core_types::{ErrorKind, Labels};

use core_metadata::Options;

use crate::{World, backend::MemorySnapshotter, labels, paths, refused, scope};

#[tokio::test]
async fn keys_of_namespaces_are_apart_and_commits_make_parents() {
    let world = World::new().await;
    for namespace in ["a", "b"] {
        let snapshots = world.snapshots(&scope(namespace));
        let inherited = labels([("containerd.io/snapshot/x", "1"), ("mine", "2")]);
        let mounts = snapshots.prepare("work", "", inherited.clone()).await.unwrap();
        assert!(mounts[0].source.starts_with(&format!("{namespace}/")) && mounts[0].source.ends_with("/work"));
        assert_eq!(snapshots.mounts("work").await.unwrap(), mounts);
        refused(snapshots.prepare("work", "", Labels::new()).await, ErrorKind::AlreadyExists);
        snapshots.commit("layer", "work", None, inherited).await.unwrap();
        refused(snapshots.stat("work").await, ErrorKind::NotFound);
        let info = snapshots.stat("layer").await.unwrap();
        assert_eq!((info.kind, info.name.as_str(), info.labels.len()), (Kind::Committed, "layer", 2));
        snapshots.view("see", "layer", Labels::new()).await.unwrap();
        assert_eq!(snapshots.stat("see").await.unwrap().parent, "layer");
        assert_eq!(snapshots.usage("see").await.unwrap().inodes, 1);
        refused(snapshots.remove("layer").await, ErrorKind::FailedPrecondition);
    }
    let snapshots = world.snapshots(&scope("a"));
    assert_eq!(snapshots.list(&[]).await.unwrap().len(), 2);
    assert_eq!(snapshots.list(&paths(["kind==view,parent==layer"])).await.unwrap()[0].name, "see");
    snapshots.remove("see").await.unwrap();
    snapshots.remove("layer").await.unwrap();
    refused(snapshots.remove("layer").await, ErrorKind::NotFound);
    assert!(world.snapshotter.names().iter().any(|name| name.starts_with("a/")), "gone with the collection");
    world.db.leases(&scope("b")).create(Some("l".into()), Labels::new()).await.unwrap();
    let resource = core_leases::Resource::snapshot("memory", "see");
    world.db.leases(&scope("b")).add_resource("l", resource).await.unwrap();
    world.db.collect().await.unwrap();
    assert_eq!(world.snapshotter.names().len(), 2, "{:?}", world.snapshotter.names());
    assert!(world.snapshotter.names().iter().all(|name| name.starts_with("b/")));
    let heard = world.heard.take();
    assert_eq!(heard.iter().filter(|topic| *topic == "a/snapshot/remove").count(), 2);
    assert!(heard.contains(&"a/snapshot/prepare".into()) && heard.contains(&"b/snapshot/commit".into()));
}

#[tokio::test]
async fn what_is_wrong_is_refused_and_leaves_nothing() {
    let world = World::new().await;
    let snapshots = world.snapshots(&scope("a"));
    refused(world.db.snapshotter(&scope("a"), "none").map(drop), ErrorKind::NotFound);
    refused(world.db.snapshotter(&scope("a"), "").map(drop), ErrorKind::InvalidArgument);
    refused(snapshots.prepare("k", "nowhere", Labels::new()).await, ErrorKind::NotFound);
    refused(snapshots.prepare("", "", Labels::new()).await, ErrorKind::InvalidArgument);
    snapshots.prepare("active", "", Labels::new()).await.unwrap();
    refused(snapshots.prepare("k", "active", Labels::new()).await, ErrorKind::InvalidArgument);
    refused(snapshots.commit("n", "nothing", None, Labels::new()).await, ErrorKind::NotFound);
    let none = scope("a").leased("no-such-lease");
    refused(world.snapshots(&none).prepare("k", "", Labels::new()).await, ErrorKind::NotFound);
    refused(world.snapshots(&none).commit("n", "active", None, Labels::new()).await, ErrorKind::NotFound);
    assert_eq!(world.snapshotter.names().len(), 1);
    assert!(snapshots.stat("active").await.is_ok());
    let info = snapshots.stat("active").await.unwrap();
    refused(snapshots.update(info.clone(), &paths(["parent"])).await, ErrorKind::InvalidArgument);
    let mut change = info;
    change.labels = labels([("l", "1"), ("containerd.io/snapshot/y", "2")]);
    let updated = snapshots.update(change, &[]).await.unwrap();
    assert_eq!((updated.name.as_str(), updated.labels.len()), ("active", 2));
}

#[tokio::test]
async fn a_target_that_exists_answers_already_exists() {
    let world = World::new().await;
    let snapshots = world.snapshots(&scope("a"));
    let target = labels([("containerd.io/snapshot.ref", "chain")]);
    snapshots.prepare("extract-1", "", target.clone()).await.unwrap();
    snapshots.commit("chain", "extract-1", None, target.clone()).await.unwrap();
    world.db.leases(&scope("a")).create(Some("l".into()), Labels::new()).await.unwrap();
    let leased = world.snapshots(&scope("a").leased("l"));
    refused(leased.prepare("extract-2", "", target).await, ErrorKind::AlreadyExists);
    let held = world.db.leases(&scope("a")).resources("l").await.unwrap();
    assert_eq!(held, [core_leases::Resource::snapshot("memory", "chain")], "the lease holds it");
    refused(snapshots.stat("extract-2").await, ErrorKind::NotFound);
}

#[tokio::test]
async fn a_remote_snapshotter_brings_the_target() {
    let remote = MemorySnapshotter { remote: Some("chain".into()), ..MemorySnapshotter::default() };
    let world = World::with(remote, Options::default()).await;
    let target = labels([("containerd.io/snapshot.ref", "chain")]);
    for namespace in ["a", "b"] {
        let snapshots = world.snapshots(&scope(namespace));
        refused(snapshots.prepare("extract", "", target.clone()).await, ErrorKind::AlreadyExists);
        assert_eq!(snapshots.stat("chain").await.unwrap().kind, Kind::Committed);
        let root = labels([("containerd.io/gc.root", "1")]);
        snapshots.prepare("root", "chain", root).await.unwrap();
    }
    // The same snapshot of the backend serves both.
    let snapshots = world.snapshots(&scope("a"));
    snapshots.remove("root").await.unwrap();
    snapshots.remove("chain").await.unwrap();
    world.db.collect().await.unwrap();
    assert!(world.snapshotter.names().contains(&"chain".to_owned()));
    assert!(world.snapshots(&scope("b")).stat("chain").await.is_ok());
}

#[tokio::test]
async fn a_commit_can_set_the_parent_of_a_layer_unpacked_alone() {
    let world = World::new().await;
    let snapshots = world.snapshots(&scope("a"));
    for (work, name) in [("w1", "one"), ("w2", "two")] {
        snapshots.prepare(work, "", Labels::new()).await.unwrap();
        let parent = (name == "two").then_some("one");
        snapshots.commit(name, work, parent, Labels::new()).await.unwrap();
    }
    assert!(snapshots.rebases());
    assert_eq!(snapshots.stat("two").await.unwrap().parent, "one");
    refused(snapshots.remove("one").await, ErrorKind::FailedPrecondition);
    snapshots.prepare("w3", "", Labels::new()).await.unwrap();
    refused(snapshots.commit("three", "w3", Some("nowhere"), Labels::new()).await, ErrorKind::NotFound);
    assert!(snapshots.stat("w3").await.is_ok(), "it can be tried again");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_commits_to_one_name_one_wins_and_the_others_stay() {
    let world = World::new().await;
    let snapshots = world.snapshots(&scope("a"));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..8 {
        let snapshots = snapshots.clone();
        tasks.spawn(async move {
            let key = format!("work-{number}");
            snapshots.prepare(&key, "", Labels::new()).await.unwrap();
            let outcome = snapshots.commit("layer", &key, None, Labels::new()).await;
            if let Err(error) = &outcome {
                assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
                assert_eq!(snapshots.stat(&key).await.unwrap().kind, Kind::Active);
            }
            outcome.is_ok()
        });
    }
    assert_eq!(tasks.join_all().await.into_iter().filter(|won| *won).count(), 1);
    assert_eq!(snapshots.list(&[]).await.unwrap().len(), 8);
}
