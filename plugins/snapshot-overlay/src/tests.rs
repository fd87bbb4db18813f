use std::{path::Path, sync::Arc};

use core_snapshots::Snapshotter;

use crate::{Config, OverlaySnapshotter};

fn make(root: &Path) -> Option<Arc<dyn Snapshotter>> {
    match OverlaySnapshotter::open(root, &Config::default()) {
        Ok(snapshotter) => Some(Arc::new(snapshotter)),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

core_snapshots::snapshotter_suite!(make);
