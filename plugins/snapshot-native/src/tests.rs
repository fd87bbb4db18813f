use std::{path::Path, sync::Arc};

use core_snapshots::Snapshotter;

use crate::NativeSnapshotter;

fn make(root: &Path) -> Option<Arc<dyn Snapshotter>> {
    Some(Arc::new(NativeSnapshotter::open(root).unwrap()))
}

core_snapshots::snapshotter_suite!(make);
