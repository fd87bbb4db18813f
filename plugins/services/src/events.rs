//! Events on the wire, and `containerd.services.events.v1.Events`. Shims publish over ttrpc, see
//! `plugin-shim-transport`.

use std::sync::Arc;

use containerd_api::{
    any, events as messages,
    services::{events::v1 as api, images::v1 as images},
    types,
};
use containerd_api_grpc::services::events::v1::events_server;
use core_events::{Any, Envelope, Event, Exchange, Publisher};
use core_types::{Error, Namespace};
use futures::{StreamExt, stream};
use tonic::{Request, Response, Status};

use crate::{
    BoxStream, GrpcService, convert,
    grpc::serve,
    scope::namespace,
    status::{required, status},
};

/// The service.
#[derive(Clone)]
pub struct Events {
    exchange: Arc<Exchange>,
}

impl Events {
    /// A service of an exchange.
    pub fn new(exchange: Arc<Exchange>) -> Self {
        Self { exchange }
    }

    /// The gRPC service, ready to be offered.
    pub fn service(self) -> GrpcService {
        serve!(events_server::EventsServer, self)
    }
}

/// Publishes, or says in the log that it could not: what happened has happened.
pub(crate) fn publish(events: &dyn Publisher, namespace: &Namespace, topic: &str, event: Event) {
    if let Err(error) = events.publish(namespace, topic, event) {
        tracing::warn!(%namespace, topic, %error, "event not published");
    }
}

#[tonic::async_trait]
impl events_server::Events for Events {
    async fn publish(&self, request: Request<api::PublishRequest>) -> Result<Response<()>, Status> {
        let namespace = namespace(request.metadata())?;
        let request = request.into_inner();
        let event = Event::Encoded(convert::any_from(required(request.event, "event")?));
        self.exchange.publish(&namespace, &request.topic, event).map_err(status)?;
        Ok(Response::new(()))
    }

    async fn forward(&self, request: Request<api::ForwardRequest>) -> Result<Response<()>, Status> {
        let envelope = required(request.into_inner().envelope, "envelope")?;
        from_message(envelope).and_then(|envelope| self.exchange.forward(envelope)).map_err(status)?;
        Ok(Response::new(()))
    }

    type SubscribeStream = BoxStream<types::Envelope>;

    async fn subscribe(
        &self,
        request: Request<api::SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let subscription = self.exchange.subscribe(&request.get_ref().filters).map_err(status)?;
        let envelopes = stream::unfold(subscription, |mut subscription| async move {
            let envelope = subscription.next().await?;
            Some((Ok(to_message(envelope)), subscription))
        });
        Ok(Response::new(envelopes.boxed()))
    }
}

/// An envelope, for the wire.
pub fn to_message(envelope: Envelope) -> types::Envelope {
    types::Envelope {
        timestamp: convert::timestamp(envelope.timestamp),
        namespace: envelope.namespace.to_string(),
        topic: envelope.topic,
        event: Some(pack(envelope.event)),
    }
}

/// An envelope, from the wire.
///
/// # Errors
/// InvalidArgument for a namespace that is none, or without an event.
pub fn from_message(message: types::Envelope) -> Result<Envelope, Error> {
    let event = message.event.ok_or_else(|| Error::invalid_argument("envelope without an event"))?;
    Ok(Envelope {
        timestamp: convert::time(message.timestamp),
        namespace: Namespace::new(&message.namespace).map_err(|error| error.context("envelope"))?,
        topic: message.topic,
        event: Event::Encoded(Any { type_url: event.type_url, value: event.value.into() }),
    })
}

/// An event as its message. The type URL is the bare name of the message, as containerd writes it.
pub fn pack(event: Event) -> prost_types::Any {
    match event {
        Event::Encoded(any) => convert::any_to(any),
        Event::ContainerCreate { .. } | Event::ContainerUpdate { .. } | Event::ContainerDelete { .. } => {
            pack_container(event)
        }
        Event::ImageCreate { name, labels } => {
            any::pack("containerd.services.images.v1.ImageCreate", &images::ImageCreate { name, labels })
        }
        Event::ImageUpdate { name, labels } => {
            any::pack("containerd.services.images.v1.ImageUpdate", &images::ImageUpdate { name, labels })
        }
        Event::ImageDelete { name } => {
            any::pack("containerd.services.images.v1.ImageDelete", &images::ImageDelete { name })
        }
        other => pack_storage(other),
    }
}

fn pack_container(event: Event) -> prost_types::Any {
    match event {
        Event::ContainerCreate { id, image, runtime } => {
            let runtime = Some(messages::container_create::Runtime { name: runtime, options: None });
            any::pack("containerd.events.ContainerCreate", &messages::ContainerCreate { id, image, runtime })
        }
        Event::ContainerUpdate { id, image, labels, snapshot_key } => any::pack(
            "containerd.events.ContainerUpdate",
            &messages::ContainerUpdate { id, image, labels, snapshot_key },
        ),
        Event::ContainerDelete { id } => {
            any::pack("containerd.events.ContainerDelete", &messages::ContainerDelete { id })
        }
        _ => prost_types::Any::default(),
    }
}

fn pack_storage(event: Event) -> prost_types::Any {
    match event {
        Event::ContentCreate { digest, size } => any::pack(
            "containerd.events.ContentCreate",
            &messages::ContentCreate { digest, size: convert::length(size) },
        ),
        Event::ContentDelete { digest } => {
            any::pack("containerd.events.ContentDelete", &messages::ContentDelete { digest })
        }
        Event::NamespaceCreate { name, labels } => {
            any::pack("containerd.events.NamespaceCreate", &messages::NamespaceCreate { name, labels })
        }
        Event::NamespaceUpdate { name, labels } => {
            any::pack("containerd.events.NamespaceUpdate", &messages::NamespaceUpdate { name, labels })
        }
        Event::NamespaceDelete { name } => {
            any::pack("containerd.events.NamespaceDelete", &messages::NamespaceDelete { name })
        }
        Event::SnapshotPrepare { key, parent, snapshotter } => {
            any::pack("containerd.events.SnapshotPrepare", &messages::SnapshotPrepare { key, parent, snapshotter })
        }
        Event::SnapshotCommit { key, name, snapshotter } => {
            any::pack("containerd.events.SnapshotCommit", &messages::SnapshotCommit { key, name, snapshotter })
        }
        Event::SnapshotRemove { key, snapshotter } => {
            any::pack("containerd.events.SnapshotRemove", &messages::SnapshotRemove { key, snapshotter })
        }
        _ => prost_types::Any::default(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn every_event_has_its_published_name() {
        let cases = [
            (Event::ContainerDelete { id: "a".into() }, "containerd.events.ContainerDelete"),
            (Event::ContentDelete { digest: "a".into() }, "containerd.events.ContentDelete"),
            (Event::ImageDelete { name: "a".into() }, "containerd.services.images.v1.ImageDelete"),
            (Event::NamespaceDelete { name: "a".into() }, "containerd.events.NamespaceDelete"),
            (
                Event::SnapshotRemove { key: "a".into(), snapshotter: "native".into() },
                "containerd.events.SnapshotRemove",
            ),
        ];
        for (event, name) in cases {
            let any = pack(event);
            assert_eq!(any.type_url, name);
            // Field 1 of each is the text "a".
            assert!(any.value.starts_with(&[0x0a, 1, b'a']), "{name}");
        }
    }

    #[test]
    fn an_envelope_comes_back_as_it_went() {
        let envelope = Envelope {
            timestamp: SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789),
            namespace: Namespace::new("default").unwrap(),
            topic: "/tasks/exit".into(),
            event: Event::Encoded(Any { type_url: "containerd.events.TaskExit".into(), value: vec![8, 1].into() }),
        };
        assert_eq!(from_message(to_message(envelope.clone())).unwrap(), envelope);
    }
}
