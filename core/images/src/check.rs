use core_content::Store;
use core_types::{Descriptor, Result};

use crate::{PlatformSet, select, walk};

/// Which blobs an image needs for a platform, and which of them are there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Whether the manifest was found; without it nothing is known of the rest.
    pub available: bool,
    /// All that is needed: manifest, configuration, layers.
    pub required: Vec<Descriptor>,
    /// Those that are there.
    pub present: Vec<Descriptor>,
    /// Those that are not.
    pub missing: Vec<Descriptor>,
}

/// Checks whether the blobs of `target` for the platform are in the store.
///
/// # Errors
/// What the store says, except that something is not there.
pub async fn check(store: &dyn Store, target: &Descriptor, platforms: &PlatformSet) -> Result<Check> {
    let selected = match select(store, target, platforms).await {
        Ok(selected) => selected,
        Err(error) if error.is_not_found() => {
            let only = vec![target.clone()];
            return Ok(Check { available: false, required: only.clone(), present: Vec::new(), missing: only });
        }
        Err(error) => return Err(error),
    };
    let mut check = Check { available: true, ..Check::default() };
    let parts = [selected.manifest, selected.config].into_iter().chain(selected.layers);
    for part in parts {
        match store.info(&part.digest).await {
            Ok(_) => check.present.push(part.clone()),
            Err(error) if error.is_not_found() => check.missing.push(part.clone()),
            Err(error) => return Err(error),
        }
        check.required.push(part);
    }
    Ok(check)
}

/// Bytes that the blobs of an image take in the store, over all platforms that are there.
///
/// # Errors
/// What the store says, except that something is not there.
pub async fn usage(store: &dyn Store, target: &Descriptor) -> Result<u64> {
    let mut total = 0;
    for part in walk(store, target, |_| true).await? {
        match store.info(&part.digest).await {
            Ok(info) => total += info.size,
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(total)
}
