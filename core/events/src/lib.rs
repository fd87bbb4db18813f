//! The event exchange: envelopes, filters, bounded subscribers.

#![forbid(unsafe_code)]

mod event;

pub use event::{Any, Envelope, Event, Publisher};
