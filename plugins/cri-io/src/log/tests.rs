use std::os::unix::fs::symlink;

use super::*;

#[test]
fn lines_are_appended_and_the_file_is_not_for_all() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    let log = Log::default();
    log.write(b"nowhere\n");
    log.switch(Some(&path)).unwrap();
    log.write(b"one\n");
    log.switch(Some(&path)).unwrap();
    log.write(b"two\n");
    assert_eq!(std::fs::read(&path).unwrap(), b"one\ntwo\n");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o137, 0);
}

#[test]
fn what_a_killed_daemon_left_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    std::fs::write(&path, "half").unwrap();
    let log = Log::default();
    log.switch(Some(&path)).unwrap();
    log.write(b"whole\n");
    assert_eq!(std::fs::read(&path).unwrap(), b"half\nwhole\n");
}

#[test]
fn only_a_regular_file_is_a_log() {
    let dir = tempfile::tempdir().unwrap();
    let (target, link, fifo) = (dir.path().join("target"), dir.path().join("link"), dir.path().join("fifo"));
    std::fs::write(&target, "").unwrap();
    symlink(&target, &link).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let log = Log::default();
    log.switch(Some(&target)).unwrap();
    for path in [&link, &fifo, &dir.path().join("none/0.log")] {
        assert!(log.switch(Some(path)).is_err(), "{}", path.display());
    }
    log.write(b"still here\n");
    assert_eq!(std::fs::read(&target).unwrap(), b"still here\n");
}

/// A file system that is soon full, in a mount namespace of its own.
fn small_disk(path: &Path) -> bool {
    let mounted = core_sys::private_mount_namespace().is_ok()
        && rustix::mount::mount("tmpfs", path, "tmpfs", rustix::mount::MountFlags::empty(), Some(c"size=64k")).is_ok();
    if !mounted {
        eprintln!("skipped: no mount namespace of its own");
    }
    mounted
}

#[test]
fn a_full_disk_loses_whole_lines_and_recovers() {
    let dir = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if !small_disk(dir.path()) {
                return;
            }
            let (path, ballast) = (dir.path().join("0.log"), dir.path().join("ballast"));
            std::fs::write(&ballast, vec![0; 32 << 10]).unwrap();
            let log = Log::default();
            log.switch(Some(&path)).unwrap();
            let lines = |from: usize| -> Vec<u8> {
                (from..from + 1000).flat_map(|number| format!("line {number:08} end\n").into_bytes()).collect()
            };
            for round in 0..3 {
                log.write(&lines(round * 1000));
            }
            assert!(log.state().failing && log.state().lost > 0);
            assert!(
                !log.state().torn.is_empty(),
                "a write of {} bytes ended at a line",
                path.metadata().unwrap().len()
            );
            std::fs::remove_file(&ballast).unwrap();
            log.write(b"line 99999999 end\n");
            assert!(!log.state().failing);
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.lines().all(|line| line.len() == 17 && line.ends_with(" end")));
            assert!(text.ends_with("line 99999999 end\n"));
            rustix::mount::unmount(dir.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
        });
    });
}

#[test]
fn a_file_left_on_a_full_disk_ends_with_a_whole_line() {
    let dir = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if !small_disk(dir.path()) {
                return;
            }
            let (old, new) = (dir.path().join("0.log"), dir.path().join("1.log"));
            let log = Log::default();
            log.switch(Some(&old)).unwrap();
            log.write(&b"a line of 18 bytes\n".repeat(5000));
            log.switch(Some(&new)).unwrap();
            let text = std::fs::read_to_string(&old).unwrap();
            assert!(text.ends_with("bytes\n") && text.lines().all(|line| line == "a line of 18 bytes"));
            std::fs::remove_file(&old).unwrap();
            log.write(b"next\n");
            assert_eq!(std::fs::read(&new).unwrap(), b"next\n");
            rustix::mount::unmount(dir.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
        });
    });
}
