use std::{fs, path::Path};

use core_types::ErrorKind;

use super::*;
use crate::testing::{Layer, apply_overlay, apply_plain, entry, is_root, names, overlay_view, script, tree};

/// Hostile layers.
mod hostile;
/// What other programs make of the same archives.
mod peers;

/// What the layers look like, one upon the other: extracted onto one directory, and each alone under an overlay.
fn both_views(layers: &[Vec<u8>]) -> Option<(Vec<String>, Vec<String>)> {
    if !is_root() {
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let native = dir.path().join("native");
    fs::create_dir(&native).unwrap();
    let mut uppers = vec![dir.path().join("empty")];
    fs::create_dir(&uppers[0]).unwrap();
    for (index, layer) in layers.iter().enumerate() {
        apply_plain(&native, layer).unwrap();
        let upper = dir.path().join(index.to_string());
        fs::create_dir(&upper).unwrap();
        apply_overlay(&upper, layer).unwrap();
        uppers.push(upper);
    }
    let uppers: Vec<_> = uppers.iter().map(|path| path.as_path()).collect();
    let view = overlay_view(dir.path(), &uppers)?;
    let result = (shown_tree(&native), shown_tree(&view));
    core_mount::unmount_all(&view).unwrap();
    Some(result)
}

/// A tree without the times of directories, which depend on when something was removed from them.
fn shown_tree(root: &Path) -> Vec<String> {
    let without_time = |text: &String| {
        let mut words: Vec<_> = text.split(' ').collect();
        if words[0].starts_with("40") {
            words.remove(2);
        }
        words.join(" ")
    };
    tree(root).iter().map(|(path, text)| format!("{} {}", path.display(), without_time(text))).collect()
}

fn assert_both(layers: &[Vec<u8>], expected: &[&str]) {
    let Some((native, overlay)) = both_views(layers) else { return };
    assert_eq!(native, overlay);
    let names: Vec<_> = native.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(names, expected);
}

#[test]
fn whiteouts_look_the_same_stacked_and_alone() {
    let first = Layer::new().file("gone", "1").dir("d", 0o755).file("d/x", "1").file("d/deep/z", "1").dir("e", 0o755);
    let first = first.file("e/keep", "1").file("e/drop/a/b", "1").done();
    let second = Layer::new().file(".wh.gone", "").dir("d", 0o700).file("d/.wh..wh..opq", "").file("d/y", "2");
    let second = second.file("e/.wh.drop", "").file("e/.wh..wh.plnk", "").file(".wh.never", "").done();
    assert_both(&[first, second], &["d", "d/y", "e", "e/keep"]);
}

#[test]
fn an_opaque_marker_hides_lower_entries_only_wherever_it_stands() {
    let links = |target: &str| ["a", "b", "c"].map(|name| (format!("d/{name}"), format!("{target}-{name}")));
    let mut first = Layer::new().dir("d", 0o755).file("d/sub/old", "1").file("d/other/old", "1");
    for (path, target) in links("one") {
        first = first.symlink(&path, &target);
    }
    let first = first.done();
    for position in 0..=3 {
        let mut second = Layer::new().dir("d", 0o755);
        for (index, (path, target)) in links("two").into_iter().enumerate() {
            if index == position {
                second = second.file("d/.wh..wh..opq", "");
            }
            second = second.symlink(&path, &target);
        }
        second = second.file("d/sub/new", "2");
        if position == 3 {
            second = second.file("d/.wh..wh..opq", "");
        }
        assert_both(&[first.clone(), second.done()], &["d", "d/a", "d/b", "d/c", "d/sub", "d/sub/new"]);
    }
}

#[test]
fn a_whiteout_of_what_the_layer_has_itself_hides_lower_entries_only() {
    let first = Layer::new().file("d/old", "1").file("f", "1").done();
    let entries = |layer: Layer| layer.dir("d", 0o755).file("d/new", "2").file("f", "2");
    let before = entries(Layer::new().file(".wh.d", "").file(".wh.f", "")).done();
    let after = entries(Layer::new()).file(".wh.d", "").file(".wh.f", "").done();
    for second in [before, after] {
        assert_both(&[first.clone(), second], &["d", "d/new", "f"]);
    }
}

#[test]
fn of_one_path_twice_the_last_wins() {
    let lower = Layer::new().file("was-dir/lower", "1").file("link-then-dir/lower", "1").dir("twice", 0o700).done();
    let layer = Layer::new()
        .dir("twice", 0o700)
        .file("twice/kept", "k")
        .dir("twice", 0o751)
        .file("file", "first and longer")
        .file("file", "second")
        .file("file-then-dir", "x")
        .dir("file-then-dir", 0o755)
        .file("file-then-dir/in", "x")
        .file("was-dir/a/b", "x")
        .symlink("was-dir", "twice")
        .symlink("link-then-dir", "twice")
        .dir("link-then-dir", 0o755)
        .file("link-then-dir/own", "x")
        .hard_link("second-name", "file")
        .file("file", "third")
        .done();
    let expected = [
        "file",
        "file-then-dir",
        "file-then-dir/in",
        "link-then-dir",
        "link-then-dir/own",
        "second-name",
        "twice",
        "twice/kept",
        "was-dir",
    ];
    assert_both(&[lower, layer.clone()], &expected);
    let dir = tempfile::tempdir().unwrap();
    apply_plain(dir.path(), &layer).unwrap();
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!((read("file"), read("second-name")), ("third".into(), "second".into()));
    let twice = &tree(dir.path())[Path::new("twice")];
    assert!(twice.starts_with("40751 ") && twice.contains(" 1500000000.123456789 "), "{twice}");
}

#[test]
fn undescribed_directories_are_like_those_of_lower_layers() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (lower, upper) = (dir.path().join("lower"), dir.path().join("upper"));
    fs::create_dir(&lower).unwrap();
    fs::create_dir(&upper).unwrap();
    let tmp = Entry { mode: 0o1777, uid: 7, gid: 8, ..entry("var/tmp", Kind::Directory) };
    apply_plain(&lower, &Layer::new().add(&tmp, b"").done()).unwrap();
    let options = ApplyOptions { whiteouts: Whiteouts::Overlay { user_xattr: true }, parents: vec![lower], sync: true };
    apply(&upper, &Layer::new().file("var/tmp/new", "x").file("other/x", "x").done()[..], &options).unwrap();
    let found = tree(&upper);
    assert!(found[Path::new("var/tmp")].starts_with("41777 7:8 "), "{found:?}");
    assert!(found[Path::new("other")].starts_with("40755 "), "{found:?}");
}

#[test]
fn owners_modes_and_attributes_survive_each_other() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let capability = b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    let xattrs = vec![
        (b"security.capability".to_vec(), capability),
        (b"user.note".to_vec(), b"a\0b".to_vec()),
        (b"trusted.overlay.opaque".to_vec(), b"y".to_vec()),
    ];
    let owned = |path: &str, mode, kind| Entry { mode, uid: 3_000_000, gid: 4_000_000_000, ..entry(path, kind) };
    let group = Entry { mode: 0o2775, gid: 50, ..entry("group", Kind::Directory) };
    let layer = Layer::new()
        .add(&Entry { xattrs, ..owned("suid", 0o6755, Kind::File) }, b"")
        .add(&owned("pipe", 0o666, Kind::Fifo), b"")
        .add(&owned("null", 0o666, Kind::CharDevice(1, 3)), b"")
        .add(&owned("disk", 0o660, Kind::BlockDevice(259, 70_000)), b"")
        .add(&owned("link", 0o777, Kind::Symlink(b"/nowhere".to_vec())), b"")
        .add(&group, b"")
        .file("group/file", "x")
        .dir("group/dir", 0o755)
        .done();
    apply_plain(dir.path(), &layer).unwrap();
    let found = tree(dir.path());
    let line = |name: &str| found[Path::new(name)].as_str();
    assert!(line("suid").starts_with("106755 3000000:4000000000 1500000000.123456789"), "{}", line("suid"));
    assert!(line("suid").contains("user.note") && line("suid").contains("security.capability"), "{}", line("suid"));
    assert!(!line("suid").contains("trusted"));
    assert!(line("pipe").starts_with("10666 3000000:"), "{}", line("pipe"));
    assert!(line("null").contains(&format!("dev {}", rustix::fs::makedev(1, 3))));
    assert!(line("disk").contains(&format!("dev {}", rustix::fs::makedev(259, 70_000))));
    assert!(line("link").ends_with("-> /nowhere") && line("link").contains("123456789"));
    assert!(line("group/file").starts_with("100644 0:0 "), "{}", line("group/file"));
    assert!(line("group/dir").starts_with("40755 0:0 "), "{}", line("group/dir"));
}

#[test]
fn every_compression_is_recognised_and_the_diff_id_is_that_of_the_archive() {
    let layer = Layer::new().file("a", &"text ".repeat(200_000)).done();
    let mut padded = layer.clone();
    padded.resize(layer.len() + 40_000, 0);
    let gzip = |data: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, data).unwrap();
        encoder.finish().unwrap()
    };
    let members = [gzip(&padded[..9000]), gzip(&padded[9000..])].concat();
    for stream in [padded.clone(), members, zstd::encode_all(&padded[..], 1).unwrap()] {
        let dir = tempfile::tempdir().unwrap();
        let applied = apply_plain(dir.path(), &stream).unwrap();
        assert_eq!(applied, Applied { diff_id: Digest::of(&padded), size: padded.len() as u64 });
        assert_eq!(names(dir.path()), ["a"]);
    }
}

#[test]
fn a_full_disk_says_so() {
    if !is_root() || core_sys::private_mount_namespace().is_err() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let small = core_mount::Mount {
        kind: "tmpfs".into(),
        source: "tmpfs".into(),
        target: String::new(),
        options: vec!["size=64k".into()],
    };
    core_mount::mount_all(&[small], dir.path()).unwrap();
    let error = apply_plain(dir.path(), &Layer::new().file("big", &"x".repeat(1 << 20)).done()).unwrap_err();
    core_mount::unmount_all(dir.path()).unwrap();
    let error = core_types::Error::from(error);
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted, "{error}");
    assert!(error.message().contains("\"big\""), "{error}");
}
