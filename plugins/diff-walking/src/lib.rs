//! The walking differ as a plugin: `io.containerd.differ.v1`, `walking`.

#![forbid(unsafe_code)]

use std::sync::Arc;

use core_diff::{Differ, WalkingDiffer};
use core_plugin::{Instance, Registration, types};
use core_types::Platform;

/// The registration. Others get it as a [`Differ`].
pub fn registration() -> Registration {
    Registration::new(types::DIFFER, "walking", |_| async {
        let differ = Arc::new(WalkingDiffer::new());
        Ok(Instance::new(Differ { applier: differ.clone(), comparer: differ }).platform(Platform::host()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_the_published_name() {
        assert_eq!(registration().uri(), "io.containerd.differ.v1.walking");
    }
}
