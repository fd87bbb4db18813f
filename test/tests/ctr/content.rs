use std::fs;

use super::{Setup, cell};

#[test]
fn blobs_are_listed_read_labelled_and_removed() {
    let Some(setup) = Setup::new() else { return };
    let ctr = |args: &[&str]| setup.daemon.ctr(args);
    let digests: Vec<String> = ctr(&["content", "ls", "-q"]).ok().lines().map(str::to_owned).collect();
    assert_eq!(digests.len(), 3, "a manifest, a configuration, a layer: {digests:?}");
    let listed = ctr(&["content", "ls"]).ok();
    assert_eq!(listed.split_whitespace().take(4).collect::<Vec<_>>(), ["DIGEST", "SIZE", "AGE", "LABELS"]);
    let manifest = cell(&ctr(&["images", "ls"]).ok(), &setup.name, "DIGEST");
    let text = ctr(&["content", "get", &manifest]).ok();
    let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
    let layer = parsed["layers"][0]["digest"].as_str().unwrap();
    assert!(digests.iter().any(|digest| digest == layer));
    let on_disk = setup.daemon.root().join("io.containerd.content.v1.content/blobs/sha256").join(&manifest[7..]);
    assert_eq!(fs::read_to_string(on_disk).unwrap(), text);

    let labels = ctr(&["content", "label", layer, "note=mine"]).ok();
    assert!(labels.contains("note=mine"), "{labels}");
    assert!(ctr(&["content", "ls", "-q", "labels.note==mine"]).ok().contains(layer));
    assert!(!ctr(&["content", "label", layer, "note="]).ok().contains("note"));

    let none = format!("sha256:{}", "0".repeat(64));
    assert!(ctr(&["content", "get", &none]).refused().contains("not found"));
    assert!(ctr(&["content", "get", "nonsense"]).refused().starts_with("ctr: "));
    ctr(&["content", "rm", layer]).ok();
    assert!(!ctr(&["content", "ls", "-q"]).ok().contains(layer));
    assert!(ctr(&["images", "check"]).ok().contains("incomplete"));
}

#[test]
fn content_is_fetched_and_ingested_without_unpacking() {
    use std::{io::Write as _, process::Stdio};
    let Some(setup) = Setup::new() else { return };
    let ctr = |args: &[&str]| setup.daemon.ctr(args);
    ctr(&["images", "rm", "--sync", &setup.name]).ok();
    ctr(&["content", "fetch", "--plain-http", &setup.name]).ok();
    assert_eq!(ctr(&["content", "ls", "-q"]).ok().lines().count(), 3);
    assert_eq!(ctr(&["snapshots", "ls"]).ok().lines().count(), 1);
    let active = ctr(&["content", "active"]).ok();
    assert_eq!(active.lines().count(), 1, "{active}");

    let digest = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let args = ["content", "ingest", "--expected-digest", digest, "--expected-size", "5", "ref"];
    let ingest = |bytes: &[u8]| {
        let mut command = setup.daemon.ctr_command(&args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(bytes).unwrap();
        child.wait_with_output().unwrap()
    };
    let wrong = ingest(b"hellO");
    assert_eq!(wrong.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&wrong.stderr).starts_with("ctr: "), "{wrong:?}");
    let good = ingest(b"hello");
    assert!(good.status.success(), "{good:?}");
    assert_eq!(ctr(&["content", "get", digest]).ok(), "hello");
}

#[test]
fn snapshots_are_made_by_hand() {
    let Some(setup) = Setup::new() else { return };
    let ctr = |args: &[&str]| setup.daemon.ctr(args);
    let listed = ctr(&["snapshots", "ls"]).ok();
    let top = listed.lines().nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    // A root has no parent, so that its row has a cell less.
    assert!(listed.lines().nth(1).unwrap().trim_end().ends_with("Committed"), "{listed}");
    let mounts = ctr(&["snapshots", "prepare", "-t", "/mnt", "work", &top]).ok();
    assert!(mounts.starts_with("mount -t overlay overlay /mnt -o "), "{mounts}");
    assert_eq!(ctr(&["snapshots", "mounts", "/mnt", "work"]).ok(), mounts);
    let info: serde_json::Value = serde_json::from_str(&ctr(&["snapshots", "info", "work"]).ok()).unwrap();
    assert_eq!((info["Kind"].as_str(), info["Parent"].as_str()), (Some("Active"), Some(top.as_str())));
    let again = ctr(&["snapshots", "prepare", "work", &top]).refused();
    assert!(again.contains("already exists"), "{again}");
    assert!(ctr(&["snapshots", "rm", &top]).refused().starts_with("ctr: "), "a parent stays");
    ctr(&["snapshots", "commit", "done", "work"]).ok();
    let tree = ctr(&["snapshots", "tree"]).ok();
    assert!(tree.contains("done"), "{tree}");
    let usage = ctr(&["snapshots", "usage", "done"]).ok();
    assert_eq!(usage.split_whitespace().next(), Some("KEY"), "{usage}");
    ctr(&["snapshots", "rm", "done"]).ok();
    assert!(ctr(&["snapshots", "info", "done"]).refused().contains("not found"));
}
