use std::{collections::BTreeSet, sync::Arc, time::SystemTime};

use core_types::{ErrorKind, Labels};

use super::Bench;
use crate::Kind;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// The life of a snapshot, with what `stat` and `list` say of it.
pub async fn goes_from_prepared_to_committed(bench: Bench) {
    let snapshotter = &bench.snapshotter;
    let mounts = snapshotter.prepare("base-active", "", labels(&[("a", "1")])).await.unwrap();
    assert!(!mounts.is_empty());
    assert_eq!(snapshotter.mounts("base-active").await.unwrap(), mounts);
    let info = bench.stat("base-active").await;
    assert_eq!((info.kind, info.parent.as_str(), info.name.as_str()), (Kind::Active, "", "base-active"));
    assert_eq!(info.labels.get("a").map(String::as_str), Some("1"));

    snapshotter.commit("base", "base-active", None, labels(&[("b", "2")])).await.unwrap();
    assert!(snapshotter.stat("base-active").await.unwrap_err().is_not_found());
    let info = bench.stat("base").await;
    assert_eq!((info.kind, info.parent.as_str()), (Kind::Committed, ""));
    assert_eq!(info.labels.get("b").map(String::as_str), Some("2"));
    assert_eq!(info.labels.get("a"), None);

    snapshotter.prepare("top-active", "base", Labels::new()).await.unwrap();
    assert_eq!(bench.stat("top-active").await.parent, "base");
    snapshotter.commit("top", "top-active", None, Labels::new()).await.unwrap();
    snapshotter.view("look", "top", Labels::new()).await.unwrap();
    let info = bench.stat("look").await;
    assert_eq!((info.kind, info.parent.as_str()), (Kind::View, "top"));
    for info in snapshotter.list(&[]).await.unwrap() {
        assert_eq!(bench.stat(&info.name).await, info);
    }
}

/// A key or name in use is AlreadyExists, whoever wants it.
pub async fn uses_a_key_once(bench: Bench) {
    let snapshotter = &bench.snapshotter;
    bench.commit_empty("base", "").await.unwrap();
    snapshotter.prepare("active", "base", Labels::new()).await.unwrap();
    snapshotter.view("view", "base", Labels::new()).await.unwrap();
    for key in ["base", "active", "view"] {
        assert!(snapshotter.prepare(key, "base", Labels::new()).await.unwrap_err().is_already_exists());
        assert!(snapshotter.view(key, "", Labels::new()).await.unwrap_err().is_already_exists());
        assert!(snapshotter.commit(key, "active", None, Labels::new()).await.unwrap_err().is_already_exists());
    }
    assert_eq!(snapshotter.list(&[]).await.unwrap().len(), 3);
}

/// Only committed snapshots are parents, and only active ones are committed.
pub async fn demands_committed_parents(bench: Bench) {
    let snapshotter = &bench.snapshotter;
    snapshotter.prepare("active", "", Labels::new()).await.unwrap();
    snapshotter.view("view", "", Labels::new()).await.unwrap();
    for parent in ["active", "view"] {
        let error = snapshotter.prepare("child", parent, Labels::new()).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::FailedPrecondition), "{error}");
    }
    assert!(snapshotter.prepare("child", "missing", Labels::new()).await.unwrap_err().is_not_found());
    let error = snapshotter.commit("name", "view", None, Labels::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FailedPrecondition);
    bench.commit_empty("base", "").await.unwrap();
    let error = snapshotter.commit("name", "base", None, Labels::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FailedPrecondition);
    let error = snapshotter.mounts("base").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FailedPrecondition);
    let error = snapshotter.prepare("", "", Labels::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

/// Everything about a missing snapshot is NotFound.
pub async fn refuses_what_is_not_there(bench: Bench) {
    let snapshotter = &bench.snapshotter;
    bench.commit_empty("base", "").await.unwrap();
    let info = bench.stat("base").await;
    snapshotter.remove("base").await.unwrap();
    for error in [
        snapshotter.stat("base").await.unwrap_err(),
        snapshotter.usage("base").await.unwrap_err(),
        snapshotter.mounts("base").await.unwrap_err(),
        snapshotter.remove("base").await.unwrap_err(),
        snapshotter.update(info, &[]).await.unwrap_err(),
        snapshotter.commit("name", "base", None, Labels::new()).await.unwrap_err(),
        snapshotter.view("view", "base", Labels::new()).await.unwrap_err(),
    ] {
        assert!(error.is_not_found(), "{error:?}");
    }
}

/// Labels change by field path; nothing else can be changed.
pub async fn updates_labels(bench: Bench) {
    let snapshotter = &bench.snapshotter;
    let before = SystemTime::now();
    bench.commit_empty("committed", "").await.unwrap();
    snapshotter.prepare("active", "committed", Labels::new()).await.unwrap();
    snapshotter.view("view", "committed", Labels::new()).await.unwrap();
    for key in ["committed", "active", "view"] {
        let first = bench.stat(key).await;
        assert!(first.created_at >= before && first.created_at == first.updated_at);
        let mut changed = first.clone();
        changed.parent = "missing".into();
        changed.labels = labels(&[("l1", "v1"), ("l2", "v2"), ("l3", "v3"), ("empty", "")]);
        let info = snapshotter.update(changed, &[]).await.unwrap();
        assert_eq!((info.kind, &info.parent, info.created_at), (first.kind, &first.parent, first.created_at));
        assert!(info.updated_at >= first.updated_at);
        assert_eq!(info.labels, labels(&[("l1", "v1"), ("l2", "v2"), ("l3", "v3")]));
        assert_eq!(bench.stat(key).await, info);

        let mut changed = info;
        changed.labels = labels(&[("l1", "updated"), ("l4", "not named")]);
        let info = snapshotter.update(changed, &["labels.l1".into(), "labels.l2".into()]).await.unwrap();
        assert_eq!(info.labels, labels(&[("l1", "updated"), ("l3", "v3")]));

        let mut changed = info;
        changed.labels = labels(&[("only", "this")]);
        let info = snapshotter.update(changed, &["labels".into()]).await.unwrap();
        assert_eq!(info.labels, labels(&[("only", "this")]));
        let error = snapshotter.update(info, &["parent".into()]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}

/// Kind, name, parent and labels can be asked for.
pub async fn lists_by_filter(bench: Bench) {
    let snapshotter = &bench.snapshotter;
    bench.commit_empty("p", "").await.unwrap();
    snapshotter.prepare("p-wl-active", "", Labels::new()).await.unwrap();
    snapshotter.commit("p-wl", "p-wl-active", None, labels(&[("l", "1")])).await.unwrap();
    snapshotter.prepare("a", "p", Labels::new()).await.unwrap();
    snapshotter.prepare("a-np", "", Labels::new()).await.unwrap();
    snapshotter.prepare("a-wl", "p-wl", labels(&[("l", "2"), ("other.name/x", "y")])).await.unwrap();
    snapshotter.view("v", "p", labels(&[("l", "3")])).await.unwrap();
    for (filters, expected) in [
        (&[][..], &["p", "p-wl", "a", "a-np", "a-wl", "v"][..]),
        (&["kind==active"], &["a", "a-np", "a-wl"]),
        (&["kind==view"], &["v"]),
        (&["kind==committed"], &["p", "p-wl"]),
        (&["name==p", "name==a-np"], &["p", "a-np"]),
        (&["name==a-wl,labels.l"], &["a-wl"]),
        (&["parent==p"], &["a", "v"]),
        (&["parent!=\"\""], &["a", "v", "a-wl"]),
        (&["labels.l"], &["p-wl", "a-wl", "v"]),
        (&["labels.l==2"], &["a-wl"]),
        (&["labels.\"other.name/x\"==y"], &["a-wl"]),
    ] {
        let filters: Vec<String> = filters.iter().map(|filter| (*filter).to_owned()).collect();
        let found = snapshotter.list(&filters).await.unwrap();
        let found: BTreeSet<&str> = found.iter().map(|info| info.name.as_str()).collect();
        assert_eq!(found, expected.iter().copied().collect(), "{filters:?}");
    }
    assert!(snapshotter.list(&["kind==".into()]).await.is_err());
}

/// A parent cannot go before its children, and a removed key is free.
pub async fn removes_in_order(bench: Bench) {
    let snapshotter = &bench.snapshotter;
    bench.commit_empty("base", "").await.unwrap();
    bench.commit_empty("middle", "base").await.unwrap();
    snapshotter.prepare("top", "middle", Labels::new()).await.unwrap();
    for key in ["base", "middle"] {
        let error = snapshotter.remove(key).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FailedPrecondition);
    }
    snapshotter.remove("top").await.unwrap();
    snapshotter.view("top", "middle", Labels::new()).await.unwrap();
    assert_eq!(snapshotter.remove("middle").await.unwrap_err().kind(), ErrorKind::FailedPrecondition);
    snapshotter.remove("top").await.unwrap();
    snapshotter.remove("middle").await.unwrap();
    snapshotter.remove("base").await.unwrap();
    snapshotter.prepare("top", "", Labels::new()).await.unwrap();
    snapshotter.commit("base", "top", None, Labels::new()).await.unwrap();
    assert_eq!(snapshotter.list(&[]).await.unwrap().len(), 1);
}

/// Of many that want a key at once, one gets it and the others see AlreadyExists.
pub async fn gives_a_contested_key_to_one(bench: Bench) {
    bench.commit_empty("base", "").await.unwrap();
    let attempts: Vec<_> = (0..8)
        .map(|_| {
            let snapshotter = Arc::clone(&bench.snapshotter);
            tokio::spawn(async move { snapshotter.prepare("contested", "base", Labels::new()).await })
        })
        .collect();
    let mut winners = 0;
    for attempt in attempts {
        match attempt.await.unwrap() {
            Ok(_) => winners += 1,
            Err(error) => assert!(error.is_already_exists(), "{error}"),
        }
    }
    assert_eq!(winners, 1);
    bench.snapshotter.remove("contested").await.unwrap();
    bench.snapshotter.remove("base").await.unwrap();
}

/// A clean-up, also one amid other requests, takes nothing that is in use.
pub async fn cleans_up_only_garbage(bench: Bench) {
    let snapshotter = &bench.snapshotter;
    bench.layer("base", "", |root| std::fs::write(root.join("file"), "here").unwrap()).await;
    let mounts = snapshotter.prepare("active", "base", Labels::new()).await.unwrap();
    let cleaner = {
        let snapshotter = Arc::clone(snapshotter);
        tokio::spawn(async move {
            for _ in 0..20 {
                snapshotter.cleanup().await.unwrap();
            }
        })
    };
    for number in 0..20 {
        let key = format!("short-{number}");
        let mounts = snapshotter.prepare(&key, "base", Labels::new()).await.unwrap();
        bench.mounted(&mounts, |root| assert!(root.join("file").exists()));
        snapshotter.remove(&key).await.unwrap();
    }
    cleaner.await.unwrap();
    bench.mounted(&mounts, |root| std::fs::write(root.join("other"), "there").unwrap());
    snapshotter.commit("top", "active", None, Labels::new()).await.unwrap();
    snapshotter.cleanup().await.unwrap();
    let seen = bench.viewed("top", |root| (root.join("file").exists(), root.join("other").exists())).await;
    assert_eq!(seen, (true, true));
}
