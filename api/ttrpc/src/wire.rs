//! The envelope messages of the protocol (`ttrpc/request.proto`, `google/rpc/status.proto`).

use std::time::Duration;

use crate::{Context, Status};

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Request {
    #[prost(string, tag = "1")]
    pub(crate) service: String,
    #[prost(string, tag = "2")]
    pub(crate) method: String,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) payload: Vec<u8>,
    #[prost(int64, tag = "4")]
    timeout_nano: i64,
    #[prost(message, repeated, tag = "5")]
    metadata: Vec<KeyValue>,
}

impl Request {
    pub(crate) fn new(service: &str, method: &str, context: &Context, payload: Vec<u8>) -> Self {
        let mut metadata = Vec::new();
        for (key, values) in &context.metadata {
            for value in values {
                metadata.push(KeyValue { key: key.clone(), value: value.clone() });
            }
        }
        // Zero means "no deadline" on the wire, so the shortest one is a nanosecond.
        let timeout_nano =
            context.timeout.map_or(0, |timeout| i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX).max(1));
        Self { service: service.into(), method: method.into(), payload, timeout_nano, metadata }
    }

    /// Takes deadline and metadata out of the request.
    pub(crate) fn take_context(&mut self) -> Context {
        let timeout = match self.timeout_nano {
            0 => None,
            nanos => Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))),
        };
        let mut context = Context { timeout, ..Context::default() };
        for KeyValue { key, value } in std::mem::take(&mut self.metadata) {
            context.metadata.entry(key).or_default().push(value);
        }
        context
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Response {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<RpcStatus>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) payload: Vec<u8>,
}

impl From<Status> for Response {
    fn from(status: Status) -> Self {
        let status = RpcStatus { code: status.code, message: status.message };
        Self { status: Some(status), payload: Vec::new() }
    }
}

impl Response {
    /// The payload, or the failure that the peer reports.
    pub(crate) fn into_result(self) -> Result<Vec<u8>, Status> {
        match self.status {
            Some(status) if status.code != 0 => Err(Status::new(status.code, status.message)),
            _ => Ok(self.payload),
        }
    }
}
