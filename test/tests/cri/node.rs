use std::{fs, path::PathBuf, time::Duration};

use containerd_test::{Daemon, Kind, Registry, World, skip_without, unique};
use k8s_cri::v1::{
    image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient, *,
};
use tonic::transport::{Channel, Endpoint};

/// Where Debian has the CNI plugins.
const PLUGINS: &str = "/usr/lib/cni";

/// Whether a test of the CRI cannot run here, after saying why.
pub fn skip() -> bool {
    if skip_without(&["runc", "ctr", "busybox", "docker-registry", "skopeo", "umoci", "ip", "iptables"]) {
        return true;
    }
    let missing = !PathBuf::from(PLUGINS).join("bridge").exists();
    if missing {
        eprintln!("skipped: no CNI plugins in {PLUGINS}");
    }
    missing
}

/// A machine with a daemon and what it needs.
pub struct Node {
    pub image: String,
    pub daemon: Daemon,
    pub runtime: RuntimeServiceClient<Channel>,
    pub images: ImageServiceClient<Channel>,
    pub registry: Registry,
    /// Last: ends all processes.
    pub world: World,
}

impl Node {
    /// A node with an image and one network.
    pub async fn start() -> Self {
        Self::start_with("").await
    }

    /// The same with more in the configuration.
    pub async fn start_with(more: &str) -> Self {
        let world = World::with_network();
        let (registry, image) = Registry::with_busybox(&world);
        let pause = containerd_test::idle(&world);
        let pause = registry.push(&pause, "pause:latest");
        let networks = world.dir().join("net.d");
        fs::create_dir(&networks).unwrap();
        let network = r#"{"cniVersion":"1.0.0","name":"test","plugins":[
            {"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":true,"hairpinMode":true,
             "ipam":{"type":"host-local","ranges":[[{"subnet":"10.88.0.0/16"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
            {"type":"portmap","capabilities":{"portMappings":true}}]}"#;
        fs::write(networks.join("10-test.conflist"), network).unwrap();
        let daemon = Daemon::start_configured(&world, Kind::Ours, &Daemon::programs(), &format!(
            r#"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{pause}"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{PLUGINS}"]
conf_dir = "{}"
{more}
"#,
            networks.display()
        ));
        let channel = connect(&daemon).await;
        let mut node = Self {
            image,
            daemon,
            runtime: RuntimeServiceClient::new(channel.clone()),
            images: ImageServiceClient::new(channel),
            registry,
            world,
        };
        node.pull().await;
        node
    }

    async fn pull(&mut self) {
        let image = Some(ImageSpec { image: self.image.clone(), ..ImageSpec::default() });
        let request = PullImageRequest { image, ..PullImageRequest::default() };
        self.images.pull_image(request).await.unwrap();
    }

    /// Kills the daemon and starts it again.
    pub async fn restart(&mut self) {
        self.daemon.end(nix::sys::signal::Signal::SIGKILL);
        self.restarted().await;
    }

    /// Starts the daemon again.
    pub async fn restarted(&mut self) {
        self.daemon.restart();
        let channel = connect(&self.daemon).await;
        self.runtime = RuntimeServiceClient::new(channel.clone());
        self.images = ImageServiceClient::new(channel);
    }

    /// The configuration of a pod with a name of its own.
    pub fn pod(&self) -> PodSandboxConfig {
        let name = unique("pod");
        let metadata = PodSandboxMetadata { uid: name.clone(), name, namespace: "test".into(), attempt: 0 };
        PodSandboxConfig {
            metadata: Some(metadata),
            log_directory: self.world.dir().join("logs").display().to_string(),
            linux: Some(LinuxPodSandboxConfig::default()),
            ..PodSandboxConfig::default()
        }
    }

    /// The configuration of a container that runs a script.
    pub fn container(&self, script: &str) -> ContainerConfig {
        let name = unique("container");
        ContainerConfig {
            metadata: Some(ContainerMetadata { name: name.clone(), attempt: 0 }),
            image: Some(ImageSpec { image: self.image.clone(), ..ImageSpec::default() }),
            command: ["sh", "-c", script].map(str::to_owned).into(),
            log_path: format!("{name}.log"),
            linux: Some(LinuxContainerConfig::default()),
            ..ContainerConfig::default()
        }
    }

    /// Runs a pod.
    pub async fn run_pod(&mut self, config: &PodSandboxConfig) -> String {
        let request = RunPodSandboxRequest { config: Some(config.clone()), ..RunPodSandboxRequest::default() };
        self.runtime.run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id
    }

    /// Makes and starts a container.
    pub async fn run(&mut self, pod: &str, pod_config: &PodSandboxConfig, config: ContainerConfig) -> String {
        let id = self.create(pod, pod_config, config).await.unwrap();
        self.runtime.start_container(StartContainerRequest { container_id: id.clone() }).await.unwrap();
        id
    }

    /// Makes a container.
    pub async fn create(
        &mut self,
        pod: &str,
        pod_config: &PodSandboxConfig,
        config: ContainerConfig,
    ) -> Result<String, tonic::Status> {
        let request = CreateContainerRequest {
            pod_sandbox_id: pod.into(),
            config: Some(config),
            sandbox_config: Some(pod_config.clone()),
        };
        Ok(self.runtime.create_container(request).await?.into_inner().container_id)
    }

    /// Runs a command in a container.
    pub async fn exec(&mut self, container: &str, script: &str) -> ExecSyncResponse {
        let request = ExecSyncRequest {
            container_id: container.into(),
            cmd: ["sh", "-c", script].map(str::to_owned).into(),
            timeout: 60,
        };
        self.runtime.exec_sync(request).await.unwrap().into_inner()
    }

    /// What a command in a container prints, when it succeeds.
    pub async fn output(&mut self, container: &str, script: &str) -> String {
        let done = self.exec(container, script).await;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(done.exit_code, 0, "{script}: {}", text(&done.stderr));
        text(&done.stdout)
    }

    /// The status of a container.
    pub async fn status(&mut self, container: &str) -> ContainerStatus {
        let request = ContainerStatusRequest { container_id: container.into(), verbose: false };
        self.runtime.container_status(request).await.unwrap().into_inner().status.unwrap()
    }

    /// The status of a pod.
    pub async fn pod_status(&mut self, pod: &str) -> PodSandboxStatus {
        let request = PodSandboxStatusRequest { pod_sandbox_id: pod.into(), verbose: false };
        self.runtime.pod_sandbox_status(request).await.unwrap().into_inner().status.unwrap()
    }

    /// Waits until a container ended; answers its status.
    pub async fn ended(&mut self, container: &str) -> ContainerStatus {
        for _ in 0..3000 {
            let status = self.status(container).await;
            if status.state() == ContainerState::ContainerExited {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{container} still runs after a minute");
    }

    /// The lines of a container's log without their times.
    pub fn log(&self, status: &ContainerStatus) -> Vec<String> {
        let text = fs::read_to_string(&status.log_path).unwrap();
        text.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
    }

    /// Stops and removes a pod.
    pub async fn remove_pod(&mut self, pod: &str) {
        self.runtime.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: pod.into() }).await.unwrap();
        self.runtime.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: pod.into() }).await.unwrap();
    }

    /// Fails when anything of a pod is left: processes, mounts, network namespaces, files, leases, snapshots.
    pub fn assert_clean(&self) {
        let shims: Vec<String> =
            self.world.command_lines().into_iter().filter(|line| line.contains("containerd-shim")).collect();
        assert_eq!(shims, Vec::<String>::new(), "shims");
        assert_eq!(self.world.mounts_below(&self.daemon.state()), Vec::<PathBuf>::new(), "mounts");
        assert_eq!(list("/run/netns"), Vec::<String>::new(), "network namespaces");
        for kind in ["sandboxes", "containers"] {
            for base in [self.daemon.root(), self.daemon.state()] {
                let left = list(base.join("io.containerd.grpc.v1.cri").join(kind));
                assert_eq!(left, Vec::<String>::new(), "{kind} below {}", base.display());
            }
        }
        for (kind, args) in [("leases", ["leases", "ls", "-q"]), ("containers", ["containers", "ls", "-q"])] {
            let left = self.daemon.go_ctr(&[&["-n", "k8s.io"], &args[..]].concat()).ok();
            assert_eq!(left.trim(), "", "{kind}");
        }
        let addresses = list("/var/lib/cni/networks/test").into_iter().filter(|name| name.starts_with("10.")).count();
        assert_eq!(addresses, 0, "addresses");
    }
}

fn list(path: impl Into<PathBuf>) -> Vec<String> {
    let entries = fs::read_dir(path.into()).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

async fn connect(daemon: &Daemon) -> Channel {
    let address = format!("unix://{}", daemon.address().display());
    Endpoint::try_from(address).unwrap().timeout(Duration::from_secs(120)).connect().await.unwrap()
}
