//! The daemon is killed and started again while containers run.

// Helpers of a test are tests too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use containerd_test::{Daemon, Registry, World, eventually, skip_without, unique};
use nix::sys::signal::Signal;

const NEEDED: [&str; 6] = ["runc", "ctr", "docker-registry", "skopeo", "umoci", "busybox"];

fn running(world: &World, daemon: &Daemon, id: &str, script: &str) -> Registry {
    let (registry, name) = Registry::with_busybox(world);
    daemon.go_ctr(&["images", "pull", "--plain-http", &name]).ok();
    daemon.go_ctr(&["run", "-d", &name, id, "/bin/sh", "-c", script]).ok();
    registry
}

#[test]
fn a_container_outlives_a_killed_daemon() {
    if skip_without(&NEEDED) {
        return;
    }
    let world = World::new();
    let id = unique("c");
    let mut daemon = Daemon::start(&world);
    let _registry = running(&world, &daemon, &id, "sleep 1000");
    assert_eq!(daemon.end(Signal::SIGKILL), 137);
    daemon.restart();
    eventually("the task is found again", || daemon.go_ctr(&["tasks", "ls"]).ok().contains("RUNNING").then_some(()));
    let out = daemon.go_ctr(&["tasks", "exec", "--exec-id", "e1", &id, "/bin/echo", "still here"]).ok();
    assert_eq!(out, "still here\n");
    daemon.go_ctr(&["tasks", "kill", "--signal", "SIGKILL", &id]).ok();
    eventually("the task stops", || daemon.go_ctr(&["tasks", "ls"]).ok().contains("STOPPED").then_some(()));
    let out = daemon.go_ctr(&["tasks", "delete", &id]);
    assert!(out.stderr.contains("exit code 137"), "{out:?}");
    daemon.go_ctr(&["containers", "delete", &id]).ok();
}

#[test]
fn an_exit_while_the_daemon_is_down_keeps_its_code() {
    if skip_without(&NEEDED) {
        return;
    }
    let world = World::new();
    let id = unique("c");
    let mut daemon = Daemon::start(&world);
    let _registry = running(&world, &daemon, &id, "trap 'exit 42' TERM; while :; do sleep 0.05; done");
    let pid: i32 = eventually("the task has a pid", || {
        let listed = daemon.go_ctr(&["tasks", "ls"]).ok();
        listed.lines().find(|line| line.starts_with(&format!("{id} ")))?.split_whitespace().nth(1)?.parse().ok()
    });
    assert_eq!(daemon.end(Signal::SIGKILL), 137);
    eventually("the container ends", || {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGTERM);
        (!world.processes().contains(&pid)).then_some(())
    });
    daemon.restart();
    eventually("the exit is known", || daemon.go_ctr(&["tasks", "ls"]).ok().contains("STOPPED").then_some(()));
    let out = daemon.go_ctr(&["tasks", "delete", &id]);
    assert!(out.stderr.contains("exit code 42"), "{out:?}");
}

#[test]
fn the_end_of_the_daemon_is_orderly_with_containers_running() {
    if skip_without(&NEEDED) {
        return;
    }
    let world = World::new();
    let id = unique("c");
    let mut daemon = Daemon::start(&world);
    let _registry = running(&world, &daemon, &id, "sleep 1000");
    assert_eq!(daemon.end(Signal::SIGTERM), 0, "{}", daemon.log());
    assert!(world.command_lines().iter().any(|line| line.contains("sleep 1000")));
    daemon.restart();
    eventually("the task is found again", || daemon.go_ctr(&["tasks", "ls"]).ok().contains("RUNNING").then_some(()));
}

#[test]
fn a_second_daemon_on_the_same_root_is_refused() {
    if skip_without(&["ctr"]) {
        return;
    }
    let world = World::new();
    let daemon = Daemon::start(&world);
    let second = containerd_test::Output::of(&mut daemon.command());
    assert_ne!(second.code, 0);
    assert!(second.stderr.contains(&daemon.root().display().to_string()), "{second:?}");
    daemon.go_ctr(&["version"]).ok();
}

#[test]
fn every_service_is_there_as_soon_as_the_socket_is() {
    if skip_without(&["ctr"]) {
        return;
    }
    let world = World::new();
    let mut daemon = Daemon::start(&world);
    let listed = [["tasks", "ls"], ["images", "ls"], ["leases", "ls"], ["plugins", "ls"], ["snapshots", "ls"]];
    // Each is once the first that is asked: Version, those that list, Transfer.
    for first in 0..7 {
        assert_eq!(daemon.end(Signal::SIGTERM), 0);
        let mut child =
            daemon.command().stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
        let answers =
            eventually("the daemon listens", || std::os::unix::net::UnixStream::connect(daemon.address()).ok());
        drop(answers);
        match first {
            5 => drop(daemon.go_ctr(&["version"]).ok()),
            6 => {
                // Nobody listens there: what the service says itself.
                let text = daemon.ctr(&["images", "pull", "--plain-http", "127.0.0.1:1/none:1"]).refused();
                assert!(text.contains("127.0.0.1:1") && !text.to_lowercase().contains("unimplemented"), "{text}");
            }
            _ => drop(daemon.go_ctr(&listed[first]).ok()),
        }
        for service in listed {
            daemon.go_ctr(&service).ok();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        daemon.restart();
    }
}
