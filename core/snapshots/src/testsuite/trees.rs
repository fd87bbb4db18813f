use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::Path,
};

use core_types::{ErrorKind, Labels};
use rustix::fs::{CWD, FileType, Mode, XattrFlags};

use super::Bench;

fn file(root: &Path, path: &str, content: &str, mode: u32) {
    let path = root.join(path);
    fs::write(&path, content).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn dir(root: &Path, path: &str, mode: u32) {
    let path = root.join(path);
    fs::create_dir(&path).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn remove(root: &Path, path: &str) {
    let path = root.join(path);
    if fs::symlink_metadata(&path).unwrap().is_dir() {
        fs::remove_dir_all(path).unwrap();
    } else {
        fs::remove_file(path).unwrap();
    }
}

fn own(root: &Path, path: &str, id: u32) {
    chown(root.join(path), Some(id), Some(id)).unwrap();
}

/// Upper layers change content and mode of files below.
pub async fn shows_updated_files(bench: Bench) {
    bench
        .compare(&[
            &|root| {
                dir(root, "etc", 0o700);
                file(root, "etc/hosts", "mydomain 10.0.0.1", 0o644);
                file(root, "etc/profile", "PATH=/usr/bin", 0o644);
            },
            &|root| {
                file(root, "etc/hosts", "mydomain 10.0.0.2", 0o644);
                file(root, "etc/profile", "PATH=/usr/bin", 0o666);
                dir(root, "root", 0o700);
                file(root, "root/.bashrc", "PATH=/usr/sbin:/usr/bin", 0o644);
            },
        ])
        .await;
}

/// What an upper layer removed stays away, also when its directory comes back.
pub async fn hides_removed_files(bench: Bench) {
    bench
        .compare(&[
            &|root| {
                file(root, "foo", "foo", 0o777);
                file(root, "bar", "bar", 0o777);
                dir(root, "lib", 0o700);
                dir(root, "lib/deep", 0o700);
                file(root, "lib/deep/hidden", "", 0o644);
            },
            &|root| {
                remove(root, "bar");
                remove(root, "lib");
                dir(root, "lib", 0o700);
                file(root, "lib/not-hidden", "", 0o644);
            },
            &|_| {},
            &|root| {
                file(root, "lib/new", "", 0o644);
                file(root, "bar", "again", 0o644);
            },
        ])
        .await;
}

/// Owners and modes change without content, on directories too.
pub async fn keeps_owners_and_modes(bench: Bench) {
    bench
        .compare(&[
            &|root| {
                dir(root, "opt", 0o700);
                dir(root, "opt/a", 0o1777);
                dir(root, "opt/a/b", 0o2750);
                file(root, "opt/a/b/file", "hello", 0o4755);
                own(root, "opt/a", 1);
                dir(root, "gone", 0o700);
                own(root, "gone", 1);
            },
            &|root| {
                for path in ["opt", "opt/a/b", "opt/a/b/file"] {
                    own(root, path, 1234);
                }
                own(root, "opt/a", 0);
                remove(root, "gone");
            },
            &|root| {
                dir(root, "gone", 0o711);
                own(root, "gone", 7);
                file(root, "opt/a/b/file", "hello", 0o4711);
            },
        ])
        .await;
}

/// A file of a lower layer gets another name by link and unlink.
pub async fn moves_files_of_lower_layers(bench: Bench) {
    bench
        .compare(&[
            &|root| {
                dir(root, "dir1", 0o700);
                file(root, "dir1/f1", "Hello", 0o644);
                dir(root, "dir2", 0o700);
                file(root, "dir2/f2", "...", 0o644);
            },
            &|root| {
                dir(root, "dir3", 0o700);
                file(root, "dir3/f1", "Hello", 0o644);
                remove(root, "dir1");
                fs::hard_link(root.join("dir2/f2"), root.join("dir3/f2")).unwrap();
                remove(root, "dir2/f2");
            },
        ])
        .await;
}

/// Files of a lower layer are renamed and overwritten by renaming.
pub async fn renames_files(bench: Bench) {
    bench
        .compare(&[
            &|root| {
                dir(root, "some", 0o700);
                file(root, "some/f1", "was here first!", 0o644);
                file(root, "some/f2", "nothing interesting", 0o644);
            },
            &|root| {
                file(root, "some/f1-new", "new content", 0o644);
                fs::rename(root.join("some/f1-new"), root.join("some/f1")).unwrap();
                fs::rename(root.join("some/f2"), root.join("some/f3")).unwrap();
            },
        ])
        .await;
}

/// A name is a file in one layer, a directory or a link in the next.
pub async fn replaces_one_kind_by_another(bench: Bench) {
    bench
        .compare(&[
            &|root| {
                file(root, "a", "file", 0o644);
                dir(root, "b", 0o755);
                file(root, "b/inside", "", 0o644);
                symlink("a", root.join("c")).unwrap();
            },
            &|root| {
                for path in ["a", "b", "c"] {
                    remove(root, path);
                }
                dir(root, "a", 0o755);
                file(root, "a/inside", "", 0o644);
                symlink("a", root.join("b")).unwrap();
                file(root, "c", "file", 0o600);
            },
            &|root| {
                for path in ["a", "b", "c"] {
                    remove(root, path);
                }
                symlink("/nowhere", root.join("a")).unwrap();
                file(root, "b", "file", 0o644);
                dir(root, "c", 0o755);
            },
        ])
        .await;
}

/// Names of one file stay names of one file, in the layer and in those above it.
pub async fn keeps_hard_links(bench: Bench) {
    bench
        .layer("base", "", |root| {
            dir(root, "a", 0o755);
            file(root, "a/one", "same", 0o644);
            fs::hard_link(root.join("a/one"), root.join("a/two")).unwrap();
            fs::hard_link(root.join("a/one"), root.join("three")).unwrap();
        })
        .await;
    bench.layer("top", "base", |root| file(root, "other", "", 0o644)).await;
    for name in ["base", "top"] {
        bench
            .viewed(name, |root| {
                let inode = |path: &str| fs::metadata(root.join(path)).unwrap().ino();
                assert_eq!(inode("a/one"), inode("a/two"));
                assert_eq!(inode("a/one"), inode("three"));
                assert_eq!(fs::metadata(root.join("three")).unwrap().nlink(), 3);
            })
            .await;
    }
}

/// FIFOs, device nodes, extended attributes and times.
pub async fn keeps_special_files_and_attributes(bench: Bench) {
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    bench
        .compare(&[
            &|root| {
                let node = |name: &str, kind: FileType, device: u64| {
                    rustix::fs::mknodat(CWD, root.join(name), kind, Mode::from_raw_mode(0o640), device)
                };
                node("fifo", FileType::Fifo, 0).unwrap();
                if let Err(error) = node("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3)) {
                    eprintln!("skipped device nodes: {error}");
                }
                file(root, "file", "x", 0o644);
                dir(root, "dir", 0o755);
                for name in ["file", "dir"] {
                    let path = root.join(name);
                    if let Err(error) = rustix::fs::setxattr(path, "user.note", b"kept", XattrFlags::empty()) {
                        eprintln!("skipped extended attributes: {error}");
                    }
                }
                // CAP_NET_RAW, permitted and effective.
                let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                let path = root.join("file");
                rustix::fs::setxattr(path, "security.capability", &capability, XattrFlags::empty()).unwrap();
                symlink("file", root.join("link")).unwrap();
                fs::File::options().write(true).open(root.join("file")).unwrap().set_modified(time).unwrap();
                fs::File::open(root.join("dir")).unwrap().set_modified(time).unwrap();
            },
            &|root| file(root, "more", "", 0o644),
        ])
        .await;
    bench
        .viewed("layer-1", |root| {
            for name in ["file", "dir"] {
                assert_eq!(fs::metadata(root.join(name)).unwrap().modified().unwrap(), time, "{name}");
            }
        })
        .await;
}

/// Nothing can be written to a view, with or without parents.
pub async fn has_read_only_views(bench: Bench) {
    bench.commit_empty("one", "").await.unwrap();
    bench.commit_empty("two", "one").await.unwrap();
    for parent in ["", "one", "two"] {
        let key = format!("view of {parent}");
        let mounts = bench.snapshotter.view(&key, parent, Labels::new()).await.unwrap();
        let error = bench.mounted(&mounts, |root| fs::write(root.join("file"), "no").unwrap_err());
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem, "{parent}");
    }
}

/// A new root has mode 0755, others have mode and owner of the root they stand on.
pub async fn makes_roots_like_their_parents(bench: Bench) {
    let root_of = |root: &Path| {
        let metadata = fs::metadata(root).unwrap();
        (metadata.mode() & 0o7777, metadata.uid(), metadata.gid())
    };
    let mounts = bench.snapshotter.prepare("base-active", "", Labels::new()).await.unwrap();
    bench.mounted(&mounts, |root| {
        assert_eq!(root_of(root), (0o755, 0, 0));
        chown(root, Some(10), Some(20)).unwrap();
        fs::set_permissions(root, PermissionsExt::from_mode(0o1751)).unwrap();
    });
    bench.snapshotter.commit("base", "base-active", None, Labels::new()).await.unwrap();
    bench.commit_empty("top", "base").await.unwrap();
    for name in ["base", "top"] {
        assert_eq!(bench.viewed(name, root_of).await, (0o1751, 10, 20));
    }
    let mounts = bench.snapshotter.prepare("active", "top", Labels::new()).await.unwrap();
    assert_eq!(bench.mounted(&mounts, root_of), (0o1751, 10, 20));
}

/// A chain as long as images have them, with files added, overwritten and hidden on the way.
pub async fn stacks_twenty_layers(bench: Bench) {
    let layer = |number: usize| {
        move |root: &Path| {
            if number == 0 {
                dir(root, "add", 0o755);
                file(root, "bottom", "way at the bottom", 0o644);
            } else {
                remove(root, "only");
            }
            dir(root, "only", 0o755);
            file(root, &format!("only/{number}"), "only me", 0o644);
            file(root, &format!("add/{number}"), "same", 0o644);
            file(root, "overwritten", &format!("{number} was here"), 0o644);
        }
    };
    let layers: Vec<_> = (0..20).map(layer).collect();
    let layers: Vec<&dyn Fn(&Path)> = layers.iter().map(|layer| layer as &dyn Fn(&Path)).collect();
    bench.compare(&layers).await;
}

/// A layer made without a parent gets one at its commit, or is refused where that cannot be right.
pub async fn rebases_or_refuses(bench: Bench) {
    let snapshotter = &bench.snapshotter;
    bench.layer("base", "", |root| file(root, "below", "below", 0o644)).await;
    let mounts = snapshotter.prepare("active", "", Labels::new()).await.unwrap();
    bench.mounted(&mounts, |root| file(root, "above", "above", 0o644));
    let rebased = snapshotter.commit("top", "active", Some("base"), Labels::new()).await;
    if !snapshotter.rebases() {
        assert_eq!(rebased.unwrap_err().kind(), ErrorKind::InvalidArgument);
        return;
    }
    rebased.unwrap();
    assert_eq!(bench.stat("top").await.parent, "base");
    let seen = bench.viewed("top", |root| (root.join("below").exists(), root.join("above").exists())).await;
    assert_eq!(seen, (true, true));
    assert_eq!(snapshotter.remove("base").await.unwrap_err().kind(), ErrorKind::FailedPrecondition);

    bench.commit_empty("another", "").await.unwrap();
    snapshotter.prepare("fixed", "base", Labels::new()).await.unwrap();
    let error = snapshotter.commit("name", "fixed", Some("another"), Labels::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    snapshotter.prepare("free", "", Labels::new()).await.unwrap();
    let error = snapshotter.commit("name", "free", Some("missing"), Labels::new()).await.unwrap_err();
    assert!(error.is_not_found());
    snapshotter.commit("name", "fixed", Some("base"), Labels::new()).await.unwrap();
    snapshotter.remove("name").await.unwrap();
    snapshotter.remove("top").await.unwrap();
    snapshotter.remove("base").await.unwrap();
}

/// Each inode counts once, and a commit keeps what it measured.
pub async fn measures_usage(bench: Bench) {
    let snapshotter = &bench.snapshotter;
    let mounts = snapshotter.prepare("active", "", Labels::new()).await.unwrap();
    let empty = snapshotter.usage("active").await.unwrap();
    assert_eq!(empty.inodes, 1);
    bench.mounted(&mounts, |root| {
        dir(root, "dir", 0o755);
        file(root, "dir/file", &"x".repeat(1 << 20), 0o644);
        fs::hard_link(root.join("dir/file"), root.join("again")).unwrap();
        fs::File::create(root.join("sparse")).unwrap().set_len(1 << 30).unwrap();
        // Blocks are counted when they are allocated.
        fs::File::open(root.join("dir/file")).unwrap().sync_all().unwrap();
    });
    let full = snapshotter.usage("active").await.unwrap();
    assert_eq!(full.inodes - empty.inodes, 3);
    assert!((1 << 20..2 << 20).contains(&(full.size - empty.size)), "{full:?} over {empty:?}");
    snapshotter.commit("base", "active", None, Labels::new()).await.unwrap();
    assert_eq!(snapshotter.usage("base").await.unwrap(), full);
    snapshotter.view("view", "base", Labels::new()).await.unwrap();
    assert_eq!(snapshotter.usage("view").await.unwrap().inodes, 0);
}

/// A key used again has nothing of what was there before.
pub async fn starts_anew_after_removal(bench: Bench) {
    for _ in 0..3 {
        let mounts = bench.snapshotter.prepare("key", "", Labels::new()).await.unwrap();
        bench.mounted(&mounts, |root| {
            assert_eq!(fs::read_dir(root).unwrap().count(), 0);
            file(root, "left", "over", 0o644);
        });
        bench.snapshotter.remove("key").await.unwrap();
    }
}
