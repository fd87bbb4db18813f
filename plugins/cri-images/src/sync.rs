use core_events::{Event, Subscription};
use core_images::Image as Record;
use core_types::{Labels, Result};
use tokio_util::sync::CancellationToken;

use crate::{
    Images,
    load::{self, MANAGED, PINNED},
};

/// What the index follows.
pub(crate) const FILTERS: [&str; 1] = ["topic~=\"^/images/\""];

impl Images {
    /// Reads the whole image store.
    ///
    /// # Errors
    /// What the store says to the list; an image that cannot be read is left out.
    pub(crate) async fn resync(&self) -> Result<()> {
        let records = self.store().list(&[]).await?;
        let gone = self.names().into_iter().filter(|name| records.iter().all(|record| record.name != *name));
        for name in gone {
            self.follow(&name).await;
        }
        for record in &records {
            self.follow(&record.name).await;
        }
        Ok(())
    }

    /// Follows the image store until it is told to stop.
    pub(crate) async fn watch(self, mut events: Subscription, stop: CancellationToken) {
        let mut dropped = 0;
        loop {
            let envelope = tokio::select! {
                () = stop.cancelled() => return,
                envelope = events.next() => envelope,
            };
            let Some(envelope) = envelope else { return };
            if events.dropped() > dropped {
                dropped = events.dropped();
                if let Err(error) = self.resync().await {
                    tracing::warn!(%error, "cannot read the image store after events were lost");
                }
            }
            if envelope.namespace != self.scope().namespace {
                continue;
            }
            match envelope.event {
                Event::ImageCreate { name, .. } | Event::ImageUpdate { name, .. } | Event::ImageDelete { name } => {
                    self.follow(&name).await;
                }
                _ => {}
            }
        }
    }

    /// Takes over what a name stands for now, and marks it as known.
    async fn follow(&self, name: &str) {
        if let Err(error) = self.refresh(name).await {
            tracing::warn!(name, %error, "cannot read an image; it is not listed");
        }
        if let Err(error) = self.manage(name).await {
            tracing::warn!(name, %error, "cannot mark an image as managed");
        }
    }

    /// Gives an image that others made its id as a name, and the labels of the CRI.
    async fn manage(&self, name: &str) -> Result<()> {
        let Some(image) = self.named(name) else { return Ok(()) };
        let record = match self.store().get(name).await {
            Err(error) if error.is_not_found() => return Ok(()),
            record => record?,
        };
        let labels = self.labels(name);
        if labels.iter().all(|(key, value)| record.labels.get(key) == Some(value)) {
            return Ok(());
        }
        self.name(&image.id, &record, &labels).await?;
        self.name(name, &record, &labels).await
    }

    /// The labels of an image of this name.
    pub(crate) fn labels(&self, name: &str) -> Labels {
        let mut labels = Labels::from([(MANAGED.0.to_owned(), MANAGED.1.to_owned())]);
        if self.settings().pinned_images.values().any(|pinned| pinned == name) {
            labels.insert(PINNED.0.to_owned(), PINNED.1.to_owned());
        }
        labels
    }

    /// Lets a name stand for the record's target, with these labels besides those it has, and takes note of it.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) async fn name(&self, name: &str, record: &Record, labels: &Labels) -> Result<()> {
        let store = self.store();
        let wanted = Record { name: name.to_owned(), labels: labels.clone(), ..record.clone() };
        match store.create(wanted.clone()).await {
            Err(error) if error.is_already_exists() => {
                let known = store.get(name).await?;
                let missing = labels.iter().filter(|(key, value)| known.labels.get(*key) != Some(value));
                let mut fields: Vec<String> = missing.map(|(key, _)| format!("labels.{key}")).collect();
                if known.target.digest != record.target.digest {
                    fields.push("target".to_owned());
                }
                if !fields.is_empty() {
                    store.update(wanted, &fields).await?;
                }
            }
            created => drop(created?),
        }
        self.refresh(name).await
    }

    /// Takes over what a name stands for now.
    ///
    /// # Errors
    /// What the stores say; the name is forgotten then, for nothing is known of it.
    pub(crate) async fn refresh(&self, name: &str) -> Result<()> {
        // One at a time: who reads first must not write last.
        let _turn = self.turn().lock().await;
        let loaded = match self.store().get(name).await {
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
            Ok(record) => load::load(self.database(), self.scope(), &record, self.platforms()).await,
        };
        let (loaded, result) = match loaded {
            Ok(loaded) => (loaded, Ok(())),
            Err(error) => (None, Err(error)),
        };
        self.set(name, loaded);
        result
    }
}
