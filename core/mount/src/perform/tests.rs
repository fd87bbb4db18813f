use std::fs;

use core_types::ErrorKind;

use super::*;
use crate::{read_mounts, unmount_all, with_readonly_temp_mount, with_temp_mount};

/// Whether this test may mount; its process then has a mount namespace of its own.
fn may_mount() -> bool {
    match core_sys::private_mount_namespace() {
        Ok(()) => true,
        Err(error) => {
            eprintln!("skipped: no mount namespace: {error}");
            false
        }
    }
}

fn bind_mount(source: &Path, options: &[&str]) -> Mount {
    Mount {
        kind: "bind".into(),
        source: source.to_str().unwrap().into(),
        target: String::new(),
        options: options.iter().map(|option| (*option).to_owned()).collect(),
    }
}

fn tmpfs(target: &str) -> Mount {
    Mount { kind: "tmpfs".into(), source: "tmpfs".into(), target: target.into(), options: vec!["size=1m".into()] }
}

fn count_at(path: &Path) -> usize {
    read_mounts().unwrap().iter().filter(|mount| mount.mount_point.starts_with(path)).count()
}

#[test]
fn a_read_only_bind_mount_is_read_only() {
    if !may_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("s"), dir.path().join("t"));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&target).unwrap();
    mount_all(&[bind_mount(&source, &["rbind", "ro", "nosuid"])], &target).unwrap();
    let error = fs::write(target.join("x"), "x").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    fs::write(source.join("x"), "x").unwrap();
    assert!(target.join("x").exists());
    unmount_all(&target).unwrap();
    assert!(!target.join("x").exists());
}

#[test]
fn stacked_nested_and_busy_mounts_are_all_undone() {
    if !may_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t");
    fs::create_dir(&target).unwrap();
    mount_all(&[tmpfs(""), tmpfs("")], &target).unwrap();
    fs::create_dir(target.join("inner")).unwrap();
    mount_all(&[tmpfs("inner")], &target).unwrap();
    let busy = fs::File::create(target.join("inner/file")).unwrap();
    assert_eq!(count_at(&target), 3);
    unmount_all(&target).unwrap();
    assert_eq!(count_at(&target), 0);
    drop(busy);
    unmount_all(&target).unwrap();
    unmount_all(&dir.path().join("missing")).unwrap();
}

#[test]
fn a_root_file_system_is_gone_before_its_last_step() {
    if !may_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t");
    fs::create_dir(&target).unwrap();
    mount_all(&[tmpfs("")], &target).unwrap();
    for layer in ["lower", "upper", "work", "merged"] {
        fs::create_dir(target.join(layer)).unwrap();
    }
    let at = |layer: &str| target.join(layer).display().to_string();
    let options = [("lowerdir", "lower"), ("upperdir", "upper"), ("workdir", "work")];
    let options = options.map(|(key, layer)| format!("{key}={}", at(layer))).to_vec();
    let overlay = Mount { kind: "overlay".into(), source: "overlay".into(), target: String::new(), options };
    let merged = target.join("merged");
    if let Err(error) = mount_all(&[overlay], &merged) {
        eprintln!("skipped: no overlay here: {error}");
        return unmount_all(&target).unwrap();
    }
    fs::write(merged.join("x"), "x").unwrap();
    let last = crate::unmount_rootfs(&merged).unwrap();
    assert_eq!(count_at(&merged), 0);
    assert!(last.is_some() && target.join("upper/x").exists());
    drop(last);
    // Nothing holds it now, so that what is below can be undone; and other file systems need no last step.
    assert!(crate::unmount_rootfs(&target).unwrap().is_none());
    assert_eq!(count_at(&target), 0);
    assert!(crate::unmount_rootfs(&dir.path().join("missing")).unwrap().is_none());
}

#[test]
fn a_target_cannot_leave_the_root() {
    if !may_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
    fs::create_dir_all(root.join("outside")).unwrap();
    fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink("../outside", root.join("link")).unwrap();
    mount_all(&[tmpfs("link")], &root).unwrap();
    assert_eq!(count_at(&outside), 0);
    assert_eq!(count_at(&root.join("outside")), 1);
    crate::unmount_mounts(&[tmpfs("link")], &root).unwrap();
    assert_eq!(count_at(&root), 0);
}

#[test]
fn a_failing_mount_undoes_those_before_it() {
    if !may_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let error = mount_all(&[tmpfs(""), tmpfs("missing")], dir.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains("mount tmpfs"), "{error}");
    assert_eq!(count_at(dir.path()), 0);
}

fn long_overlay(base: &Path, count: usize) -> Mount {
    let lower: Vec<_> = (0..count)
        .map(|index| {
            let path = base.join(format!("snapshots/{index:0>60}/fs"));
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join(format!("f{index}")), "x").unwrap();
            path.to_str().unwrap().to_owned()
        })
        .collect();
    fs::create_dir_all(base.join("u")).unwrap();
    fs::create_dir_all(base.join("w")).unwrap();
    Mount {
        kind: "overlay".into(),
        source: "overlay".into(),
        target: String::new(),
        options: vec![
            format!("workdir={}/w", base.display()),
            format!("upperdir={}/u", base.display()),
            format!("lowerdir={}", lower.join(":")),
        ],
    }
}

#[test]
fn an_overlay_of_a_hundred_and_twenty_layers_mounts() {
    if !may_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // An own file system, in case the temporary directory is an overlay itself.
    mount_all(&[Mount { options: vec![], ..tmpfs("") }], dir.path()).unwrap();
    let target = dir.path().join("t");
    fs::create_dir(&target).unwrap();
    match mount_all(&[long_overlay(dir.path(), 120)], &target) {
        Ok(()) => assert_eq!(fs::read_dir(&target).unwrap().count(), 120),
        // A kernel that takes no layers by descriptor.
        Err(error) => assert_eq!(error.kind(), ErrorKind::FailedPrecondition, "{error}"),
    }
    unmount_all(dir.path()).unwrap();
}

#[test]
fn temporary_mounts_leave_nothing() {
    if !may_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    mount_all(&[Mount { options: vec![], ..tmpfs("") }], dir.path()).unwrap();
    let overlay = long_overlay(dir.path(), 2);
    let mut seen = std::path::PathBuf::new();
    with_temp_mount(std::slice::from_ref(&overlay), |root| {
        seen = root.to_owned();
        fs::write(root.join("new"), "x").unwrap();
        Ok(())
    })
    .unwrap();
    assert!(!seen.exists());
    assert!(dir.path().join("u/new").exists());
    let error = with_readonly_temp_mount(&[overlay], |root| {
        assert!(root.join("new").exists() && root.join("f1").exists());
        seen = root.to_owned();
        Ok(fs::write(root.join("other"), "x")?)
    })
    .unwrap_err();
    assert!(error.message().contains("Read-only"), "{error}");
    assert!(!seen.exists());
    unmount_all(dir.path()).unwrap();
}

#[test]
fn a_plain_directory_is_used_without_mounting() {
    let dir = tempfile::tempdir().unwrap();
    let mount = bind_mount(dir.path(), &["rbind", "rw"]);
    let same = with_temp_mount(&[mount], |root| Ok(root == dir.path())).unwrap();
    assert!(same);
}
