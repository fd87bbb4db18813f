//! The published types of plugins (containerd `plugins/types.go`).

/// Parts of the daemon that no client names.
pub const INTERNAL: &str = "io.containerd.internal.v1";
/// Runtimes behind shims.
pub const RUNTIME_V2: &str = "io.containerd.runtime.v2";
/// Implementations of services, used in the process.
pub const SERVICE: &str = "io.containerd.service.v1";
/// gRPC services.
pub const GRPC: &str = "io.containerd.grpc.v1";
/// ttrpc services.
pub const TTRPC: &str = "io.containerd.ttrpc.v1";
/// Snapshotters.
pub const SNAPSHOTTER: &str = "io.containerd.snapshotter.v1";
/// Watchers of tasks.
pub const TASK_MONITOR: &str = "io.containerd.monitor.task.v1";
/// Watchers of containers.
pub const CONTAINER_MONITOR: &str = "io.containerd.monitor.container.v1";
/// Appliers and comparers of layers.
pub const DIFFER: &str = "io.containerd.differ.v1";
/// The metadata database.
pub const METADATA: &str = "io.containerd.metadata.v1";
/// Content stores.
pub const CONTENT: &str = "io.containerd.content.v1";
/// Policies of garbage collection.
pub const GC: &str = "io.containerd.gc.v1";
/// Exchanges of events.
pub const EVENT: &str = "io.containerd.event.v1";
/// Managers of leases.
pub const LEASE: &str = "io.containerd.lease.v1";
/// Managers of streams.
pub const STREAMING: &str = "io.containerd.streaming.v1";
/// Processors of traces.
pub const TRACING_PROCESSOR: &str = "io.containerd.tracing.processor.v1";
/// Metrics.
pub const METRICS: &str = "io.containerd.metrics.v1";
/// The node resource interface.
pub const NRI: &str = "io.containerd.nri.v1";
/// The transfer service.
pub const TRANSFER: &str = "io.containerd.transfer.v1";
/// Stores of sandboxes.
pub const SANDBOX_STORE: &str = "io.containerd.sandbox.store.v1";
/// The controller of pods with a pause container.
pub const POD_SANDBOX: &str = "io.containerd.podsandbox.controller.v1";
/// Controllers of sandboxes.
pub const SANDBOX_CONTROLLER: &str = "io.containerd.sandbox.controller.v1";
/// Verifiers of images.
pub const IMAGE_VERIFIER: &str = "io.containerd.image-verifier.v1";
/// Warnings about what is outdated.
pub const WARNING: &str = "io.containerd.warning.v1";
/// The parts of the Kubernetes interface.
pub const CRI_SERVICE: &str = "io.containerd.cri.v1";
/// Services of shims, and what is common to all shims.
pub const SHIM: &str = "io.containerd.shim.v1";
/// Handlers of HTTP requests.
pub const HTTP: &str = "io.containerd.http.v1";
/// Listeners.
pub const SERVER: &str = "io.containerd.server.v1";
/// Managers of mounts.
pub const MOUNT_MANAGER: &str = "io.containerd.mount-manager.v1";
/// Handlers of kinds of mounts.
pub const MOUNT_HANDLER: &str = "io.containerd.mount-handler.v1";
