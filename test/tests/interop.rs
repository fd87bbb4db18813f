//! Each half with the other's half: our daemon with Go's shim, Go's daemon with our shim.

// Helpers of a test are tests too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::path::Path;

use containerd_test::{Daemon, Kind, Registry, World, eventually, skip_without, unique};

const NEEDED: [&str; 7] = ["runc", "ctr", "containerd", "docker-registry", "skopeo", "umoci", "busybox"];

fn life_of_a_container(world: &World, daemon: &Daemon) {
    let (id, second) = (unique("c"), unique("c"));
    let (_registry, name) = Registry::with_busybox(world);
    daemon.go_ctr(&["images", "pull", "--plain-http", &name]).ok();
    let out = daemon.go_ctr(&["run", "--rm", &name, &id, "/bin/sh", "-c", "echo hello; exit 5"]);
    assert_eq!((out.code, out.stdout.as_str()), (5, "hello\n"), "{out:?}");
    daemon.go_ctr(&["run", "-d", &name, &second, "/bin/sleep", "1000"]).ok();
    let out = daemon.go_ctr(&["tasks", "exec", "--exec-id", "e1", &second, "/bin/sh", "-c", "echo inside; exit 3"]);
    assert_eq!((out.code, out.stdout.as_str()), (3, "inside\n"), "{out:?}");
    daemon.go_ctr(&["tasks", "pause", &second]).ok();
    daemon.go_ctr(&["tasks", "resume", &second]).ok();
    assert!(daemon.go_ctr(&["tasks", "metrics", &second]).ok().contains("memory"));
    daemon.go_ctr(&["tasks", "kill", "--signal", "SIGKILL", &second]).ok();
    eventually("the task stops", || daemon.go_ctr(&["tasks", "ls"]).ok().contains("STOPPED").then_some(()));
    let out = daemon.go_ctr(&["tasks", "delete", &second]);
    assert!(out.stderr.contains("exit code 137"), "{out:?}");
    daemon.go_ctr(&["containers", "delete", &second]).ok();
    eventually("the shims are gone", || {
        world.command_lines().iter().all(|line| !line.contains("containerd-shim")).then_some(())
    });
}

#[test]
fn our_daemon_with_the_go_shim() {
    if skip_without(&NEEDED) {
        return;
    }
    let world = World::new();
    let go = world.dir().join("go");
    std::fs::create_dir(&go).unwrap();
    std::os::unix::fs::symlink("/usr/bin/containerd-shim-runc-v2", go.join("containerd-shim-runc-v2")).unwrap();
    let daemon = Daemon::start_with(&world, Kind::Ours, &go);
    life_of_a_container(&world, &daemon);
}

#[test]
fn the_go_daemon_with_our_shim() {
    if skip_without(&NEEDED) {
        return;
    }
    let world = World::new();
    let ours = world.dir().join("ours");
    std::fs::create_dir(&ours).unwrap();
    let shim = Daemon::programs().join("containerd-shim-runc-v2");
    std::os::unix::fs::symlink(shim, ours.join("containerd-shim-runc-v2")).unwrap();
    let daemon = Daemon::start_with(&world, Kind::Go, Path::new(&ours));
    life_of_a_container(&world, &daemon);
}
