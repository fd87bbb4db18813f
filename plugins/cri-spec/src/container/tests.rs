use std::fs;

use containerd_api_cri::v1::{CdiDevice, Device, Int64Value, SeLinuxOption};
use serde_json::Value;

use super::*;
use crate::{
    SelinuxDefaults,
    fixture::{Case, mount, namespace},
};

fn privileged() -> Case {
    let mut case = Case::default();
    case.security().privileged = true;
    case.pod_security().privileged = true;
    case
}

#[test]
fn a_plain_container() {
    let spec = Case::default().spec();
    assert_eq!(spec.get("/root").unwrap(), &json!({"path": "rootfs"}));
    assert_eq!(spec.get("/process/noNewPrivileges").unwrap(), false);
    assert!(spec.get("/process/rlimits").is_none());
    assert_eq!(spec.get("/linux/maskedPaths").unwrap(), &json!([]), "kubelet names them");
    assert_eq!(spec.get("/linux/readonlyPaths").unwrap(), &json!([]));
    assert!(spec.get("/hostname").is_none());
    for (kind, name) in [("network", "net"), ("ipc", "ipc"), ("uts", "uts"), ("pid", "pid")] {
        assert_eq!(namespace(&spec, kind).unwrap()["path"], format!("/proc/42/ns/{name}"));
    }
    assert!(namespace(&spec, "cgroup").unwrap().get("path").is_none());
    assert!(namespace(&spec, "user").is_none());
    let annotations = spec.get("/annotations").unwrap();
    for (key, value) in [
        ("io.kubernetes.cri.container-type", "container"),
        ("io.kubernetes.cri.container-name", "app"),
        ("io.kubernetes.cri.image-name", "docker.io/library/app:1"),
        ("io.kubernetes.cri.sandbox-id", "s1"),
        ("io.kubernetes.cri.sandbox-name", "web"),
        ("io.kubernetes.cri.sandbox-namespace", "shop"),
        ("io.kubernetes.cri.sandbox-uid", "u-1"),
    ] {
        assert_eq!(annotations[key], value, "{key}");
    }
}

#[test]
fn cgroup_version_1_has_no_namespace_for_it() {
    let mut case = Case::default();
    case.host.cgroup_v2 = false;
    assert!(namespace(&case.spec(), "cgroup").is_none());
}

#[test]
fn process_namespaces() {
    let path = |pid: i32, target_pid: Option<u32>| {
        let mut case = Case { target_pid, ..Case::default() };
        case.namespace_options().pid = pid;
        case.container().map(|made| namespace(&made.spec, "pid").unwrap().get("path").cloned())
    };
    assert_eq!(path(0, None).unwrap().unwrap(), "/proc/42/ns/pid");
    assert_eq!(path(1, None).unwrap(), None, "its own");
    assert_eq!(path(2, None).unwrap().unwrap(), "/proc/42/ns/pid", "the sandbox is in the host's");
    assert_eq!(path(3, Some(99)).unwrap().unwrap(), "/proc/99/ns/pid");
    assert_eq!(path(3, None).unwrap_err().field(), "config.linux.security_context.namespace_options.target_id");
}

#[test]
fn a_missing_namespace_is_never_the_hosts_by_accident() {
    for kind in ["network", "ipc", "uts", "pid"] {
        let mut case = Case::default();
        let slot = match kind {
            "network" => &mut case.namespaces.network,
            "ipc" => &mut case.namespaces.ipc,
            "uts" => &mut case.namespaces.uts,
            _ => &mut case.namespaces.pid,
        };
        *slot = None;
        assert_eq!(case.refused(), "pod_sandbox_id");
        let options = case.pod_namespace_options();
        (options.network, options.pid, options.ipc) = (2, 2, 2);
        assert!(namespace(&case.spec(), kind).is_none());
    }
}

#[test]
fn user_namespaces_are_those_of_the_pod() {
    let mut case = Case::default().with_users();
    let spec = case.spec();
    assert_eq!(namespace(&spec, "user").unwrap()["path"], "/proc/42/ns/user");
    assert_eq!(spec.get("/linux/uidMappings/0/hostID").unwrap(), 65536);
    assert_eq!(mount(&spec, "/sys").unwrap()["type"], "sysfs");
    case.pod_namespace_options().network = 2;
    let spec = case.spec();
    assert_eq!(mount(&spec, "/sys").unwrap()["options"][1], "rro");
    case.pod_namespace_options().userns_options = None;
    assert_eq!(case.refused(), "config.linux.security_context.namespace_options.userns_options");
}

#[test]
fn privileged_containers_are_not_confined() {
    let mut case = privileged();
    case.security().masked_paths = vec!["/proc/kcore".into()];
    case.security().capabilities = Some(Default::default());
    let spec = case.spec();
    assert_eq!(spec.texts("/process/capabilities/effective"), case.host.capabilities);
    for gone in ["/linux/maskedPaths", "/linux/readonlyPaths", "/linux/seccomp", "/process/apparmorProfile"] {
        assert!(spec.get(gone).is_none(), "{gone}");
    }
    assert!(namespace(&spec, "cgroup").is_none());
    for path in ["/sys", "/sys/fs/cgroup"] {
        let options = mount(&spec, path).unwrap()["options"].as_array().unwrap();
        assert!(options.contains(&json!("rw")) && !options.contains(&json!("ro")), "{path}");
    }
    assert_eq!(spec.get("/linux/resources/devices").unwrap(), &json!([{"allow": true, "access": "rwm"}]));
    let devices: Vec<&Value> = spec.get("/linux/devices").unwrap().as_array().unwrap().iter().collect();
    assert_eq!(devices.len(), 2);
    case.handler.privileged_without_host_devices = true;
    let spec = case.spec();
    assert!(spec.get("/linux/devices").is_none());
    assert_eq!(spec.get("/linux/resources/devices/0/allow").unwrap(), false);
    case.handler.privileged_without_host_devices_all_devices_allowed = true;
    assert_eq!(case.spec().get("/linux/resources/devices/0/allow").unwrap(), true);
    case.pod_security().privileged = false;
    assert_eq!(case.refused(), "config.linux.security_context.privileged");
}

#[test]
fn hidden_paths_are_those_of_the_request() {
    let mut case = Case::default();
    case.security().masked_paths = vec!["/proc/kcore".into()];
    case.security().readonly_paths = vec!["/proc/sys".into()];
    let spec = case.spec();
    assert_eq!(spec.texts("/linux/maskedPaths"), ["/proc/kcore"]);
    assert_eq!(spec.texts("/linux/readonlyPaths"), ["/proc/sys"]);
    case.options.disable_proc_mount = true;
    assert!(case.spec().texts("/linux/maskedPaths").len() > 1, "the default ones");
    case.options.disable_proc_mount = false;
    case.security().readonly_paths = vec!["sys".into()];
    assert_eq!(case.refused(), "config.linux.security_context.readonly_paths[0]");
    let mut case = Case::default();
    case.security().no_new_privs = true;
    assert_eq!(case.spec().get("/process/noNewPrivileges").unwrap(), true);
}

#[test]
fn devices() {
    let device = |container_path: &str, host_path: &str, permissions: &str| Device {
        container_path: container_path.into(),
        host_path: host_path.into(),
        permissions: permissions.into(),
    };
    let mut case = Case::default();
    case.config.devices = vec![device("/dev/mine", "/dev/fuse", "rw"), device("/d", "/dev", "r")];
    let spec = case.spec();
    let paths: Vec<&Value> =
        spec.get("/linux/devices").unwrap().as_array().unwrap().iter().map(|d| &d["path"]).collect();
    assert_eq!(paths, ["/dev/mine", "/d/fuse", "/d/null"]);
    assert_eq!(
        spec.get("/linux/resources/devices/1").unwrap(),
        &json!({"allow": true, "type": "c", "major": 10, "minor": 229, "access": "rw"})
    );
    assert_eq!(spec.get("/linux/devices/0/uid").unwrap(), 0);
    case.options.device_ownership_from_security_context = true;
    case.security().run_as_user = Some(Int64Value { value: 1000 });
    let spec = case.spec();
    assert_eq!(
        (spec.get("/linux/devices/0/uid").unwrap(), spec.get("/linux/devices/0/gid").unwrap()),
        (&json!(1000), &json!(0))
    );
    for (bad, field) in [
        (device("/d", "/dev/none", "r"), "host_path"),
        (device("/d", "null", "r"), "host_path"),
        (device("/d", "/dev/null", "x"), "permissions"),
        (device("/d", "/dev/null", ""), "permissions"),
    ] {
        case.config.devices = vec![bad];
        assert_eq!(case.refused(), format!("config.devices[0].{field}"));
    }
}

#[test]
fn devices_of_user_namespaces_are_shown_and_not_made() {
    let mut case = Case::default().with_users();
    let device = |container_path: &str| Device {
        container_path: container_path.into(),
        host_path: "/dev/fuse".into(),
        permissions: "rw".into(),
    };
    case.config.devices = vec![device("/dev/mine"), device("/dev/fuse")];
    let spec = case.spec();
    assert_eq!(mount(&spec, "/dev/mine").unwrap()["source"], "/dev/fuse");
    assert_eq!(spec.get("/linux/devices/0/path").unwrap(), "/dev/fuse");
    assert!(spec.get("/linux/devices/1").is_none());
    assert_eq!(spec.get("/linux/resources/devices/1/minor").unwrap(), 229);
}

#[test]
fn a_base_specification_is_kept_where_the_request_is_silent() {
    let mut case = Case::default();
    let base = json!({
        "ociVersion": "1.0.2",
        "process": {"rlimits": [{"type": "RLIMIT_NOFILE", "hard": 7, "soft": 7}], "cwd": "/base"},
        "linux": {"seccomp": {"defaultAction": "SCMP_ACT_LOG"}, "cgroupsPath": "/wrong", "x-own": 1},
        "mounts": [{"destination": "/run", "type": "tmpfs", "source": "tmpfs"}],
        "x-future": true,
    });
    case.handler.base_spec = Some(Spec::from_slice(base.to_string().as_bytes()).unwrap());
    let spec = case.spec();
    assert_eq!(spec.get("/process/rlimits/0/hard").unwrap(), 7);
    assert_eq!(spec.text("/linux/seccomp/defaultAction"), "SCMP_ACT_LOG");
    assert_eq!(spec.text("/linux/cgroupsPath"), "/k8s.io/c1");
    assert_eq!((spec.get("/x-future").unwrap(), spec.get("/linux/x-own").unwrap()), (&json!(true), &json!(1)));
    assert!(mount(&spec, "/run").is_none());
    assert_eq!(spec.texts("/process/args"), ["/run", "-v"]);
}

#[test]
fn annotations_pass_through_by_pattern() {
    let mut case = Case::default();
    case.handler.pod_annotations = vec!["pod.*".into()];
    case.handler.container_annotations = vec!["own.*".into()];
    for (key, value) in [("pod.a", "1"), ("own.b", "2")] {
        case.sandbox.annotations.insert(key.into(), format!("pod-{value}"));
        case.config.annotations.insert(key.into(), format!("own-{value}"));
    }
    case.config.annotations.insert("own.b/x".into(), "no".into());
    let spec = case.spec();
    let annotations = spec.get("/annotations").unwrap();
    assert_eq!((&annotations["pod.a"], &annotations["own.b"]), (&json!("pod-1"), &json!("own-2")));
    assert!(annotations.get("own.b/x").is_none());
    case.config.annotations.insert("io.kubernetes.cri.blockio-class".into(), "gold".into());
    assert!(case.refused().contains("blockio-class"));
}

#[test]
fn selinux_labels() {
    let mut case = with_selinux();
    case.pod_label = "system_u:system_r:container_t:s0:c3,c4";
    case.files.hosts = Some("/s/hosts".into());
    let made = case.container().unwrap();
    assert_eq!(made.spec.text("/process/selinuxLabel"), case.pod_label);
    assert_eq!(made.spec.text("/linux/mountLabel"), "system_u:object_r:container_file_t:s0:c3,c4");
    assert_eq!(made.relabel, [std::path::PathBuf::from("/s/hosts")]);
    case.security().selinux_options = Some(SeLinuxOption { level: "bad".into(), ..Default::default() });
    assert_eq!(case.refused(), "config.linux.security_context.selinux_options.level");

    let mut case = privileged();
    case.host.selinux = with_selinux().host.selinux;
    let made = case.container().unwrap();
    assert!(made.spec.get("/process/selinuxLabel").is_none());
    assert_eq!(made.process_label, "system_u:system_r:container_t:s0:c1,c2", "kept, to give it back");
}

fn with_selinux() -> Case {
    let mut case = Case::default();
    case.host.selinux = Some(SelinuxDefaults {
        process: "system_u:system_r:container_t:s0".into(),
        file: "system_u:object_r:container_file_t:s0".into(),
    });
    case
}

#[test]
fn cdi_devices_by_field_and_annotation() {
    let dir = tempfile::tempdir().unwrap();
    let file = json!({
        "cdiVersion": "0.6.0", "kind": "vendor.com/gpu",
        "containerEdits": {"env": ["COMMON=1"]},
        "devices": [
            {"name": "0", "containerEdits": {"env": ["GPU0=1"]}},
            {"name": "1", "containerEdits": {"env": ["GPU1=1"]}},
        ],
    });
    fs::write(dir.path().join("vendor.json"), file.to_string()).unwrap();
    let mut case = Case::default();
    case.options.cdi_spec_dirs = vec![dir.path().to_owned()];
    case.config.cdi_devices = vec![CdiDevice { name: "vendor.com/gpu=0".into() }];
    case.config.annotations.insert("cdi.k8s.io/plugin".into(), "vendor.com/gpu=1,vendor.com/gpu=0".into());
    let env = case.spec().texts("/process/env");
    assert_eq!(env[env.len() - 3..], ["COMMON=1", "GPU0=1", "GPU1=1"]);
    case.config.cdi_devices.push(CdiDevice { name: "vendor.com/gpu=9".into() });
    assert_eq!(case.refused(), "config.cdi_devices[1].name");
    case.config.cdi_devices.clear();
    case.options.enable_cdi = false;
    assert_eq!(case.refused(), r#"config.annotations["cdi.k8s.io/plugin"]"#, "not dropped in silence");
}
