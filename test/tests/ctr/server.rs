use std::process::Command;

use containerd_test::{Daemon, Output, World, skip_without, unique};

fn started() -> Option<(World, Daemon)> {
    if skip_without(&[]) {
        return None;
    }
    let world = World::new();
    let daemon = Daemon::start(&world);
    Some((world, daemon))
}

/// Names of the commands in a help text.
fn commands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let listed = listed.take_while(|line| !line.trim().is_empty());
    let names = listed.filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn help_needs_no_daemon() {
    let ctr = |args: &[&str]| Output::of(Command::new(Daemon::programs().join("ctr")).args(args));
    let top = commands(&ctr(&["--help"]).ok());
    assert!(top.iter().any(|name| name == "run") && top.len() >= 12, "{top:?}");
    for command in top {
        for sub in commands(&ctr(&[&command, "--help"]).ok()) {
            let help = ctr(&[&command, &sub, "--help"]).ok();
            assert!(help.contains("Usage: ctr "), "{command} {sub}: {help}");
        }
    }
    let wrong = ctr(&["--no-such-flag"]);
    assert_eq!(wrong.code, 1);
    assert!(wrong.stderr.contains("--no-such-flag"), "{wrong:?}");
    let down = ctr(&["--address", "/no/such.sock", "version"]);
    assert!(down.code == 1 && down.stderr.contains("/no/such.sock"), "{down:?}");
}

#[test]
fn tells_of_the_server() {
    let Some((_world, daemon)) = started() else { return };
    let version = daemon.ctr(&["version"]).ok();
    for part in ["Client:", "Server:", "UUID: "] {
        assert!(version.contains(part), "{version}");
    }
    let plugins = daemon.ctr(&["plugins", "ls"]).ok();
    assert_eq!(plugins.split_whitespace().take(4).collect::<Vec<_>>(), ["TYPE", "ID", "PLATFORMS", "STATUS"]);
    let overlay = plugins.lines().find(|line| line.contains("io.containerd.snapshotter.v1")).unwrap();
    assert!(overlay.contains("linux/"), "{overlay}");
    let detailed = daemon.ctr(&["plugins", "ls", "-d", "id==overlayfs"]).ok();
    assert!(detailed.contains("overlayfs") && !detailed.contains("native"), "{detailed}");
    let info: serde_json::Value = serde_json::from_str(&daemon.ctr(&["info"]).ok()).unwrap();
    assert!(info["server"]["uuid"].is_string() || info["uuid"].is_string(), "{info}");
}

#[test]
fn namespaces_and_leases() {
    let Some((_world, daemon)) = started() else { return };
    let ctr = |args: &[&str]| daemon.ctr(args);
    let name = unique("ns");
    ctr(&["namespaces", "create", &name, "a=1"]).ok();
    assert!(ctr(&["namespaces", "ls"]).ok().lines().any(|line| line.starts_with(&name) && line.contains("a=1")));
    ctr(&["namespaces", "label", &name, "a=2"]).ok();
    assert!(ctr(&["namespaces", "ls"]).ok().contains("a=2"));
    assert!(ctr(&["namespaces", "create", &name]).refused().contains("already exists"));
    assert!(ctr(&["namespaces", "create", "a/b"]).refused().starts_with("ctr: "));

    let lease = ctr(&["-n", &name, "leases", "create", "--id", "l1", "-x", "1h", "k=v"]).ok();
    assert_eq!(lease.trim(), "l1");
    let listed = ctr(&["-n", &name, "leases", "ls"]).ok();
    assert_eq!(listed.split_whitespace().next(), Some("ID"));
    assert!(listed.contains("l1") && listed.contains("k=v"), "{listed}");
    assert_eq!(ctr(&["leases", "ls", "-q"]).ok(), "", "another namespace has none");
    ctr(&["-n", &name, "leases", "rm", "l1"]).ok();
    assert_eq!(ctr(&["namespaces", "rm", &name]).ok().trim(), name);
    assert!(!ctr(&["namespaces", "ls", "-q"]).ok().contains(&name));
}
