use containerd_api::services::snapshots::v1::{
    CommitSnapshotRequest, Info, ListSnapshotsRequest, MountsRequest, PrepareSnapshotRequest, RemoveSnapshotRequest,
    StatSnapshotRequest, UpdateSnapshotRequest, UsageRequest, UsageResponse, ViewSnapshotRequest,
};
use core_mount::Mount;
use core_types::Labels;

use crate::{Client, DEFAULT_SNAPSHOTTER, Error, Result, convert};

/// Snapshots of one snapshotter in a namespace.
#[derive(Clone, Debug)]
pub struct Snapshotter {
    client: Client,
    name: String,
}

impl Client {
    /// A snapshotter by name; an empty name stands for `overlayfs`.
    pub fn snapshotter(&self, name: &str) -> Snapshotter {
        let name = if name.is_empty() { DEFAULT_SNAPSHOTTER } else { name };
        Snapshotter { client: self.clone(), name: name.to_owned() }
    }
}

impl Snapshotter {
    /// The snapshotter's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is known of a snapshot.
    ///
    /// # Errors
    /// NotFound when it is not there.
    pub async fn stat(&self, key: &str) -> Result<Info> {
        let request = StatSnapshotRequest { snapshotter: self.name.clone(), key: key.to_owned() };
        let answer = self.client.snapshots_service().stat(request).await?.into_inner();
        answer.info.ok_or(Error::Incomplete("snapshot"))
    }

    /// Snapshots that any of the filters accepts, all when there is none.
    ///
    /// # Errors
    /// InvalidArgument for a malformed filter.
    pub async fn list(&self, filters: &[String]) -> Result<Vec<Info>> {
        let request = ListSnapshotsRequest { snapshotter: self.name.clone(), filters: filters.to_vec() };
        let mut pages = self.client.snapshots_service().list(request).await?.into_inner();
        let mut found = Vec::new();
        while let Some(page) = pages.message().await? {
            found.extend(page.info);
        }
        Ok(found)
    }

    /// Makes a writable snapshot on `parent` (empty for none).
    ///
    /// # Errors
    /// AlreadyExists for a key in use, NotFound for a parent that is not there.
    pub async fn prepare(&self, key: &str, parent: &str, labels: Labels) -> Result<Vec<Mount>> {
        let request = PrepareSnapshotRequest {
            snapshotter: self.name.clone(),
            key: key.to_owned(),
            parent: parent.to_owned(),
            labels,
        };
        let answer = self.client.snapshots_service().prepare(request).await?.into_inner();
        Ok(convert::mounts_from_api(answer.mounts))
    }

    /// Makes a readable snapshot on `parent`.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub async fn view(&self, key: &str, parent: &str, labels: Labels) -> Result<Vec<Mount>> {
        let request = ViewSnapshotRequest {
            snapshotter: self.name.clone(),
            key: key.to_owned(),
            parent: parent.to_owned(),
            labels,
        };
        let answer = self.client.snapshots_service().view(request).await?.into_inner();
        Ok(convert::mounts_from_api(answer.mounts))
    }

    /// The mounts of an active snapshot or view.
    ///
    /// # Errors
    /// NotFound when it is not there.
    pub async fn mounts(&self, key: &str) -> Result<Vec<Mount>> {
        let request = MountsRequest { snapshotter: self.name.clone(), key: key.to_owned() };
        let answer = self.client.snapshots_service().mounts(request).await?.into_inner();
        Ok(convert::mounts_from_api(answer.mounts))
    }

    /// Turns the active snapshot `key` into the committed `name`.
    ///
    /// # Errors
    /// AlreadyExists for a name in use, NotFound for a key that is not there.
    pub async fn commit(&self, name: &str, key: &str, labels: Labels) -> Result<()> {
        let request = CommitSnapshotRequest {
            snapshotter: self.name.clone(),
            name: name.to_owned(),
            key: key.to_owned(),
            labels,
            ..CommitSnapshotRequest::default()
        };
        self.client.snapshots_service().commit(request).await?;
        Ok(())
    }

    /// Removes a snapshot.
    ///
    /// # Errors
    /// NotFound when it is not there, FailedPrecondition while others stand on it.
    pub async fn remove(&self, key: &str) -> Result<()> {
        let request = RemoveSnapshotRequest { snapshotter: self.name.clone(), key: key.to_owned() };
        self.client.snapshots_service().remove(request).await?;
        Ok(())
    }

    /// Disk used by one snapshot, without its parents.
    ///
    /// # Errors
    /// NotFound when it is not there.
    pub async fn usage(&self, key: &str) -> Result<UsageResponse> {
        let request = UsageRequest { snapshotter: self.name.clone(), key: key.to_owned() };
        Ok(self.client.snapshots_service().usage(request).await?.into_inner())
    }

    /// Sets labels; an empty value removes one.
    ///
    /// # Errors
    /// NotFound when it is not there.
    pub async fn set_labels(&self, key: &str, labels: &Labels) -> Result<Info> {
        if labels.is_empty() {
            return self.stat(key).await;
        }
        let paths: Vec<String> = labels.keys().map(|key| format!("labels.{key}")).collect();
        let kept = labels.iter().filter(|(_, value)| !value.is_empty());
        let info = Info {
            name: key.to_owned(),
            labels: kept.map(|(key, value)| (key.clone(), value.clone())).collect(),
            ..Info::default()
        };
        let request = UpdateSnapshotRequest {
            snapshotter: self.name.clone(),
            info: Some(info),
            update_mask: convert::mask(&paths),
        };
        let answer = self.client.snapshots_service().update(request).await?.into_inner();
        answer.info.ok_or(Error::Incomplete("snapshot"))
    }
}
