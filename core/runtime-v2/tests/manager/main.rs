//! The task manager with a scripted shim binary and a transport that is played here.

#![allow(clippy::unwrap_used, clippy::panic)]

mod bed;

use std::{sync::atomic::Ordering, time::Duration};

use bed::{Bed, Reach, eventually};
use core_runtime_v2::{CreateOptions, Status};
use core_types::ErrorKind;

#[tokio::test]
async fn a_task_lives_and_leaves_nothing() {
    let bed = Bed::new();
    let manager = bed.manager();
    let (task, pid) = manager.create(&bed.namespace, "c1", bed.options()).await.unwrap();
    assert_eq!(pid, 42);
    assert!(task.bundle().join("bootstrap.json").exists());
    assert_eq!(
        std::fs::read_to_string(task.bundle().join("shim-binary-path")).unwrap(),
        bed.binary().to_str().unwrap()
    );
    let again = manager.create(&bed.namespace, "c1", bed.options()).await.err().unwrap();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    assert_eq!(task.start("").await.unwrap(), 42);
    assert_eq!(task.state("").await.unwrap().status, Status::Running);
    let running = manager.delete(&bed.namespace, "c1").await.unwrap_err();
    assert_eq!(running.kind(), ErrorKind::FailedPrecondition);
    let waiting = tokio::spawn({
        let task = task.clone();
        async move { task.wait("").await }
    });
    task.kill("", 9, false).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().status, 137);
    assert_eq!(manager.delete(&bed.namespace, "c1").await.unwrap().status, 137);
    assert!(manager.delete(&bed.namespace, "c1").await.unwrap_err().is_not_found());
    assert_eq!(bed.shim.shutdowns.load(Ordering::SeqCst), 1);
    assert!(bed.is_clean());
    assert!(bed.published().is_empty(), "the events of a living shim are the shim's");
}

#[tokio::test]
async fn failures_of_create_leave_nothing() {
    let bed = Bed::new();
    let manager = bed.manager();
    let missing = CreateOptions { runtime: "io.containerd.nosuch.v9".into(), ..bed.options() };
    let error = manager.create(&bed.namespace, "c1", missing).await.err().unwrap();
    assert!(error.is_not_found() && error.message().contains("io.containerd.nosuch.v9"), "{error}");
    let error = manager.create(&bed.namespace, "a/b", bed.options()).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    *bed.shim.create_error.lock().unwrap() = Some((ErrorKind::Unknown, "no such entrypoint".into()));
    let error = manager.create(&bed.namespace, "c1", bed.options()).await.err().unwrap();
    assert!(error.message().contains("no such entrypoint"), "{error}");
    assert_eq!(bed.shim.shutdowns.load(Ordering::SeqCst), 1);
    bed.script("cat >/dev/null; case $action in start) echo broken >&2; exit 1;; esac");
    let error = manager.create(&bed.namespace, "c1", bed.options()).await.err().unwrap();
    assert!(error.message().contains("broken"), "{error}");
    assert!(bed.is_clean());
    assert!(manager.list(None).is_empty());
    assert!(bed.published().is_empty());
}

#[tokio::test]
async fn a_dead_shim_is_told_once_with_the_recorded_code() {
    let bed = Bed::new();
    let manager = bed.manager();
    let (task, _) = manager.create(&bed.namespace, "c1", bed.options()).await.unwrap();
    std::fs::write(task.bundle().join("exit.json"), r#"{"pid":42,"status":3,"exited_at":1700000000000000000}"#)
        .unwrap();
    let waiting = tokio::spawn({
        let task = task.clone();
        async move { task.wait("").await }
    });
    // Delete comes at the same moment.
    bed.shim.die(Reach::Refused);
    let deleted = manager.delete(&bed.namespace, "c1").await;
    assert_eq!(waiting.await.unwrap().unwrap().status, 3);
    assert!(deleted.is_ok_and(|exit| exit.status == 3), "Delete answers the same");
    eventually(|| manager.list(None).is_empty()).await;
    assert_eq!(bed.published(), ["/tasks/exit", "/tasks/delete"]);
    assert!(bed.is_clean());
}

#[tokio::test]
async fn an_exit_that_was_published_is_not_told_again() {
    let bed = Bed::new();
    let manager = bed.manager();
    manager.create(&bed.namespace, "c1", bed.options()).await.unwrap();
    manager.observe(&bed.exit_event("c1"));
    bed.shim.die(Reach::Refused);
    eventually(|| bed.is_clean() && manager.list(None).is_empty()).await;
    eventually(|| bed.published() == ["/tasks/delete"]).await;
}

#[tokio::test]
async fn tasks_are_found_again_and_a_broken_connection_is_mended() {
    let bed = Bed::new();
    let manager = bed.manager();
    let (task, _) = manager.create(&bed.namespace, "c1", bed.options()).await.unwrap();
    task.start("").await.unwrap();
    bed.shim.die(Reach::Alive);
    eventually(|| bed.shim.connections.load(Ordering::SeqCst) == 2).await;
    assert_eq!(task.state("").await.unwrap().status, Status::Running);
    drop((task, manager));
    let manager = bed.manager();
    assert_eq!(manager.load().await.unwrap(), 1);
    manager.settled().await;
    let task = manager.get(&bed.namespace, "c1").unwrap();
    assert_eq!(task.state("").await.unwrap().status, Status::Running);
    task.kill("", 15, false).await.unwrap();
    assert_eq!(manager.delete(&bed.namespace, "c1").await.unwrap().status, 143);
    assert!(bed.is_clean());
    assert!(bed.published().is_empty());
}

#[tokio::test]
async fn a_wedged_shim_is_unknown_and_comes_back() {
    let bed = Bed::new();
    let manager = bed.manager();
    manager.create(&bed.namespace, "c1", bed.options()).await.unwrap().0.start("").await.unwrap();
    drop(manager);
    bed.shim.reach(Reach::Silent);
    let manager = bed.manager();
    manager.load().await.unwrap();
    manager.settled().await;
    let states = manager.states(&bed.namespace).await;
    assert_eq!((states.len(), states[0].status), (1, Status::Unknown));
    let error = manager.get(&bed.namespace, "c1").unwrap().kill("", 9, false).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    bed.shim.reach(Reach::Alive);
    let until = tokio::time::Instant::now() + Duration::from_secs(30);
    while manager.states(&bed.namespace).await[0].status != Status::Running {
        assert!(tokio::time::Instant::now() < until);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn shims_that_died_meanwhile_are_cleaned_up() {
    let bed = Bed::new();
    let manager = bed.manager();
    for id in ["c1", "c2"] {
        manager.create(&bed.namespace, id, bed.options()).await.unwrap();
    }
    drop(manager);
    bed.shim.reach(Reach::Refused);
    // And what a daemon left that died in the middle of things.
    std::fs::create_dir_all(bed.state().join("ns/.half/x")).unwrap();
    std::fs::create_dir_all(bed.state().join("ns/started/rootfs")).unwrap();
    std::fs::create_dir_all(bed.root().join("ns/orphan")).unwrap();
    let manager = bed.manager();
    assert_eq!(manager.load().await.unwrap(), 3);
    eventually(|| manager.list(None).is_empty() && bed.is_clean()).await;
    eventually(|| bed.published().iter().filter(|topic| *topic == "/tasks/exit").count() == 3).await;
}

#[tokio::test]
async fn after_a_reboot_no_socket_is_tried() {
    let bed = Bed::new();
    let manager = bed.manager();
    manager.load().await.unwrap();
    manager.create(&bed.namespace, "c1", bed.options()).await.unwrap();
    drop(manager);
    let before = bed.shim.connections.load(Ordering::SeqCst);
    std::fs::write(bed.state().join(".boot-id"), "another\n").unwrap();
    let manager = bed.manager();
    manager.load().await.unwrap();
    eventually(|| manager.list(None).is_empty() && bed.is_clean()).await;
    assert_eq!(bed.shim.connections.load(Ordering::SeqCst), before);
}

#[tokio::test]
async fn a_shim_without_its_task_is_ended() {
    let bed = Bed::new();
    let manager = bed.manager();
    manager.create(&bed.namespace, "c1", bed.options()).await.unwrap();
    drop(manager);
    bed.shim.forget("c1");
    let manager = bed.manager();
    manager.load().await.unwrap();
    eventually(|| manager.list(None).is_empty() && bed.is_clean()).await;
    assert_eq!(bed.shim.shutdowns.load(Ordering::SeqCst), 1);
    assert!(bed.published().is_empty());
}

#[tokio::test]
async fn only_the_last_task_of_a_shim_ends_it() {
    let bed = Bed::new();
    let manager = bed.manager();
    for id in ["c1", "c2", "c3"] {
        manager.create(&bed.namespace, id, bed.options()).await.unwrap();
    }
    assert_eq!(bed.shim.connections.load(Ordering::SeqCst), 1, "tasks of one shim share the connection");
    bed.shim.exit_all(0);
    let deleted = futures::future::join_all(["c1", "c2", "c3"].map(|id| manager.delete(&bed.namespace, id))).await;
    assert!(deleted.iter().all(Result::is_ok), "{deleted:?}");
    assert_eq!(bed.shim.shutdowns.load(Ordering::SeqCst), 1);
    assert!(bed.is_clean());
}

#[tokio::test]
async fn a_shim_that_does_not_answer_has_a_deadline() {
    let bed = Bed::new();
    let manager = bed.manager();
    let (task, _) = manager.create(&bed.namespace, "c1", bed.options()).await.unwrap();
    bed.shim.stop();
    assert_eq!(task.kill("", 9, false).await.unwrap_err().kind(), ErrorKind::DeadlineExceeded);
    assert_eq!(manager.states(&bed.namespace).await[0].status, Status::Unknown);
}
