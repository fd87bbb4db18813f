use std::{path::PathBuf, sync::Arc};

use core_plugin::{InitContext, Instance, Registration, types};
use core_snapshots::Snapshotter;
use core_types::Platform;
use plugin_snapshot_storage::run;

use crate::{Config, OverlaySnapshotter};

/// The plugin `io.containerd.snapshotter.v1.overlayfs`; its instance is an `Arc<dyn Snapshotter>`.
pub fn registration() -> Registration {
    let init = |context: InitContext| async move {
        let config: Config = context.config()?;
        let root = match config.root_path.as_str() {
            "" => context.create_root()?.to_owned(),
            path => PathBuf::from(path),
        };
        let export = root.display().to_string();
        let snapshotter = run(move || OverlaySnapshotter::open(&root, &config)).await?;
        let capabilities = snapshotter.capabilities();
        let snapshotter: Arc<dyn Snapshotter> = Arc::new(snapshotter);
        let instance = Instance::new(snapshotter).platform(Platform::host()).export("root", export);
        Ok(capabilities.into_iter().fold(instance, Instance::capability))
    };
    Registration::new(types::SNAPSHOTTER, "overlayfs", init).config(&Config::default())
}
