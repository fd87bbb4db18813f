use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use containerd_api_cri::v1::{
    ContainerConfig, ContainerMetadata, LinuxContainerConfig, LinuxContainerSecurityContext, LinuxPodSandboxConfig,
    LinuxSandboxSecurityContext, NamespaceOption, PodSandboxConfig, PodSandboxMetadata, UserNamespace,
};
use core_mount::{MountInfo, parse_mounts};
use core_oci::{CdiRegistry, DeviceNode, ImageConfig, Spec};
use core_types::{Error, Result};

use crate::{
    ContainerInput, ContainerSpec, Handler, Host, HostFiles, Options, PodNamespaces, SandboxFiles, SandboxInput,
    SandboxSpec, SpecError, container_spec, sandbox_spec,
};

/// A host that has what is listed and nothing else.
pub(crate) struct FakeFiles {
    pub(crate) devices: BTreeMap<&'static str, (i64, i64)>,
    pub(crate) profiles: BTreeMap<&'static str, &'static str>,
    pub(crate) apparmor: Vec<&'static str>,
    pub(crate) links: BTreeMap<&'static str, &'static str>,
    pub(crate) mountinfo: &'static str,
}

impl Default for FakeFiles {
    fn default() -> Self {
        Self {
            devices: BTreeMap::from([("/dev/null", (1, 3)), ("/dev/fuse", (10, 229))]),
            profiles: BTreeMap::from([("/var/lib/kubelet/seccomp/deny.json", r#"{"defaultAction":"SCMP_ACT_KILL"}"#)]),
            apparmor: vec!["mine"],
            links: BTreeMap::from([("/link", "/shared/real")]),
            mountinfo: "1 0 8:1 / / rw - ext4 /dev/sda rw\n\
                        2 1 0:2 / /shared rw shared:7 - tmpfs none rw\n\
                        3 1 0:3 / /slave rw master:7 - tmpfs none rw\n\
                        4 1 0:4 / /sys/fs/cgroup rw - cgroup2 none rw,nsdelegate,memory_recursiveprot,other\n",
        }
    }
}

impl HostFiles for FakeFiles {
    fn mount_source(&self, path: &Path) -> Result<PathBuf> {
        let link = path.to_str().and_then(|path| self.links.get(path));
        Ok(link.map_or_else(|| path.to_owned(), PathBuf::from))
    }

    fn devices(&self, path: &Path) -> Result<Vec<DeviceNode>> {
        let node = |(path, (major, minor)): (&&'static str, &(i64, i64))| DeviceNode {
            path: (*path).to_owned(),
            kind: "c".into(),
            major: *major,
            minor: *minor,
            mode: Some(0o666),
            uid: Some(0),
            gid: Some(0),
        };
        let found: Vec<_> =
            self.devices.iter().filter(|(have, _)| Path::new(have).starts_with(path)).map(node).collect();
        if found.is_empty() { Err(Error::not_found(format!("{}", path.display()))) } else { Ok(found) }
    }

    fn seccomp_profile(&self, path: &Path) -> Result<Vec<u8>> {
        let text = path.to_str().and_then(|path| self.profiles.get(path));
        text.map(|text| text.as_bytes().to_vec()).ok_or_else(|| Error::not_found(format!("{}", path.display())))
    }

    fn has_apparmor_profile(&self, name: &str) -> Result<bool> {
        Ok(self.apparmor.contains(&name))
    }

    fn mounts(&self) -> Result<Vec<MountInfo>> {
        Ok(parse_mounts(self.mountinfo.as_bytes()))
    }

    fn cdi(&self, directories: &[PathBuf]) -> CdiRegistry {
        CdiRegistry::load(directories)
    }
}

pub(crate) fn host() -> Host {
    Host {
        cgroup_v2: true,
        seccomp: true,
        swap_controller: true,
        hugetlb_controller: true,
        hostname: "node-1".into(),
        capabilities: vec!["CAP_CHOWN".into(), "CAP_SYS_ADMIN".into(), "CAP_NET_ADMIN".into()],
        ..Host::default()
    }
}

pub(crate) fn image(json: &str) -> ImageConfig {
    ImageConfig::from_slice(json.as_bytes()).unwrap()
}

/// All that a container is made from, owned, so that tests change what they are about.
pub(crate) struct Case {
    pub(crate) config: ContainerConfig,
    pub(crate) sandbox: PodSandboxConfig,
    pub(crate) image: ImageConfig,
    pub(crate) namespaces: PodNamespaces,
    pub(crate) target_pid: Option<u32>,
    pub(crate) files: SandboxFiles,
    pub(crate) options: Options,
    pub(crate) handler: Handler,
    pub(crate) host: Host,
    pub(crate) fake: FakeFiles,
    pub(crate) rootfs: Option<core_oci::Rootfs>,
    pub(crate) pod_label: &'static str,
    pub(crate) user_namespace: Option<&'static str>,
}

impl Default for Case {
    fn default() -> Self {
        let metadata =
            PodSandboxMetadata { name: "web".into(), uid: "u-1".into(), namespace: "shop".into(), attempt: 0 };
        Self {
            config: ContainerConfig {
                metadata: Some(ContainerMetadata { name: "app".into(), attempt: 0 }),
                ..Default::default()
            },
            sandbox: PodSandboxConfig {
                metadata: Some(metadata),
                hostname: "web-0".into(),
                log_directory: "/var/log/pods/web".into(),
                ..Default::default()
            },
            image: image(r#"{"config":{"Entrypoint":["/run"],"Cmd":["-v"],"Env":["PATH=/bin","A=1"]}}"#),
            namespaces: PodNamespaces::of_process(42),
            target_pid: None,
            files: SandboxFiles::default(),
            options: Options::default(),
            handler: Handler::default(),
            host: host(),
            fake: FakeFiles::default(),
            rootfs: None,
            pod_label: "",
            user_namespace: None,
        }
    }
}

impl Case {
    pub(crate) fn linux(&mut self) -> &mut LinuxContainerConfig {
        self.config.linux.get_or_insert_default()
    }

    pub(crate) fn security(&mut self) -> &mut LinuxContainerSecurityContext {
        self.linux().security_context.get_or_insert_default()
    }

    pub(crate) fn namespace_options(&mut self) -> &mut NamespaceOption {
        self.security().namespace_options.get_or_insert_default()
    }

    pub(crate) fn pod_linux(&mut self) -> &mut LinuxPodSandboxConfig {
        self.sandbox.linux.get_or_insert_default()
    }

    pub(crate) fn pod_security(&mut self) -> &mut LinuxSandboxSecurityContext {
        self.pod_linux().security_context.get_or_insert_default()
    }

    pub(crate) fn pod_namespace_options(&mut self) -> &mut NamespaceOption {
        self.pod_security().namespace_options.get_or_insert_default()
    }

    /// Gives pod and container a user namespace.
    pub(crate) fn with_users(mut self) -> Self {
        let map = containerd_api_cri::v1::IdMapping { host_id: 1 << 16, container_id: 0, length: 65536 };
        let users = UserNamespace { mode: 0, uids: vec![map], gids: vec![map] };
        self.namespace_options().userns_options = Some(users.clone());
        self.pod_namespace_options().userns_options = Some(users);
        self
    }

    pub(crate) fn container(&self) -> Result<ContainerSpec, SpecError> {
        let input = ContainerInput {
            id: "c1",
            sandbox_id: "s1",
            config: &self.config,
            sandbox_config: &self.sandbox,
            image_name: "docker.io/library/app:1",
            image: &self.image,
            rootfs: self.rootfs.as_ref(),
            namespaces: &self.namespaces,
            target_pid: self.target_pid,
            sandbox_process_label: self.pod_label,
            selinux_level: Some("s0:c1,c2"),
            files: &self.files,
            volumes_dir: "/volumes".into(),
            options: &self.options,
            handler: &self.handler,
        };
        container_spec(&input, &self.host, &self.fake)
    }

    pub(crate) fn spec(&self) -> Spec {
        self.container().unwrap().spec
    }

    /// The field that a container is refused for.
    pub(crate) fn refused(&self) -> String {
        self.container().unwrap_err().field().to_owned()
    }

    pub(crate) fn sandbox(&self) -> Result<SandboxSpec, SpecError> {
        let input = SandboxInput {
            id: "s1",
            config: &self.sandbox,
            image_name: "registry.k8s.io/pause:3.10",
            image: &self.image,
            rootfs: self.rootfs.as_ref(),
            network_namespace: "/var/run/netns/cni-1",
            user_namespace: self.user_namespace,
            shm: "/run/s1/shm",
            resolv_conf: "/run/s1/resolv.conf",
            selinux_level: Some("s0:c1,c2"),
            options: &self.options,
            handler: &self.handler,
        };
        sandbox_spec(&input, &self.host, &self.fake)
    }
}

/// The mount at a destination.
pub(crate) fn mount<'a>(spec: &'a Spec, destination: &str) -> Option<&'a serde_json::Value> {
    let list = spec.get("/mounts")?.as_array()?;
    let mut at = list.iter().filter(|mount| mount["destination"] == destination);
    let found = at.next();
    assert!(at.next().is_none(), "two mounts at {destination}");
    found
}

/// The entry of a namespace.
pub(crate) fn namespace<'a>(spec: &'a Spec, kind: &str) -> Option<&'a serde_json::Value> {
    spec.get("/linux/namespaces")?.as_array()?.iter().find(|entry| entry["type"] == kind)
}
