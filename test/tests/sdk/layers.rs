use std::{fs, path::PathBuf};

use containerd_sdk::{
    Client,
    api::{
        services::diff::v1::{ApplyRequest, DiffRequest},
        types::Mount,
    },
    grpc::services::diff::v1::diff_client::DiffClient,
};

const TAR: &str = "application/vnd.oci.image.layer.v1.tar";

fn kept() -> std::collections::BTreeMap<String, String> {
    [("containerd.io/gc.root".to_owned(), "yes".to_owned())].into()
}

async fn prepared(client: &Client, key: &str, parent: &str) -> Vec<Mount> {
    let mounts = client.snapshotter("").prepare(key, parent, kept()).await.unwrap();
    let message = |mount: core_mount::Mount| Mount {
        r#type: mount.kind,
        source: mount.source,
        target: mount.target,
        options: mount.options,
    };
    mounts.into_iter().map(message).collect()
}

/// The directory that takes what is written to a snapshot.
fn upper(mounts: &[Mount]) -> PathBuf {
    let option = mounts[0].options.iter().find_map(|option| option.strip_prefix("upperdir="));
    option.unwrap_or(&mounts[0].source).into()
}

/// What differs between two snapshots becomes a layer; applied to the first it makes the second again.
pub(super) async fn there_and_back(client: &Client) {
    let base = prepared(client, "base-active", "").await;
    fs::write(upper(&base).join("stays"), "stays").unwrap();
    fs::write(upper(&base).join("goes"), "goes").unwrap();
    client.snapshotter("").commit("base", "base-active", kept()).await.unwrap();
    let left = prepared(client, "left", "base").await;
    let right = prepared(client, "right", "base").await;
    fs::write(upper(&right).join("comes"), "comes").unwrap();
    fs::create_dir(upper(&right).join("dir")).unwrap();
    // How overlay writes that a file was removed.
    let removed = upper(&right).join("goes");
    nix::sys::stat::mknod(&removed, nix::sys::stat::SFlag::S_IFCHR, nix::sys::stat::Mode::empty(), 0).unwrap();

    let mut service = DiffClient::new(client.service());
    let mut diff = async |right: &[Mount], reference: &str| {
        let request = DiffRequest {
            left: left.clone(),
            right: right.to_vec(),
            media_type: TAR.to_owned(),
            r#ref: reference.to_owned(),
            labels: kept().into_iter().collect(),
            ..DiffRequest::default()
        };
        service.diff(request).await.unwrap().into_inner().diff.unwrap()
    };
    let layer = diff(&right, "one").await;
    assert_eq!(layer.media_type, TAR);

    let again = prepared(client, "again", "base").await;
    let request = ApplyRequest { diff: Some(layer.clone()), mounts: again.clone(), ..ApplyRequest::default() };
    let applied = DiffClient::new(client.service()).apply(request).await.unwrap().into_inner().applied.unwrap();
    // The layer is not compressed: its digest is that of the archive.
    assert_eq!((&applied.digest, applied.size), (&layer.digest, layer.size));
    assert_eq!(fs::read_to_string(upper(&again).join("comes")).unwrap(), "comes");
    assert!(upper(&again).join("dir").is_dir());
    assert!(!upper(&again).join("stays").exists(), "only what differs is in the layer");
    assert_eq!(diff(&again, "two").await.digest, layer.digest);

    for key in ["left", "right", "again", "base"] {
        client.snapshotter("").remove(key).await.unwrap();
    }
}
