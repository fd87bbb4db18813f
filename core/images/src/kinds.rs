use core_types::media_types;

/// Whether this is an index or a manifest, so that it has children.
pub fn is_tree(media_type: &str) -> bool {
    media_types::is_index(media_type) || media_types::is_manifest(media_type)
}

/// Whether this is a file system layer (OCI, Docker or EROFS), whatever its compression or encryption.
pub fn is_layer(media_type: &str) -> bool {
    media_types::is_layer(media_type) || media_type.split('+').next() == Some("application/vnd.erofs.layer.v1")
}

/// Whether this is a layer that may not be distributed.
pub fn is_foreign_layer(media_type: &str) -> bool {
    media_type.starts_with("application/vnd.oci.image.layer.nondistributable.")
        || media_type.starts_with("application/vnd.docker.image.rootfs.foreign.")
}

/// Whether this is a configuration that containerd knows, those of checkpoints included.
pub fn is_known_config(media_type: &str) -> bool {
    media_types::is_config(media_type)
        || matches!(
            media_type,
            "application/vnd.containerd.container.criu.checkpoint.criu.tar"
                | "application/vnd.containerd.container.checkpoint.config.v1+proto"
        )
}
