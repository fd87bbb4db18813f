use std::{fs, io::Read as _, os::unix::fs::symlink};

use super::*;

fn read(root: &Rootfs, path: &str) -> Option<String> {
    let mut text = String::new();
    root.open_file(path).unwrap()?.read_to_string(&mut text).unwrap();
    Some(text)
}

fn overlay(options: &[String]) -> Rootfs {
    let mount =
        Mount { kind: "overlay".into(), source: "overlay".into(), options: options.to_vec(), ..Mount::default() };
    Rootfs::from_mounts(&[mount]).unwrap().unwrap()
}

#[test]
fn upper_layers_win_and_links_cross_layers() {
    let dir = tempfile::tempdir().unwrap();
    let (upper, lower) = (dir.path().join("up:per"), dir.path().join("lower"));
    fs::create_dir_all(upper.join("etc")).unwrap();
    fs::create_dir_all(lower.join("etc")).unwrap();
    fs::create_dir_all(lower.join("real")).unwrap();
    fs::write(lower.join("etc/a"), "lower").unwrap();
    fs::write(lower.join("etc/b"), "lower").unwrap();
    fs::write(upper.join("etc/a"), "upper").unwrap();
    fs::write(lower.join("real/c"), "linked").unwrap();
    symlink("/real/../real/c", upper.join("etc/c")).unwrap();
    symlink("../../../../../etc/c", upper.join("etc/d")).unwrap();
    let root = overlay(&[
        "index=off".into(),
        format!("lowerdir={}:{}", upper.display().to_string().replace(':', "\\:"), lower.display()),
    ]);
    assert_eq!(read(&root, "etc/a").as_deref(), Some("upper"));
    assert_eq!(read(&root, "etc/b").as_deref(), Some("lower"));
    assert_eq!(read(&root, "etc/c").as_deref(), Some("linked"));
    assert_eq!(read(&root, "etc/d").as_deref(), Some("linked"));
    assert_eq!(read(&root, "etc/none"), None);
}

#[test]
fn whiteouts_hide() {
    let dir = tempfile::tempdir().unwrap();
    let (upper, lower) = (dir.path().join("upper"), dir.path().join("lower"));
    fs::create_dir_all(upper.join("etc")).unwrap();
    fs::create_dir_all(lower.join("etc")).unwrap();
    fs::write(lower.join("etc/passwd"), "x").unwrap();
    let node = upper.join("etc/passwd");
    let made = nix::sys::stat::mknod(&node, nix::sys::stat::SFlag::S_IFCHR, nix::sys::stat::Mode::empty(), 0);
    if made.is_err() {
        eprintln!("skipped: cannot make a whiteout here");
        return;
    }
    let root = overlay(&[format!("upperdir={}", upper.display()), format!("lowerdir={}", lower.display())]);
    assert_eq!(read(&root, "etc/passwd"), None);
}

#[test]
fn a_loop_of_links_ends() {
    let dir = tempfile::tempdir().unwrap();
    symlink("b", dir.path().join("a")).unwrap();
    symlink("a", dir.path().join("b")).unwrap();
    assert!(Rootfs::open(dir.path()).unwrap().open_file("a").is_err());
}

#[test]
fn block_devices_must_be_mounted() {
    let mount = Mount { kind: "ext4".into(), source: "/dev/loop0".into(), ..Mount::default() };
    assert!(Rootfs::from_mounts(&[mount]).unwrap().is_none());
}
