use containerd_api_cri::v1::{Int64Value, LinuxContainerResources, SecurityProfile};
use serde_json::json;

use super::*;
use crate::fixture::{Case, image, mount, namespace};

fn pause() -> Case {
    Case { image: image(r#"{"config":{"Entrypoint":["/pause"],"User":"65535:65535"}}"#), ..Case::default() }
}

#[test]
fn a_plain_sandbox() {
    let sandbox = pause().sandbox().unwrap();
    let spec = sandbox.spec;
    assert_eq!(spec.text("/hostname"), "web-0");
    assert_eq!(spec.texts("/process/args"), ["/pause"]);
    assert_eq!(spec.get("/process/user/uid").unwrap(), 65535);
    assert_eq!(spec.get("/process/user/additionalGids").unwrap(), &json!([65535]));
    assert_eq!(spec.get("/root").unwrap(), &json!({"path": "rootfs", "readonly": true}));
    assert_eq!(spec.get("/process/oomScoreAdj").unwrap(), -998);
    assert_eq!(spec.get("/linux/resources/cpu/shares").unwrap(), 2);
    assert_eq!(spec.text("/linux/cgroupsPath"), "/k8s.io/s1");
    assert_eq!(spec.get("/process/noNewPrivileges").unwrap(), true);
    assert!(spec.get("/process/rlimits").is_none());
    assert!(spec.get("/linux/seccomp").is_none());
    assert_eq!(namespace(&spec, "network").unwrap()["path"], "/var/run/netns/cni-1");
    for own in ["pid", "ipc", "uts", "mount"] {
        assert!(namespace(&spec, own).unwrap().get("path").is_none(), "{own}");
    }
    assert!(namespace(&spec, "user").is_none());
    assert!(mount(&spec, "/run").is_none());
    assert_eq!(mount(&spec, "/dev/shm").unwrap()["source"], "/run/s1/shm");
    assert_eq!(mount(&spec, "/etc/resolv.conf").unwrap()["options"], json!(BIND));
}

#[test]
fn sysctls_of_the_request_win_over_those_of_the_service() {
    let mut case = pause();
    let spec = case.sandbox().unwrap().spec;
    assert_eq!(
        spec.get("/linux/sysctl").unwrap(),
        &json!({"net.ipv4.ip_unprivileged_port_start": "0", "net.ipv4.ping_group_range": "0 2147483647"})
    );
    case.pod_linux().sysctls.insert("net.ipv4.ip_unprivileged_port_start".into(), "400".into());
    case.pod_linux().sysctls.insert("kernel.shm_rmid_forced".into(), "1".into());
    case.options.enable_unprivileged_icmp = false;
    let spec = case.sandbox().unwrap().spec;
    assert_eq!(
        spec.get("/linux/sysctl").unwrap(),
        &json!({"net.ipv4.ip_unprivileged_port_start": "400", "kernel.shm_rmid_forced": "1"})
    );
    for name in ["a..b", "../x", "a b", "-a", "", &"n".repeat(300)] {
        case.pod_linux().sysctls = [(name.to_owned(), "1".to_owned())].into();
        assert_eq!(case.sandbox().unwrap_err().field(), format!("config.linux.sysctls[{name:?}]"));
    }
}

#[test]
fn the_ping_range_needs_all_groups() {
    let case = pause().with_users();
    let spec = case.sandbox().unwrap().spec;
    assert_eq!(spec.get("/linux/sysctl").unwrap(), &json!({"net.ipv4.ip_unprivileged_port_start": "0"}));
}

#[test]
fn host_namespaces() {
    let mut case = pause();
    let options = case.pod_namespace_options();
    (options.network, options.pid, options.ipc) = (2, 2, 2);
    let spec = case.sandbox().unwrap().spec;
    for kind in ["network", "uts", "pid", "ipc"] {
        assert!(namespace(&spec, kind).is_none(), "{kind}");
    }
    assert_eq!(spec.text("/hostname"), "", "the host keeps its name");
    assert_eq!(spec.get("/linux/sysctl").unwrap(), &json!({}));
    assert_eq!(mount(&spec, "/dev/shm").unwrap()["source"], "/dev/shm");
}

#[test]
fn user_namespaces() {
    let mut case = Case { user_namespace: Some("/run/s1/user"), ..pause().with_users() };
    let spec = case.sandbox().unwrap().spec;
    assert_eq!(namespace(&spec, "user").unwrap()["path"], "/run/s1/user");
    let maps = json!([{"containerID": 0, "hostID": 65536, "size": 65536}]);
    assert_eq!(spec.get("/linux/uidMappings").unwrap(), &maps);
    assert_eq!(spec.get("/linux/gidMappings").unwrap(), &maps);
    assert_eq!(mount(&spec, "/sys").unwrap()["type"], "sysfs");
    case.pod_namespace_options().network = 2;
    let spec = case.sandbox().unwrap().spec;
    assert!(namespace(&spec, "user").unwrap().get("path").is_none(), "the runtime makes it");
    assert_eq!(mount(&spec, "/sys").unwrap()["type"], "bind");
}

#[test]
fn annotations_tell_runtimes_about_the_pod() {
    let mut case = pause();
    case.handler.pod_annotations = vec!["io.katacontainers.*".into()];
    case.sandbox.annotations.insert("io.katacontainers.x".into(), "1".into());
    case.sandbox.annotations.insert("other".into(), "1".into());
    case.sandbox.annotations.insert("io.kubernetes.cri.sandbox-id".into(), "forged".into());
    case.pod_linux().resources = Some(LinuxContainerResources {
        cpu_period: 100_000,
        cpu_quota: -1,
        cpu_shares: 512,
        memory_limit_in_bytes: 1 << 30,
        ..Default::default()
    });
    let spec = case.sandbox().unwrap().spec;
    let annotations = spec.get("/annotations").unwrap();
    for (key, value) in [
        ("io.kubernetes.cri.container-type", "sandbox"),
        ("io.kubernetes.cri.sandbox-id", "s1"),
        ("io.kubernetes.cri.sandbox-name", "web"),
        ("io.kubernetes.cri.sandbox-namespace", "shop"),
        ("io.kubernetes.cri.sandbox-uid", "u-1"),
        ("io.kubernetes.cri.sandbox-log-directory", "/var/log/pods/web"),
        ("io.kubernetes.cri.podsandbox.image-name", "registry.k8s.io/pause:3.10"),
        ("io.kubernetes.cri.sandbox-cpu-period", "100000"),
        ("io.kubernetes.cri.sandbox-cpu-quota", "-1"),
        ("io.kubernetes.cri.sandbox-cpu-shares", "512"),
        ("io.kubernetes.cri.sandbox-memory", "1073741824"),
        ("io.katacontainers.x", "1"),
    ] {
        assert_eq!(annotations[key], value, "{key}");
    }
    assert!(annotations.get("other").is_none());
}

#[test]
fn the_security_context_rules_the_pause_process() {
    let mut case = pause();
    case.pod_linux().cgroup_parent = "/kubepods.slice/kubepods-pod1.slice".into();
    let security = case.pod_security();
    security.run_as_user = Some(Int64Value { value: 1000 });
    security.run_as_group = Some(Int64Value { value: 1001 });
    security.supplemental_groups = vec![5, 1001];
    security.seccomp = Some(SecurityProfile::default());
    let spec = case.sandbox().unwrap().spec;
    assert_eq!(spec.get("/process/user").unwrap(), &json!({"uid": 1000, "gid": 1001, "additionalGids": [5, 1001]}));
    assert!(spec.get("/linux/seccomp/defaultAction").is_some());
    assert_eq!(spec.text("/linux/cgroupsPath"), "kubepods-pod1.slice:cri-containerd:s1");
    case.pod_security().privileged = true;
    assert!(case.sandbox().unwrap().spec.get("/linux/seccomp").is_none());
    case.options.restrict_oom_score_adj = true;
    case.host.oom_score_adj = -500;
    assert_eq!(case.sandbox().unwrap().spec.get("/process/oomScoreAdj").unwrap(), -500);
}

#[test]
fn what_is_wrong_is_named() {
    let refuse = |change: &dyn Fn(&mut Case)| {
        let mut case = pause();
        change(&mut case);
        case.sandbox().unwrap_err().field().to_owned()
    };
    let security = "config.linux.security_context";
    assert_eq!(refuse(&|c| c.pod_namespace_options().pid = 9), format!("{security}.namespace_options.pid"));
    assert_eq!(
        refuse(&|c| c.pod_security().run_as_group = Some(Int64Value { value: 1 })),
        format!("{security}.run_as_group")
    );
    assert_eq!(
        refuse(&|c| c.pod_security().run_as_user = Some(Int64Value { value: -1 })),
        format!("{security}.run_as_user")
    );
    assert_eq!(
        refuse(&|c| c.pod_security().supplemental_groups = vec![1, -7]),
        format!("{security}.supplemental_groups[1]")
    );
    assert_eq!(refuse(&|c| c.pod_linux().cgroup_parent = "/a/../b".into()), "sandbox_config.linux.cgroup_parent");
    assert_eq!(refuse(&|c| c.sandbox.hostname = "a\0".into()), "config.hostname");
    let none = Case { image: image("{}"), ..Case::default() };
    let error = Error::from(none.sandbox().unwrap_err());
    assert_eq!(error.kind(), core_types::ErrorKind::FailedPrecondition);
}

#[test]
fn resolv_conf_lines() {
    let list = |items: &[&str]| items.iter().map(ToString::to_string).collect();
    let mut config = DnsConfig {
        servers: list(&["10.0.0.10", "fd00::10"]),
        searches: list(&["shop.svc.cluster.local", "svc.cluster.local"]),
        options: list(&["ndots:5"]),
    };
    assert_eq!(
        resolv_conf(&config).unwrap(),
        "search shop.svc.cluster.local svc.cluster.local\nnameserver 10.0.0.10\nnameserver fd00::10\noptions ndots:5\n"
    );
    assert_eq!(resolv_conf(&DnsConfig::default()).unwrap(), "");
    config.servers.push("1.1.1.1\noptions inject".into());
    assert_eq!(resolv_conf(&config).unwrap_err().field(), "config.dns_config.servers[2]");
}
