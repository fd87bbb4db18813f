/// Managing containers.
pub(crate) mod containers;
/// Managing content.
pub(crate) mod content;
/// Showing events.
pub(crate) mod events;
/// Managing images.
pub(crate) mod images;
/// What the server says of itself.
pub(crate) mod info;
/// Managing leases.
pub(crate) mod leases;
/// Managing namespaces.
pub(crate) mod namespaces;
/// Showing plugins.
pub(crate) mod plugins;
/// Running a container.
pub(crate) mod run;
/// Flags that several commands share.
pub(crate) mod shared;
/// Managing snapshots.
pub(crate) mod snapshots;
/// Managing tasks.
pub(crate) mod tasks;
/// Versions of both sides.
pub(crate) mod version;
