use std::fs;

use super::*;
use crate::{
    Archive,
    testing::{Layer, apply_plain, is_root, script, tree},
};

fn diff(lower: Option<&Path>, upper: &Path) -> Vec<u8> {
    write_diff(lower, upper, Vec::new(), &DiffOptions::default()).unwrap()
}

fn entries(layer: &[u8]) -> Vec<String> {
    let mut archive = Archive::new(layer);
    let mut found = Vec::new();
    while let Some(entry) = archive.next_entry().unwrap() {
        found.push(String::from_utf8(entry.path).unwrap());
    }
    found
}

/// Trees in `lower` and `upper`; the upper one begins as a copy.
fn trees(lower: &str, upper: &str) -> Option<tempfile::TempDir> {
    if !is_root() {
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let make = format!("mkdir lower; cd lower; {lower}\ncd ..; cp -a lower upper; cd upper; {upper}");
    script(&["setfattr"], dir.path(), &make).then_some(dir)
}

#[test]
fn applying_a_difference_gives_the_upper_tree() {
    let lower = "mkdir -p same/deep dir was-dir/in gone/tree; echo a > same/deep/f; echo a > dir/changed; echo a > dir/kept
        echo a > was-dir/in/f; echo a > was-file; ln -s a soft; echo a > gone/tree/f; echo a > linked; ln linked linked2
        echo a > single; echo a > mode; mkfifo pipe; echo a > attr; touch -d @1000000000 content; echo x > content2; touch -d @5 content2";
    let upper = "echo b >> dir/changed; rm -r was-dir gone; echo b > was-dir; rm was-file; mkdir was-file; echo b > was-file/f
        ln -sfn b soft; ln single new-name; chmod 4700 mode; chown 7:9 pipe; setfattr -n user.k -v v attr
        mknod dev c 4 5; mkdir -p new/deep; echo n > new/deep/f; ln new/deep/f new/again; echo y > content2; touch -d @5 content2
        long=$(printf 'n%.0s' $(seq 1 120)); echo l > new/$long; chmod 1777 new";
    let Some(dir) = trees(lower, upper) else { return };
    let (lower, upper) = (dir.path().join("lower"), dir.path().join("upper"));
    let layer = diff(Some(&lower), &upper);
    assert!(!entries(&layer).iter().any(|path| path.starts_with("same")), "{:?}", entries(&layer));
    apply_plain(&lower, &layer).unwrap();
    let (mut found, mut wanted) = (tree(&lower), tree(&upper));
    // The time of a directory in which only names changed is nobody's business.
    for trees in [&mut found, &mut wanted] {
        trees.retain(|path, _| path != Path::new("gone"));
    }
    assert_eq!(found, wanted);
    let again = diff(Some(&lower), &upper);
    assert_eq!(entries(&again), Vec::<String>::new());
}

#[test]
fn a_difference_to_nothing_is_the_whole_tree_and_always_the_same() {
    let Some(dir) = trees("mkdir a b; echo x > a/f; echo y > a.b; echo z > b/g; ln a/f b/h", ":") else { return };
    let upper = dir.path().join("upper");
    let layer = diff(None, &upper);
    assert_eq!(entries(&layer), ["a/", "a/f", "a.b", "b/", "b/g", "b/h"]);
    assert_eq!(layer, diff(None, &upper));
    let target = dir.path().join("target");
    fs::create_dir(&target).unwrap();
    apply_plain(&target, &layer).unwrap();
    assert_eq!(tree(&target), tree(&upper));
}

#[test]
fn deletions_come_with_their_directories_and_sockets_not_at_all() {
    let Some(dir) = trees("mkdir -p a/b c; echo x > a/b/f; echo x > a/b/g", "rm a/b/f; rmdir c") else { return };
    let (lower, upper) = (dir.path().join("lower"), dir.path().join("upper"));
    let _socket = std::os::unix::net::UnixListener::bind(upper.join("socket")).unwrap();
    let layer = diff(Some(&lower), &upper);
    assert_eq!(entries(&layer), ["a/", "a/b/", "a/b/.wh.f", ".wh.c"]);
    let mut archive = Archive::new(&layer[..]);
    let times: Vec<_> = std::iter::from_fn(|| archive.next_entry().unwrap())
        .filter(|entry| entry.size == 0)
        .map(|entry| entry.mtime.seconds)
        .collect();
    assert_eq!(times.last(), Some(&0));
}

#[test]
fn no_time_exceeds_the_epoch_given() {
    let Some(dir) = trees("echo x > old; touch -d @100 old; echo y > new", ":") else { return };
    let options = DiffOptions { source_date_epoch: Some(1000) };
    let layer = write_diff(None, &dir.path().join("upper"), Vec::new(), &options).unwrap();
    let mut archive = Archive::new(&layer[..]);
    let times: Vec<_> = std::iter::from_fn(|| archive.next_entry().unwrap()).map(|entry| entry.mtime.seconds).collect();
    assert_eq!(times, [1000, 100]);
}

#[test]
fn whiteouts_written_are_whiteouts_read() {
    let dir = tempfile::tempdir().unwrap();
    let (lower, upper) = (dir.path().join("lower"), dir.path().join("upper"));
    for path in [&lower, &upper] {
        fs::create_dir(path).unwrap();
        apply_plain(path, &Layer::new().dir("d", 0o755).file("d/a", "a").file("d/b", "b").done()).unwrap();
    }
    fs::remove_file(upper.join("d/a")).unwrap();
    let layer = diff(Some(&lower), &upper);
    apply_plain(&lower, &layer).unwrap();
    assert_eq!(tree(&lower), tree(&upper));
}
