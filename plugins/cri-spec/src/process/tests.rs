use std::fs;

use containerd_api_cri::v1::KeyValue;
use serde_json::json;

use super::*;
use crate::fixture::{Case, image};

fn list(items: &[&str]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

#[test]
fn commands_follow_kubernetes() {
    // Image entrypoint and cmd; request command and args; what runs.
    for (entrypoint, cmd, command, args, runs) in [
        (&["/e"][..], &["c"][..], &[][..], &[][..], &["/e", "c"][..]),
        (&["/e"], &["c"], &["/k"], &[], &["/k"]),
        (&["/e"], &["c"], &[], &["a"], &["/e", "a"]),
        (&["/e"], &["c"], &["/k"], &["a"], &["/k", "a"]),
        (&[], &["c"], &[], &[], &["c"]),
        (&[""], &["c"], &[], &[], &["c"]),
        (&[], &[], &[], &["a"], &["a"]),
    ] {
        let mut case = Case::default();
        case.image.config.entrypoint = list(entrypoint);
        case.image.config.cmd = list(cmd);
        case.config.command = list(command);
        case.config.args = list(args);
        assert_eq!(case.spec().texts("/process/args"), runs);
    }
    let case = Case { image: image("{}"), ..Case::default() };
    assert_eq!(case.refused(), "config.command");
}

#[test]
fn the_environment_of_the_request_wins() {
    let mut case = Case::default();
    let variable = |key: &str, value: &str| KeyValue { key: key.into(), value: value.into() };
    case.config.envs = vec![variable("A", "2"), variable("B", "x=y")];
    assert_eq!(case.spec().texts("/process/env"), ["PATH=/bin", "HOSTNAME=web-0", "A=2", "B=x=y"]);
    case.config.tty = true;
    case.config.envs.push(variable("TERM", "linux"));
    case.sandbox.hostname.clear();
    let spec = case.spec();
    assert_eq!(spec.texts("/process/env"), ["PATH=/bin", "TERM=linux", "HOSTNAME=node-1", "A=2", "B=x=y"]);
    assert!(spec.terminal());
    for (key, value, field) in
        [("", &b"x"[..], "key"), ("A=B", b"", "key"), ("A", b"\xff", "value"), ("A", b"\0", "value")]
    {
        case.config.envs[0] = KeyValue { key: key.into(), value: value.into() };
        assert_eq!(case.refused(), format!("config.envs[0].{field}"));
    }
}

#[test]
fn directories_are_absolute() {
    let mut case = Case::default();
    assert_eq!(case.spec().text("/process/cwd"), "/");
    case.image.config.working_dir = "srv".into();
    assert_eq!(case.spec().text("/process/cwd"), "/srv");
    case.config.working_dir = "/work".into();
    assert_eq!(case.spec().text("/process/cwd"), "/work");
    case.config.working_dir = "work".into();
    assert_eq!(case.refused(), "config.working_dir");
}

fn with_accounts() -> (tempfile::TempDir, Case) {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("etc")).unwrap();
    let passwd = "root:x:0:0::/root:/bin/sh\nweb:x:1000:2000::/:/bin/sh\n";
    let group = "root:x:0:\nadm:x:4:root,web\nweb:x:2000:\nextra:x:3000:web\n";
    fs::write(root.path().join("etc/passwd"), passwd).unwrap();
    fs::write(root.path().join("etc/group"), group).unwrap();
    let rootfs = Some(Rootfs::open(root.path()).unwrap());
    (root, Case { rootfs, ..Case::default() })
}

#[test]
fn users_and_groups_are_resolved_in_the_image() {
    let id = |value: i64| Some(Int64Value { value });
    // Image user, name, uid, gid, supplemental groups, policy; uid, gid, groups.
    for (of_image, name, uid, gid, groups, policy, expected) in [
        ("", "", None, None, &[][..], 0, (0, 0, &[0, 4][..])),
        ("web", "", None, None, &[], 0, (1000, 2000, &[4, 2000, 3000])),
        ("web:extra", "", None, None, &[], 1, (1000, 3000, &[3000])),
        ("1000", "", None, None, &[], 0, (1000, 2000, &[4, 2000, 3000])),
        ("77:88", "", None, None, &[], 0, (77, 88, &[88])),
        ("web", "", id(5), None, &[], 0, (5, 0, &[0])),
        ("web", "", id(1000), id(7), &[9, 7], 0, (1000, 7, &[4, 7, 9, 3000])),
        ("", "web", id(5), id(7), &[9], 1, (1000, 7, &[7, 9])),
        ("", "web", None, None, &[50_000], 0, (1000, 2000, &[4, 2000, 3000, 50_000])),
    ] {
        let (_root, mut case) = with_accounts();
        case.image.config.user = of_image.into();
        let security = case.security();
        security.run_as_username = name.into();
        (security.run_as_user, security.run_as_group) = (uid, gid);
        security.supplemental_groups = groups.into();
        security.supplemental_groups_policy = policy;
        let (uid, gid, groups) = expected;
        let user = json!({"uid": uid, "gid": gid, "additionalGids": groups});
        assert_eq!(case.spec().get("/process/user").unwrap(), &user);
    }
}

#[test]
fn bad_users_are_refused_by_field() {
    let id = |value: i64| Some(Int64Value { value });
    let (_root, mut case) = with_accounts();
    let prefix = "config.linux.security_context";
    case.security().run_as_group = id(1);
    assert_eq!(case.refused(), format!("{prefix}.run_as_group"));
    case.security().run_as_user = id(1 << 31);
    assert_eq!(case.refused(), format!("{prefix}.run_as_user"));
    case.security().run_as_user = id(1);
    case.security().run_as_group = id(-1);
    assert_eq!(case.refused(), format!("{prefix}.run_as_group"));
    case.security().run_as_group = None;
    case.security().run_as_username = "nobody".into();
    assert_eq!(case.refused(), format!("{prefix}.run_as_username"));
    let error = core_types::Error::from(case.container().unwrap_err());
    assert_eq!(error.kind(), core_types::ErrorKind::InvalidArgument, "not NotFound, which means no container");
    case.security().run_as_username = "a:b".into();
    assert_eq!(case.refused(), format!("{prefix}.run_as_username"));
    case.security().run_as_username = String::new();
    case.security().supplemental_groups_policy = 2;
    assert_eq!(case.refused(), format!("{prefix}.supplemental_groups_policy"));
}

#[test]
fn names_need_the_files_of_the_image() {
    let mut case = Case::default();
    case.image.config.user = "web".into();
    assert!(
        matches!(case.container().unwrap_err(), SpecError::Unsupported { field, .. } if field == "image.config.user")
    );
    case.image.config.user = "12:34".into();
    assert_eq!(case.spec().get("/process/user/gid").unwrap(), 34);
}

fn capabilities(add: &[&str], drop: &[&str], ambient: &[&str]) -> Case {
    let mut case = Case::default();
    case.security().capabilities = Some(Capability {
        add_capabilities: list(add),
        drop_capabilities: list(drop),
        add_ambient_capabilities: list(ambient),
    });
    case
}

#[test]
fn capabilities_are_added_and_dropped() {
    let sets =
        |add: &[&str], drop: &[&str]| capabilities(add, drop, &[]).spec().texts("/process/capabilities/bounding");
    assert_eq!(sets(&[], &[]), core_oci::DEFAULT_CAPABILITIES);
    let added = sets(&["sys_time", "CAP_SYS_NICE"], &["chown"]);
    assert!(added.contains(&"CAP_SYS_TIME".into()) && added.contains(&"CAP_SYS_NICE".into()));
    assert!(!added.contains(&"CAP_CHOWN".into()));
    assert_eq!(sets(&["ALL"], &["CHOWN"]), ["CAP_SYS_ADMIN", "CAP_NET_ADMIN"], "those of the daemon");
    assert_eq!(sets(&["NET_ADMIN"], &["all"]), ["CAP_NET_ADMIN"]);
    assert_eq!(
        capabilities(&["A B"], &[], &[]).refused(),
        "config.linux.security_context.capabilities.add_capabilities[0]"
    );
}

#[test]
fn none_is_inherited_unless_asked_for() {
    let spec = capabilities(&["NET_ADMIN"], &[], &[]).spec();
    assert!(spec.get("/process/capabilities/inheritable").is_none());
    assert!(spec.get("/process/capabilities/ambient").is_none());
    let spec = capabilities(&[], &["ALL"], &["NET_ADMIN"]).spec();
    for set in ["bounding", "effective", "permitted", "inheritable", "ambient"] {
        assert_eq!(spec.texts(&format!("/process/capabilities/{set}")), ["CAP_NET_ADMIN"], "{set}");
    }
    let both = capabilities(&[], &["NET_ADMIN"], &["NET_ADMIN"]);
    assert_eq!(both.refused(), "config.linux.security_context.capabilities.add_ambient_capabilities");
}

#[test]
fn stop_signals() {
    let of = |number: i32, of_image: &str| {
        let mut case = Case::default();
        case.config.stop_signal = number;
        case.image.config.stop_signal = of_image.into();
        stop_signal(&case.config, &case.image)
    };
    assert_eq!(of(0, "").unwrap(), None);
    assert_eq!(of(0, "SIGQUIT").unwrap().unwrap(), "SIGQUIT");
    assert_eq!(of(Signal::Sighup as i32, "SIGQUIT").unwrap().unwrap(), "SIGHUP");
    assert_eq!(of(Signal::Sigrtminplus1 as i32, "").unwrap().unwrap(), "SIGRTMIN+1");
    assert_eq!(of(Signal::Sigrtmaxminus2 as i32, "").unwrap().unwrap(), "SIGRTMAX-2");
    assert_eq!(of(4444, "").unwrap_err().field(), "config.stop_signal");
}
