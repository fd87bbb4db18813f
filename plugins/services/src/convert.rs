//! Messages to core types and back.

use std::time::SystemTime;

use containerd_api::types;
use core_events::Any;
use core_mount::Mount;
use core_types::{Descriptor, Digest, Platform, Result};
use prost_types::{FieldMask, Timestamp};
use tonic::Status;

use crate::status::status;

/// A time.
pub fn timestamp(time: SystemTime) -> Option<Timestamp> {
    Some(Timestamp::from(time))
}

/// A time; now when the message names none that exists.
pub fn time(timestamp: Option<Timestamp>) -> SystemTime {
    timestamp.and_then(|timestamp| SystemTime::try_from(timestamp).ok()).unwrap_or_else(SystemTime::now)
}

/// The paths of a field mask.
pub fn paths(mask: Option<FieldMask>) -> Vec<String> {
    mask.map(|mask| mask.paths).unwrap_or_default()
}

/// A length, as messages carry it.
pub fn length(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

/// A digest.
///
/// # Errors
/// InvalidArgument when it is none.
pub fn digest(text: &str) -> Result<Digest, Status> {
    Digest::parse(text).map_err(status)
}

/// A digest that may be left out.
///
/// # Errors
/// InvalidArgument when it is there and none.
pub fn optional_digest(text: &str) -> Result<Option<Digest>, Status> {
    if text.is_empty() { Ok(None) } else { digest(text).map(Some) }
}

/// A packed message, from the wire.
pub fn any_from(any: prost_types::Any) -> Any {
    Any { type_url: any.type_url, value: any.value.into() }
}

/// A packed message, for the wire.
pub fn any_to(any: Any) -> prost_types::Any {
    prost_types::Any { type_url: any.type_url, value: any.value.into() }
}

/// A descriptor, from the wire.
///
/// # Errors
/// InvalidArgument for a digest that is none or a negative size.
pub fn descriptor_from(message: types::Descriptor) -> Result<Descriptor, Status> {
    let size = u64::try_from(message.size).map_err(|_| Status::invalid_argument("descriptor has a negative size"))?;
    let mut descriptor = Descriptor::new(message.media_type, digest(&message.digest)?, size);
    descriptor.annotations = message.annotations;
    Ok(descriptor)
}

/// A descriptor, for the wire.
pub fn descriptor_to(descriptor: Descriptor) -> types::Descriptor {
    types::Descriptor {
        media_type: descriptor.media_type,
        digest: descriptor.digest.to_string(),
        size: length(descriptor.size),
        annotations: descriptor.annotations,
    }
}

/// Mounts, from the wire.
pub fn mounts_from(messages: Vec<types::Mount>) -> Vec<Mount> {
    let mount = |message: types::Mount| Mount {
        kind: message.r#type,
        source: message.source,
        target: message.target,
        options: message.options,
    };
    messages.into_iter().map(mount).collect()
}

/// Mounts, for the wire.
pub fn mounts_to(mounts: Vec<Mount>) -> Vec<types::Mount> {
    let message = |mount: Mount| types::Mount {
        r#type: mount.kind,
        source: mount.source,
        target: mount.target,
        options: mount.options,
    };
    mounts.into_iter().map(message).collect()
}

/// A platform, from the wire.
pub fn platform_from(message: types::Platform) -> Platform {
    Platform {
        os: message.os,
        architecture: message.architecture,
        variant: message.variant,
        os_version: message.os_version,
        os_features: message.os_features,
    }
}

/// A platform, for the wire.
pub fn platform_to(platform: Platform) -> types::Platform {
    types::Platform {
        os: platform.os,
        architecture: platform.architecture,
        variant: platform.variant,
        os_version: platform.os_version,
        os_features: platform.os_features,
    }
}
