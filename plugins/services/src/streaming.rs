//! `containerd.services.streaming.v1.Streaming`: streams that a client opens under a name, for other requests
//! to use.

use std::{sync::Arc, time::Duration};

use containerd_api::{any, services::streaming::v1 as api};
use containerd_api_grpc::services::streaming::v1::streaming_server;
use core_streaming::{End, Registration, Stream, Streams, pair};
use core_types::Error;
use futures::{StreamExt, stream};
use prost_types::Any;
use tonic::{Request, Response, Status, Streaming as Requests};

use crate::{BoxStream, GrpcService, convert, grpc::serve, scope::namespace, status::status};

/// How long a client may take to say which stream it opens.
const PATIENCE: Duration = Duration::from_secs(10);
/// Messages on their way in each direction.
const CAPACITY: usize = 16;

/// The service.
pub struct Streaming {
    streams: Streams,
}

impl Streaming {
    /// A service that registers streams in `streams`.
    pub fn new(streams: Streams) -> Self {
        Self { streams }
    }

    /// The service, ready to be offered.
    pub fn service(self) -> GrpcService {
        serve!(streaming_server::StreamingServer, self)
    }
}

/// Our end of a stream, and what keeps its name, until the client or the user of the stream ends it.
struct Session {
    end: Arc<End>,
    _registration: Registration,
    _pump: Pump,
}

/// Carries what the client sends; ends with the session.
struct Pump(tokio::task::JoinHandle<()>);

impl Drop for Pump {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[tonic::async_trait]
impl streaming_server::Streaming for Streaming {
    type StreamStream = BoxStream<Any>;

    async fn stream(&self, request: Request<Requests<Any>>) -> Result<Response<Self::StreamStream>, Status> {
        let namespace = namespace(request.metadata())?;
        let mut requests = request.into_inner();
        let first = tokio::time::timeout(PATIENCE, requests.message())
            .await
            .map_err(|_| Status::deadline_exceeded("the first message of a stream must name it"))??
            .ok_or_else(|| Status::invalid_argument("the first message of a stream must name it"))?;
        let init: api::StreamInit = any::unpack("containerd.services.streaming.v1.StreamInit", &first)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let (user, end) = pair(CAPACITY);
        let registration = self.streams.register(&namespace, &init.id, Arc::new(user)).map_err(status)?;
        let end = Arc::new(end);
        let pump = Pump(tokio::spawn(receive(requests, Arc::clone(&end))));
        let session = Session { end, _registration: registration, _pump: pump };
        // The client waits for this before it uses the name.
        let acknowledged = stream::iter([Ok(Any { type_url: "google.protobuf.Empty".into(), value: Vec::new() })]);
        let answers = stream::unfold(session, |session| async move {
            match session.end.receive().await {
                Ok(Some(message)) => Some((Ok(convert::any_to(message)), session)),
                Ok(None) => None,
                Err(error) => Some((Err(status(error)), session)),
            }
        });
        Ok(Response::new(acknowledged.chain(answers).boxed()))
    }
}

/// Carries the client's messages to the user of the stream.
async fn receive(mut requests: Requests<Any>, end: Arc<End>) {
    loop {
        match requests.message().await {
            Ok(Some(message)) => {
                if end.send(convert::any_from(message)).await.is_err() {
                    return;
                }
            }
            Ok(None) => return end.close().await,
            Err(status) => return end.fail(Error::cancelled(format!("stream: {}", status.message()))).await,
        }
    }
}
