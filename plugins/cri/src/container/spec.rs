//! From a request to a specification: what `plugin-cri-spec` needs is gathered here.

use std::sync::Arc;

use containerd_api_cri::v1::{ContainerConfig, ContainerState, LinuxContainerResources, NamespaceMode};
use core_mount::Mount;
use core_oci::{ImageConfig, Rootfs, Spec};
use core_types::{Error, Result, ResultExt};
use plugin_cri_images::Image;
use plugin_cri_spec::{ContainerInput, ContainerSpec, Handler as Options, LocalHost, PodNamespaces, SandboxFiles};
use serde_json::Value;

use crate::{blocking, cri::Cri, handler::Handler, store::Sandbox};

/// What a handler's section says about specifications.
pub(crate) fn handler_options(cri: &Cri, handler: &Handler) -> Options {
    let config = &handler.config;
    Options {
        pod_annotations: config.pod_annotations.clone(),
        container_annotations: config.container_annotations.clone(),
        privileged_without_host_devices: config.privileged_without_host_devices,
        privileged_without_host_devices_all_devices_allowed: config.privileged_without_host_devices_all_devices_allowed,
        cgroup_writable: config.cgroup_writable,
        base_spec: handler.base_spec.clone(),
        recursive_read_only_mounts: cri.features.of(&handler.name).recursive_read_only_mounts,
    }
}

/// The specification of a container.
///
/// # Errors
/// InvalidArgument that names the field of the request.
#[expect(clippy::too_many_arguments, reason = "each is a fact of its own")]
pub(crate) async fn container(
    cri: &Arc<Cri>,
    sandbox: &Arc<Sandbox>,
    handler: &Arc<Handler>,
    id: &str,
    config: &ContainerConfig,
    image: &Image,
    image_config: &ImageConfig,
    mounts: &[Mount],
) -> Result<ContainerSpec> {
    let security = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    let namespaces = security.and_then(|security| security.namespace_options.as_ref());
    let target_pid = match namespaces {
        Some(options) if options.pid == NamespaceMode::Target as i32 => {
            Some(target(cri, sandbox.id(), &options.target_id)?)
        }
        _ => None,
    };
    let (cri, sandbox, handler) = (Arc::clone(cri), Arc::clone(sandbox), Arc::clone(handler));
    let (id, config, image_name, image) = (id.to_owned(), config.clone(), image.reference(), image_config.clone());
    let mounts = mounts.to_vec();
    blocking(move || {
        let state = sandbox.state();
        let rootfs = Rootfs::from_mounts(&mounts).doing("look users up in the image")?;
        let input = ContainerInput {
            id: &id,
            sandbox_id: sandbox.id(),
            config: &config,
            sandbox_config: &sandbox.facts.config,
            image_name: &image_name,
            image: &image,
            rootfs: rootfs.as_ref(),
            namespaces: &pod_namespaces(state.pid, state.netns.as_deref()),
            target_pid,
            sandbox_process_label: &state.process_label,
            selinux_level: None,
            files: &files(&cri, sandbox.id()),
            volumes_dir: cri.layout.container_root(&id).join("volumes"),
            options: &cri.spec_options,
            handler: &handler_options(&cri, &handler),
        };
        plugin_cri_spec::container_spec(&input, &cri.host, &LocalHost).map_err(Error::from)
    })
    .await
}

fn pod_namespaces(pid: u32, netns: Option<&std::path::Path>) -> PodNamespaces {
    let mut namespaces = if pid == 0 { PodNamespaces::default() } else { PodNamespaces::of_process(pid) };
    if let Some(netns) = netns {
        namespaces.network = Some(netns.to_string_lossy().into_owned());
    }
    namespaces
}

/// The files of a pod that are there.
pub(crate) fn files(cri: &Cri, sandbox: &str) -> SandboxFiles {
    let root = cri.layout.sandbox_root(sandbox);
    let file = |name: &str| Some(root.join(name)).filter(|path| path.exists());
    SandboxFiles {
        hostname: file("hostname"),
        hosts: file("hosts"),
        resolv_conf: file("resolv.conf"),
        shm: Some(cri.layout.shm(sandbox)).filter(|path| path.exists()),
    }
}

/// The pid of a container whose process namespace another one joins.
///
/// # Errors
/// NotFound, InvalidArgument for one of another pod, FailedPrecondition for one that does not run.
pub(crate) fn target(cri: &Cri, sandbox: &str, id: &str) -> Result<u32> {
    let target = cri.containers.get(id).doing("namespace_options.target_id")?;
    if target.facts.sandbox_id != sandbox {
        return Err(Error::invalid_argument(format!(
            "namespace_options.target_id: container {id} is of sandbox {}, not of {sandbox}",
            target.facts.sandbox_id
        )));
    }
    if target.state() != ContainerState::ContainerRunning {
        return Err(Error::failed_precondition(format!("namespace_options.target_id: container {id} is not running")));
    }
    Ok(target.status().pid)
}

/// The user that a specification starts its process as.
pub(crate) fn user(spec: &Spec) -> Option<(i64, i64, Vec<i64>)> {
    let number = |pointer: &str| spec.get(pointer).and_then(Value::as_i64).unwrap_or(0);
    let groups = spec.get("/process/user/additionalGids").and_then(Value::as_array);
    let groups = groups.into_iter().flatten().filter_map(Value::as_i64).collect();
    spec.get("/process/user").map(|_| (number("/process/user/uid"), number("/process/user/gid"), groups))
}

/// The limits of a specification, as the CRI tells them.
pub(crate) fn resources(spec: &Spec) -> LinuxContainerResources {
    let number = |pointer: &str| spec.get(pointer).and_then(Value::as_i64).unwrap_or(0);
    let text = |pointer: &str| spec.text(pointer).to_owned();
    let unified = spec.get("/linux/resources/unified").and_then(Value::as_object);
    let pages = spec.get("/linux/resources/hugepageLimits").and_then(Value::as_array);
    LinuxContainerResources {
        cpu_period: number("/linux/resources/cpu/period"),
        cpu_quota: number("/linux/resources/cpu/quota"),
        cpu_shares: number("/linux/resources/cpu/shares"),
        memory_limit_in_bytes: number("/linux/resources/memory/limit"),
        oom_score_adj: number("/process/oomScoreAdj"),
        cpuset_cpus: text("/linux/resources/cpu/cpus"),
        cpuset_mems: text("/linux/resources/cpu/mems"),
        memory_swap_limit_in_bytes: number("/linux/resources/memory/swap"),
        unified: unified
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect(),
        hugepage_limits: pages
            .into_iter()
            .flatten()
            .map(|page| containerd_api_cri::v1::HugepageLimit {
                page_size: page.get("pageSize").and_then(Value::as_str).unwrap_or_default().to_owned(),
                limit: page.get("limit").and_then(Value::as_u64).unwrap_or(0),
            })
            .collect(),
    }
}
