//! From create to delete.

use containerd_api::{any, cgroups, events, runc::v1::ProcessDetails, task::v3 as api, v1::types::Status as State};
use serde_json::json;

use crate::setup::{Shim, Streams, World, until, with_runc, with_runtime};

async fn whole_life(world: World) {
    world.daemon();
    let dir = world.bundle("c", json!(["sh", "-c", "read a; echo out $a; echo err >&2; exit 7"]), json!({}));
    let shim = world.shim("c", &dir).await;
    let mut io = Streams::new("c");
    let pid = shim.create("c", &dir, &io).await.unwrap();
    assert!(pid > 1);
    assert_eq!(shim.create("c", &dir, &io).await.unwrap_err().code, 6);
    assert_eq!(shim.state("").await.unwrap().status, State::Created as i32);
    assert_eq!(shim.start("").await.unwrap(), pid);
    assert_eq!(shim.state("").await.unwrap().status, State::Running as i32);
    assert_eq!(shim.start("").await.unwrap_err().code, 9);
    assert_eq!(shim.delete("").await.unwrap_err().code, 9);
    io.input("word\n");
    assert_eq!(shim.wait("").await.unwrap(), 7);
    assert!(io.output("\n").await.contains("out word"));
    assert!(io.errors("\n").await.contains("err"));
    let state = shim.state("").await.unwrap();
    assert_eq!((state.status, state.exit_status), (State::Stopped as i32, 7));
    assert!(state.exited_at.is_some());
    assert!(dir.join("exit.json").exists());
    assert_eq!(shim.kill("", 15, false).await.unwrap_err().code, 5);
    let deleted = shim.delete("").await.unwrap();
    assert_eq!((deleted.pid, deleted.exit_status), (pid, 7));
    assert!(!dir.join("exit.json").exists());
    let mounts = std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    assert!(!mounts.contains("/run/bundles/c/rootfs"), "{mounts}");
    assert_eq!(shim.state("").await.unwrap_err().code, 5);
    world.topic("/tasks/delete", 1).await;
    assert_eq!(world.topics(), ["/tasks/create", "/tasks/start", "/tasks/exit", "/tasks/delete"]);
    let exit: events::TaskExit = prost::Message::decode(world.seen.lock().unwrap()[2].1.as_slice()).unwrap();
    assert_eq!((exit.id.as_str(), exit.pid, exit.exit_status), ("c", pid, 7));
    shim.shutdown().await;
}

#[test]
fn whole_life_with_runc() {
    with_runc(whole_life);
}

#[test]
fn whole_life_with_crun() {
    with_runtime("crun", whole_life);
}

async fn sleeper(world: &World, extra: serde_json::Value) -> Shim {
    let dir = world.bundle("s", json!(["sleep", "1000"]), extra);
    let shim = world.shim("s", &dir).await;
    shim.create("s", &dir, &Streams::default()).await.unwrap();
    shim.start("").await.unwrap();
    shim
}

async fn end(shim: &Shim) {
    shim.kill("", 9, false).await.unwrap();
    assert_eq!(shim.wait("").await.unwrap(), 137);
    assert_eq!(shim.delete("").await.unwrap().exit_status, 137);
    shim.shutdown().await;
}

#[test]
fn pause_resume_update_and_statistics() {
    with_runc(async |world| {
        world.daemon();
        let shim = sleeper(&world, json!({"resources": {"memory": {"limit": 100_000_000}}})).await;
        let id = || shim.id.clone();
        let context = shim.context();
        shim.task.pause(&context, &api::PauseRequest { id: id() }).await.unwrap();
        assert_eq!(shim.state("").await.unwrap().status, State::Paused as i32);
        assert_eq!(shim.task.pause(&context, &api::PauseRequest { id: id() }).await.unwrap_err().code, 9);
        assert_eq!(shim.exec("e", json!(["true"]), &Streams::default()).await.unwrap_err().code, 9);
        shim.task.resume(&context, &api::ResumeRequest { id: id() }).await.unwrap();
        assert_eq!(shim.state("").await.unwrap().status, State::Running as i32);
        let resources = json!({"pids": {"limit": 77}}).to_string().into_bytes();
        let resources = Some(prost_types::Any { type_url: "x".into(), value: resources });
        let update = api::UpdateTaskRequest { id: id(), resources, ..Default::default() };
        shim.task.update(&context, &update).await.unwrap();
        let stats = shim.task.stats(&context, &api::StatsRequest { id: id() }).await.unwrap().stats.unwrap();
        let (limit, memory) = if any::is(&stats, "io.containerd.cgroups.v1.Metrics") {
            let stats: cgroups::v1::Metrics = any::unpack("io.containerd.cgroups.v1.Metrics", &stats).unwrap();
            (stats.pids.unwrap().limit, stats.memory.unwrap().usage.unwrap().usage)
        } else {
            let stats: cgroups::v2::Metrics = any::unpack("io.containerd.cgroups.v2.Metrics", &stats).unwrap();
            (stats.pids.unwrap().limit, stats.memory.unwrap().usage)
        };
        assert_eq!(limit, 77);
        assert!(memory > 0);
        world.topic("/tasks/resumed", 1).await;
        end(&shim).await;
    });
}

#[test]
fn pids_name_their_execs() {
    with_runc(async |world| {
        let shim = sleeper(&world, json!({})).await;
        shim.exec("e", json!(["sleep", "1000"]), &Streams::default()).await.unwrap();
        let exec_pid = shim.start("e").await.unwrap();
        let pids = shim.task.pids(&shim.context(), &api::PidsRequest { id: shim.id.clone() }).await.unwrap();
        assert_eq!(pids.processes.len(), 2);
        let exec = pids.processes.iter().find(|process| process.pid == exec_pid).unwrap();
        let details: ProcessDetails =
            any::unpack("containerd.runc.v1.ProcessDetails", exec.info.as_ref().unwrap()).unwrap();
        assert_eq!(details.exec_id, "e");
        end(&shim).await;
    });
}

#[test]
fn a_missing_entrypoint_is_an_error_and_no_exit() {
    with_runc(async |world| {
        world.daemon();
        let dir = world.bundle("m", json!(["/no/such/program"]), json!({}));
        let shim = world.shim("m", &dir).await;
        let mut io = Streams::new("m");
        let error = shim.create("m", &dir, &io).await.unwrap_err();
        assert!(error.message.contains("/no/such/program"), "{error}");
        assert_eq!(io.errors_now(), "", "what the runtime says is in the error alone");
        assert!(error.message.starts_with("OCI runtime create failed"), "{error}");
        assert_eq!(shim.state("").await.unwrap_err().code, 5);
        let mounts = std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        assert!(!mounts.contains("/run/bundles/m/rootfs"));
        // The id is free again, and nothing was announced.
        let dir = world.bundle("m", json!(["true"]), json!({}));
        shim.create("m", &dir, &Streams::default()).await.unwrap();
        shim.start("").await.unwrap();
        shim.wait("").await.unwrap();
        shim.delete("").await.unwrap();
        world.topic("/tasks/delete", 1).await;
        assert_eq!(world.topics(), ["/tasks/create", "/tasks/start", "/tasks/exit", "/tasks/delete"]);
        shim.shutdown().await;
    });
}

#[test]
fn a_container_that_was_never_started_can_be_deleted() {
    with_runc(async |world| {
        world.daemon();
        let dir = world.bundle("n", json!(["true"]), json!({}));
        let shim = world.shim("n", &dir).await;
        shim.create("n", &dir, &Streams::default()).await.unwrap();
        assert_eq!(shim.delete("").await.unwrap().exit_status, 137);
        world.topic("/tasks/delete", 1).await;
        assert_eq!(world.topics(), ["/tasks/create", "/tasks/exit", "/tasks/delete"]);
        shim.shutdown().await;
    });
}

#[test]
fn events_outlast_the_daemon() {
    with_runc(async |world| {
        let shim = sleeper(&world, json!({})).await;
        shim.kill("", 15, false).await.unwrap_or(());
        shim.kill("", 9, false).await.unwrap_or(());
        shim.wait("").await.unwrap();
        // The daemon comes only now.
        world.daemon();
        world.topic("/tasks/exit", 1).await;
        world.stop_daemon();
        shim.delete("").await.unwrap();
        world.daemon();
        world.topic("/tasks/delete", 1).await;
        assert_eq!(world.topics(), ["/tasks/create", "/tasks/start", "/tasks/exit", "/tasks/delete"]);
        shim.shutdown().await;
    });
}

#[test]
fn a_kill_for_want_of_memory_is_told_before_the_exit() {
    with_runc(async |world| {
        world.daemon();
        let eat = "x=a; while true; do x=$x$x$x; done";
        let limits = json!({"resources": {"memory": {"limit": 20_000_000, "swap": 20_000_000}}});
        let dir = world.bundle("o", json!(["sh", "-c", eat]), limits);
        let shim = world.shim("o", &dir).await;
        shim.create("o", &dir, &Streams::default()).await.unwrap();
        shim.start("").await.unwrap();
        let status = shim.wait("").await.unwrap();
        world.topic("/tasks/exit", 1).await;
        if status == 137 {
            let topics = world.topics();
            let place = |topic: &str| topics.iter().position(|seen| seen == topic);
            assert!(place("/tasks/oom").is_some_and(|oom| Some(oom) < place("/tasks/exit")), "{topics:?}");
            assert!(std::fs::read_to_string(dir.join("exit.json")).unwrap().contains("\"oom_killed\":true"));
        } else {
            eprintln!("skipped: the kernel enforces no memory limit here (exit {status})");
        }
        shim.delete("").await.unwrap();
        shim.shutdown().await;
    });
}

#[test]
fn the_delete_action_tells_the_true_exit_of_a_dead_shim() {
    with_runc(async |world| {
        let dir = world.bundle("d", json!(["sh", "-c", "exit 5"]), json!({}));
        let shim = world.shim("d", &dir).await;
        shim.create("d", &dir, &Streams::default()).await.unwrap();
        let pid = shim.start("").await.unwrap();
        shim.wait("").await.unwrap();
        let shim_pid = world.shims.borrow()[0];
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(shim_pid), nix::sys::signal::Signal::SIGKILL).unwrap();
        shim.client.closed().await;
        let output = world.action("d", &dir, "delete", &[], &[]);
        let response: api::DeleteResponse = crate::setup::decode(&output);
        assert_eq!((response.pid, response.exit_status), (pid, 5));
        let mounts = std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        assert!(!mounts.contains("/run/bundles/d/rootfs"));
        assert_eq!(std::fs::read_dir("/run/containerd/s").unwrap().count(), 0);
    });
}

#[test]
fn processes_that_outlive_init_are_killed() {
    with_runc(async |world| {
        // No PID namespace: the exec would go on.
        let shim = sleeper(&world, json!({"namespaces": [{"type": "mount"}, {"type": "uts"}]})).await;
        shim.exec("e", json!(["sleep", "1000"]), &Streams::default()).await.unwrap();
        let pid = shim.start("e").await.unwrap();
        shim.kill("", 9, false).await.unwrap();
        assert_eq!(shim.wait("").await.unwrap(), 137);
        assert_eq!(shim.wait("e").await.unwrap(), 137);
        let proc = format!("/proc/{pid}");
        until("end of the exec", || !std::path::Path::new(&proc).exists()).await;
        shim.delete("").await.unwrap();
        shim.shutdown().await;
    });
}
