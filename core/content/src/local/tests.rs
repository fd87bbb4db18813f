use std::{fs, os::unix::fs::PermissionsExt, sync::Arc};

use bytes::Bytes;
use core_types::{Digest, ErrorKind, Labels};

use crate::{LocalStore, Store, WriterOptions};

mod suite {
    use super::*;

    async fn make() -> (Arc<dyn Store>, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        (Arc::new(LocalStore::open(dir.path().join("content")).unwrap()), dir)
    }

    crate::content_suite!(make);
}

fn options(reference: &str) -> WriterOptions {
    WriterOptions { reference: reference.into(), total: 100, expected: None }
}

#[tokio::test]
async fn the_layout_is_containerds() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    let mut writer = store.writer(options("layer-1")).await.unwrap();
    let ingest = dir.path().join("ingest").join(Digest::of(b"layer-1").hex());
    for (name, text) in [("ref", "layer-1"), ("total", "100"), ("data", "")] {
        assert_eq!(fs::read_to_string(ingest.join(name)).unwrap(), text);
    }
    for name in ["startedat", "updatedat"] {
        assert!(fs::read_to_string(ingest.join(name)).unwrap().ends_with('Z'));
    }
    writer.write(Bytes::from(vec![7; 100])).await.unwrap();
    let digest = writer.commit(100, None, Labels::new()).await.unwrap();
    let blob = dir.path().join("blobs/sha256").join(digest.hex());
    assert_eq!(fs::read(&blob).unwrap(), vec![7; 100]);
    assert_eq!(fs::metadata(&blob).unwrap().permissions().mode() & 0o777, 0o444);
    assert!(!ingest.exists());
}

#[tokio::test]
async fn labels_are_not_kept_here() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    let mut writer = store.writer(options("x")).await.unwrap();
    let digest = writer.commit(0, None, Labels::new()).await.unwrap();
    let info = store.info(&digest).await.unwrap();
    assert_eq!(store.update(info, &[]).await.unwrap_err().kind(), ErrorKind::Unimplemented);
}

#[tokio::test]
async fn an_ingest_outlives_the_store_and_a_half_made_one_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    let mut writer = store.writer(options("crashed")).await.unwrap();
    writer.write(Bytes::from(vec![1; 60])).await.unwrap();
    drop(writer);
    // The reference is free only after the flush, so this waits for it.
    drop(store.writer(options("crashed")).await.unwrap());
    drop(store);
    let half = dir.path().join("ingest").join(Digest::of(b"half").hex());
    fs::create_dir(&half).unwrap();
    fs::write(half.join("ref"), "half").unwrap();

    let store = LocalStore::open(dir.path()).unwrap();
    assert!(!half.exists());
    assert_eq!(store.list_statuses(&[]).await.unwrap().len(), 1);
    let mut writer = store.writer(options("crashed")).await.unwrap();
    assert_eq!(writer.status().offset, 60);
    writer.write(Bytes::from(vec![1; 40])).await.unwrap();
    writer.commit(100, Some(&Digest::of(&[1; 100])), Labels::new()).await.unwrap();
}

#[tokio::test]
async fn another_total_starts_anew() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    let mut writer = store.writer(options("changed")).await.unwrap();
    writer.write(Bytes::from(vec![1; 60])).await.unwrap();
    drop(writer);
    let writer = store.writer(WriterOptions { total: 10, ..options("changed") }).await.unwrap();
    assert_eq!((writer.status().offset, writer.status().total), (0, 10));
    assert_eq!(writer.digest(), Digest::of(b""));
}

#[tokio::test]
async fn strange_files_among_the_blobs_are_no_blobs() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    fs::create_dir_all(dir.path().join("blobs/sha256")).unwrap();
    fs::write(dir.path().join("blobs/sha256/lost+found"), "x").unwrap();
    fs::create_dir(dir.path().join("blobs/sha256").join("a".repeat(64))).unwrap();
    assert!(store.list(&[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_full_disk_is_said_and_leaves_a_store_that_works() {
    if let Err(error) = core_sys::private_mount_namespace() {
        eprintln!("skipped: no mount namespace of its own ({error}); run as root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("tmpfs", dir.path(), "tmpfs", flags, Some(c"size=2m")).unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    let mut writer = store.writer(WriterOptions { total: 0, ..options("large") }).await.unwrap();
    let mut result = Ok(());
    for _ in 0..8 {
        result = writer.write(Bytes::from(vec![1; 1 << 20])).await;
        if result.is_err() {
            break;
        }
    }
    assert_eq!(result.unwrap_err().kind(), ErrorKind::ResourceExhausted);
    let error = writer.commit(0, None, Labels::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
    drop(writer);
    assert!(store.list(&[]).await.unwrap().is_empty());
    store.abort("large").await.unwrap();
    let mut writer = store.writer(options("small")).await.unwrap();
    writer.write(Bytes::from(vec![2; 100])).await.unwrap();
    writer.commit(100, None, Labels::new()).await.unwrap();
}

/// Byte `at` of what the crash test writes.
fn pattern(range: std::ops::Range<usize>) -> Bytes {
    range.map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// The child writes, says how far it came, and is killed amid it.
#[tokio::test]
async fn a_killed_writer_leaves_a_beginning_that_is_right() {
    const ROOT: &str = "CONTENT_CRASH_ROOT";
    const TOTAL: usize = 64 << 20;
    let options = || WriterOptions { reference: "killed".into(), total: TOTAL as u64, expected: None };
    if let Some(root) = std::env::var_os(ROOT) {
        let store = LocalStore::open(root).unwrap();
        let mut writer = store.writer(options()).await.unwrap();
        for at in (0..TOTAL).step_by(100_000) {
            writer.write(pattern(at..(at + 100_000).min(TOTAL))).await.unwrap();
            println!("+{at}");
        }
        std::future::pending::<()>().await;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "local::tests::a_killed_writer_leaves_a_beginning_that_is_right", "--nocapture"])
        .env(ROOT, dir.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let output = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut accepted = 0;
    for line in std::io::BufRead::lines(output) {
        if let Some(at) = line.unwrap().rsplit_once('+').and_then(|(_, at)| at.parse::<usize>().ok()) {
            accepted = at;
            if at > 5 << 20 {
                child.kill().unwrap();
            }
        }
    }
    child.wait().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    let mut writer = store.writer(options()).await.unwrap();
    let offset = writer.status().offset as usize;
    assert!(offset + (3 << 20) > accepted, "{offset} of {accepted}");
    assert_eq!(writer.digest(), Digest::of(&pattern(0..offset)));
    let end = offset + 1000;
    writer.write(pattern(offset..end)).await.unwrap();
    let digest = writer.commit(end as u64, None, Labels::new()).await.unwrap();
    assert_eq!(digest, Digest::of(&pattern(0..end)));
}
