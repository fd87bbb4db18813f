//! What every store must do, as tests that any store can run: `content_suite!(make)` in a test module, where
//! `make` is an async function that returns an empty store and whatever must live as long as it.
//!
//! Labels are not part of it: the local store has none.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test library fails by panic")]

use std::{future::Future, sync::Arc};

use bytes::Bytes;
use core_types::{Algorithm, Descriptor, Digest, ErrorKind, Labels};

use crate::{Store, Writer, WriterOptions, copy, read_blob, write_blob};

/// Makes a test of each case of the suite.
#[macro_export]
macro_rules! content_suite {
    ($make:path) => {
        $crate::content_suite!(@ $make:
            writes_and_reads, keeps_the_empty_blob, resumes_after_a_drop, has_one_writer_for_each_reference,
            knows_what_it_has, refuses_a_wrong_size_or_digest, is_closed_by_a_commit, truncates_to_nothing,
            lists_filters_and_deletes, aborts_ingests, takes_other_digests, writes_whole_blobs, copies_streams,
            opens_one_reference_once
        );
    };
    (@ $make:path: $($case:ident),*) => {
        $(
            #[test]
            fn $case() {
                $crate::testsuite::block_on(async {
                    let (store, guard) = $make().await;
                    $crate::testsuite::$case(store).await;
                    drop(guard);
                });
            }
        )*
    };
}

/// Runs a case in a runtime of its own.
pub fn block_on(case: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(case);
}

type Handle = Arc<dyn Store>;

/// Bytes that do not repeat soon.
fn data(length: usize, seed: u64) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}

fn options(reference: &str) -> WriterOptions {
    WriterOptions { reference: reference.into(), ..WriterOptions::default() }
}

async fn open(store: &Handle, reference: &str) -> Box<dyn Writer> {
    store.writer(options(reference)).await.unwrap()
}

async fn put(store: &Handle, reference: &str, data: &Bytes) -> Digest {
    let mut writer = open(store, reference).await;
    writer.write(data.clone()).await.unwrap();
    writer.commit(data.len() as u64, Some(&Digest::of(data)), Labels::new()).await.unwrap()
}

async fn get(store: &Handle, digest: &Digest) -> Bytes {
    read_blob(store.as_ref(), &Descriptor::new("", digest.clone(), 0), u64::MAX).await.unwrap()
}

/// Pieces of all sizes, with the digest and offset right at every step.
pub async fn writes_and_reads(store: Handle) {
    let all = data(5 << 20, 1);
    let mut writer = open(&store, "pieces").await;
    let mut at = 0;
    for size in [1, 10, 4095, 4096, 4097, 70_000, 1 << 20, 3, (1 << 20) + 1, 2 << 20].into_iter().cycle() {
        let end = (at + size).min(all.len());
        writer.write(all.slice(at..end)).await.unwrap();
        at = end;
        assert_eq!(writer.status().offset, at as u64);
        if size == 4097 || size == 3 {
            assert_eq!(writer.digest(), Digest::of(&all[..at]));
        }
        if at == all.len() {
            break;
        }
    }
    assert_eq!(store.status("pieces").await.unwrap().offset, all.len() as u64);
    let digest = writer.commit(all.len() as u64, None, Labels::new()).await.unwrap();
    assert_eq!(digest, Digest::of(&all));

    let reader = store.reader(&digest).await.unwrap();
    assert_eq!(reader.size(), all.len() as u64);
    let mut piece = vec![0; 1000];
    assert_eq!(reader.read_at(&mut piece, 123_456).unwrap(), 1000);
    assert_eq!(piece, all[123_456..124_456]);
    assert_eq!(reader.read_at(&mut piece, all.len() as u64 - 10).unwrap(), 10);
    assert_eq!(reader.read_at(&mut piece, all.len() as u64 + 10).unwrap(), 0);
    assert_eq!(get(&store, &digest).await, all);
    assert_eq!(store.info(&digest).await.unwrap().size, all.len() as u64);
    assert!(store.status("pieces").await.unwrap_err().is_not_found());
}

/// No bytes at all are a blob too.
pub async fn keeps_the_empty_blob(store: Handle) {
    let mut writer = open(&store, "empty").await;
    let digest = writer.commit(0, Some(&Digest::of(b"")), Labels::new()).await.unwrap();
    assert_eq!(get(&store, &digest).await, Bytes::new());
}

/// A dropped writer leaves all it took, and the next one goes on there.
pub async fn resumes_after_a_drop(store: Handle) {
    let all = data(3 << 20, 2);
    let options = WriterOptions { total: all.len() as u64, ..options("resumed") };
    let mut at = 0;
    for end in [10, 5000, 1 << 20, (2 << 20) + 17, all.len()] {
        let mut writer = store.writer(options.clone()).await.unwrap();
        let status = writer.status();
        assert_eq!((status.offset, status.total), (at as u64, all.len() as u64));
        assert_eq!(writer.digest(), Digest::of(&all[..at]));
        writer.write(all.slice(at..end)).await.unwrap();
        at = end;
        drop(writer);
    }
    let mut writer = store.writer(options).await.unwrap();
    let status = store.status("resumed").await.unwrap();
    assert_eq!((status.offset, status.total), (all.len() as u64, all.len() as u64));
    let digest = writer.commit(0, Some(&Digest::of(&all)), Labels::new()).await.unwrap();
    assert_eq!(get(&store, &digest).await, all);
}

/// The second writer of a reference is told to come back; one of another reference is not.
pub async fn has_one_writer_for_each_reference(store: Handle) {
    let mut writer = open(&store, "mine").await;
    let error = store.writer(options("mine")).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("mine"), "{error}");
    drop(open(&store, "other").await);
    writer.write(Bytes::from_static(b"x")).await.unwrap();
    drop(writer);
    drop(open(&store, "mine").await);
    let error = store.writer(options("")).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

/// Many at once get one writer.
pub async fn opens_one_reference_once(store: Handle) {
    let attempts: Vec<_> = (0..8)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.writer(options("race")).await })
        })
        .collect();
    let mut open = Vec::new();
    for attempt in attempts {
        match attempt.await.unwrap() {
            Ok(writer) => open.push(writer),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable),
        }
    }
    assert_eq!(open.len(), 1);
}

/// Content that is there is not written again.
pub async fn knows_what_it_has(store: Handle) {
    let blob = data(1000, 3);
    let digest = put(&store, "first", &blob).await;
    let expecting = WriterOptions { expected: Some(digest.clone()), ..options("second") };
    assert!(store.writer(expecting).await.err().unwrap().is_already_exists());
    let mut writer = open(&store, "third").await;
    writer.write(blob.clone()).await.unwrap();
    assert!(writer.commit(0, None, Labels::new()).await.unwrap_err().is_already_exists());
    assert!(store.status("third").await.unwrap_err().is_not_found());
    assert_eq!(get(&store, &digest).await, blob);
}

/// A commit of something else than expected changes nothing: the ingest can be resumed.
pub async fn refuses_a_wrong_size_or_digest(store: Handle) {
    let blob = data(5000, 4);
    let right = Digest::of(&blob);
    let wrong = Digest::of(b"something else");
    let mut writer = open(&store, "wrong").await;
    writer.write(blob.clone()).await.unwrap();
    for (size, expected) in [(4999, None), (5001, Some(&right)), (5000, Some(&wrong)), (0, Some(&wrong))] {
        let error = writer.commit(size, expected, Labels::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FailedPrecondition, "{error}");
        assert!(store.info(&right).await.unwrap_err().is_not_found());
        assert!(store.info(&wrong).await.unwrap_err().is_not_found());
        drop(writer);
        writer = open(&store, "wrong").await;
        assert_eq!(writer.status().offset, 5000);
    }
    writer.commit(5000, Some(&right), Labels::new()).await.unwrap();
}

/// Nothing can be done with a writer after its commit.
pub async fn is_closed_by_a_commit(store: Handle) {
    let mut writer = open(&store, "closed").await;
    writer.write(Bytes::from_static(b"done")).await.unwrap();
    writer.commit(4, None, Labels::new()).await.unwrap();
    let error = writer.write(Bytes::from_static(b"more")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FailedPrecondition);
    let error = writer.commit(4, None, Labels::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FailedPrecondition);
}

/// Back to the start, whatever was on its way.
pub async fn truncates_to_nothing(store: Handle) {
    let mut writer = open(&store, "truncated").await;
    writer.write(data(3 << 20, 5)).await.unwrap();
    writer.write(data(100, 6)).await.unwrap();
    writer.truncate(0).await.unwrap();
    assert_eq!((writer.status().offset, writer.digest()), (0, Digest::of(b"")));
    let blob = data(2000, 7);
    writer.write(blob.clone()).await.unwrap();
    let digest = writer.commit(2000, Some(&Digest::of(&blob)), Labels::new()).await.unwrap();
    assert_eq!(get(&store, &digest).await, blob);
}

/// In order of digest; what is not there is NotFound.
pub async fn lists_filters_and_deletes(store: Handle) {
    let mut digests = Vec::new();
    for seed in 10..15 {
        digests.push(put(&store, &format!("list-{seed}"), &data(100, seed)).await);
    }
    digests.sort();
    let listed = |infos: Vec<crate::Info>| infos.into_iter().map(|info| info.digest).collect::<Vec<_>>();
    assert_eq!(listed(store.list(&[]).await.unwrap()), digests);
    let one = [format!("digest=={}", digests[2])];
    assert_eq!(listed(store.list(&one).await.unwrap()), [digests[2].clone()]);
    assert_eq!(
        store.list(&["digest==".into()]).await.err().map(|error| error.kind()),
        Some(ErrorKind::InvalidArgument)
    );
    store.delete(&digests[2]).await.unwrap();
    for error in [
        store.delete(&digests[2]).await.unwrap_err(),
        store.info(&digests[2]).await.unwrap_err(),
        store.reader(&digests[2]).await.err().unwrap(),
    ] {
        assert!(error.is_not_found(), "{error}");
        assert!(error.message().contains(digests[2].as_str()), "{error}");
    }
    assert_eq!(store.list(&[]).await.unwrap().len(), 4);
}

/// Ingests are listed while open and afterwards, until they are thrown away.
pub async fn aborts_ingests(store: Handle) {
    let mut writer = open(&store, "kept").await;
    writer.write(data(10, 20)).await.unwrap();
    drop(open(&store, "thrown").await);
    let mut listed: Vec<_> =
        store.list_statuses(&[]).await.unwrap().into_iter().map(|s| (s.reference, s.offset)).collect();
    listed.sort();
    assert_eq!(listed, [("kept".to_owned(), 10), ("thrown".to_owned(), 0)]);
    let filtered = store.list_statuses(&["ref~=^thr".into()]).await.unwrap();
    assert_eq!(filtered.len(), 1);
    store.abort("thrown").await.unwrap();
    assert!(store.abort("thrown").await.unwrap_err().is_not_found());
    assert!(store.status("thrown").await.unwrap_err().is_not_found());
    assert_eq!(open(&store, "thrown").await.status().offset, 0);
}

/// A digest of another algorithm, known at once or only at the commit.
pub async fn takes_other_digests(store: Handle) {
    for (reference, algorithm, early) in [("a", Algorithm::Sha512, true), ("b", Algorithm::Sha384, false)] {
        let blob = data(10_000, 30);
        let mut digester = algorithm.digester();
        digester.update(&blob);
        let digest = digester.finish();
        let opened = WriterOptions { expected: early.then(|| digest.clone()), ..options(reference) };
        let mut writer = store.writer(opened).await.unwrap();
        writer.write(blob.clone()).await.unwrap();
        writer.commit(10_000, Some(&digest), Labels::new()).await.unwrap();
        assert_eq!(get(&store, &digest).await, blob);
    }
}

/// `write_blob` twice is fine, and what it says is checked.
pub async fn writes_whole_blobs(store: Handle) {
    let blob = data(3000, 40);
    let descriptor = Descriptor::new("", Digest::of(&blob), 3000);
    let mut half = open(&store, "whole").await;
    half.write(data(50, 41)).await.unwrap();
    drop(half);
    for _ in 0..2 {
        write_blob(store.as_ref(), "whole", blob.clone(), &descriptor, Labels::new()).await.unwrap();
    }
    assert_eq!(read_blob(store.as_ref(), &descriptor, 3000).await.unwrap(), blob);
    let error = read_blob(store.as_ref(), &descriptor, 2999).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
    let lying = Descriptor::new("", Digest::of(b"lie"), 3000);
    let error = write_blob(store.as_ref(), "lie", blob, &lying, Labels::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FailedPrecondition);
}

/// A stream goes into a writer as it is.
pub async fn copies_streams(store: Handle) {
    let blob = data(3 << 20, 50);
    let mut writer = open(&store, "stream").await;
    assert_eq!(copy(&blob[..], writer.as_mut()).await.unwrap(), blob.len() as u64);
    writer.commit(blob.len() as u64, Some(&Digest::of(&blob)), Labels::new()).await.unwrap();
}
