use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use core_remotes::Credentials;
use core_transfer::{Destination, ImageStore, PullOptions, Registry, Source, UnpackConfiguration};
use core_types::{Error, Platform, Result, ResultExt};
use futures::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use prost::Message;

use crate::{Image, Images, PullRequest, auth::PullCredentials, progress::Watch, reference};

/// What makes two pulls the same: reference, handler, and who asks.
type Key = (String, String, Vec<u8>);
type Outcome = std::result::Result<Image, Arc<Error>>;
type Flight = BoxFuture<'static, Outcome>;

/// Pulls on their way. One lasts as long as anybody waits for it.
#[derive(Default)]
pub(crate) struct Flights(Mutex<HashMap<Key, WeakShared<Flight>>>);

impl Flights {
    /// The pull of this key, begun if there is none.
    fn join(&self, key: Key, begin: impl FnOnce() -> Flight) -> Shared<Flight> {
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        flights.retain(|_, flight| flight.upgrade().is_some());
        if let Some(running) = flights.get(&key).and_then(WeakShared::upgrade)
            && running.peek().is_none()
        {
            return running;
        }
        let flight = begin().shared();
        if let Some(weak) = flight.downgrade() {
            flights.insert(key, weak);
        }
        flight
    }
}

impl Images {
    /// Pulls and unpacks an image, or waits for whom is doing the same.
    ///
    /// # Errors
    /// InvalidArgument for a malformed name; what the registry says (NotFound, Unauthenticated, PermissionDenied,
    /// Unavailable …); DeadlineExceeded when no byte came for `image_pull_progress_timeout`.
    pub async fn pull(&self, request: PullRequest) -> Result<Image> {
        let name = reference::full(&request.image)?.to_string();
        let who = request.auth.as_ref().map(Message::encode_to_vec).unwrap_or_default();
        let key = (name.clone(), request.handler.clone(), who);
        let images = self.clone();
        let flight = self
            .flights()
            .join(key, || async move { images.pull_alone(&name, request).await.map_err(Arc::new) }.boxed());
        flight.await.map_err(|error| Error::new(error.kind(), error.message()))
    }

    async fn pull_alone(&self, name: &str, request: PullRequest) -> Result<Image> {
        let begun = tokio::time::Instant::now();
        let done = self.transfer(name, request).await;
        done.doing(format_args!("failed to pull and unpack image {name:?}"))?;
        let record = self.store().get(name).await?;
        self.refresh(name).await?;
        let image = self.named(name).ok_or_else(|| {
            Error::failed_precondition(format!("image {name:?} was pulled, but is nothing that this machine can run"))
        })?;
        let parsed = reference::full(name)?;
        let labels = self.labels(name);
        let names = reference::names(&parsed, &record.target.digest);
        for other in std::iter::once(&image.id).chain(&names) {
            self.name(other, &record, &labels)
                .await
                .doing(format_args!("failed to create image reference {other:?}"))?;
        }
        tracing::info!(name, id = image.id, size = image.size, took = ?begun.elapsed(), "pulled an image");
        // With all its names.
        self.resolve(&image.id)?
            .ok_or_else(|| Error::aborted(format!("image {name:?} was removed while it was pulled")))
    }

    async fn transfer(&self, name: &str, request: PullRequest) -> Result<()> {
        let settings = self.settings();
        let credentials: Arc<dyn Credentials> =
            Arc::new(PullCredentials { request: request.auth, configs: settings.registry.configs.clone() });
        let headers = settings.registry.headers.iter();
        let source = Registry {
            reference: name.to_owned(),
            headers: headers.flat_map(|(key, all)| all.iter().map(|value| (key.clone(), value.clone()))).collect(),
            credentials: Some(credentials),
            host_dir: Some(settings.registry.config_path.clone().into()),
            default_scheme: None,
            pull: PullOptions {
                downloads: self.downloads().cloned(),
                sync: settings.image_pull_with_sync_fs,
                discard_layers: settings.discard_unpacked_layers,
            },
        };
        let platform = self.platform_for(&request.handler).cloned().unwrap_or_else(Platform::host);
        let snapshotter = self.snapshotter_for(&request.handler).to_owned();
        let destination = ImageStore {
            name: name.to_owned(),
            labels: self.labels(name),
            platforms: vec![platform.clone()],
            unpacks: vec![UnpackConfiguration { platform, snapshotter }],
            ..ImageStore::default()
        };
        let watch = Watch::new();
        let transfer = self.transferer().transfer(
            self.scope(),
            Source::Registry(source),
            Destination::Store(destination),
            Some(Arc::new(watch.clone())),
        );
        let Some(limit) = settings.progress_timeout()? else { return transfer.await };
        tokio::select! {
            biased;
            done = transfer => done,
            () = watch.stalled(limit) => Err(Error::deadline_exceeded(format!(
                "the registry sent nothing for {limit:?} (image_pull_progress_timeout)"
            ))),
        }
    }
}
