//! Debian's Go `ctr` against the daemon and the shim of this workspace.

// Helpers of a test are tests too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use containerd_test::{Daemon, Registry, World, eventually, layered, skip_without, unique};

const NEEDED: [&str; 6] = ["runc", "ctr", "docker-registry", "skopeo", "umoci", "busybox"];

/// The image `busybox` in a registry and pulled.
fn pulled(world: &World, daemon: &Daemon) -> (Registry, String) {
    let (registry, name) = Registry::with_busybox(world);
    daemon.go_ctr(&["images", "pull", "--plain-http", &name]).ok();
    (registry, name)
}

#[test]
fn pulls_runs_and_removes() {
    if skip_without(&NEEDED) {
        return;
    }
    let world = World::new();
    let id = unique("c");
    let daemon = Daemon::start(&world);
    let (_registry, name) = pulled(&world, &daemon);
    let listed = daemon.go_ctr(&["images", "ls", "-q"]).ok();
    assert_eq!(listed.trim(), name);
    let out = daemon.go_ctr(&["run", "--rm", &name, &id, "/bin/sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!((out.code, out.stdout.as_str(), out.stderr.contains("err\n")), (7, "out\n", true), "{out:?}");
    assert_eq!(daemon.go_ctr(&["containers", "ls", "-q"]).ok().trim(), "");
    assert_eq!(daemon.go_ctr(&["tasks", "ls", "-q"]).ok().trim(), "");
    eventually("the shim is gone", || {
        world.command_lines().iter().all(|line| !line.contains("containerd-shim")).then_some(())
    });
    assert!(world.mounts_below(&daemon.state()).is_empty());
    daemon.go_ctr(&["images", "rm", "--sync", &name]).ok();
    eventually("content is collected", || daemon.go_ctr(&["content", "ls", "-q"]).ok().trim().is_empty().then_some(()));
    eventually("snapshots are collected", || {
        (daemon.go_ctr(&["snapshots", "ls"]).ok().trim().lines().count() == 1).then_some(())
    });
}

#[test]
fn drives_a_running_task() {
    if skip_without(&NEEDED) {
        return;
    }
    let world = World::new();
    let id = unique("c");
    let daemon = Daemon::start(&world);
    let (_registry, name) = pulled(&world, &daemon);
    daemon.go_ctr(&["run", "-d", &name, &id, "/bin/sleep", "1000"]).ok();
    let listed = daemon.go_ctr(&["tasks", "ls"]).ok();
    assert!(listed.lines().any(|line| line.starts_with(&format!("{id} ")) && line.contains("RUNNING")), "{listed}");
    let out = daemon.go_ctr(&["tasks", "exec", "--exec-id", "e1", &id, "/bin/sh", "-c", "echo hello; exit 3"]);
    assert_eq!((out.code, out.stdout.as_str()), (3, "hello\n"), "{out:?}");
    let out = daemon.go_ctr(&["tasks", "exec", "--exec-id", "e2", &id, "/no/such"]);
    // Its wait for the process begins before the start.
    assert!(out.code == 1 && out.stderr.starts_with("ctr: ") && out.stderr.contains("no such file"), "{out:?}");
    // And the id is free again.
    assert_eq!(daemon.go_ctr(&["tasks", "exec", "--exec-id", "e2", &id, "/bin/echo", "again"]).ok(), "again\n");
    daemon.go_ctr(&["tasks", "pause", &id]).ok();
    assert!(daemon.go_ctr(&["tasks", "ls"]).ok().contains("PAUSED"));
    daemon.go_ctr(&["tasks", "resume", &id]).ok();
    let metrics = daemon.go_ctr(&["tasks", "metrics", &id]).ok();
    assert!(metrics.contains("memory"), "{metrics}");
    assert!(daemon.go_ctr(&["tasks", "ps", &id]).ok().lines().count() >= 2);
    daemon.go_ctr(&["tasks", "kill", "--signal", "SIGKILL", &id]).ok();
    eventually("the task stops", || daemon.go_ctr(&["tasks", "ls"]).ok().contains("STOPPED").then_some(()));
    let out = daemon.go_ctr(&["tasks", "delete", &id]);
    assert!(out.code == 0 && out.stderr.contains("exit code 137"), "{out:?}");
    daemon.go_ctr(&["containers", "delete", &id]).ok();
}

#[test]
fn layers_hide_what_they_should() {
    if skip_without(&NEEDED) {
        return;
    }
    let world = World::new();
    let id = unique("c");
    let daemon = Daemon::start(&world);
    let registry = Registry::start(&world);
    let name = registry.push(&layered(&world), "layered:1");
    daemon.go_ctr(&["images", "pull", "--plain-http", &name]).ok();
    for snapshotter in ["overlayfs", "native"] {
        daemon.go_ctr(&["images", "pull", "--plain-http", "--snapshotter", snapshotter, &name]).ok();
        let out = daemon.go_ctr(&[
            "run",
            "--rm",
            "--snapshotter",
            snapshotter,
            &name,
            &id,
            "/bin/sh",
            "-c",
            "cd /data; ls; ls hidden",
        ]);
        assert_eq!(out.ok(), "hidden\nkept\nnew\ninside\n", "{snapshotter}");
    }
}

#[test]
fn exports_imports_and_pushes() {
    if skip_without(&NEEDED) {
        return;
    }
    let world = World::new();
    let id = unique("c");
    let daemon = Daemon::start(&world);
    let (registry, name) = pulled(&world, &daemon);
    let archive = world.dir().join("image.tar");
    let path = archive.display().to_string();
    daemon.go_ctr(&["images", "export", &path, &name]).ok();
    daemon.go_ctr(&["images", "rm", "--sync", &name]).ok();
    daemon.go_ctr(&["images", "import", &path]).ok();
    let out = daemon.go_ctr(&["run", "--rm", &name, &id, "/bin/echo", "imported"]).ok();
    assert_eq!(out, "imported\n");
    let other = registry.name("other/busybox:2");
    daemon.go_ctr(&["images", "tag", &name, &other]).ok();
    daemon.go_ctr(&["images", "push", "--plain-http", &other]).ok();
    daemon.go_ctr(&["images", "rm", "--sync", &name, &other]).ok();
    daemon.go_ctr(&["images", "pull", "--plain-http", &other]).ok();
}
