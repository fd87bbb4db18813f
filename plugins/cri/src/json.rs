//! What verbose answers show of requests and records, as JSON with the names that `crictl` users know.

use containerd_api::runc::v1::Options as RuncOptions;
use containerd_api_cri::v1::{ContainerConfig, PodSandboxConfig};
use core_events::Any;
use core_metadata::Container;
use prost::Message;
use serde_json::{Value, json};

/// The configuration of a pod.
pub(crate) fn sandbox_config(config: &PodSandboxConfig) -> Value {
    let metadata = config.metadata.clone().unwrap_or_default();
    let ports = config.port_mappings.iter().map(|mapping| {
        json!({
            "protocol": mapping.protocol,
            "container_port": mapping.container_port,
            "host_port": mapping.host_port,
            "host_ip": mapping.host_ip,
        })
    });
    json!({
        "metadata": {
            "name": metadata.name,
            "uid": metadata.uid,
            "namespace": metadata.namespace,
            "attempt": metadata.attempt,
        },
        "hostname": config.hostname,
        "log_directory": config.log_directory,
        "dns_config": config.dns_config.as_ref().map(|dns| {
            json!({ "servers": dns.servers, "searches": dns.searches, "options": dns.options })
        }),
        "port_mappings": ports.collect::<Vec<_>>(),
        "labels": config.labels,
        "annotations": config.annotations,
        "linux": config.linux.as_ref().map(|linux| {
            json!({ "cgroup_parent": linux.cgroup_parent, "sysctls": linux.sysctls })
        }),
    })
}

/// The configuration of a container.
pub(crate) fn container_config(config: &ContainerConfig) -> Value {
    let metadata = config.metadata.clone().unwrap_or_default();
    let envs = config.envs.iter().map(|env| json!({ "key": env.key, "value": env.value }));
    let mounts = config.mounts.iter().map(|mount| {
        json!({
            "container_path": mount.container_path,
            "host_path": mount.host_path,
            "readonly": mount.readonly,
            "propagation": mount.propagation,
        })
    });
    json!({
        "metadata": { "name": metadata.name, "attempt": metadata.attempt },
        "image": { "image": config.image.clone().unwrap_or_default().image },
        "command": config.command,
        "args": config.args,
        "working_dir": config.working_dir,
        "envs": envs.collect::<Vec<_>>(),
        "mounts": mounts.collect::<Vec<_>>(),
        "labels": config.labels,
        "annotations": config.annotations,
        "log_path": config.log_path,
        "stdin": config.stdin,
        "stdin_once": config.stdin_once,
        "tty": config.tty,
    })
}

/// The OCI specification of a container; None when it has none that can be read.
pub(crate) fn spec(container: &Container) -> Option<Value> {
    serde_json::from_slice(&container.spec.as_ref()?.value).ok()
}

/// Options of a shim: those of runc by name, of others their type.
pub(crate) fn runtime_options(options: Option<&Any>) -> Value {
    let Some(options) = options else {
        return Value::Null;
    };
    match RuncOptions::decode(&options.value[..]) {
        Ok(runc) if options.type_url == "containerd.runc.v1.Options" => json!({
            "binary_name": runc.binary_name,
            "root": runc.root,
            "systemd_cgroup": runc.systemd_cgroup,
            "no_new_keyring": runc.no_new_keyring,
            "shim_cgroup": runc.shim_cgroup,
            "io_uid": runc.io_uid,
            "io_gid": runc.io_gid,
        }),
        _ => json!({ "type_url": options.type_url }),
    }
}
