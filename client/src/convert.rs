use std::time::{Duration, SystemTime};

use containerd_api::types;
use core_mount::Mount;
use core_types::{Descriptor, Digest, Platform};
use prost_types::{FieldMask, Timestamp};

use crate::{Error, Result};

/// A descriptor from an API message.
///
/// # Errors
/// InvalidArgument for a malformed digest or a negative size.
pub fn descriptor_from_api(message: types::Descriptor) -> Result<Descriptor> {
    let digest = Digest::parse(&message.digest)?;
    let size =
        u64::try_from(message.size).map_err(|_| Error::invalid(format!("descriptor {digest} has a negative size")))?;
    let mut descriptor = Descriptor::new(message.media_type, digest, size);
    descriptor.annotations = message.annotations;
    Ok(descriptor)
}

/// A descriptor as an API message.
pub fn descriptor_to_api(descriptor: &Descriptor) -> types::Descriptor {
    types::Descriptor {
        media_type: descriptor.media_type.clone(),
        digest: descriptor.digest.to_string(),
        size: i64::try_from(descriptor.size).unwrap_or(i64::MAX),
        annotations: descriptor.annotations.clone(),
    }
}

/// A platform as an API message.
pub fn platform_to_api(platform: &Platform) -> types::Platform {
    types::Platform {
        os: platform.os.clone(),
        architecture: platform.architecture.clone(),
        variant: platform.variant.clone(),
        os_version: platform.os_version.clone(),
        os_features: platform.os_features.clone(),
    }
}

/// Mounts from API messages.
pub fn mounts_from_api(messages: Vec<types::Mount>) -> Vec<Mount> {
    let mount = |message: types::Mount| Mount {
        kind: message.r#type,
        source: message.source,
        target: message.target,
        options: message.options,
    };
    messages.into_iter().map(mount).collect()
}

pub(crate) fn mounts_to_api(mounts: &[Mount]) -> Vec<types::Mount> {
    let message = |mount: &Mount| types::Mount {
        r#type: mount.kind.clone(),
        source: mount.source.clone(),
        target: mount.target.clone(),
        options: mount.options.clone(),
    };
    mounts.iter().map(message).collect()
}

/// A time from an API message; the epoch when there is none.
pub fn timestamp_to_system(timestamp: Option<&Timestamp>) -> SystemTime {
    let Some(timestamp) = timestamp else { return SystemTime::UNIX_EPOCH };
    let seconds = Duration::from_secs(timestamp.seconds.unsigned_abs());
    let nanos = Duration::from_nanos(u64::try_from(timestamp.nanos).unwrap_or(0));
    let whole = if timestamp.seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(seconds)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(seconds)
    };
    whole.and_then(|time| time.checked_add(nanos)).unwrap_or(SystemTime::UNIX_EPOCH)
}

pub(crate) fn mask(paths: &[String]) -> Option<FieldMask> {
    (!paths.is_empty()).then(|| FieldMask { paths: paths.to_vec() })
}
