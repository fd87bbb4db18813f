use containerd_api::{services::events::v1::SubscribeRequest, types::Envelope};
use tonic::Streaming;

use crate::{Client, Result};

/// A running subscription.
#[derive(Debug)]
pub struct Events(Streaming<Envelope>);

impl Client {
    /// Subscribes to events that any of the filters accepts, all when there is none, of all namespaces.
    ///
    /// # Errors
    /// InvalidArgument for a malformed filter.
    pub async fn subscribe(&self, filters: &[String]) -> Result<Events> {
        let request = SubscribeRequest { filters: filters.to_vec() };
        Ok(Events(self.events_service().subscribe(request).await?.into_inner()))
    }
}

impl Events {
    /// The next event; `None` when the daemon ends the subscription.
    ///
    /// # Errors
    /// What the daemon says.
    pub async fn next(&mut self) -> Result<Option<Envelope>> {
        Ok(self.0.message().await?)
    }
}
