use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink},
    path::Path,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use core_snapshots::{Snapshotter, testsuite::entries};
use core_types::Labels;

use core_archive::copy_tree;

use crate::{NativeSnapshotter, registration};

fn make(root: &Path) -> Option<Arc<dyn Snapshotter>> {
    Some(Arc::new(NativeSnapshotter::open(root).unwrap()))
}

core_snapshots::snapshotter_suite!(make);

fn two() -> (tempfile::TempDir, tempfile::TempDir) {
    (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap())
}

#[test]
fn a_copy_is_the_same_tree() {
    let (from, to) = two();
    let root = from.path();
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/file"), "x".repeat(700_000)).unwrap();
    fs::write(root.join("a/empty"), "").unwrap();
    fs::hard_link(root.join("a/file"), root.join("a/b/linked")).unwrap();
    symlink("/etc/passwd", root.join("absolute")).unwrap();
    symlink("a", root.join("directory")).unwrap();
    symlink("dangling", root.join("dangling")).unwrap();
    std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
    fs::set_permissions(root.join("a/file"), PermissionsExt::from_mode(0o4711)).unwrap();
    fs::set_permissions(root.join("a"), PermissionsExt::from_mode(0o500)).unwrap();
    let time = UNIX_EPOCH + Duration::new(1_234_567_890, 987_654_321);
    for path in ["a/file", "a/b", "a", ""] {
        fs::File::open(root.join(path)).unwrap().set_modified(time).unwrap();
    }
    fs::set_permissions(root, PermissionsExt::from_mode(0o1770)).unwrap();
    copy_tree(root, to.path()).unwrap();
    assert_eq!(entries(root), entries(to.path()));
    for path in ["a/file", "a/b", "a", ""] {
        assert_eq!(fs::metadata(to.path().join(path)).unwrap().modified().unwrap(), time, "{path}");
    }
    let inode = |path: &str| fs::metadata(to.path().join(path)).unwrap().ino();
    assert_eq!(inode("a/file"), inode("a/b/linked"));
    assert_ne!(inode("a/file"), fs::metadata(root.join("a/file")).unwrap().ino());
}

#[test]
fn holes_stay_holes() {
    let (from, to) = two();
    let file = fs::File::create(from.path().join("sparse")).unwrap();
    file.set_len(1 << 30).unwrap();
    file.write_all_at(b"middle", 500 << 20).unwrap();
    file.sync_all().unwrap();
    copy_tree(from.path(), to.path()).unwrap();
    let copy = fs::File::open(to.path().join("sparse")).unwrap();
    copy.sync_all().unwrap();
    let metadata = copy.metadata().unwrap();
    assert_eq!(metadata.len(), 1 << 30);
    assert!(metadata.blocks() * 512 < 10 << 20, "{} blocks", metadata.blocks());
    let mut middle = [0; 8];
    copy.read_exact_at(&mut middle, (500 << 20) - 1).unwrap();
    assert_eq!(&middle, b"\0middle\0");
}

#[test]
fn links_are_copied_and_never_followed() {
    let (from, to) = two();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "x").unwrap();
    symlink(outside.path(), from.path().join("way-out")).unwrap();
    copy_tree(from.path(), to.path()).unwrap();
    assert_eq!(fs::read_link(to.path().join("way-out")).unwrap(), outside.path());
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn a_copy_needs_an_empty_target_and_says_where_it_failed() {
    let (from, to) = two();
    fs::create_dir(from.path().join("dir")).unwrap();
    fs::write(from.path().join("dir/file"), "").unwrap();
    fs::create_dir(to.path().join("dir")).unwrap();
    let error = copy_tree(from.path(), to.path()).unwrap_err();
    assert!(error.is_already_exists() && error.message().contains("at dir"), "{error}");
}

#[tokio::test]
async fn snapshots_are_there_after_reopening() {
    let root = tempfile::tempdir().unwrap();
    let snapshotter = NativeSnapshotter::open(root.path()).unwrap();
    let mounts = snapshotter.prepare("active", "", Labels::new()).await.unwrap();
    assert_eq!(mounts[0].options, ["rbind", "rw"]);
    assert_eq!(mounts[0].source, root.path().join("snapshots/1").display().to_string());
    fs::write(root.path().join("snapshots/1/file"), "kept").unwrap();
    snapshotter.commit("base", "active", None, Labels::new()).await.unwrap();
    drop(snapshotter);
    let snapshotter = NativeSnapshotter::open(root.path()).unwrap();
    snapshotter.prepare("next", "base", Labels::new()).await.unwrap();
    assert_eq!(fs::read_to_string(root.path().join("snapshots/2/file")).unwrap(), "kept");
    let mounts = snapshotter.view("look", "base", Labels::new()).await.unwrap();
    assert_eq!(mounts[0].options, ["rbind", "ro"]);
    assert!(mounts[0].source.ends_with("snapshots/1"));
    snapshotter.remove("look").await.unwrap();
    snapshotter.cleanup().await.unwrap();
    assert!(root.path().join("snapshots/1/file").exists());
}

#[test]
fn the_name_is_the_published_one() {
    assert_eq!(registration().uri(), "io.containerd.snapshotter.v1.native");
}
