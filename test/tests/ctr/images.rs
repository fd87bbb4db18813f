use std::fs;

use containerd_test::eventually;

use super::{Setup, cell};

#[test]
fn names_labels_and_checks() {
    let Some(setup) = Setup::new() else { return };
    let ctr = |args: &[&str]| setup.daemon.ctr(args);
    let name = setup.name.as_str();
    assert_eq!(ctr(&["images", "ls", "-q"]).ok().trim(), name);
    let listed = ctr(&["images", "ls"]).ok();
    let head = listed.lines().next().unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(head, ["REF", "TYPE", "DIGEST", "SIZE", "PLATFORMS", "LABELS"]);
    assert!(cell(&listed, name, "DIGEST").starts_with("sha256:"), "{listed}");
    assert_eq!(cell(&listed, name, "TYPE"), "application/vnd.oci.image.manifest.v1+json");
    let checked = ctr(&["images", "check"]).ok();
    assert_eq!(cell(&checked, name, "STATUS"), "complete");
    assert!(checked.contains("true"), "{checked}");

    let digest = cell(&listed, name, "DIGEST");
    assert_eq!(ctr(&["images", "tag", name, "other.io/x:1"]).ok(), "other.io/x:1\n");
    assert_eq!(cell(&ctr(&["images", "ls"]).ok(), "other.io/x:1", "DIGEST"), digest);
    // As with containerd's transfers, a name is moved without asking.
    ctr(&["images", "tag", name, "other.io/x:1"]).ok();
    ctr(&["images", "tag", "--force", name, "other.io/x:1"]).ok();

    assert_eq!(ctr(&["images", "label", "other.io/x:1", "team=a", "tier=1"]).ok().trim(), "team=a,tier=1");
    assert_eq!(ctr(&["images", "label", "other.io/x:1", "team="]).ok().trim(), "tier=1");
    assert_eq!(ctr(&["images", "ls", "-q", "labels.tier==1"]).ok(), "other.io/x:1\n");
    assert_eq!(ctr(&["images", "label", "-r", "other.io/x:1", "only=this"]).ok().trim(), "only=this");
    let labels = cell(&ctr(&["images", "ls"]).ok(), "other.io/x:1", "DIGEST");
    assert_eq!(labels, digest, "a label leaves the target alone");

    assert_eq!(ctr(&["images", "rm", "other.io/x:1"]).ok(), "other.io/x:1\n");
    let gone = ctr(&["images", "rm", "other.io/x:1"]);
    assert_eq!(gone.code, 0, "{gone:?}");
    assert!(gone.stderr.contains("image not found"), "{gone:?}");
    let usage = ctr(&["images", "usage", name]).ok();
    assert!(usage.starts_with("KEY") && usage.lines().count() == 2, "{usage}");
    assert!(ctr(&["images", "usage", "none.io/x"]).refused().contains("not found"));
}

#[test]
fn removing_the_last_name_frees_everything() {
    let Some(setup) = Setup::new() else { return };
    setup.daemon.ctr(&["images", "rm", "--sync", &setup.name]).ok();
    assert_eq!(setup.daemon.ctr(&["content", "ls", "-q"]).ok(), "");
    eventually("snapshots are collected", || {
        (setup.daemon.ctr(&["snapshots", "ls"]).ok().lines().count() == 1).then_some(())
    });
    assert!(!setup.daemon.ctr(&["images", "check"]).ok().contains(&setup.name));
}

#[test]
fn archives_go_out_and_come_back() {
    let Some(setup) = Setup::new() else { return };
    let ctr = |args: &[&str]| setup.daemon.ctr(args);
    let archive = setup.world.dir().join("image.tar");
    let path = archive.to_str().unwrap();
    ctr(&["images", "export", path, &setup.name]).ok();
    let size = fs::metadata(&archive).unwrap().len();
    assert!(size > 100_000, "{size}");
    ctr(&["images", "rm", "--sync", &setup.name]).ok();
    let out = ctr(&["images", "import", path]).ok();
    let last = out.lines().last().unwrap_or_default();
    assert!(last.starts_with("elapsed: "), "{out}");
    assert_eq!(ctr(&["images", "ls", "-q"]).ok().trim(), setup.name);
    assert_eq!(setup.sh(&[], "echo imported"), "imported\n");

    // Standard output is for the archive alone.
    let out = setup.daemon.ctr_command(&["images", "export", "-", &setup.name]).output().unwrap();
    assert!(out.status.success());
    assert!(out.stdout.len() as u64 > 100_000);
    assert_eq!(&out.stdout[257..262], b"ustar");

    let bad = setup.world.dir().join("bad.tar");
    fs::write(&bad, vec![7; 10_000]).unwrap();
    assert!(ctr(&["images", "import", bad.to_str().unwrap()]).refused().starts_with("ctr: "));
    assert!(ctr(&["images", "import", "/no/such.tar"]).refused().contains("/no/such.tar"));
    assert!(ctr(&["images", "export", path, "none.io/x:1"]).refused().contains("not found"));
}

#[test]
fn pushes_under_another_name() {
    let Some(setup) = Setup::new() else { return };
    let ctr = |args: &[&str]| setup.daemon.ctr(args);
    let other = setup.registry.name("other/busybox:2");
    ctr(&["images", "push", "--plain-http", &other, &setup.name]).ok();
    ctr(&["images", "rm", "--sync", &setup.name]).ok();
    let out = ctr(&["images", "pull", "--plain-http", "--print-chainid", &other]).ok();
    assert!(out.contains("image chain ID: sha256:"), "{out}");
    let missing = ctr(&["images", "pull", "--plain-http", &setup.registry.name("none:1")]).refused();
    assert!(missing.starts_with("ctr: ") && missing.contains("not found"), "{missing}");
    assert_eq!(ctr(&["images", "ls", "-q"]).ok().trim(), other);
}

#[test]
fn mounts_and_unmounts_the_root() {
    let Some(setup) = Setup::new() else { return };
    let ctr = |args: &[&str]| setup.daemon.ctr(args);
    let target = setup.world.dir().join("mnt");
    fs::create_dir(&target).unwrap();
    let path = target.to_str().unwrap();
    let out = ctr(&["images", "mount", &setup.name, path]).ok();
    assert_eq!(out.lines().last(), Some(path));
    assert!(target.join("bin/busybox").exists());
    assert!(fs::write(target.join("x"), "x").is_err(), "it is read-only");
    assert_eq!(ctr(&["leases", "ls", "-q"]).ok().trim(), path);
    assert_eq!(ctr(&["images", "unmount", "--rm", path]).ok().trim(), path);
    assert!(setup.world.mounts_below(&target).is_empty());
    ctr(&["images", "mount", "--rw", &setup.name, path]).ok();
    fs::write(target.join("x"), "x").unwrap();
    ctr(&["images", "unmount", "--rm", path]).ok();
    assert!(setup.world.mounts_below(&target).is_empty());
    setup.nothing_left();
}
