use std::sync::Arc;

use core_content::{LocalStore, Store};
use core_plugin::{InitContext, Instance, Registration, types};
use core_types::Error;

/// The plugin `io.containerd.content.v1.content`; its instance is an `Arc<dyn Store>`.
pub fn registration() -> Registration {
    let init = |context: InitContext| async move {
        let root = context.create_root()?.to_owned();
        let export = root.display().to_string();
        let store = tokio::task::spawn_blocking(move || LocalStore::open(root))
            .await
            .map_err(|error| Error::internal(format!("open content store: {error}")))??;
        let store: Arc<dyn Store> = Arc::new(store);
        Ok(Instance::new(store).export("root", export))
    };
    Registration::new(types::CONTENT, "content", init)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_published_one() {
        assert_eq!(registration().uri(), "io.containerd.content.v1.content");
    }
}
