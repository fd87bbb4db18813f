use containerd_api::services::diff::v1::{ApplyRequest, DiffRequest};
use core_mount::Mount;
use core_types::{Descriptor, Digest, Labels, labels};

use crate::{Client, Error, Image, Result, Snapshotter, convert, streams::stream_id};

impl Client {
    /// Applies a layer in the daemon and answers the digest of its uncompressed form.
    ///
    /// # Errors
    /// What the daemon says.
    pub async fn apply_diff(&self, layer: &Descriptor, mounts: &[Mount], sync: bool) -> Result<Descriptor> {
        let request = ApplyRequest {
            diff: Some(convert::descriptor_to_api(layer)),
            mounts: convert::mounts_to_api(mounts),
            sync_fs: sync,
            ..ApplyRequest::default()
        };
        let answer = self.diff_service().apply(request).await?.into_inner();
        convert::descriptor_from_api(answer.applied.ok_or(Error::Incomplete("applied layer"))?)
    }

    /// Makes a layer of the changes from one tree to another and stores it.
    ///
    /// # Errors
    /// What the daemon says.
    pub async fn make_diff(
        &self,
        lower: &[Mount],
        upper: &[Mount],
        media_type: &str,
        reference: &str,
        labels: Labels,
    ) -> Result<Descriptor> {
        let request = DiffRequest {
            left: convert::mounts_to_api(lower),
            right: convert::mounts_to_api(upper),
            media_type: media_type.to_owned(),
            r#ref: reference.to_owned(),
            labels,
            source_date_epoch: None,
        };
        let answer = self.diff_service().diff(request).await?.into_inner();
        convert::descriptor_from_api(answer.diff.ok_or(Error::Incomplete("layer"))?)
    }
}

impl Image {
    /// Whether all layers for the platform are snapshots already.
    ///
    /// # Errors
    /// NotFound when the image's documents are not there.
    pub async fn is_unpacked(&self, snapshotter: &str) -> Result<bool> {
        let chain = self.chain_ids().await?;
        let Some(top) = chain.last() else { return Ok(true) };
        match self.client().snapshotter(snapshotter).stat(top.as_str()).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes snapshots of the layers for the platform, layer by layer in the daemon.
    ///
    /// # Errors
    /// FailedPrecondition for a layer that is not what the configuration says.
    pub async fn unpack(&self, snapshotter: &str, sync: bool) -> Result<()> {
        let selected = self.selected().await?;
        let diff_ids = self.diff_ids().await?;
        let chain = core_images::chain_ids(&diff_ids);
        if selected.layers.len() != chain.len() {
            return Err(Error::invalid(format!(
                "image {} has {} layers, its configuration says {}",
                self.name(),
                selected.layers.len(),
                chain.len()
            )));
        }
        self.client()
            .with_lease(|client| async move {
                let snapshots = client.snapshotter(snapshotter);
                let mut parent = "";
                for ((layer, diff_id), name) in selected.layers.iter().zip(&diff_ids).zip(&chain) {
                    unpack_layer(&client, &snapshots, layer, diff_id, name, parent, sync).await?;
                    parent = name.as_str();
                }
                let Some(top) = chain.last() else { return Ok(()) };
                let key = format!("{}{}", labels::GC_REF_SNAPSHOT, snapshots.name());
                let keep = Labels::from([(key, top.to_string())]);
                client.content().set_labels(&selected.config.digest, &keep).await?;
                Ok(())
            })
            .await
    }
}

/// Makes one layer the snapshot `name`, unless it is there.
async fn unpack_layer(
    client: &Client,
    snapshots: &Snapshotter,
    layer: &Descriptor,
    diff_id: &Digest,
    name: &Digest,
    parent: &str,
    sync: bool,
) -> Result<()> {
    match snapshots.stat(name.as_str()).await {
        Ok(_) => return Ok(()),
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error),
    }
    let key = format!("{} {name}", stream_id("extract"));
    let mounts = snapshots.prepare(&key, parent, Labels::new()).await?;
    let applied = match client.apply_diff(layer, &mounts, sync).await {
        Ok(applied) if applied.digest == *diff_id => snapshots.commit(name.as_str(), &key, Labels::new()).await,
        Ok(applied) => Err(Error::Local(core_types::Error::failed_precondition(format!(
            "layer {} unpacks to {}, the image's configuration says {diff_id}",
            layer.digest, applied.digest
        )))),
        Err(error) => Err(error),
    };
    if let Err(error) = applied {
        if let Err(left) = snapshots.remove(&key).await {
            tracing::warn!(key, error = %left, "half unpacked snapshot not removed; it is collected later");
        }
        // Somebody else was faster, which is as good.
        return if error.is_already_exists() { Ok(()) } else { Err(error) };
    }
    let label = Labels::from([(labels::UNCOMPRESSED.to_owned(), diff_id.to_string())]);
    client.content().set_labels(&layer.digest, &label).await?;
    Ok(())
}
