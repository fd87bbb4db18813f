use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use core_mount::{Mount, mount_all, unmount_all};
use core_snapshots::{LABEL_GID_MAPPING, LABEL_UID_MAPPING, Snapshotter};
use core_types::{ErrorKind, Labels};

use crate::{Config, OverlaySnapshotter, registration};

fn open(root: &Path, config: &Config) -> Option<OverlaySnapshotter> {
    match OverlaySnapshotter::open(root, config) {
        Ok(snapshotter) => Some(snapshotter),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

fn make(root: &Path) -> Option<Arc<dyn Snapshotter>> {
    open(root, &Config::default()).map(|snapshotter| Arc::new(snapshotter) as _)
}

core_snapshots::snapshotter_suite!(make);

async fn layers(snapshotter: &OverlaySnapshotter, names: &[&str]) {
    let mut parent = "";
    for name in names {
        snapshotter.prepare("key", parent, Labels::new()).await.unwrap();
        snapshotter.commit(name, "key", None, Labels::new()).await.unwrap();
        parent = name;
    }
}

fn mount(kind: &str, source: &str, options: &[String]) -> Vec<Mount> {
    vec![Mount { kind: kind.into(), source: source.into(), target: String::new(), options: options.to_vec() }]
}

#[tokio::test]
async fn mounts_are_in_containerds_words() {
    let root = tempfile::tempdir().unwrap();
    let config = Config { mount_options: vec!["redirect_dir=off".into()], ..Config::default() };
    let Some(snapshotter) = open(root.path(), &config) else { return };
    let path = |id: u64, name: &str| root.path().join(format!("snapshots/{id}/{name}")).display().to_string();
    let none = Labels::new;
    let options = |words: [&str; 2]| words.map(str::to_owned);

    let mounts = snapshotter.prepare("first", "", none()).await.unwrap();
    assert_eq!(mounts, mount("bind", &path(1, "fs"), &options(["rw", "rbind"])));
    let mounts = snapshotter.view("look", "", none()).await.unwrap();
    assert_eq!(mounts, mount("bind", &path(2, "fs"), &options(["ro", "rbind"])));
    snapshotter.commit("one", "first", None, none()).await.unwrap();
    let mounts = snapshotter.view("look at one", "one", none()).await.unwrap();
    assert_eq!(mounts, mount("bind", &path(1, "fs"), &options(["ro", "rbind"])));

    let last = |mut words: Vec<String>| {
        words.push("redirect_dir=off".into());
        if Path::new("/sys/module/overlay/parameters/index").exists() {
            words.push("index=off".into());
        }
        words
    };
    let mounts = snapshotter.prepare("second", "one", none()).await.unwrap();
    let expected = last(vec![
        format!("workdir={}", path(4, "work")),
        format!("upperdir={}", path(4, "fs")),
        format!("lowerdir={}", path(1, "fs")),
    ]);
    assert_eq!(mounts, mount("overlay", "overlay", &expected));
    assert_eq!(snapshotter.mounts("second").await.unwrap(), mounts);
    snapshotter.commit("two", "second", None, none()).await.unwrap();
    let mounts = snapshotter.view("look at two", "two", none()).await.unwrap();
    let expected = last(vec![format!("lowerdir={}:{}", path(4, "fs"), path(1, "fs"))]);
    assert_eq!(mounts, mount("overlay", "overlay", &expected));
}

#[tokio::test]
async fn mapped_snapshots_belong_to_the_containers_root() {
    let root = tempfile::tempdir().unwrap();
    let Some(snapshotter) = open(root.path(), &Config::default()) else { return };
    layers(&snapshotter, &["base"]).await;
    let labels: Labels = [(LABEL_UID_MAPPING, "1:5:1,0:1000:65536"), (LABEL_GID_MAPPING, "0:2000:65536")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    let mounts = snapshotter.prepare("mapped", "base", labels.clone()).await.unwrap();
    let upper = root.path().join("snapshots/2/fs");
    let metadata = fs::metadata(upper).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (1000, 2000));
    if crate::probe::maps_ids() {
        assert_eq!(mounts[0].options[..2], ["uidmap=1:5:1,0:1000:65536", "gidmap=0:2000:65536"]);
        assert!(snapshotter.capabilities().contains(&"remap-ids"));
    }
    for wrong in ["", "0", "0:1", "0:x:1", "1:1000:10", "0:1000:0"] {
        let mut labels = labels.clone();
        labels.insert(LABEL_UID_MAPPING.into(), wrong.into());
        let error = snapshotter.prepare("wrong", "base", labels).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{wrong}");
    }
}

#[tokio::test]
async fn the_upperdir_is_shown_on_demand() {
    let root = tempfile::tempdir().unwrap();
    let config = Config { upperdir_label: true, ..Config::default() };
    let Some(snapshotter) = open(root.path(), &config) else { return };
    layers(&snapshotter, &["base"]).await;
    let label = "containerd.io/snapshot/overlay.upperdir";
    let expected = root.path().join("snapshots/1/fs").display().to_string();
    let info = snapshotter.stat("base").await.unwrap();
    assert_eq!(info.labels.get(label), Some(&expected));
    let info = snapshotter.update(info, &[]).await.unwrap();
    assert_eq!(info.labels.get(label), Some(&expected));
    assert_eq!(snapshotter.list(&[]).await.unwrap(), [info]);
    drop(snapshotter);
    let Some(snapshotter) = open(root.path(), &Config::default()) else { return };
    assert_eq!(snapshotter.stat("base").await.unwrap().labels, Labels::new());
}

fn directories(root: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(root.join("snapshots"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn removed_directories_go_at_once_or_soon() {
    for sync_remove in [true, false] {
        let root = tempfile::tempdir().unwrap();
        let config = Config { sync_remove, ..Config::default() };
        let Some(snapshotter) = open(root.path(), &config) else { return };
        layers(&snapshotter, &["base"]).await;
        for key in ["a", "b", "c"] {
            snapshotter.prepare(key, "base", Labels::new()).await.unwrap();
            snapshotter.remove(key).await.unwrap();
        }
        let deadline = Instant::now() + Duration::from_secs(if sync_remove { 0 } else { 30 });
        while directories(root.path()) != ["1"] {
            assert!(Instant::now() < deadline);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test]
async fn leftovers_of_a_crash_are_cleaned_up() {
    let root = tempfile::tempdir().unwrap();
    let Some(snapshotter) = open(root.path(), &Config::default()) else { return };
    layers(&snapshotter, &["base"]).await;
    drop(snapshotter);
    for name in ["9", "rm-8", "new-7"] {
        fs::create_dir_all(root.path().join("snapshots").join(name).join("fs/deep")).unwrap();
    }
    let Some(snapshotter) = open(root.path(), &Config::default()) else { return };
    let mounts = snapshotter.prepare("key", "base", Labels::new()).await.unwrap();
    assert!(mounts[0].options.iter().any(|option| option.ends_with("/10/fs")), "{mounts:?}");
    snapshotter.cleanup().await.unwrap();
    assert_eq!(directories(root.path()), ["1", "10"]);
}

#[tokio::test]
async fn a_failed_prepare_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let Some(snapshotter) = open(root.path(), &Config::default()) else { return };
    layers(&snapshotter, &["base"]).await;
    let (files, away) = (root.path().join("snapshots/1/fs"), root.path().join("away"));
    fs::rename(&files, &away).unwrap();
    let error = snapshotter.prepare("key", "base", Labels::new()).await.unwrap_err();
    assert!(error.message().contains("stat parent"), "{error}");
    assert_eq!(directories(root.path()), ["1"]);
    fs::rename(&away, &files).unwrap();
    snapshotter.prepare("key", "base", Labels::new()).await.unwrap();
}

#[tokio::test]
async fn volatile_mounts_work() {
    if let Err(error) = core_sys::private_mount_namespace() {
        eprintln!("skipped: {error}");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let target = tempfile::tempdir().unwrap();
    let config = Config { mount_options: vec!["volatile".into()], ..Config::default() };
    let Some(snapshotter) = open(root.path(), &config) else { return };
    layers(&snapshotter, &["base"]).await;
    let mounts = snapshotter.prepare("key", "base", Labels::new()).await.unwrap();
    assert!(mounts[0].options.contains(&"volatile".to_owned()));
    mount_all(&mounts, target.path()).unwrap();
    fs::write(target.path().join("file"), "x").unwrap();
    unmount_all(target.path()).unwrap();
    assert!(root.path().join("snapshots/2/fs/file").exists());
}

#[test]
fn what_the_kernel_refuses_is_said_at_the_start() {
    let root = tempfile::tempdir().unwrap();
    if open(root.path(), &Config::default()).is_none() {
        return;
    }
    let config = Config { mount_options: vec!["no_such_option=1".into()], ..Config::default() };
    let error = OverlaySnapshotter::open(root.path(), &config).err().unwrap();
    assert!(error.message().contains("mount_options"), "{error}");
    assert_eq!(directories(root.path()), Vec::<String>::new());
}

#[test]
fn the_name_is_the_published_one() {
    let registration = registration();
    assert_eq!(registration.uri(), "io.containerd.snapshotter.v1.overlayfs");
    let config = registration.default_config().unwrap().unwrap();
    for key in ["root_path", "upperdir_label", "sync_remove", "slow_chown", "mount_options"] {
        assert!(config.contains_key(key), "{key}");
    }
}
