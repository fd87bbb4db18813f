//! A pod and a container of generated specifications, run by runc.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt as _, chown, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use containerd_api_cri::v1::{
    Capability, ContainerConfig, ContainerMetadata, Device, IdMapping, KeyValue, LinuxContainerConfig,
    LinuxContainerResources, LinuxContainerSecurityContext, LinuxPodSandboxConfig, LinuxSandboxSecurityContext, Mount,
    NamespaceMode, NamespaceOption, PodSandboxConfig, PodSandboxMetadata, SecurityProfile, UserNamespace,
};
use core_oci::{ImageConfig, Rootfs, Spec};
use plugin_cri_spec::{
    ContainerInput, Handler, Host, LocalHost, Options, PodNamespaces, SandboxFiles, SandboxInput, container_spec,
    sandbox_spec, update_resources,
};

/// Where the ids of a pod with a user namespace begin on the host, and how many they are.
const FIRST_ID: u32 = 1 << 16;
const IDS: u32 = 1 << 16;

/// A pod that is taken away with all it has.
struct Pod {
    dir: tempfile::TempDir,
    network: Child,
    ids: Vec<String>,
    cgroup: String,
}

impl Drop for Pod {
    fn drop(&mut self) {
        for id in self.ids.iter().rev() {
            let _ = self.runc().args(["delete", "--force", id]).output();
        }
        let _ = self.network.kill();
        let _ = self.network.wait();
        let mounts = ["/sys/fs/cgroup".into(), "/sys/fs/cgroup/unified".into()];
        let controllers = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
        for root in controllers.chain(mounts) {
            let _ = fs::remove_dir(root.join(self.cgroup.trim_start_matches('/')));
        }
    }
}

impl Pod {
    /// A pod with namespaces for its network and, with `users`, its users.
    fn new(users: bool) -> Self {
        let mut unshare = Command::new("unshare");
        if users {
            unshare.arg("--user");
        }
        let network = unshare.args(["--net", "sleep", "600"]).stdin(Stdio::null()).spawn();
        let cgroup = format!("/cri-spec-test-{}", std::process::id());
        let pod = Self { dir: tempfile::tempdir().unwrap(), network: network.unwrap(), ids: Vec::new(), cgroup };
        // The namespace is there once the program is no more unshare.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        let comm = format!("/proc/{}/comm", pod.network.id());
        while fs::read_to_string(&comm).unwrap().trim() != "sleep" {
            assert!(std::time::Instant::now() < deadline, "unshare does not start");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        pod
    }

    /// Maps the ids of the pod's user namespace; root of the pod can then go through its directory.
    fn map_users(&self) -> io::Result<()> {
        for map in ["uid_map", "gid_map"] {
            fs::write(format!("/proc/{}/{map}", self.network.id()), format!("0 {FIRST_ID} {IDS}"))?;
        }
        fs::set_permissions(self.dir.path(), fs::Permissions::from_mode(0o755))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn runc(&self) -> Command {
        let mut command = Command::new("runc");
        command.arg("--root").arg(self.path("state"));
        command
    }

    /// A bundle with a busybox.
    fn bundle(&self, id: &str) -> PathBuf {
        let bundle = self.path(id);
        let root = bundle.join("rootfs");
        for dir in ["bin", "etc", "tmp", "dev", "proc", "sys", "data", "home"] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
        for applet in ["sh", "sleep", "cat", "id", "hostname", "env", "grep", "touch", "ls", "stat"] {
            symlink("busybox", root.join("bin").join(applet)).unwrap();
        }
        fs::write(root.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\nweb:x:1000:1001::/home:/bin/sh\n").unwrap();
        fs::write(root.join("etc/group"), "root:x:0:\nweb:x:1001:\nextra:x:1002:web\n").unwrap();
        bundle
    }

    /// Starts a specification and answers the process's id.
    fn start(&mut self, id: &str, bundle: &Path, spec: &Spec) -> u32 {
        fs::write(bundle.join("config.json"), spec.to_vec().unwrap()).unwrap();
        let pid_file = bundle.join("pid");
        let log = bundle.join("log");
        self.ids.push(id.to_owned());
        let mut command = self.runc();
        command.arg("--log").arg(&log).args(["run", "--detach", "--pid-file"]).arg(&pid_file);
        command.arg("--bundle").arg(bundle).arg(id);
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert!(status.success(), "{}", fs::read_to_string(log).unwrap_or_default());
        fs::read_to_string(pid_file).unwrap().trim().parse().unwrap()
    }

    /// What a command in a container prints, with what it complains about.
    fn exec(&self, id: &str, command: &str) -> String {
        let output = self.runc().args(["exec", id, "/bin/sh", "-c", command]).output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }
}

fn skip() -> Option<&'static str> {
    let works = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !rustix::process::geteuid().is_root() {
        return Some("needs root");
    }
    if !works("runc") || !works("unshare") {
        return Some("needs runc and unshare");
    }
    (!Path::new("/bin/busybox").exists()).then_some("needs a static /bin/busybox")
}

fn pod_config(cgroup: &str) -> PodSandboxConfig {
    PodSandboxConfig {
        metadata: Some(PodSandboxMetadata { name: "web".into(), ..Default::default() }),
        hostname: "web-0".into(),
        linux: Some(LinuxPodSandboxConfig { cgroup_parent: cgroup.into(), ..Default::default() }),
        ..Default::default()
    }
}

fn container_config(data: &Path) -> ContainerConfig {
    let mount = |path: &str, readonly: bool| Mount {
        container_path: path.into(),
        host_path: data.to_str().unwrap().into(),
        readonly,
        ..Default::default()
    };
    let security = LinuxContainerSecurityContext {
        readonly_rootfs: true,
        no_new_privs: true,
        run_as_username: "web".into(),
        supplemental_groups: vec![3000],
        seccomp: Some(SecurityProfile::default()),
        masked_paths: vec!["/proc/uptime".into()],
        capabilities: Some(Capability {
            drop_capabilities: vec!["ALL".into()],
            add_ambient_capabilities: vec!["NET_BIND_SERVICE".into()],
            ..Default::default()
        }),
        ..Default::default()
    };
    ContainerConfig {
        metadata: Some(ContainerMetadata { name: "app".into(), attempt: 0 }),
        command: vec!["/bin/sleep".into()],
        args: vec!["600".into()],
        envs: vec![KeyValue { key: "ASKED".into(), value: b"yes".to_vec() }],
        mounts: vec![mount("/data/deep/writable", false), mount("/data", true)],
        devices: vec![Device {
            container_path: "/dev/mine".into(),
            host_path: "/dev/null".into(),
            permissions: "rw".into(),
        }],
        linux: Some(LinuxContainerConfig {
            resources: Some(LinuxContainerResources {
                memory_limit_in_bytes: 64 << 20,
                cpu_shares: 512,
                oom_score_adj: 985,
                ..Default::default()
            }),
            security_context: Some(security),
        }),
        ..Default::default()
    }
}

fn memory_limit(cgroup: &str) -> String {
    let v2 = format!("/sys/fs/cgroup{cgroup}/memory.max");
    let v1 = format!("/sys/fs/cgroup/memory{cgroup}/memory.limit_in_bytes");
    fs::read_to_string(v2).or_else(|_| fs::read_to_string(v1)).unwrap().trim().to_owned()
}

/// The host of the test may forbid to lower the OOM score.
fn options() -> Options {
    Options { restrict_oom_score_adj: true, ..Options::default() }
}

/// Starts the pause container and answers its process's id.
fn start_pause(pod: &mut Pod, id: &str, config: &PodSandboxConfig, host: &Host) -> u32 {
    let users = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref()).is_some();
    let user_namespace = format!("/proc/{}/ns/user", pod.network.id());
    fs::write(pod.path("resolv.conf"), "nameserver 10.0.0.10\n").unwrap();
    fs::create_dir(pod.path("shm")).unwrap();
    let (shm, resolv_conf) = (pod.path("shm"), pod.path("resolv.conf"));
    let pause = ImageConfig::from_slice(br#"{"config":{"Entrypoint":["/bin/sleep","600"]}}"#).unwrap();
    let input = SandboxInput {
        id,
        config,
        image_name: "pause",
        image: &pause,
        rootfs: None,
        network_namespace: &format!("/proc/{}/ns/net", pod.network.id()),
        user_namespace: users.then_some(user_namespace.as_str()),
        shm: shm.to_str().unwrap(),
        resolv_conf: resolv_conf.to_str().unwrap(),
        selinux_level: None,
        options: &options(),
        handler: &Handler::default(),
    };
    let sandbox = sandbox_spec(&input, host, &LocalHost).unwrap();
    let bundle = pod.bundle(id);
    if users {
        give_away(&bundle);
    }
    pod.start(id, &bundle, &sandbox.spec)
}

/// Gives a tree to root of the pod, which an id-mapped mount does in earnest.
fn give_away(path: &Path) {
    for entry in fs::read_dir(path).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            give_away(&entry.path());
        } else if !kind.is_symlink() {
            chown(entry.path(), Some(FIRST_ID), Some(FIRST_ID)).unwrap();
        }
    }
    chown(path, Some(FIRST_ID), Some(FIRST_ID)).unwrap();
}

/// Starts a container in the pod of the process `pause` and answers its specification and process.
fn start_container(
    pod: &mut Pod,
    id: &str,
    config: &ContainerConfig,
    pod_config: &PodSandboxConfig,
    pause: u32,
    host: &Host,
) -> (Spec, u32) {
    fs::create_dir_all(pod.path("shared/deep/writable")).unwrap();
    fs::write(pod.path("hosts"), "127.0.0.1 of-the-pod\n").unwrap();
    let bundle = pod.bundle(id);
    let rootfs = Rootfs::open(&bundle.join("rootfs")).unwrap();
    let image = ImageConfig::from_slice(br#"{"config":{"Env":["IMAGE=1"],"WorkingDir":"/tmp"}}"#).unwrap();
    let files = SandboxFiles {
        hosts: Some(pod.path("hosts")),
        resolv_conf: Some(pod.path("resolv.conf")),
        shm: Some(pod.path("shm")),
        hostname: None,
    };
    let input = ContainerInput {
        id,
        sandbox_id: "pod",
        config,
        sandbox_config: pod_config,
        image_name: "app",
        image: &image,
        rootfs: Some(&rootfs),
        namespaces: &PodNamespaces::of_process(pause),
        target_pid: None,
        sandbox_process_label: "",
        selinux_level: None,
        files: &files,
        volumes_dir: pod.path("volumes"),
        options: &options(),
        handler: &Handler::default(),
    };
    let made = container_spec(&input, host, &LocalHost).unwrap();
    if made.spec.get("/linux/uidMappings").is_some() {
        give_away(&bundle);
    }
    let pid = pod.start(id, &bundle, &made.spec);
    (made.spec, pid)
}

fn check_inside(pod: &Pod, id: &str, pid: u32) {
    assert_eq!(pod.exec(id, "hostname").trim(), "web-0");
    assert_eq!(pod.exec(id, "id -u; id -g; id -G").trim(), "1000\n1001\n1001 1002 3000");
    let environment = pod.exec(id, "env");
    for variable in ["ASKED=yes", "IMAGE=1", "HOSTNAME=web-0", "PWD=/tmp"] {
        assert!(environment.lines().any(|line| line == variable), "{variable} in {environment}");
    }
    assert_eq!(pod.exec(id, "cat /etc/hosts").trim(), "127.0.0.1 of-the-pod");
    assert!(pod.exec(id, "touch /x").contains("Read-only file system"));
    assert!(pod.exec(id, "touch /data/x").contains("Read-only file system"));
    assert_eq!(pod.exec(id, "stat -c %t:%T /dev/mine").trim(), "1:3");
    assert_eq!(pod.exec(id, "stat -c %t:%T /proc/uptime").trim(), "1:3", "masked by the null device");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    for line in ["NoNewPrivs:\t1", "Seccomp:\t2", "CapAmb:\t0000000000000400", "CapEff:\t0000000000000400"] {
        assert!(status.contains(line), "{line} in {status}");
    }
}

fn check_update(pod: &Pod, id: &str, spec: &Spec, host: &Host) {
    let cgroup = format!("{}/{id}", pod.cgroup);
    assert_eq!(memory_limit(&cgroup), (64 << 20).to_string());
    let change = LinuxContainerResources { memory_limit_in_bytes: 96 << 20, ..Default::default() };
    let update = update_resources(spec, &change, &options(), host).unwrap();
    let resources = pod.path("resources.json");
    fs::write(&resources, update.resources.to_string()).unwrap();
    let updated = pod.runc().args(["update", "--resources"]).arg(&resources).arg(id).output().unwrap();
    assert!(updated.status.success(), "{}", String::from_utf8_lossy(&updated.stderr));
    assert_eq!(memory_limit(&cgroup), (96 << 20).to_string());
}

#[test]
fn a_pod_and_its_container_run() {
    if let Some(why) = skip() {
        eprintln!("skipped: {why}");
        return;
    }
    let mut pod = Pod::new(false);
    let host = Host::detect(false, false).unwrap();
    let config = pod_config(&pod.cgroup);
    let unique = std::process::id();
    let (sandbox_id, id) = (format!("cri-spec-s-{unique}"), format!("cri-spec-c-{unique}"));

    let pause = start_pause(&mut pod, &sandbox_id, &config, &host);
    let score = fs::read_to_string(format!("/proc/{pause}/oom_score_adj")).unwrap();
    assert_eq!(score.trim(), host.oom_score_adj.max(-998).to_string());
    let container = container_config(&pod.path("shared"));
    let (spec, pid) = start_container(&mut pod, &id, &container, &config, pause, &host);
    for kind in ["net", "ipc", "uts", "pid"] {
        let of = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap();
        assert_eq!(of(pause), of(pid), "{kind}");
    }
    check_inside(&pod, &id, pid);
    check_update(&pod, &id, &spec, &host);
}

#[test]
fn a_pod_with_a_user_namespace_runs() {
    if let Some(why) = skip() {
        eprintln!("skipped: {why}");
        return;
    }
    let mut pod = Pod::new(true);
    if let Err(error) = pod.map_users() {
        eprintln!("skipped: cannot map ids here: {error}");
        return;
    }
    let host = Host::detect(false, false).unwrap();
    let map = IdMapping { host_id: FIRST_ID, container_id: 0, length: IDS };
    let users = UserNamespace { mode: NamespaceMode::Pod.into(), uids: vec![map], gids: vec![map] };
    let namespace_options = Some(NamespaceOption { userns_options: Some(users), ..Default::default() });
    let mut config = pod_config(&pod.cgroup);
    config.linux.as_mut().unwrap().security_context =
        Some(LinuxSandboxSecurityContext { namespace_options: namespace_options.clone(), ..Default::default() });
    let mut container = container_config(&pod.path("shared"));
    container.mounts.clear();
    container.linux.as_mut().unwrap().security_context.as_mut().unwrap().namespace_options = namespace_options;
    let unique = std::process::id();
    let (sandbox_id, id) = (format!("cri-spec-us-{unique}"), format!("cri-spec-uc-{unique}"));

    let pause = start_pause(&mut pod, &sandbox_id, &config, &host);
    let (_, pid) = start_container(&mut pod, &id, &container, &config, pause, &host);
    for kind in ["user", "net", "ipc", "uts", "pid"] {
        let of = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap();
        assert_eq!(of(pause), of(pid), "{kind}");
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let uid = (FIRST_ID + 1000).to_string();
    assert!(status.lines().any(|line| line.starts_with("Uid:") && line.contains(&uid)), "{status}");
    assert_eq!(pod.exec(&id, "id -u; id -G").trim(), "1000\n1001 1002 3000");
    assert_eq!(pod.exec(&id, "cat /etc/hosts").trim(), "127.0.0.1 of-the-pod");
}
