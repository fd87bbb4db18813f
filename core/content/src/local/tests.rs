use std::{fs, os::unix::fs::PermissionsExt, sync::Arc};

use bytes::Bytes;
use core_types::{Digest, ErrorKind, Labels};

use crate::{LocalStore, Store, WriterOptions};

#[cfg(feature = "testsuite")]
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
