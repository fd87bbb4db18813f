use std::{path::PathBuf, sync::Arc};

use core_plugin::{InitContext, Instance, Registration, types};
use core_snapshots::Snapshotter;
use core_types::Platform;
use plugin_snapshot_storage::run;

use crate::{Config, NativeSnapshotter};

/// The plugin `io.containerd.snapshotter.v1.native`; its instance is an `Arc<dyn Snapshotter>`.
pub fn registration() -> Registration {
    let init = |context: InitContext| async move {
        let config: Config = context.config()?;
        let root = match config.root_path.as_str() {
            "" => context.create_root()?.to_owned(),
            path => PathBuf::from(path),
        };
        let export = root.display().to_string();
        let snapshotter = run(move || NativeSnapshotter::open(&root)).await?;
        let snapshotter: Arc<dyn Snapshotter> = Arc::new(snapshotter);
        Ok(Instance::new(snapshotter).platform(Platform::host()).export("root", export))
    };
    Registration::new(types::SNAPSHOTTER, "native", init).config(&Config::default())
}
