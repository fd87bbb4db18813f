use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, time::Duration};

use containerd_test::{Daemon, Kind, Registry, World, skip_without, unique};
use k8s_cri::v1::{image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient, *};
use tonic::transport::{Channel, Endpoint};

/// Where Debian has the CNI plugins.
const PLUGINS: &str = "/usr/lib/cni";

/// A CNI plugin that fails in many ways.
const MOODY: &str = r#"#!/bin/sh
cat > /dev/null
mood() { cat "@DIR@/mood.$CNI_COMMAND" 2>/dev/null; }
touch "@DIR@/called.$CNI_COMMAND"
while [ "$(mood)" = hang ]; do sleep 0.05; done
case "$(mood)" in
crash) kill -9 $$ ;;
garbage) echo "no { json"; exit 0 ;;
fail) echo '{"cniVersion":"1.0.0","code":100,"msg":"in a bad mood","details":"today"}'; exit 1 ;;
esac
case "$CNI_COMMAND" in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}' ;;
ADD) echo "{\"cniVersion\":\"1.0.0\",\"interfaces\":[{\"name\":\"eth0\",\"sandbox\":\"$CNI_NETNS\"}],\"ips\":[{\"address\":\"10.99.0.2/16\",\"interface\":0}]}" ;;
esac
"#;

/// Whether a test of the CRI cannot run here, after saying why.
pub(crate) fn skip() -> bool {
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
pub(crate) struct Node {
    pub(crate) image: String,
    pub(crate) daemon: Daemon,
    pub(crate) runtime: RuntimeServiceClient<Channel>,
    pub(crate) images: ImageServiceClient<Channel>,
    pub(crate) registry: Registry,
    /// Last: ends all processes.
    pub(crate) world: World,
}

impl Node {
    /// A node with an image and one network.
    pub(crate) async fn start() -> Self {
        Self::start_with("").await
    }

    /// The same with more in the configuration, in which `@DIR@` is the directory of the node.
    pub(crate) async fn start_with(more: &str) -> Self {
        let world = World::with_network();
        let (registry, image) = Registry::with_busybox(&world);
        let pause = containerd_test::idle(&world);
        let pause = registry.push(&pause, "pause:latest");
        let networks = world.dir().join("net.d");
        // Plugins of a test's own go to `cni`; kubelet makes the directory of logs.
        for dir in [&networks, &world.dir().join("cni"), &world.dir().join("logs")] {
            fs::create_dir(dir).unwrap();
        }
        let network = r#"{"cniVersion":"1.0.0","name":"test","plugins":[
            {"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":true,"hairpinMode":true,
             "ipam":{"type":"host-local","ranges":[[{"subnet":"10.88.0.0/16"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
            {"type":"portmap","capabilities":{"portMappings":true}}]}"#;
        fs::write(networks.join("10-test.conflist"), network).unwrap();
        let more = more.replace("@DIR@", &world.dir().display().to_string());
        let daemon = Daemon::start_configured(
            &world,
            Kind::Ours,
            &Daemon::programs(),
            &format!(
                r#"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{pause}"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{PLUGINS}", "{dir}/cni"]
conf_dir = "{dir}/net.d"
{more}
"#,
                dir = world.dir().display()
            ),
        );
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
    pub(crate) async fn restart(&mut self) {
        self.daemon.end(nix::sys::signal::Signal::SIGKILL);
        self.restarted().await;
    }

    /// Starts the daemon again.
    pub(crate) async fn restarted(&mut self) {
        self.daemon.restart();
        let channel = connect(&self.daemon).await;
        self.runtime = RuntimeServiceClient::new(channel.clone());
        self.images = ImageServiceClient::new(channel);
    }

    /// The configuration of a pod with a name of its own.
    pub(crate) fn pod(&self) -> PodSandboxConfig {
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
    pub(crate) fn container(&self, script: &str) -> ContainerConfig {
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
    pub(crate) async fn run_pod(&mut self, config: &PodSandboxConfig) -> String {
        let request = RunPodSandboxRequest { config: Some(config.clone()), ..RunPodSandboxRequest::default() };
        self.runtime.run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id
    }

    /// Makes and starts a container.
    pub(crate) async fn run(&mut self, pod: &str, pod_config: &PodSandboxConfig, config: ContainerConfig) -> String {
        let id = self.create(pod, pod_config, config).await.unwrap();
        self.runtime.start_container(StartContainerRequest { container_id: id.clone() }).await.unwrap();
        id
    }

    /// Makes a container.
    pub(crate) async fn create(
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
    pub(crate) async fn exec(&mut self, container: &str, script: &str) -> ExecSyncResponse {
        let request = ExecSyncRequest {
            container_id: container.into(),
            cmd: ["sh", "-c", script].map(str::to_owned).into(),
            timeout: 60,
        };
        self.runtime.exec_sync(request).await.unwrap().into_inner()
    }

    /// What a command in a container prints, when it succeeds.
    pub(crate) async fn output(&mut self, container: &str, script: &str) -> String {
        let done = self.exec(container, script).await;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(done.exit_code, 0, "{script}: {}", text(&done.stderr));
        text(&done.stdout)
    }

    /// The status of a container.
    pub(crate) async fn status(&mut self, container: &str) -> ContainerStatus {
        let request = ContainerStatusRequest { container_id: container.into(), verbose: false };
        self.runtime.container_status(request).await.unwrap().into_inner().status.unwrap()
    }

    /// The status of a pod.
    pub(crate) async fn pod_status(&mut self, pod: &str) -> PodSandboxStatus {
        let request = PodSandboxStatusRequest { pod_sandbox_id: pod.into(), verbose: false };
        self.runtime.pod_sandbox_status(request).await.unwrap().into_inner().status.unwrap()
    }

    /// Waits until a container ended; answers its status.
    pub(crate) async fn ended(&mut self, container: &str) -> ContainerStatus {
        for _ in 0..3000 {
            let status = self.status(container).await;
            if status.state() == ContainerState::ContainerExited {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{container} still runs after a minute");
    }

    /// Starts a container, waits for its end and answers what it wrote.
    pub(crate) async fn prints(&mut self, pod: &str, pod_config: &PodSandboxConfig, config: ContainerConfig) -> String {
        let id = self.run(pod, pod_config, config).await;
        let status = self.ended(&id).await;
        let lines = self.log(&status);
        let lines = lines.iter().map(|line| line.splitn(3, ' ').nth(2).unwrap_or_default());
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The error with which the making of a container is refused.
    pub(crate) async fn refused(
        &mut self,
        pod: &str,
        pod_config: &PodSandboxConfig,
        config: ContainerConfig,
    ) -> tonic::Status {
        match self.create(pod, pod_config, config).await {
            Err(error) => error,
            Ok(id) => panic!("{id} was made"),
        }
    }

    /// The JSON in the verbose status of a container.
    pub(crate) async fn information(&mut self, container: &str) -> serde_json::Value {
        let request = ContainerStatusRequest { container_id: container.into(), verbose: true };
        let answer = self.runtime.container_status(request).await.unwrap().into_inner();
        serde_json::from_str(&answer.info["info"]).unwrap()
    }

    /// The pid of a container's first process, and zero for none.
    pub(crate) async fn pid(&mut self, container: &str) -> i32 {
        self.information(container).await["pid"].as_i64().unwrap() as i32
    }

    /// Waits until a pod is in a state.
    pub(crate) async fn pod_becomes(&mut self, pod: &str, wanted: PodSandboxState) {
        for _ in 0..3000 {
            if self.pod_status(pod).await.state() == wanted {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{pod} is not {wanted:?} after a minute");
    }

    /// Pids of the shims.
    pub(crate) fn shims(&self) -> Vec<i32> {
        let is_shim = |pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains("containerd-shim-runc-v2")
        };
        self.world.processes().into_iter().filter(is_shim).collect()
    }

    /// Makes a CNI plugin `moody`, which does what the file `mood.<command>` says, and has the network `moody` of it.
    pub(crate) async fn moody_network(&mut self) {
        let dir = self.world.dir().display().to_string();
        let script = MOODY.replace("@DIR@", &dir);
        let path = self.world.dir().join("cni/moody");
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        self.set_network(r#"{"cniVersion":"1.0.0","name":"moody-net","plugins":[{"type":"moody"}]}"#).await;
    }

    /// Sets what the plugin `moody` does for a command.
    pub(crate) fn set_mood(&self, command: &str, mood: &str) {
        fs::write(self.world.dir().join(format!("mood.{command}")), mood).unwrap();
    }

    /// Waits until a file is there.
    pub(crate) async fn appears(&self, name: &str) {
        for _ in 0..3000 {
            if self.world.dir().join(name).exists() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("no {name} after a minute");
    }

    /// Removes a pod; then nothing may be left.
    pub(crate) async fn finish(mut self, pod: &str) {
        self.remove_pod(pod).await;
        self.assert_clean();
    }

    /// Replaces the configuration of the network, and waits until it is seen.
    pub(crate) async fn set_network(&mut self, text: &str) {
        let path = self.world.dir().join("net.d/10-test.conflist");
        let next = path.with_extension("new");
        fs::write(&next, text).unwrap();
        fs::rename(&next, &path).unwrap();
        let text: serde_json::Value = serde_json::from_str(text).unwrap();
        let name = text["name"].as_str().unwrap();
        for _ in 0..3000 {
            let status = self.runtime.status(StatusRequest { verbose: true }).await.unwrap().into_inner();
            if status.info["cniconfig"].contains(name) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the network {name} is not seen after a minute");
    }

    /// The lines of a container's log without their times.
    pub(crate) fn log(&self, status: &ContainerStatus) -> Vec<String> {
        let text = fs::read_to_string(&status.log_path).unwrap();
        text.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
    }

    /// Stops and removes a pod.
    pub(crate) async fn remove_pod(&mut self, pod: &str) {
        self.runtime.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: pod.into() }).await.unwrap();
        self.runtime.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: pod.into() }).await.unwrap();
    }

    /// Fails when anything of a pod is left: processes, mounts, network namespaces, files, leases, snapshots.
    pub(crate) fn assert_clean(&self) {
        // One that is asked what it can is not one of a pod.
        let is_shim = |line: &String| line.contains("containerd-shim") && !line.ends_with("-info");
        let shims: Vec<String> = self.world.command_lines().into_iter().filter(is_shim).collect();
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

/// A container's configuration with a security context.
pub(crate) fn secured(mut config: ContainerConfig, security: LinuxContainerSecurityContext) -> ContainerConfig {
    config.linux.get_or_insert_default().security_context = Some(security);
    config
}

/// A message of `k8s-cri` as the workspace's own, which knows newer fields, or the other way round.
pub(crate) fn convert<A: prost::Message, B: prost::Message + Default>(message: &A) -> B {
    B::decode(&message.encode_to_vec()[..]).unwrap()
}

fn list(path: impl Into<PathBuf>) -> Vec<String> {
    let entries = fs::read_dir(path.into()).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

pub(crate) async fn connect(daemon: &Daemon) -> Channel {
    let address = format!("unix://{}", daemon.address().display());
    Endpoint::try_from(address).unwrap().timeout(Duration::from_secs(120)).connect().await.unwrap()
}
