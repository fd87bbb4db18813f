//! Requests of any shape are answered with a specification or an error that names a field.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(deprecated)]

use std::path::{Path, PathBuf};

use containerd_api_cri::v1::*;
use core_mount::MountInfo;
use core_oci::{CdiRegistry, DeviceNode, ImageConfig};
use core_types::{Error, ErrorKind, Result};
use plugin_cri_spec::{
    ContainerInput, Handler, Host, HostFiles, Options, PodNamespaces, SandboxFiles, SandboxInput, container_spec,
    resolv_conf, sandbox_spec, stop_signal, update_resources,
};
use proptest::{collection::vec, prelude::*};

struct Nothing;

impl HostFiles for Nothing {
    fn mount_source(&self, path: &Path) -> Result<PathBuf> {
        Ok(path.to_owned())
    }
    fn devices(&self, _: &Path) -> Result<Vec<DeviceNode>> {
        Err(Error::not_found("none"))
    }
    fn seccomp_profile(&self, _: &Path) -> Result<Vec<u8>> {
        Ok(b"[]".to_vec())
    }
    fn has_apparmor_profile(&self, _: &str) -> Result<bool> {
        Ok(true)
    }
    fn mounts(&self) -> Result<Vec<MountInfo>> {
        Ok(Vec::new())
    }
    fn cdi(&self, _: &[PathBuf]) -> CdiRegistry {
        CdiRegistry::default()
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("/a/../../b".to_owned()),
        Just("/proc/self".to_owned()),
        Just("runtime/default".to_owned()),
        Just("localhost//x".to_owned()),
        Just("a\0b".to_owned()),
        Just("99999999999".to_owned()),
        Just("ALL".to_owned()),
        Just("net_admin".to_owned()),
        ".{0,12}",
        "/[a-z/.]{0,12}",
    ]
}

fn number() -> impl Strategy<Value = i64> {
    prop_oneof![Just(0), Just(-1), Just(1), Just(i64::MIN), Just(i64::MAX), -2000..2000_i64]
}

fn kind() -> impl Strategy<Value = i32> {
    prop_oneof![0..4_i32, Just(-1), Just(i32::MAX)]
}

fn maps() -> impl Strategy<Value = Vec<IdMapping>> {
    let id = || prop_oneof![Just(0_u32), Just(u32::MAX), Just(65536_u32)];
    let map =
        (id(), id(), id()).prop_map(|(host_id, container_id, length)| IdMapping { host_id, container_id, length });
    vec(map, 0..3)
}

fn namespaces() -> impl Strategy<Value = Option<NamespaceOption>> {
    let users = (kind(), maps(), maps()).prop_map(|(mode, uids, gids)| UserNamespace { mode, uids, gids });
    let options = (kind(), kind(), kind(), text(), proptest::option::weighted(0.2, users));
    let options = options.prop_map(|(network, pid, ipc, target_id, userns_options)| NamespaceOption {
        network,
        pid,
        ipc,
        target_id,
        userns_options,
    });
    proptest::option::of(options)
}

fn profile() -> impl Strategy<Value = Option<SecurityProfile>> {
    let profile = (kind(), text());
    let profile = profile.prop_map(|(profile_type, localhost_ref)| SecurityProfile { profile_type, localhost_ref });
    proptest::option::of(profile)
}

fn mount() -> impl Strategy<Value = Mount> {
    (text(), text(), any::<[bool; 3]>(), kind(), maps(), maps()).prop_map(
        |(container_path, host_path, [readonly, recursive_read_only, selinux_relabel], propagation, uids, gids)| {
            Mount {
                container_path,
                host_path,
                readonly,
                recursive_read_only,
                selinux_relabel,
                propagation,
                uid_mappings: uids,
                gid_mappings: gids,
                ..Default::default()
            }
        },
    )
}

fn resources() -> impl Strategy<Value = LinuxContainerResources> {
    (vec(number(), 6), text(), text(), text(), text()).prop_map(|(n, cpus, mems, key, value)| LinuxContainerResources {
        cpu_period: n[0],
        cpu_quota: n[1],
        cpu_shares: n[2],
        memory_limit_in_bytes: n[3],
        memory_swap_limit_in_bytes: n[4],
        oom_score_adj: n[5],
        cpuset_cpus: cpus,
        cpuset_mems: mems,
        hugepage_limits: vec![HugepageLimit { page_size: key.clone(), limit: 1 }],
        unified: [(key, value)].into(),
    })
}

fn security() -> impl Strategy<Value = LinuxContainerSecurityContext> {
    let ids = (proptest::option::of(number()), proptest::option::of(number()), text(), vec(number(), 0..3), kind());
    let profiles = (profile(), profile(), text(), text());
    let lists = (vec(text(), 0..3), vec(text(), 0..3), vec(text(), 0..3), vec(text(), 0..3));
    (ids, profiles, lists, namespaces(), any::<[bool; 3]>(), text()).prop_map(
        |(ids, profiles, lists, namespace_options, flags, label)| LinuxContainerSecurityContext {
            capabilities: Some(Capability {
                add_capabilities: lists.0,
                drop_capabilities: lists.1.clone(),
                add_ambient_capabilities: lists.1,
            }),
            privileged: flags[0],
            readonly_rootfs: flags[1],
            no_new_privs: flags[2],
            namespace_options,
            selinux_options: Some(SeLinuxOption { level: label, ..Default::default() }),
            run_as_user: ids.0.map(|value| Int64Value { value }),
            run_as_group: ids.1.map(|value| Int64Value { value }),
            run_as_username: ids.2,
            supplemental_groups: ids.3,
            supplemental_groups_policy: ids.4,
            masked_paths: lists.2,
            readonly_paths: lists.3,
            seccomp: profiles.0,
            apparmor: profiles.1,
            apparmor_profile: profiles.2,
            seccomp_profile_path: profiles.3,
        },
    )
}

fn container() -> impl Strategy<Value = ContainerConfig> {
    let texts = (vec(text(), 0..3), vec(text(), 0..3), text(), vec((text(), any::<Vec<u8>>()), 0..3));
    let lists = (vec(mount(), 0..4), vec((text(), text(), text()), 0..2), vec(text(), 0..2), text());
    let linux = (proptest::option::of(resources()), proptest::option::of(security()));
    (texts, lists, proptest::option::of(linux), kind(), any::<bool>()).prop_map(
        |((command, args, working_dir, envs), (mounts, devices, cdi, annotation), linux, stop_signal, tty)| {
            let envs = envs.into_iter().map(|(key, value)| KeyValue { key, value });
            let devices = devices.into_iter().map(|(container_path, host_path, permissions)| Device {
                container_path,
                host_path,
                permissions,
            });
            ContainerConfig {
                command,
                args,
                working_dir,
                envs: envs.collect(),
                mounts,
                devices: devices.collect(),
                annotations: [("cdi.k8s.io/x".to_owned(), annotation.clone()), (annotation, String::new())].into(),
                cdi_devices: cdi.into_iter().map(|name| CdiDevice { name }).collect(),
                linux: linux.map(|(resources, security_context)| LinuxContainerConfig { resources, security_context }),
                stop_signal,
                tty,
                ..Default::default()
            }
        },
    )
}

fn sandbox() -> impl Strategy<Value = PodSandboxConfig> {
    let ids = (proptest::option::of(number()), proptest::option::of(number()), vec(number(), 0..3));
    let security = (ids, namespaces(), profile(), text(), any::<bool>()).prop_map(
        |(ids, namespace_options, seccomp, seccomp_profile_path, privileged)| LinuxSandboxSecurityContext {
            run_as_user: ids.0.map(|value| Int64Value { value }),
            run_as_group: ids.1.map(|value| Int64Value { value }),
            supplemental_groups: ids.2,
            namespace_options,
            seccomp,
            seccomp_profile_path,
            privileged,
            ..Default::default()
        },
    );
    let linux = (text(), proptest::option::of(security), text(), text(), proptest::option::of(resources()));
    (text(), proptest::option::of(linux), vec(text(), 0..3)).prop_map(|(hostname, linux, servers)| PodSandboxConfig {
        hostname,
        dns_config: Some(DnsConfig { servers: servers.clone(), searches: servers, options: Vec::new() }),
        linux: linux.map(|(cgroup_parent, security_context, key, value, resources)| LinuxPodSandboxConfig {
            cgroup_parent,
            security_context,
            sysctls: [(key, value)].into(),
            resources,
            ..Default::default()
        }),
        ..Default::default()
    })
}

/// An error has a field and a kind that tells a client what to do.
fn check<T>(result: plugin_cri_spec::Result<T>) -> Option<T> {
    match result {
        Ok(made) => Some(made),
        Err(error) => {
            assert!(!error.field().is_empty(), "{error}");
            let error = Error::from(error);
            let kinds = [ErrorKind::InvalidArgument, ErrorKind::FailedPrecondition];
            assert!(kinds.contains(&error.kind()), "{error} {:?}", error.kind());
            None
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn containers(config in container(), pod in sandbox(), id in text(), user in text(), features in any::<[bool; 5]>()) {
        let [cgroup_v2, apparmor, seccomp, hugetlb_controller, recursive_read_only_mounts] = features;
        let host = Host { cgroup_v2, apparmor, seccomp, hugetlb_controller, ..Host::default() };
        let handler = Handler { recursive_read_only_mounts, ..Handler::default() };
        let options = Options { disable_hugetlb_controller: false, ..Options::default() };
        let image = ImageConfig::from_slice(br#"{"config":{"Cmd":["x"]}}"#).unwrap();
        let mut image = image;
        image.config.user = user;
        let _ = check(stop_signal(&config, &image));
        let input = ContainerInput {
            id: if id.is_empty() { "c" } else { &id },
            sandbox_id: "s",
            config: &config,
            sandbox_config: &pod,
            image_name: "i",
            image: &image,
            rootfs: None,
            namespaces: &PodNamespaces::of_process(1),
            target_pid: None,
            sandbox_process_label: "",
            selinux_level: None,
            files: &SandboxFiles::default(),
            volumes_dir: "/v".into(),
            options: &options,
            handler: &handler,
        };
        if let Some(made) = check(container_spec(&input, &host, &Nothing)) {
            let text = String::from_utf8(made.spec.to_vec().unwrap()).unwrap();
            prop_assert!(!text.contains("\\u0000"), "a zero byte went through: {}", text);
            if let Some(limits) = config.linux.as_ref().and_then(|linux| linux.resources.as_ref()) {
                let _ = check(update_resources(&made.spec, limits, &options, &host));
            }
        }
    }

    #[test]
    fn sandboxes(config in sandbox(), id in text(), user in text()) {
        let mut image = ImageConfig::from_slice(br#"{"config":{"Cmd":["x"]}}"#).unwrap();
        image.config.user = user;
        let _ = check(resolv_conf(config.dns_config.as_ref().unwrap()));
        let input = SandboxInput {
            id: if id.is_empty() { "s" } else { &id },
            config: &config,
            image_name: "i",
            image: &image,
            rootfs: None,
            network_namespace: "/n",
            user_namespace: None,
            shm: "/shm",
            resolv_conf: "/r",
            selinux_level: None,
            options: &Options::default(),
            handler: &Handler::default(),
        };
        let host = Host { seccomp: true, ..Host::default() };
        if let Some(made) = check(sandbox_spec(&input, &host, &Nothing)) {
            let text = String::from_utf8(made.spec.to_vec().unwrap()).unwrap();
            prop_assert!(!text.contains("\\u0000"), "a zero byte went through: {}", text);
        }
    }
}
