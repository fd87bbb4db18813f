use std::collections::BTreeMap;

use containerd_api::services::containers::v1::{
    self as api, Container as Record, CreateContainerRequest, DeleteContainerRequest, GetContainerRequest,
    ListContainersRequest, UpdateContainerRequest, container::Runtime,
};
use core_mount::Mount;
use core_oci::{ResolvedUser, Rootfs, SPEC_TYPE_URL, Spec, UserSpec};
use core_types::Labels;
use prost_types::Any;

use crate::{Client, DEFAULT_RUNTIME, Error, Image, Result, convert};

/// What to record as a container.
#[derive(Clone, Debug)]
pub struct NewContainer {
    /// Its id.
    pub id: String,
    /// Name of the image; empty for none.
    pub image: String,
    /// Its labels.
    pub labels: Labels,
    /// Its runtime: a name such as `io.containerd.runc.v2`, or the path of a shim.
    pub runtime: String,
    /// Options of the runtime.
    pub runtime_options: Option<Any>,
    /// How to run it.
    pub spec: Spec,
    /// Who keeps its root file system; empty when it is a plain directory.
    pub snapshotter: String,
    /// The root file system; empty when it is a plain directory.
    pub snapshot_key: String,
    /// Data of clients.
    pub extensions: BTreeMap<String, Any>,
    /// Id of the sandbox it belongs to; empty for none.
    pub sandbox: String,
}

impl NewContainer {
    /// A container without image and root file system yet, for the default runtime.
    pub fn new(id: &str, spec: Spec) -> Self {
        Self {
            id: id.to_owned(),
            image: String::new(),
            labels: Labels::new(),
            runtime: DEFAULT_RUNTIME.to_owned(),
            runtime_options: None,
            spec,
            snapshotter: String::new(),
            snapshot_key: String::new(),
            extensions: BTreeMap::new(),
            sandbox: String::new(),
        }
    }
}

/// What goes with a container that is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// Its snapshot too.
    WithSnapshot,
    /// The record alone.
    KeepSnapshot,
}

/// A container's record.
#[derive(Clone, Debug)]
pub struct Container {
    client: Client,
    record: Record,
}

impl Client {
    /// A container by id.
    ///
    /// # Errors
    /// NotFound when it is not there.
    pub async fn container(&self, id: &str) -> Result<Container> {
        let answer = self.containers_service().get(GetContainerRequest { id: id.to_owned() }).await?.into_inner();
        let record = answer.container.ok_or(Error::Incomplete("container"))?;
        Ok(Container { client: self.clone(), record })
    }

    /// Containers that any of the filters accepts, all when there is none.
    ///
    /// # Errors
    /// InvalidArgument for a malformed filter.
    pub async fn containers(&self, filters: &[String]) -> Result<Vec<Container>> {
        let request = ListContainersRequest { filters: filters.to_vec() };
        let answer = self.containers_service().list(request).await?.into_inner();
        let container = |record| Container { client: self.clone(), record };
        Ok(answer.containers.into_iter().map(container).collect())
    }

    /// Records a container.
    ///
    /// # Errors
    /// AlreadyExists for an id in use.
    pub async fn create_container(&self, new: NewContainer) -> Result<Container> {
        let record = Record {
            id: new.id,
            labels: new.labels,
            image: new.image,
            runtime: Some(Runtime { name: new.runtime, options: new.runtime_options }),
            spec: Some(Any { type_url: SPEC_TYPE_URL.to_owned(), value: new.spec.to_vec()? }),
            snapshotter: new.snapshotter,
            snapshot_key: new.snapshot_key,
            extensions: new.extensions,
            sandbox: new.sandbox,
            ..Record::default()
        };
        let request = CreateContainerRequest { container: Some(record) };
        let answer = self.containers_service().create(request).await?.into_inner();
        Ok(Container { client: self.clone(), record: answer.container.ok_or(Error::Incomplete("container"))? })
    }

    /// Makes a container of an unpacked image: a snapshot of its own on the layers, and a specification from
    /// the image's configuration that `change` may alter. A snapshot made is removed again on failure.
    ///
    /// # Errors
    /// AlreadyExists for an id in use, NotFound for layers not unpacked or a user not in the image.
    pub async fn create_from_image<F>(
        &self,
        image: &Image,
        id: &str,
        snapshotter: &str,
        args: &[String],
        change: F,
    ) -> Result<Container>
    where
        F: FnOnce(&mut NewContainer) -> Result<()>,
    {
        self.with_lease(|client| async move {
            let config = image.config().await?;
            let snapshots = client.snapshotter(snapshotter);
            let mounts = image.prepare_rootfs(&client, snapshotter, id, Labels::new()).await?;
            let made = async {
                let mut spec = Spec::linux(client.namespace(), id);
                spec.allow_default_devices();
                spec.apply_image(&config, args);
                let user = if config.config.user.is_empty() { "root" } else { &config.config.user };
                match resolve_user(UserSpec::parse(user)?, mounts).await {
                    Ok(user) => spec.set_user(&user),
                    // An image without account files still has a root.
                    Err(error) if error.is_not_found() && user == "root" => {}
                    Err(error) => return Err(error),
                }
                let mut new = NewContainer::new(id, spec);
                new.image = image.name().to_owned();
                new.labels = config.labels();
                new.snapshotter = snapshots.name().to_owned();
                new.snapshot_key = id.to_owned();
                change(&mut new)?;
                client.create_container(new).await
            };
            let made = made.await;
            if made.is_err() {
                remove_quietly(&snapshots, id).await;
            }
            made
        })
        .await
        .map(|container: Container| Container { client: self.clone(), ..container })
    }
}

async fn remove_quietly(snapshots: &crate::Snapshotter, key: &str) {
    if let Err(error) = snapshots.remove(key).await
        && !error.is_not_found()
    {
        tracing::warn!(key, %error, "snapshot of a container that was not made stays; it is collected later");
    }
}

/// Looks a user up in a root file system given by its mounts; it is mounted only when its layers cannot
/// be read directly.
///
/// # Errors
/// As [`UserSpec::resolve`].
pub async fn resolve_user(user: UserSpec, mounts: Vec<Mount>) -> Result<ResolvedUser> {
    let look = move || match Rootfs::from_mounts(&mounts)? {
        Some(root) => user.resolve(&root),
        None => core_mount::with_readonly_temp_mount(&mounts, |root| user.resolve(&Rootfs::open(root)?)),
    };
    let looked = tokio::task::spawn_blocking(look).await;
    Ok(looked.map_err(|error| core_types::Error::internal(format!("look up user: {error}")))??)
}

impl Image {
    /// Makes a writable snapshot `key` on the image's layers.
    ///
    /// # Errors
    /// AlreadyExists for a key in use, NotFound when the image is not unpacked.
    pub async fn prepare_rootfs(
        &self,
        client: &Client,
        snapshotter: &str,
        key: &str,
        labels: Labels,
    ) -> Result<Vec<Mount>> {
        let chain = self.chain_ids().await?;
        let parent = chain.last().map(ToString::to_string).unwrap_or_default();
        client.snapshotter(snapshotter).prepare(key, &parent, labels).await
    }
}

impl Container {
    /// Its id.
    pub fn id(&self) -> &str {
        &self.record.id
    }

    /// All that is recorded of it.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The client it was got by.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// How it is run.
    ///
    /// # Errors
    /// InvalidArgument when the record's specification is no JSON.
    pub fn spec(&self) -> Result<Spec> {
        let spec = self.record.spec.as_ref().ok_or(Error::Incomplete("runtime specification"))?;
        Ok(Spec::from_slice(&spec.value)?)
    }

    /// The mounts of its root file system; empty when that is a plain directory.
    ///
    /// # Errors
    /// NotFound when its snapshot is gone.
    pub async fn mounts(&self) -> Result<Vec<Mount>> {
        if self.record.snapshot_key.is_empty() {
            return Ok(Vec::new());
        }
        self.client.snapshotter(&self.record.snapshotter).mounts(&self.record.snapshot_key).await
    }

    /// Looks a user up in its root file system.
    ///
    /// # Errors
    /// As [`UserSpec::resolve`].
    pub async fn resolve_user(&self, user: &str) -> Result<ResolvedUser> {
        let user = UserSpec::parse(user)?;
        let mut mounts = self.mounts().await?;
        if mounts.is_empty() {
            let source = self.spec()?.text("/root/path").to_owned();
            mounts.push(Mount { kind: "bind".into(), source, ..Mount::default() });
        }
        resolve_user(user, mounts).await
    }

    /// Sets labels; an empty value removes one. Answers all labels.
    ///
    /// # Errors
    /// NotFound when it is not there.
    pub async fn set_labels(&self, labels: &Labels) -> Result<Labels> {
        let paths: Vec<String> = labels.keys().map(|key| format!("labels.{key}")).collect();
        if paths.is_empty() {
            return Ok(self.client.container(self.id()).await?.record.labels);
        }
        let record = api::Container { id: self.id().to_owned(), labels: labels.clone(), ..Record::default() };
        let request = UpdateContainerRequest { container: Some(record), update_mask: convert::mask(&paths) };
        let answer = self.client.containers_service().update(request).await?.into_inner();
        Ok(answer.container.ok_or(Error::Incomplete("container"))?.labels)
    }

    /// Deletes the record.
    ///
    /// # Errors
    /// FailedPrecondition while it has a task.
    pub async fn delete(&self, deletion: Deletion) -> Result<()> {
        match self.task().await {
            Ok(_) => {
                return Err(core_types::Error::failed_precondition(format!(
                    "container {:?} has a task: stop and delete it first",
                    self.id()
                ))
                .into());
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        if deletion == Deletion::WithSnapshot && !self.record.snapshot_key.is_empty() {
            let snapshots = self.client.snapshotter(&self.record.snapshotter);
            match snapshots.remove(&self.record.snapshot_key).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        self.client.containers_service().delete(DeleteContainerRequest { id: self.id().to_owned() }).await?;
        Ok(())
    }
}
