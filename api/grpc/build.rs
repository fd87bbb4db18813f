//! Generates tonic clients and servers; the messages come from `containerd-api`.

use std::error::Error;

/// The services a daemon offers over gRPC, as files below `api/proto`.
const SERVICES: [&str; 21] = [
    "services/containers/v1/containers.proto",
    "services/content/v1/content.proto",
    "services/diff/v1/diff.proto",
    "services/events/v1/events.proto",
    "services/images/v1/images.proto",
    "services/introspection/v1/introspection.proto",
    "services/leases/v1/leases.proto",
    "services/mounts/v1/mounts.proto",
    "services/namespaces/v1/namespace.proto",
    "services/sandbox/v1/sandbox.proto",
    "services/snapshots/v1/snapshots.proto",
    "services/streaming/v1/streaming.proto",
    "services/tasks/v1/tasks.proto",
    "services/transfer/v1/transfer.proto",
    "services/version/v1/version.proto",
    "runtime/task/v2/shim.proto",
    "runtime/task/v3/shim.proto",
    "runtime/sandbox/v1/sandbox.proto",
    "types/transfer/progress.proto",
    "types/task/task.proto",
    "health.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=../proto");
    let set = protox::compile(SERVICES, ["../proto"])?;
    // Without `connect` constructors: they would collide with the RPC of that name.
    tonic_prost_build::configure()
        .build_transport(false)
        .extern_path(".containerd", "::containerd_api")
        .extern_path(".google.rpc", "::containerd_api::google::rpc")
        .extern_path(".grpc", "::containerd_api::grpc")
        .include_file("grpc.rs")
        .compile_fds(set)?;
    Ok(())
}
