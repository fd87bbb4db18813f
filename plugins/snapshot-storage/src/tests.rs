use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use core_snapshots::{Kind, Usage};
use core_types::{ErrorKind, Labels};
use tempfile::TempDir;

use super::*;

struct Root(TempDir);

impl Root {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("snapshots")).unwrap();
        Self(root)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn open(&self) -> Storage {
        Storage::open(self.path()).unwrap()
    }

    fn active(&self) -> Vec<PathBuf> {
        fs::read_dir(self.path().join("active")).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

fn create(storage: &Storage, key: &str, parent: &str) -> Snapshot {
    storage.create(Kind::Active, key, parent, Labels::new()).unwrap().finish().unwrap()
}

fn commit(storage: &Storage, name: &str, parent: &str) {
    create(storage, "key", parent);
    storage.commit(name, "key", None, Labels::new(), Usage { inodes: 2, size: 3 }).unwrap();
}

fn names(storage: &Storage) -> Vec<String> {
    storage.list(&[]).unwrap().into_iter().map(|(_, info)| info.name).collect()
}

#[test]
fn everything_is_there_after_reopening() {
    let root = Root::new();
    let storage = root.open();
    commit(&storage, "base", "");
    commit(&storage, "top", "base");
    let active = create(&storage, "active", "top");
    let view = storage.create(Kind::View, "view", "top", Labels::new()).unwrap().finish().unwrap();
    let mut info = storage.get("base").unwrap().info;
    info.labels.insert("k".into(), "v".into());
    storage.update(&info, &[]).unwrap();
    let before: Vec<_> = ["base", "top", "active", "view"].map(|key| storage.get(key).unwrap()).into();
    assert_eq!(before[1].usage, Usage { inodes: 2, size: 3 });
    assert_eq!(before[2], active);
    drop(storage);

    let storage = root.open();
    let after: Vec<_> = ["base", "top", "active", "view"].map(|key| storage.get(key).unwrap()).into();
    assert_eq!(before, after);
    assert_eq!(after[2].parent_ids, [after[1].id, after[0].id]);
    assert_eq!(storage.remove("top").unwrap_err().kind(), ErrorKind::FailedPrecondition);
    for key in ["active", "view", "top", "base"] {
        storage.remove(key).unwrap();
    }
    assert!(create(&storage, "new", "").id > view.id);
    drop(storage);
    assert_eq!(names(&root.open()), ["new"]);
}

#[test]
fn an_unfinished_creation_was_never_there() {
    let root = Root::new();
    let storage = root.open();
    commit(&storage, "base", "");
    let creation = storage.create(Kind::Active, "key", "base", Labels::new()).unwrap();
    let id = creation.id();
    assert!(storage.ids().contains(&id));
    assert!(storage.get("key").unwrap_err().is_not_found());
    assert_eq!(storage.remove("base").unwrap_err().kind(), ErrorKind::FailedPrecondition);
    drop(creation);
    assert!(!storage.ids().contains(&id));
    assert!(create(&storage, "key", "base").id > id);
    storage.remove("key").unwrap();
    storage.remove("base").unwrap();
}

#[test]
fn ids_of_directories_are_not_given_out() {
    let root = Root::new();
    for name in ["7", "rm-41", "lost+found"] {
        fs::create_dir(root.path().join("snapshots").join(name)).unwrap();
    }
    assert_eq!(create(&root.open(), "key", "").id, 42);
}

#[test]
fn torn_and_stray_records_are_forgotten() {
    let root = Root::new();
    let storage = root.open();
    commit(&storage, "base", "");
    let kept = create(&storage, "kept", "base");
    let torn = create(&storage, "torn", "base");
    drop(storage);
    let path = |id: u64| root.path().join("active").join(id.to_string());
    let bytes = fs::read(path(torn.id)).unwrap();
    fs::write(path(torn.id), &bytes[..bytes.len() / 2]).unwrap();
    fs::write(path(90), &bytes).unwrap();
    fs::write(root.path().join("active/91.new"), b"").unwrap();
    let storage = root.open();
    assert_eq!(names(&storage), ["base", "kept"]);
    assert_eq!(root.active(), [path(kept.id)]);
    storage.remove("kept").unwrap();
    storage.remove("base").unwrap();
}

#[test]
fn a_commit_wins_over_an_active_record_left_by_a_crash() {
    let root = Root::new();
    let storage = root.open();
    let active = create(&storage, "key", "");
    let path = root.path().join("active").join(active.id.to_string());
    let record = fs::read(&path).unwrap();
    storage.commit("name", "key", None, Labels::new(), Usage::default()).unwrap();
    assert!(!path.exists());
    drop(storage);
    fs::write(&path, record).unwrap();
    assert_eq!(names(&root.open()), ["name"]);
    assert!(!path.exists());
}

#[test]
fn labels_have_limits_and_keys_too() {
    let root = Root::new();
    let storage = root.open();
    let large: Labels = [("k".to_owned(), "v".repeat(5000))].into();
    let error = storage.create(Kind::Active, "key", "", large.clone()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let error = storage.create(Kind::Active, &"k".repeat(5000), "", Labels::new()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    create(&storage, &"long".repeat(1000), "");
    create(&storage, "key", "");
    let error = storage.commit("name", "key", None, large, Usage::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    storage.get("key").unwrap();
}

#[test]
fn requests_at_once_keep_the_records_whole() {
    let root = Root::new();
    let storage = root.open();
    commit(&storage, "base", "");
    thread::scope(|scope| {
        for worker in 0..4 {
            let storage = &storage;
            scope.spawn(move || {
                for number in 0..10 {
                    let key = format!("{worker}-{number}");
                    create(storage, &key, "base");
                    let _ = storage.remove("base");
                    if number % 2 == 0 {
                        storage.commit(&format!("c{key}"), &key, None, Labels::new(), Usage::default()).unwrap();
                    } else {
                        storage.remove(&key).unwrap();
                    }
                }
            });
        }
    });
    let before = names(&storage);
    assert_eq!(before.len(), 21);
    drop(storage);
    assert_eq!(names(&root.open()), before);
}

#[tokio::test]
async fn a_new_record_is_synced_before_long_and_a_removed_one_is_not_missed() {
    let root = Root::new();
    let storage = root.open();
    create(&storage, "short", "");
    create(&storage, "long", "");
    storage.remove("short").unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while storage.unsynced() > 0 {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(names(&storage), ["long"]);
}

/// What a killed daemon leaves: the child reports each step on its standard output and is killed amid them.
#[test]
fn a_killed_process_loses_nothing_it_answered() {
    const ROOT: &str = "SNAPSHOT_STORAGE_CRASH_ROOT";
    if let Some(root) = std::env::var_os(ROOT) {
        let storage = Storage::open(Path::new(&root)).unwrap();
        let mut parent = String::new();
        for number in 0.. {
            create(&storage, &format!("active-{number}"), &parent);
            println!("+active-{number}");
            let name = format!("committed-{number}");
            create(&storage, "key", &parent);
            storage.commit(&name, "key", None, Labels::new(), Usage::default()).unwrap();
            println!("+{name}");
            parent = name;
        }
    }
    let root = Root::new();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::a_killed_process_loses_nothing_it_answered", "--nocapture"])
        .env(ROOT, root.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut answered = Vec::new();
    let output = std::io::BufReader::new(child.stdout.take().unwrap());
    for line in std::io::BufRead::lines(output) {
        let line = line.unwrap();
        if let Some((_, name)) = line.split_once('+') {
            answered.push(name.to_owned());
        }
        if answered.len() == 20 {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(answered.len() >= 20);
    let storage = root.open();
    for name in &answered {
        storage.get(name).unwrap();
    }
    for (_, info) in storage.list(&[]).unwrap() {
        storage.get(&info.name).unwrap();
    }
}

#[test]
fn usage_counts_inodes_once_and_blocks_as_allocated() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("tree");
    fs::create_dir_all(path.join("a/b")).unwrap();
    let empty = disk_usage(&path).unwrap();
    assert_eq!(empty.inodes, 3);
    fs::write(path.join("a/file"), vec![1; 100_000]).unwrap();
    fs::hard_link(path.join("a/file"), path.join("a/b/file")).unwrap();
    std::os::unix::fs::symlink("/etc", path.join("out")).unwrap();
    fs::File::open(path.join("a/file")).unwrap().sync_all().unwrap();
    let full = disk_usage(&path).unwrap();
    assert_eq!(full.inodes, 5);
    assert!((100_000..200_000).contains(&(full.size - empty.size)), "{full:?}");
    assert!(disk_usage(&root.path().join("missing")).unwrap_err().is_not_found());
}

#[test]
fn removal_stays_in_its_tree() {
    let root = tempfile::tempdir().unwrap();
    let outside = root.path().join("outside");
    let tree = root.path().join("tree");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("precious"), "x").unwrap();
    fs::create_dir_all(tree.join("a/b/c")).unwrap();
    fs::write(tree.join("a/file"), "x").unwrap();
    std::os::unix::fs::symlink(&outside, tree.join("link")).unwrap();
    if core_sys::private_mount_namespace().is_err() {
        eprintln!("skipped the mount point: no mount namespace; run as root");
    } else {
        rustix::mount::mount_bind(&outside, tree.join("a/b/c")).unwrap();
        let error = remove_tree(&tree).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FailedPrecondition, "{error}");
        assert!(outside.join("precious").exists());
        rustix::mount::unmount(tree.join("a/b/c"), rustix::mount::UnmountFlags::empty()).unwrap();
    }
    remove_tree(&tree).unwrap();
    remove_tree(&tree).unwrap();
    assert!(!tree.exists() && outside.join("precious").exists());
}
