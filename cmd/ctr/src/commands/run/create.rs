use std::{fs, path};

use anyhow::{Context as _, Result, bail};
use containerd_sdk::{
    Client, Container, DEFAULT_SNAPSHOTTER, Image, NewContainer,
    oci::{ImageConfig, Spec, UserSpec},
    resolve_user,
};
use core_mount::Mount;
use core_types::{Labels, Platform};

use super::{
    flags::{ContainerFlags, RunFlags},
    remove_snapshot, spec,
};
use crate::{commands::shared::RuntimeFlags, context::warn, values};

/// Label with the signal that stops a container.
pub(crate) const STOP_SIGNAL_LABEL: &str = "io.containerd.image.config.stop-signal";
/// Snapshot labels that ask for shifted ids.
const UID_LABEL: &str = "containerd.io/snapshot/uidmapping";
const GID_LABEL: &str = "containerd.io/snapshot/gidmapping";

/// What is asked for by `run` or `containers create`.
pub(crate) struct Order<'a> {
    pub(crate) container: &'a ContainerFlags,
    pub(crate) run: Option<&'a RunFlags>,
    pub(crate) runtime: &'a RuntimeFlags,
    pub(crate) snapshotter: &'a str,
    pub(crate) args: &'a [String],
}

impl Order<'_> {
    /// Refuses what cannot be done, before anything is.
    pub(crate) fn check(&self) -> Result<()> {
        let flags = self.container;
        if flags.config.is_some() {
            if self.args.len() > 1 {
                bail!("with spec config file, only container id should be provided");
            }
        } else if self.args.is_empty() {
            bail!("image ref must be provided");
        }
        if self.id().is_empty() {
            bail!("container id must be provided");
        }
        let missing = [
            ("gpus", !flags.gpus.is_empty()),
            ("apparmor-default-profile", flags.apparmor_default_profile.is_some()),
            ("blockio-config-file", flags.blockio_config_file.is_some()),
            ("blockio-class", flags.blockio_class.is_some()),
            ("rdt-class", flags.rdt_class.is_some()),
            ("cni", self.run.is_some_and(|run| run.cni)),
        ];
        if let Some((flag, _)) = missing.iter().find(|(_, set)| *set) {
            bail!("--{flag} is not available yet");
        }
        if self.run.is_some_and(|run| !run.uidmap.is_empty() && !run.remap_labels) {
            bail!("--uidmap and --gidmap need --remap-labels: changing the owner of every file is not available");
        }
        Ok(())
    }

    fn id(&self) -> &str {
        let at = usize::from(self.container.config.is_none());
        self.args.get(at).map(String::as_str).unwrap_or_default()
    }

    /// Makes the container.
    pub(crate) async fn create(&self, client: &Client) -> Result<Container> {
        let mut new = NewContainer::new(self.id(), Spec::linux(client.namespace(), self.id()));
        new.runtime.clone_from(&self.runtime.runtime);
        new.runtime_options = self.runtime.options(self.run.and_then(|run| run.cgroup.as_deref()))?;
        new.labels = values::labels(&self.container.label);
        new.sandbox = self.container.sandbox.clone().unwrap_or_default();
        if let Some(path) = &self.container.config {
            let json = fs::read(path).with_context(|| format!("read {}", path.display()))?;
            new.spec = Spec::from_slice(&json)?;
            return self.record(client, new).await;
        }
        spec::before_image(&mut new.spec, self.container)?;
        if self.container.rootfs { self.on_directory(client, new).await } else { self.on_image(client, new).await }
    }

    async fn record(&self, client: &Client, mut new: NewContainer) -> Result<Container> {
        new.spec.add_annotations(&values::labels(&self.container.label));
        Ok(client.create_container(new).await?)
    }

    /// A container whose root is a plain directory.
    async fn on_directory(&self, client: &Client, mut new: NewContainer) -> Result<Container> {
        let root = path::absolute(&self.args[0])?.to_string_lossy().into_owned();
        new.spec.set_root_path(&root);
        let mounts = vec![Mount { kind: "bind".into(), source: root, ..Mount::default() }];
        self.finish(&mut new.spec, None, mounts).await?;
        self.record(client, new).await
    }

    /// A container on a new snapshot of an image.
    async fn on_image(&self, client: &Client, mut new: NewContainer) -> Result<Container> {
        let image = self.image(client).await?;
        let json = image.config().await?;
        new.image = image.name().to_owned();
        new.labels = self.labels(&image, &json);
        new.snapshotter =
            if self.snapshotter.is_empty() { DEFAULT_SNAPSHOTTER.to_owned() } else { self.snapshotter.to_owned() };
        new.snapshot_key.clone_from(&new.id);
        let lease = client.create_lease(None, Labels::new(), std::time::Duration::from_secs(24 * 3600)).await?;
        let leased = client.under_lease(lease.id())?;
        let made = self.on_snapshot(&leased, &image, &json, new).await;
        if let Err(error) = lease.delete().await {
            warn(format!("failed to give back lease: {error}"));
        }
        // The lease is gone, so what comes next must not name it.
        let made = made?;
        Ok(client.container(made.id()).await?)
    }

    async fn on_snapshot(
        &self,
        client: &Client,
        image: &Image,
        config: &ImageConfig,
        mut new: NewContainer,
    ) -> Result<Container> {
        if !image.is_unpacked(&new.snapshotter).await? {
            image.unpack(&new.snapshotter, self.run.is_some_and(|run| run.sync_fs)).await?;
        }
        let labels = self.snapshot_labels()?;
        let mounts = image.prepare_rootfs(client, &new.snapshotter, &new.id, labels).await?;
        let snapshots = client.snapshotter(&new.snapshotter);
        let key = new.snapshot_key.clone();
        let made = async {
            new.spec.apply_image(config, &[]);
            self.finish(&mut new.spec, Some(config), mounts).await?;
            self.record(client, new).await
        };
        let made = made.await;
        if made.is_err() {
            remove_snapshot(&snapshots, &key).await;
        }
        made
    }

    /// Sets the user and what else comes after the image's configuration.
    async fn finish(&self, spec: &mut Spec, config: Option<&ImageConfig>, mounts: Vec<Mount>) -> Result<()> {
        let of_image = config.map(|config| config.config.user.as_str());
        let user = self.container.user.as_deref().or(of_image.filter(|user| !user.is_empty()));
        match (user, config) {
            (Some(user), _) => spec.set_user(&resolve_user(UserSpec::parse(user)?, mounts).await?),
            (None, Some(_)) => match resolve_user(UserSpec::parse("root")?, mounts).await {
                Ok(root) => spec.set_user(&root),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            },
            (None, None) => {}
        }
        let command = self.args.get(2..).unwrap_or_default();
        spec::after_image(spec, self.container, self.run, command)
    }

    async fn image(&self, client: &Client) -> Result<Image> {
        let image = client.image(&self.args[0]).await?;
        match self.run.and_then(|run| run.platform.as_deref()) {
            Some(platform) => Ok(image.for_platform(&Platform::parse(platform)?)),
            None => Ok(image),
        }
    }

    /// Labels of the image and its configuration, then those of the command line. What steers the runtime
    /// comes from the command line alone.
    fn labels(&self, image: &Image, config: &ImageConfig) -> Labels {
        let mut labels = config.labels();
        for (key, value) in image.labels() {
            match core_types::labels::validate(key, value) {
                Ok(()) => {
                    labels.insert(key.clone(), value.clone());
                }
                Err(_) => warn(format!("unable to add image label with key {key} to the container")),
            }
        }
        let stop = &config.config.stop_signal;
        let stop = if crate::signals::parse(stop).is_ok() { stop.as_str() } else { "SIGTERM" };
        labels.insert(STOP_SIGNAL_LABEL.to_owned(), stop.to_owned());
        labels.extend(values::labels(&self.container.label));
        labels
    }

    fn snapshot_labels(&self) -> Result<Labels> {
        let mut labels = values::labels(&self.container.snapshotter_label);
        if let Some(run) = self.run
            && !spec::mappings(run)?.0.is_empty()
        {
            labels.insert(UID_LABEL.to_owned(), run.uidmap.join(","));
            labels.insert(GID_LABEL.to_owned(), run.gidmap.join(","));
        }
        Ok(labels)
    }
}
