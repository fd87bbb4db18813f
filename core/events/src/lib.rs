//! The event exchange: envelopes, filters, bounded subscribers.

#![forbid(unsafe_code)]

/// Fields of task events, which arrive encoded.
mod encoded;
/// Events, envelopes and who takes them.
mod event;
/// Publishing and subscribing.
mod exchange;
/// What filters can ask about an envelope.
mod fields;
/// One subscriber's queue.
mod subscription;

pub use event::{Any, Envelope, Event, Publisher};
pub use exchange::{Exchange, validate_topic};
pub use subscription::{Limits, Subscription};
