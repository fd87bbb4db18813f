//! Manifests, indexes and image configurations.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    use core_types::{Algorithm, Descriptor};
    let mut digester = Algorithm::Sha256.digester();
    digester.update(data);
    let digest = digester.finish();
    for media_type in [
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    ] {
        let descriptor = Descriptor::new(media_type, digest.clone(), data.len() as u64);
        if let Ok(document) = core_images::read_document(&descriptor, data) {
            assert!(document.children().len() <= core_images::MAX_CHILDREN);
        }
    }
    let _ = core_images::ImageConfig::parse(data);
});
