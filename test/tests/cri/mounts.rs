use std::{fs, path::Path, process::Command};

use containerd_api_cri::v1 as own;
use containerd_test::Output;
use k8s_cri::v1::*;
use nix::mount::{MsFlags, mount};
use tonic::Code;

use crate::node::{Node, connect, convert, secured, skip};

fn bind(host: &Path, container: &str) -> Mount {
    Mount { host_path: host.display().to_string(), container_path: container.into(), ..Mount::default() }
}

/// Makes a directory a mount of its own, for the test's mount namespace.
fn mount_point(path: &Path, propagation: MsFlags) {
    fs::create_dir_all(path).unwrap();
    let none = None::<&str>;
    mount(Some(path), path, none, MsFlags::MS_BIND, none).unwrap();
    mount(none, path, none, propagation, none).unwrap();
}

fn tmpfs(path: &Path) {
    fs::create_dir_all(path).unwrap();
    mount(Some("tmpfs"), path, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
}

#[tokio::test]
async fn directories_and_files_of_the_host_are_mounted() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let pod_config = node.pod();
    let pod = node.run_pod(&pod_config).await;
    let host = node.world.dir().join("host");
    fs::create_dir(&host).unwrap();
    fs::write(host.join("file"), "of the host\n").unwrap();
    let mut config =
        node.container("cat /rw/file /etc/one; echo new > /rw/made; touch /ro/x 2>&1; ls /not/yet && echo there");
    config.mounts = vec![
        bind(&host, "/rw"),
        Mount { readonly: true, ..bind(&host, "/ro") },
        bind(&host.join("file"), "/etc/one"),
        bind(&host.join("not/yet"), "/not/yet"),
    ];
    let printed = node.prints(&pod, &pod_config, config).await;
    assert!(printed.starts_with("of the host\nof the host") && printed.ends_with("there"), "{printed}");
    assert!(printed.contains("Read-only file system"), "{printed}");
    assert_eq!(fs::read_to_string(host.join("made")).unwrap(), "new\n");
    assert!(host.join("not/yet").is_dir(), "a directory that is not there is made");

    for (mount, field) in [
        (bind(Path::new("relative"), "/x"), "host_path"),
        (Mount { container_path: "x".into(), ..bind(&host, "") }, "container_path"),
        (Mount { propagation: 9, ..bind(&host, "/x") }, "propagation"),
        (Mount { recursive_read_only: true, ..bind(&host, "/x") }, "recursive_read_only"),
    ] {
        let config = ContainerConfig { mounts: vec![mount], ..node.container("true") };
        let error = node.refused(&pod, &pod_config, config).await;
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
        assert!(error.message().contains(field), "{field}: {error}");
    }
    node.finish(&pod).await;
}

#[tokio::test]
async fn mounts_travel_as_the_propagation_says() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let context = LinuxSandboxSecurityContext { privileged: true, ..Default::default() };
    let linux = LinuxPodSandboxConfig { security_context: Some(context), ..Default::default() };
    let pod_config = PodSandboxConfig { linux: Some(linux), ..node.pod() };
    let pod = node.run_pod(&pod_config).await;
    let (shared, private) = (node.world.dir().join("shared"), node.world.dir().join("private"));
    mount_point(&shared, MsFlags::MS_SHARED);
    mount_point(&private, MsFlags::MS_PRIVATE);
    let mount = |path: &Path, propagation: MountPropagation, to: &str| Mount {
        propagation: propagation.into(),
        ..bind(path, to)
    };
    let (down, both) = (MountPropagation::PropagationHostToContainer, MountPropagation::PropagationBidirectional);
    let mut config = node.container("sleep 1000");
    config.mounts = vec![
        mount(&shared, MountPropagation::PropagationPrivate, "/private"),
        mount(&shared, down, "/down"),
        mount(&shared, both, "/both"),
    ];
    let config = secured(config, LinuxContainerSecurityContext { privileged: true, ..Default::default() });
    let container = node.run(&pod, &pod_config, config).await;
    tmpfs(&shared.join("later"));
    fs::write(shared.join("later/file"), "x").unwrap();
    let seen = "for d in private down both; do [ -e /$d/later/file ] && echo $d; done; true";
    assert_eq!(node.output(&container, seen).await, "down\nboth\n");
    node.output(&container, "mkdir /both/up /down/stays && mount -t tmpfs none /both/up && touch /both/up/file").await;
    assert!(shared.join("up/file").exists(), "towards the host");
    node.output(&container, "mount -t tmpfs none /down/stays && touch /down/stays/file").await;
    assert!(!shared.join("stays/file").exists(), "not towards the host");

    for (wanted, word) in [(down, "slave"), (both, "shared")] {
        let config = ContainerConfig { mounts: vec![mount(&private, wanted, "/x")], ..node.container("true") };
        let error = node.refused(&pod, &pod_config, config).await;
        assert!(error.message().contains(word), "{error}");
    }
    node.remove_pod(&pod).await;
    for path in ["later", "up"] {
        nix::mount::umount2(&shared.join(path), nix::mount::MntFlags::MNT_DETACH).unwrap();
    }
    node.assert_clean();
}

#[tokio::test]
async fn read_only_reaches_all_mounts_below_where_the_runtime_can_and_is_refused_elsewhere() {
    if skip() {
        return;
    }
    let mut node = Node::start_with("[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.cannot]\nruntime_type = \"io.containerd.runc.v2\"\n[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.cannot.options]\nBinaryName = \"/bin/false\"\n").await;
    let status = node.runtime.status(StatusRequest::default()).await.unwrap().into_inner();
    let can = |name: &str| {
        let handler = status.runtime_handlers.iter().find(|handler| handler.name == name).unwrap();
        handler.features.unwrap().recursive_read_only_mounts
    };
    assert!(!can("cannot"), "a runtime that tells no features has none");
    let can = can("runc");
    let pod_config = node.pod();
    let pod = node.run_pod(&pod_config).await;
    let host = node.world.dir().join("host");
    mount_point(&host, MsFlags::MS_PRIVATE);
    tmpfs(&host.join("below"));
    let mut config = node.container("touch /v/x; touch /v/below/x && echo written");
    config.mounts = vec![Mount { readonly: true, ..bind(&host, "/v") }];
    let printed = node.prints(&pod, &pod_config, config.clone()).await;
    assert!(printed.contains("Read-only") && printed.contains("written"), "{printed}");
    config.metadata.as_mut().unwrap().attempt = 1;
    config.log_path += ".1";
    config.mounts[0].recursive_read_only = true;
    if can {
        let printed = node.prints(&pod, &pod_config, config).await;
        assert!(printed.matches("Read-only").count() == 2 && !printed.contains("written"), "{printed}");
    } else {
        let error = node.refused(&pod, &pod_config, config).await;
        assert!(error.message().contains("RROUnsupported"), "{error}");
    }
    node.finish(&pod).await;
}

#[tokio::test]
async fn images_are_volumes_with_a_sub_path() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let pod_config = node.pod();
    let pod = node.run_pod(&pod_config).await;
    let layered = containerd_test::layered(&node.world);
    let volume = node.registry.push(&layered, "volume:latest");
    let image = ImageSpec { image: volume.clone(), ..ImageSpec::default() };
    node.images.pull_image(PullImageRequest { image: Some(image), ..Default::default() }).await.unwrap();
    // Sub paths are newer than the messages of `k8s-cri`.
    let newer = own::runtime_service_client::RuntimeServiceClient::new(connect(&node.daemon).await);
    let request = |config: &ContainerConfig, image: &str, sub_path: &str, readonly: bool| {
        let mut config: own::ContainerConfig = convert(config);
        config.mounts.push(own::Mount {
            container_path: "/volume".into(),
            image: Some(own::ImageSpec { image: image.into(), ..Default::default() }),
            image_sub_path: sub_path.into(),
            readonly,
            ..Default::default()
        });
        let mut newer = newer.clone();
        let request = own::CreateContainerRequest {
            pod_sandbox_id: pod.clone(),
            config: Some(config),
            sandbox_config: Some(convert(&pod_config)),
        };
        async move { newer.create_container(request).await.map(|made| made.into_inner().container_id) }
    };
    for (sub_path, wanted) in [("", "bin"), ("data", "kept"), ("data/hidden/", "inside")] {
        let config = node.container("ls /volume; touch /volume/x");
        let id = request(&config, &volume, sub_path, true).await.unwrap();
        node.runtime.start_container(StartContainerRequest { container_id: id.clone() }).await.unwrap();
        let ended = node.ended(&id).await;
        let log = node.log(&ended).join("\n");
        assert!(log.contains(&format!("stdout F {wanted}")), "{sub_path}: {log}");
        assert!(log.contains("Read-only file system"), "{log}");
    }
    for (image, sub_path, readonly, word, code) in [
        (volume.as_str(), "../..", true, "image_sub_path", Code::InvalidArgument),
        (&volume, "data/gone", true, "image_sub_path", Code::NotFound),
        (&volume, "", false, "read-only", Code::InvalidArgument),
        ("no/such:image", "", true, "no/such:image", Code::NotFound),
    ] {
        let config = node.container("true");
        let error = request(&config, image, sub_path, readonly).await.unwrap_err();
        assert!(error.message().contains(word) && error.code() == code, "{error}");
    }
    // The image can be removed while it is a volume; the volume stays.
    let config = node.container("sleep 1000");
    let id = request(&config, &volume, "data", true).await.unwrap();
    node.runtime.start_container(StartContainerRequest { container_id: id.clone() }).await.unwrap();
    let image = Some(ImageSpec { image: volume.clone(), ..ImageSpec::default() });
    node.images.remove_image(RemoveImageRequest { image }).await.unwrap();
    assert_eq!(node.output(&id, "cat /volume/new").await, "new");
    node.finish(&pod).await;
}

#[tokio::test]
async fn volumes_of_an_image_start_with_its_files_and_belong_to_one_container() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let pod_config = node.pod();
    let pod = node.run_pod(&pod_config).await;
    let layout = containerd_test::layered(&node.world);
    let image = format!("{}:latest", layout.display());
    let volumes = ["config", "--image", &image, "--config.volume", "/data", "--config.volume", "/fresh"];
    Output::of(Command::new("umoci").args(volumes)).ok();
    let name = node.registry.push(&layout, "volumes:latest");
    let image = ImageSpec { image: name, ..ImageSpec::default() };
    let pull = PullImageRequest { image: Some(image.clone()), ..Default::default() };
    node.images.pull_image(pull).await.unwrap();
    let script =
        "ls /data /fresh; echo mine > /data/kept; touch /fresh/x; grep -cE ' /(data|fresh) ' /proc/self/mounts";
    for _ in 0..2 {
        let config = ContainerConfig { image: Some(image.clone()), ..node.container(script) };
        let printed = node.prints(&pod, &pod_config, config).await;
        assert_eq!(printed, "/data:\nhidden\nkept\nnew\n\n/fresh:\n2", "each has volumes of its own");
    }
    let host = node.world.dir().join("instead");
    fs::create_dir(&host).unwrap();
    let mut config = ContainerConfig { image: Some(image), ..node.container("ls /data; touch /data/written") };
    config.mounts.push(bind(&host, "/data"));
    assert_eq!(node.prints(&pod, &pod_config, config).await, "", "the request's mount comes first");
    assert!(host.join("written").exists());
    node.finish(&pod).await;
}
