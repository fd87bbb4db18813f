use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use core_content::{LocalStore, write_blob};
use core_events::Exchange;
use core_metadata::{Backends, Database};
use core_types::{Digest, ErrorKind, Namespace, Scope, labels, media_types};

use super::*;

/// A store and directories in a place of their own.
struct Bench {
    dir: tempfile::TempDir,
    store: Arc<dyn Store>,
}

impl Bench {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let backends = Backends {
            content: Arc::new(LocalStore::open(dir.path().join("content")).unwrap()),
            snapshotters: BTreeMap::new(),
            events: Arc::new(Exchange::new()),
        };
        let database = Database::open(&dir.path().join("meta"), backends).await.unwrap();
        let store = database.content(&Scope::new(Namespace::new("default").unwrap()));
        Self { dir, store }
    }

    fn make(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    async fn blob(&self, media_type: &str, data: &[u8]) -> Descriptor {
        let descriptor = Descriptor::new(media_type, Digest::of(data), data.len() as u64);
        let reference = format!("blob-{}", descriptor.digest);
        write_blob(&*self.store, &reference, data.to_vec().into(), &descriptor, labels::Labels::new()).await.unwrap();
        descriptor
    }

    async fn apply(&self, layer: &Descriptor, mounts: &[Mount]) -> Result<Applied> {
        WalkingDiffer.apply(Arc::clone(&self.store), layer, mounts, ApplyOptions { sync: true }).await
    }
}

fn bind(path: &Path) -> Vec<Mount> {
    vec![Mount {
        kind: "bind".into(),
        source: path.to_str().unwrap().into(),
        target: String::new(),
        options: vec!["rbind".into(), "rw".into()],
    }]
}

fn overlay(upper: &Path, work: &Path, lower: &Path) -> Vec<Mount> {
    let options = [("workdir", work), ("upperdir", upper), ("lowerdir", lower)];
    vec![Mount {
        kind: "overlay".into(),
        source: "overlay".into(),
        target: String::new(),
        options: options.iter().map(|(key, path)| format!("{key}={}", path.display())).collect(),
    }]
}

/// A plain layer that holds the files of a tree.
fn layer_of(path: &Path) -> Vec<u8> {
    core_archive::write_diff(None, path, Vec::new(), &core_archive::DiffOptions::default()).unwrap()
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn what_the_bytes_are_counts_not_the_media_type() {
    let bench = Bench::new().await;
    let source = bench.make("source");
    fs::write(source.join("file"), "content").unwrap();
    let plain = layer_of(&source);
    let bytes = [plain.clone(), gzip(&plain), zstd::encode_all(&plain[..], 1).unwrap()];
    let types = [media_types::OCI_LAYER, media_types::DOCKER_LAYER_GZIP, media_types::OCI_LAYER_ZSTD];
    for (index, (data, media_type)) in bytes.iter().flat_map(|data| types.map(|kind| (data, kind))).enumerate() {
        let layer = bench.blob(media_type, data).await;
        let target = bench.make(&index.to_string());
        let applied = bench.apply(&layer, &bind(&target)).await.unwrap();
        assert_eq!(applied, Applied { diff_id: Digest::of(&plain), size: plain.len() as u64 });
        assert_eq!(fs::read_to_string(target.join("file")).unwrap(), "content");
    }
}

#[tokio::test]
async fn failures_have_their_kinds() {
    let bench = Bench::new().await;
    let target = bench.make("target");
    let plain = layer_of(&bench.make("empty"));
    let noise: Vec<u8> = (0..200_000_u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let mut corrupt = gzip(&noise);
    corrupt[5000] ^= 0xff;
    let whole = gzip(&noise);
    let kinds = [
        (media_types::OCI_CONFIG, &plain[..], ErrorKind::Unimplemented),
        ("application/vnd.oci.image.layer.v1.tar+encrypted", &plain, ErrorKind::Unimplemented),
        (media_types::OCI_LAYER_GZIP, &whole[..40_000], ErrorKind::DataLoss),
        (media_types::OCI_LAYER_GZIP, &gzip(&[7; 300])[..20], ErrorKind::DataLoss),
        (media_types::OCI_LAYER_GZIP, &corrupt, ErrorKind::InvalidArgument),
        (media_types::OCI_LAYER, &noise, ErrorKind::InvalidArgument),
    ];
    for (media_type, data, kind) in kinds {
        let layer = bench.blob(media_type, data).await;
        let error = bench.apply(&layer, &bind(&target)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    let missing = Descriptor::new(media_types::OCI_LAYER, Digest::of(b"missing"), 0);
    assert!(bench.apply(&missing, &bind(&target)).await.unwrap_err().is_not_found());
    let short = Descriptor { size: 3, ..bench.blob(media_types::OCI_LAYER, &plain).await };
    let error = bench.apply(&short, &bind(&target)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FailedPrecondition);
}

#[tokio::test]
async fn an_error_of_the_stream_is_reported_as_such() {
    struct Reset;
    impl Read for Reset {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::ConnectionReset.into())
        }
    }
    let bench = Bench::new().await;
    let target = bench.make("target");
    let stream = io::Cursor::new(gzip(b"the beginning")[..15].to_vec()).chain(Reset);
    let error =
        WalkingDiffer.apply_stream(Box::new(stream), &bind(&target), ApplyOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn an_overlay_is_extracted_into_without_mounting() {
    if !rustix_is_root() {
        return;
    }
    let bench = Bench::new().await;
    let (upper, work, lower) = (bench.make("upper"), bench.make("work"), bench.make("lower"));
    fs::create_dir(lower.join("shared")).unwrap();
    fs::set_permissions(lower.join("shared"), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
    let source = bench.make("source");
    fs::create_dir(source.join("d")).unwrap();
    fs::write(source.join("d/.wh.gone"), "").unwrap();
    fs::write(source.join("d/.wh..wh..opq"), "").unwrap();
    let layer = bench.blob(media_types::OCI_LAYER, &layer_of(&source)).await;
    bench.apply(&layer, &overlay(&upper, &work, &lower)).await.unwrap();
    let whiteout = fs::symlink_metadata(upper.join("d/gone")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::rdev(&whiteout), 0);
    assert!(std::os::unix::fs::FileTypeExt::is_char_device(&whiteout.file_type()));
    assert_eq!(fs::read_dir(&work).unwrap().count(), 0, "the kernel was there");
}

/// Whether this test may make devices.
fn rustix_is_root() -> bool {
    let root = fs::read_to_string("/proc/self/status").unwrap().lines().any(|line| line.starts_with("Uid:\t0\t0"));
    if !root {
        eprintln!("skipped: needs root");
    }
    root
}

async fn compare(bench: &Bench, lower: &Path, upper: &Path, media_type: &str) -> Result<Descriptor> {
    let options = CompareOptions {
        media_type: media_type.into(),
        labels: [("key".to_owned(), "value".to_owned())].into(),
        ..CompareOptions::default()
    };
    WalkingDiffer.compare(Arc::clone(&bench.store), &bind(lower), &bind(upper), options).await
}

#[tokio::test]
async fn compared_and_applied_again_is_the_same_tree() {
    let bench = Bench::new().await;
    let (lower, upper) = (bench.make("lower"), bench.make("upper"));
    fs::write(lower.join("gone"), "1").unwrap();
    fs::write(upper.join("new"), "2".repeat(700_000)).unwrap();
    for media_type in ["", media_types::OCI_LAYER, media_types::OCI_LAYER_ZSTD] {
        let layer = compare(&bench, &lower, &upper, media_type).await.unwrap();
        let info = bench.store.info(&layer.digest).await.unwrap();
        assert_eq!(info.size, layer.size);
        assert_eq!(info.labels["key"], "value");
        let target = bench.make(&format!("target{}", layer.digest.hex()));
        fs::write(target.join("gone"), "1").unwrap();
        let applied = bench.apply(&layer, &bind(&target)).await.unwrap();
        assert_eq!(info.labels[labels::UNCOMPRESSED], applied.diff_id.to_string());
        assert!(!target.join("gone").exists());
        assert_eq!(fs::read(target.join("new")).unwrap(), fs::read(upper.join("new")).unwrap());
        // Once more: the same blob.
        assert_eq!(compare(&bench, &lower, &upper, media_type).await.unwrap(), layer);
    }
    assert!(bench.store.list_statuses(&[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_failed_comparison_leaves_no_ingest() {
    let bench = Bench::new().await;
    let lower = bench.make("lower");
    let error = compare(&bench, &lower, &lower, media_types::DOCKER_LAYER_GZIP).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unimplemented);
    let missing = bench.dir.path().join("missing");
    assert!(compare(&bench, &lower, &missing, "").await.is_err());
    assert!(bench.store.list_statuses(&[]).await.unwrap().is_empty());
}
