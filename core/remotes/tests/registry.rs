//! Push to and fetch from a real registry.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, unreachable_pub)]

#[path = "support/docker.rs"]
mod docker;

use std::{collections::BTreeMap, io, sync::Arc};

use core_content::Reader;
use core_remotes::{Pushed, Resolver, ResolverOptions};
use core_types::{Descriptor, Digest, media_types};
use docker::DockerRegistry;

struct Bytes(Vec<u8>);

impl Reader for Bytes {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = &self.0[usize::try_from(offset).unwrap().min(self.0.len())..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

fn part(media_type: &str, bytes: &[u8]) -> (Descriptor, Arc<dyn Reader>) {
    (Descriptor::new(media_type, Digest::of(bytes), bytes.len() as u64), Arc::new(Bytes(bytes.to_vec())))
}

#[tokio::test]
async fn what_is_pushed_can_be_resolved_fetched_and_mounted() {
    let Some(registry) = DockerRegistry::start() else { return };
    let resolver = Resolver::new(ResolverOptions::default());
    let name = format!("{}/team/one:v1", registry.host);
    let data: Vec<u8> = (0..3_000_000_u32).map(|at| (at ^ (at >> 7)) as u8).collect();
    let (layer, layer_bytes) = part(media_types::OCI_LAYER_GZIP, &data);
    let (config, config_bytes) = part(media_types::OCI_CONFIG, b"{}");
    let text = serde_json::json!({
        "schemaVersion": 2, "mediaType": media_types::OCI_MANIFEST, "config": config, "layers": [layer],
    });
    let (manifest, manifest_bytes) = part(media_types::OCI_MANIFEST, text.to_string().as_bytes());
    let none = BTreeMap::new();

    let pusher = resolver.pusher(&name).await.unwrap();
    assert_eq!(pusher.push(&layer, layer_bytes.clone(), &none, None).await.unwrap(), Pushed::Uploaded);
    assert_eq!(pusher.push(&layer, layer_bytes.clone(), &none, None).await.unwrap(), Pushed::Exists);
    pusher.push(&config, config_bytes.clone(), &none, None).await.unwrap();
    assert_eq!(pusher.push(&manifest, manifest_bytes.clone(), &none, None).await.unwrap(), Pushed::Uploaded);
    assert_eq!(pusher.push(&manifest, manifest_bytes, &none, None).await.unwrap(), Pushed::Exists);

    let (found, fetcher) = resolver.resolve(&name).await.unwrap();
    assert_eq!((&found.digest, found.size, &found.media_type), (&manifest.digest, manifest.size, &manifest.media_type));
    let mut download = fetcher.fetch(&layer, 1_000_000).await.unwrap();
    let mut rest = Vec::new();
    while let Some(piece) = download.next().await.unwrap() {
        rest.extend_from_slice(&piece);
    }
    assert_eq!(rest, data[1_000_000..]);

    let second = resolver.pusher(&format!("{}/team/two:v1", registry.host)).await.unwrap();
    let key = format!("containerd.io/distribution.source.{}", registry.host);
    let sources = BTreeMap::from([(key, "team/one".to_owned())]);
    let mounted = second.push(&layer, layer_bytes, &sources, None).await.unwrap();
    assert_eq!(mounted, Pushed::Mounted("team/one".into()));

    let by_digest = format!("{}/team/one@{}", registry.host, manifest.digest);
    assert_eq!(resolver.resolve(&by_digest).await.unwrap().0.digest, manifest.digest);
    let missing = resolver.resolve(&format!("{}/team/none:v1", registry.host)).await.unwrap_err();
    assert!(missing.is_not_found(), "{missing}");
}
