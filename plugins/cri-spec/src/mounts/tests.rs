use containerd_api_cri::v1::{IdMapping as Map, ImageSpec};

use super::*;
use crate::fixture::{Case, image, mount};

fn bind(container_path: &str, host_path: &str) -> Mount {
    Mount { container_path: container_path.into(), host_path: host_path.into(), ..Default::default() }
}

fn destinations(spec: &Spec) -> Vec<String> {
    let list = spec.get("/mounts").unwrap().as_array().unwrap();
    list.iter().map(|mount| mount["destination"].as_str().unwrap().to_owned()).collect()
}

fn with_files() -> Case {
    let mut case = Case::default();
    let path = |name: &str| Some(PathBuf::from(format!("/s/{name}")));
    case.files = crate::SandboxFiles {
        hostname: path("hostname"),
        hosts: path("hosts"),
        resolv_conf: path("resolv.conf"),
        shm: path("shm"),
    };
    case
}

#[test]
fn defaults_come_first_then_mounts_by_depth() {
    let mut case = with_files();
    case.config.mounts = vec![bind("/a/b/c", "/h/1"), bind("/data", "/h/2"), bind("/etc/hosts", "/h/3")];
    let made = case.container().unwrap();
    assert_eq!(
        destinations(&made.spec),
        [
            "/proc",
            "/dev",
            "/dev/pts",
            "/dev/mqueue",
            "/sys",
            "/sys/fs/cgroup", // defaults
            "/data",
            "/etc/hosts",
            "/etc/hostname",
            "/etc/resolv.conf",
            "/dev/shm",
            "/a/b/c",
        ]
    );
    assert_eq!(mount(&made.spec, "/etc/hosts").unwrap()["source"], "/h/3", "the request wins");
    assert_eq!(
        mount(&made.spec, "/etc/hostname").unwrap(),
        &json!({"destination": "/etc/hostname", "type": "bind", "source": "/s/hostname", "options": ["rbind", "rprivate", "rw"]})
    );
    assert!(made.relabel.is_empty(), "there is no SELinux");
    case.security().readonly_rootfs = true;
    let spec = case.spec();
    assert_eq!(mount(&spec, "/etc/hostname").unwrap()["options"], json!(["rbind", "rprivate", "ro"]));
    assert_eq!(mount(&spec, "/dev/shm").unwrap()["options"], json!(["rbind", "rprivate", "rw"]));
    assert_eq!(spec.get("/root/readonly").unwrap(), true);
}

#[test]
fn files_of_the_pod_that_are_not_there_are_not_mounted() {
    let spec = Case::default().spec();
    assert!(mount(&spec, "/etc/hosts").is_none());
    assert_eq!(mount(&spec, "/dev/shm").unwrap()["type"], "tmpfs");
}

#[test]
fn the_hosts_shared_memory_goes_with_its_ipc_namespace() {
    let mut case = with_files();
    case.pod_namespace_options().ipc = 2;
    assert_eq!(mount(&case.spec(), "/dev/shm").unwrap()["source"], "/dev/shm");
}

#[test]
fn a_mount_of_dev_replaces_all_below_it() {
    let mut case = Case::default();
    case.config.mounts = vec![bind("/dev/", "/dev"), bind("/dev/../proc", "/p")];
    let spec = case.spec();
    assert_eq!(destinations(&spec), ["/sys", "/sys/fs/cgroup", "/dev/", "/dev/../proc"]);
}

#[test]
fn propagation_needs_a_host_mount_that_has_it() {
    // Source, propagation, whether it may be, mount option, propagation of the root.
    for (source, propagation, allowed, option, root) in [
        ("/plain", 0, true, "rprivate", ""),
        ("/plain", 1, false, "", ""),
        ("/plain", 2, false, "", ""),
        ("/shared/x", 1, true, "rslave", "rslave"),
        ("/shared", 2, true, "rshared", "rshared"),
        ("/link", 2, true, "rshared", "rshared"),
        ("/slave/x", 1, true, "rslave", "rslave"),
        ("/slave/x", 2, false, "", ""),
        ("/shared-not", 2, false, "", ""),
    ] {
        let mut case = Case::default();
        case.config.mounts = vec![Mount { propagation, ..bind("/m", source) }];
        if !allowed {
            assert_eq!(case.refused(), "config.mounts[0].host_path", "{source} {propagation}");
            continue;
        }
        let spec = case.spec();
        assert_eq!(mount(&spec, "/m").unwrap()["options"], json!(["rbind", option, "rw"]));
        assert_eq!(spec.text("/linux/rootfsPropagation"), root);
    }
    let mut case = Case::default();
    let of = |propagation: i32, at: &str| Mount { propagation, ..bind(at, "/shared") };
    case.config.mounts = vec![of(2, "/a"), of(1, "/b")];
    assert_eq!(case.spec().text("/linux/rootfsPropagation"), "rshared", "the widest");
}

#[test]
fn links_of_sources_are_resolved() {
    let mut case = Case::default();
    case.config.mounts = vec![bind("/m", "/link")];
    assert_eq!(mount(&case.spec(), "/m").unwrap()["source"], "/shared/real");
}

#[test]
fn read_only_and_recursively() {
    let field = "config.mounts[0].recursive_read_only";
    let mut case = Case::default();
    let of = |readonly: bool, recursive_read_only: bool| Mount { readonly, recursive_read_only, ..bind("/m", "/h") };
    case.config.mounts = vec![of(true, false)];
    assert_eq!(mount(&case.spec(), "/m").unwrap()["options"], json!(["rbind", "rprivate", "ro"]));
    case.config.mounts = vec![of(false, true)];
    assert_eq!(case.refused(), field);
    case.config.mounts = vec![of(true, true)];
    assert_eq!(case.refused(), field);
    assert!(case.container().unwrap_err().to_string().contains("RROUnsupported"));
    case.handler.recursive_read_only_mounts = true;
    assert_eq!(mount(&case.spec(), "/m").unwrap()["options"], json!(["rbind", "rprivate", "rro"]));
    case.config.mounts = vec![Mount { propagation: 1, host_path: "/shared".into(), ..of(true, true) }];
    assert_eq!(case.refused(), field);
}

#[test]
fn mapped_mounts() {
    let map = Map { host_id: 65536, container_id: 0, length: 10 };
    let mut case = with_files().with_users();
    case.config.mounts = vec![Mount { uid_mappings: vec![map], gid_mappings: vec![map], ..bind("/m", "/h") }];
    let spec = case.spec();
    let of_mount = json!([{"containerID": 0, "hostID": 65536, "size": 10}]);
    assert_eq!(mount(&spec, "/m").unwrap()["uidMappings"], of_mount);
    assert_eq!(mount(&spec, "/m").unwrap()["gidMappings"], of_mount);
    assert_eq!(mount(&spec, "/etc/hosts").unwrap()["uidMappings"][0]["size"], 65536);
    assert!(mount(&spec, "/dev/shm").unwrap().get("uidMappings").is_none());
    case.config.mounts[0].gid_mappings[0].length = 0;
    assert_eq!(case.refused(), "config.mounts[0].gid_mappings[0].length");
}

#[test]
fn bad_mounts_are_refused_by_field() {
    for (bad, field) in [
        (bind("", "/h"), "container_path"),
        (bind("m", "/h"), "container_path"),
        (bind("/m\0", "/h"), "container_path"),
        (bind("/m", ""), "host_path"),
        (bind("/m", "h"), "host_path"),
        (Mount { propagation: 3, ..bind("/m", "/h") }, "propagation"),
        (Mount { image: Some(ImageSpec::default()), ..bind("/m", "") }, "host_path"),
    ] {
        let mut case = Case::default();
        case.config.mounts = vec![bind("/ok", "/h"), bad];
        assert_eq!(case.refused(), format!("config.mounts[1].{field}"));
    }
}

#[test]
fn volumes_of_the_image() {
    let image = image(r#"{"config":{"Cmd":["x"],"Volumes":{"/data":{},"/db/../log":{},"var":{}}}}"#);
    let mut case = Case { image, ..Case::default() };
    case.config.mounts = vec![bind("/log", "/h")];
    let made = case.container().unwrap();
    let volume = |container_path: &str, host_path: &str| Volume {
        container_path: container_path.into(),
        host_path: host_path.into(),
    };
    assert_eq!(made.volumes, [volume("/data", "/volumes/0"), volume("/var", "/volumes/2")]);
    assert_eq!(mount(&made.spec, "/data").unwrap()["source"], "/volumes/0");
    assert_eq!(mount(&made.spec, "/log").unwrap()["source"], "/h");
    case.options.ignore_image_defined_volumes = true;
    assert!(case.container().unwrap().volumes.is_empty());
}

#[test]
fn the_cgroup_is_shown_read_only() {
    let options = |case: &Case| mount(&case.spec(), "/sys/fs/cgroup").unwrap()["options"].clone();
    let mut case = Case::default();
    assert_eq!(options(&case), json!(["nosuid", "noexec", "nodev", "relatime", "ro"]));
    case.handler.cgroup_writable = true;
    assert_eq!(options(&case), json!(["nosuid", "noexec", "nodev", "relatime", "rw"]));
    case.handler.cgroup_writable = false;
    case.security().privileged = true;
    case.pod_security().privileged = true;
    let shared = json!(["nosuid", "noexec", "nodev", "relatime", "rw", "nsdelegate", "memory_recursiveprot"]);
    assert_eq!(options(&case), shared, "options of the host's own mount are kept");
}
