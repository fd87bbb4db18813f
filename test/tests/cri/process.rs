use std::fs;

use k8s_cri::v1::{security_profile::ProfileType, *};
use tonic::Code;

use crate::node::{Node, secured, skip};

type Security = LinuxContainerSecurityContext;

fn capabilities(add: &[&str], drop: &[&str], ambient: &[&str]) -> Option<Capability> {
    let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Some(Capability {
        add_capabilities: list(add),
        drop_capabilities: list(drop),
        add_ambient_capabilities: list(ambient),
    })
}

/// Capabilities as numbers, from `/proc/self/status`.
fn bits(status: &str, field: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap()
}

const CHOWN: u64 = 1;
const NET_ADMIN: u64 = 1 << 12;
const NET_BIND_SERVICE: u64 = 1 << 10;

#[tokio::test]
async fn arguments_environment_and_directory_are_the_images_and_the_requests() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let pod_config = node.pod();
    let pod = node.run_pod(&pod_config).await;
    let mut config = node.container("echo $FROM_IMAGE $COLOUR $PATH");
    config.envs.push(KeyValue { key: "COLOUR".into(), value: "red".into() });
    assert_eq!(node.prints(&pod, &pod_config, config).await, "yes red /bin");
    let mut config = node.container("echo $FROM_IMAGE");
    config.envs.push(KeyValue { key: "FROM_IMAGE".into(), value: "no=yes".into() });
    assert_eq!(node.prints(&pod, &pod_config, config).await, "no=yes", "the request's is last");
    let mut config = node.container("");
    config.command.clear();
    config.args = ["sh", "-c", "echo $0 $1", "from", "args"].map(str::to_owned).into();
    assert_eq!(node.prints(&pod, &pod_config, config).await, "from args");
    let mut config = node.container("");
    config.command.truncate(2);
    config.args = vec!["echo both".into()];
    assert_eq!(node.prints(&pod, &pod_config, config).await, "both");
    let config = ContainerConfig { working_dir: "/made/for/it".into(), ..node.container("pwd") };
    assert_eq!(node.prints(&pod, &pod_config, config).await, "/made/for/it");
    let config = ContainerConfig { command: vec!["/no/such".into()], ..node.container("") };
    let id = node.create(&pod, &pod_config, config).await.unwrap();
    let error = node.runtime.start_container(StartContainerRequest { container_id: id.clone() }).await.unwrap_err();
    assert!(error.message().contains("/no/such"), "{error}");
    let status = node.status(&id).await;
    assert_eq!((status.state(), status.exit_code), (ContainerState::ContainerExited, 128));
    assert!(status.message.contains("/no/such"), "{}", status.message);
    node.finish(&pod).await;
}

#[tokio::test]
async fn users_are_found_in_the_image_and_groups_follow_the_policy() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let pod_config = node.pod();
    let pod = node.run_pod(&pod_config).await;
    let number = |value| Some(Int64Value { value });
    let named = Security { run_as_username: "user".into(), ..Security::default() };
    let strict = SupplementalGroupsPolicy::Strict.into();
    let cases = [
        (Security::default(), "0 0 0"),
        (Security { run_as_user: number(1234), ..Security::default() }, "1234 0 0"),
        (Security { run_as_user: number(1000), ..Security::default() }, "1000 1000 10 1000"),
        (named.clone(), "1000 1000 10 1000"),
        (
            Security { run_as_user: number(1000), run_as_group: number(2000), ..Security::default() },
            "1000 2000 10 2000",
        ),
        (Security { supplemental_groups: vec![5000, 6000], ..named.clone() }, "1000 1000 10 1000 5000 6000"),
        (
            Security { supplemental_groups: vec![5000], supplemental_groups_policy: strict, ..named.clone() },
            "1000 1000 1000 5000",
        ),
    ];
    for (security, wanted) in cases {
        let config = secured(
            node.container("echo $(id -u) $(id -g) $(for g in $(id -G); do echo $g; done | sort -nu)"),
            security.clone(),
        );
        assert_eq!(node.prints(&pod, &pod_config, config).await, wanted, "{security:?}");
    }
    let id = {
        let config = secured(node.container("true"), Security { supplemental_groups: vec![5000], ..named });
        node.create(&pod, &pod_config, config).await.unwrap()
    };
    let user = node.status(&id).await.user.unwrap().linux.unwrap();
    assert_eq!((user.uid, user.gid), (1000, 1000));
    assert!(user.supplemental_groups.contains(&5000) && user.supplemental_groups.contains(&10), "{user:?}");

    for (security, field) in [
        (Security { run_as_username: "nobody-here".into(), ..Security::default() }, "nobody-here"),
        (Security { run_as_group: number(5), ..Security::default() }, "run_as_group"),
        (Security { run_as_user: number(-1), ..Security::default() }, "run_as_user"),
    ] {
        let config = secured(node.container("true"), security);
        let error = node.refused(&pod, &pod_config, config).await;
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
        assert!(error.message().contains(field), "{error}");
    }
    node.finish(&pod).await;
}

#[tokio::test]
async fn capabilities_are_added_dropped_and_ambient() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let pod_config = node.pod();
    let pod = node.run_pod(&pod_config).await;
    let host = bits(&fs::read_to_string("/proc/self/status").unwrap(), "CapBnd");
    let cases = [
        (None, 0xa804_25fb),
        (capabilities(&["NET_ADMIN"], &["CHOWN"], &[]), 0xa804_25fb & !CHOWN | NET_ADMIN),
        (capabilities(&["ALL"], &[], &[]), host),
        (capabilities(&["CHOWN"], &["ALL"], &[]), CHOWN),
        (capabilities(&["ALL"], &["CHOWN"], &[]), host & !CHOWN),
    ];
    for (capabilities, wanted) in cases {
        let security = Security { capabilities: capabilities.clone(), ..Security::default() };
        let config = secured(node.container("cat /proc/self/status"), security);
        let status = node.prints(&pod, &pod_config, config).await;
        assert_eq!(bits(&status, "CapEff"), wanted, "{capabilities:?}");
        assert_eq!(bits(&status, "CapBnd"), wanted, "{capabilities:?}");
        assert_eq!(bits(&status, "CapInh"), 0, "never inherited");
    }
    let ambient = Security {
        capabilities: capabilities(&[], &[], &["NET_BIND_SERVICE"]),
        run_as_user: Some(Int64Value { value: 1000 }),
        ..Security::default()
    };
    let config = secured(node.container("cat /proc/self/status"), ambient);
    let status = node.prints(&pod, &pod_config, config).await;
    assert_eq!(bits(&status, "CapAmb"), NET_BIND_SERVICE);
    assert_eq!(bits(&status, "CapEff"), NET_BIND_SERVICE, "a user's process has it");
    node.finish(&pod).await;
}

#[tokio::test]
async fn privileged_containers_need_a_privileged_pod() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let plain = node.pod();
    let pod = node.run_pod(&plain).await;
    let privileged = Security { privileged: true, ..Security::default() };
    let config = secured(node.container("true"), privileged.clone());
    let error = node.refused(&pod, &plain, config).await;
    assert!(error.message().contains("privileged"), "{error}");
    node.remove_pod(&pod).await;

    let context = LinuxSandboxSecurityContext { privileged: true, ..Default::default() };
    let linux = LinuxPodSandboxConfig { security_context: Some(context), ..Default::default() };
    let pod_config = PodSandboxConfig { linux: Some(linux), ..node.pod() };
    let pod = node.run_pod(&pod_config).await;
    let script = "mount -t tmpfs none /tmp && touch /tmp/x && ls /dev/fuse /dev/kmsg >&2; cat /proc/self/status";
    let config = secured(node.container(script), privileged);
    let status = node.prints(&pod, &pod_config, config).await;
    assert_eq!(bits(&status, "CapEff"), bits(&fs::read_to_string("/proc/self/status").unwrap(), "CapBnd"));
    assert!(status.contains("Seccomp:\t0"), "{status}");
    assert!(status.contains("/dev/kmsg"), "devices of the host: {status}");
    let config = secured(node.container("mount -t tmpfs none /tmp || echo refused"), Security::default());
    let printed = node.prints(&pod, &pod_config, config).await;
    assert!(printed.contains("refused"), "only those that ask for it are: {printed}");
    node.finish(&pod).await;
}

#[tokio::test]
async fn what_a_process_may_not_do() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let pod_config = node.pod();
    let pod = node.run_pod(&pod_config).await;
    let readonly = Security { readonly_rootfs: true, ..Security::default() };
    let config = secured(node.container("touch /file; touch /dev/shm/file && echo memory"), readonly);
    let printed = node.prints(&pod, &pod_config, config).await;
    assert!(printed.contains("Read-only file system") && printed.contains("memory"), "{printed}");

    let paths = Security {
        masked_paths: vec!["/proc/version".into(), "/proc/no-such".into()],
        readonly_paths: vec!["/proc/sys".into()],
        ..Security::default()
    };
    let script = "cat /proc/version | wc -c; echo 1 > /proc/sys/net/ipv4/ip_forward";
    let config = secured(node.container(script), paths);
    let printed = node.prints(&pod, &pod_config, config).await;
    assert!(printed.contains("0") && printed.contains("Read-only file system"), "{printed}");

    let config = secured(
        node.container("grep NoNewPrivs /proc/self/status"),
        Security { no_new_privs: true, ..Security::default() },
    );
    assert_eq!(node.prints(&pod, &pod_config, config).await, "NoNewPrivs:\t1");

    let mut config = node.container("cat /proc/self/oom_score_adj");
    config.linux.as_mut().unwrap().resources =
        Some(LinuxContainerResources { oom_score_adj: 500, ..Default::default() });
    assert_eq!(node.prints(&pod, &pod_config, config).await, "500");
    node.finish(&pod).await;
}

#[tokio::test]
async fn system_calls_are_filtered_by_the_profile() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let pod_config = node.pod();
    let pod = node.run_pod(&pod_config).await;
    let profile = node.world.dir().join("seccomp.json");
    fs::write(
        &profile,
        r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir","mkdirat"],"action":"SCMP_ACT_ERRNO"}]}"#,
    )
    .unwrap();
    let profile = profile.display().to_string();
    let security = |kind: ProfileType, reference: &str| Security {
        seccomp: Some(SecurityProfile { profile_type: kind.into(), localhost_ref: reference.into() }),
        ..Security::default()
    };
    let script = "mkdir /tmp/a && echo made; grep Seccomp: /proc/self/status";
    for (security, wanted) in [
        (security(ProfileType::RuntimeDefault, ""), "made\nSeccomp:\t2"),
        (security(ProfileType::Unconfined, ""), "made\nSeccomp:\t0"),
        (Security::default(), "made\nSeccomp:\t0"),
    ] {
        let config = secured(node.container(script), security);
        assert_eq!(node.prints(&pod, &pod_config, config).await, wanted);
    }
    let config = secured(node.container(script), security(ProfileType::Localhost, &profile));
    let printed = node.prints(&pod, &pod_config, config).await;
    assert!(printed.contains("Operation not permitted") && !printed.contains("made"), "{printed}");
    for (kind, reference) in [
        (ProfileType::Localhost, "/no/such/profile.json"),
        (ProfileType::Localhost, ""),
        (ProfileType::RuntimeDefault, "/x"),
    ] {
        let config = secured(node.container("true"), security(kind, reference));
        let error = node.refused(&pod, &pod_config, config).await;
        assert!(error.message().contains("seccomp.localhost_ref"), "{error}");
    }
    node.finish(&pod).await;
}

#[tokio::test]
async fn devices_of_the_host_are_there_with_their_permissions() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let pod_config = node.pod();
    let pod = node.run_pod(&pod_config).await;
    let device = |host: &str, permissions: &str| Device {
        container_path: "/dev/test/mine".into(),
        host_path: host.into(),
        permissions: permissions.into(),
    };
    let script = "stat -c %F /dev/test/mine; echo x > /dev/test/mine && echo written";
    let config = ContainerConfig { devices: vec![device("/dev/null", "rwm")], ..node.container(script) };
    assert_eq!(node.prints(&pod, &pod_config, config).await, "character special file\nwritten");
    for (device, field) in [
        (device("/dev/no-such", "rwm"), "/dev/no-such"),
        (device("/dev/null", "xyz"), "permissions"),
        (device("", "rwm"), "host_path"),
    ] {
        let config = ContainerConfig { devices: vec![device], ..node.container("true") };
        let error = node.refused(&pod, &pod_config, config).await;
        assert!(error.message().contains(field), "{field}: {error}");
        assert!(matches!(error.code(), Code::InvalidArgument | Code::NotFound), "{error}");
    }
    node.finish(&pod).await;
}
