use std::{fs, os::unix::fs::symlink, path::Path};

use super::*;

fn root(dir: &Path) -> Rootfs {
    fs::create_dir_all(dir.join("etc")).unwrap();
    fs::write(
        dir.join("etc/passwd"),
        "root:x:0:0:root:/root:/bin/sh\n# comment\nalice:x:1000:1001::/home/alice:/bin/sh\nbroken line\n",
    )
    .unwrap();
    fs::write(dir.join("etc/group"), "root:x:0:\nalice:x:1001:alice\nwheel:x:10:root,alice\naudio:x:20:alice\n")
        .unwrap();
    Rootfs::open(dir).unwrap()
}

fn resolve(root: &Rootfs, text: &str) -> ResolvedUser {
    UserSpec::parse(text).unwrap().resolve(root).unwrap()
}

#[test]
fn names_and_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let root = root(dir.path());
    let alice = ResolvedUser { uid: 1000, gid: 1001, groups: vec![1001, 10, 20] };
    assert_eq!(resolve(&root, "alice"), alice);
    assert_eq!(resolve(&root, "1000"), alice);
    assert_eq!(resolve(&root, "alice:audio"), ResolvedUser { uid: 1000, gid: 20, groups: vec![20, 10] });
    assert_eq!(resolve(&root, "4242:7"), ResolvedUser { uid: 4242, gid: 7, groups: vec![7] });
    assert_eq!(resolve(&root, "root"), ResolvedUser { uid: 0, gid: 0, groups: vec![0, 10] });
    assert!(UserSpec::parse("nobody").unwrap().resolve(&root).unwrap_err().is_not_found());
    assert!(UserSpec::parse("root:nogroup").unwrap().resolve(&root).unwrap_err().is_not_found());
}

#[test]
fn a_number_out_of_range_is_never_looked_up_as_a_name() {
    for bad in ["4294967296", "2147483648", "-1", "99999999999999999999", "0:2147483648", "1:-1", "a:b:c", ""] {
        assert!(UserSpec::parse(bad).is_err(), "{bad}");
    }
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("etc")).unwrap();
    fs::write(dir.path().join("etc/passwd"), "4294967296:x:0:0::/:/bin/sh\n").unwrap();
    assert!(UserSpec::parse("4294967296").is_err());
}

#[test]
fn no_account_files_leave_numbers_working() {
    let dir = tempfile::tempdir().unwrap();
    let root = Rootfs::open(dir.path()).unwrap();
    assert_eq!(resolve(&root, "5"), ResolvedUser { uid: 5, gid: 0, groups: vec![0] });
}

#[test]
fn links_stay_in_the_root() {
    let dir = tempfile::tempdir().unwrap();
    let root_dir = dir.path().join("root");
    fs::create_dir_all(root_dir.join("usr/etc")).unwrap();
    fs::create_dir_all(dir.path().join("outside")).unwrap();
    fs::write(dir.path().join("outside/passwd"), "evil:x:0:0::/:/bin/sh\n").unwrap();
    fs::write(root_dir.join("usr/etc/passwd"), "bob:x:5:6::/:/bin/sh\n").unwrap();
    symlink("/usr/etc", root_dir.join("etc")).unwrap();
    let root = Rootfs::open(&root_dir).unwrap();
    assert_eq!(resolve(&root, "bob").uid, 5);
    fs::remove_file(root_dir.join("etc")).unwrap();
    symlink(dir.path().join("outside"), root_dir.join("etc")).unwrap();
    assert!(UserSpec::parse("evil").unwrap().resolve(&root).is_err());
    fs::remove_file(root_dir.join("etc")).unwrap();
    symlink("../../outside", root_dir.join("etc")).unwrap();
    assert!(UserSpec::parse("evil").unwrap().resolve(&root).is_err());
}

#[test]
fn only_plain_files_of_bounded_size_are_read() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("etc")).unwrap();
    let passwd = dir.path().join("etc/passwd");
    let root = Rootfs::open(dir.path()).unwrap();
    nix::unistd::mkfifo(&passwd, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let error = UserSpec::parse("a").unwrap().resolve(&root).unwrap_err();
    assert!(error.message().contains("regular file"), "{error}");
    fs::remove_file(&passwd).unwrap();
    fs::File::create(&passwd).unwrap().set_len(11 << 20).unwrap();
    assert!(UserSpec::parse("a").unwrap().resolve(&root).unwrap_err().message().contains("larger than"));
}

#[test]
fn an_endless_line_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("etc")).unwrap();
    let text = format!("{}\nzoe:x:3:4::/:/bin/sh\n", "x".repeat(3 * MAX_LINE));
    fs::write(dir.path().join("etc/passwd"), text).unwrap();
    let root = Rootfs::open(dir.path()).unwrap();
    assert_eq!(resolve(&root, "zoe").uid, 3);
}
