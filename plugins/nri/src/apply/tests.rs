use std::collections::BTreeMap;

use containerd_api_nri::v1alpha1::*;

use super::*;

fn spec() -> Spec {
    Spec::from_slice(
        br#"{"ociVersion":"1.0.2","x":1,"annotations":{"a":"1","b":"2"},
        "process":{"args":["old"],"env":["A=1","B=2"],"rlimits":[{"type":"RLIMIT_NOFILE","soft":1,"hard":1}]},
        "mounts":[{"destination":"/a/b","source":"x"},{"destination":"/proc","source":"proc"}],
        "linux":{"namespaces":[{"type":"pid"},{"type":"ipc"}],"sysctl":{"s":"1"},"resources":{"cpu":{"shares":2}}}}"#,
    )
    .unwrap()
}

fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn the_process_its_mounts_and_annotations_change() {
    let mut spec = spec();
    let pair = |key: &str, value: &str| KeyValue { key: key.into(), value: value.into() };
    let mount = |to: &str, options: &[&str]| Mount {
        destination: to.into(),
        source: "/s".into(),
        r#type: "bind".into(),
        options: options.iter().map(|option| (*option).to_owned()).collect(),
    };
    let adjustment = ContainerAdjustment {
        annotations: texts(&[("-a", ""), ("c", "3")]),
        mounts: vec![mount("-/proc", &[]), mount("/a", &["rshared"])],
        env: vec![pair("-A", ""), pair("B", "3"), pair("C", "4")],
        args: vec!["new".into()],
        hooks: Some(Hooks { poststop: vec![Hook { path: "/bin/x".into(), ..Hook::default() }], ..Hooks::default() }),
        rlimits: vec![PosixRlimit { r#type: "RLIMIT_NOFILE".into(), hard: 9, soft: 8 }],
        ..ContainerAdjustment::default()
    };
    apply(&mut spec, &adjustment).unwrap();
    assert_eq!(spec.get("/annotations"), Some(&json!({"b": "2", "c": "3"})));
    assert_eq!(spec.texts("/process/env"), ["B=3", "C=4"]);
    assert_eq!(spec.texts("/process/args"), ["new"]);
    assert_eq!((spec.text("/mounts/0/destination"), spec.text("/mounts/1/destination")), ("/a", "/a/b"));
    assert_eq!(spec.text("/linux/rootfsPropagation"), "rshared");
    assert_eq!(spec.text("/hooks/poststop/0/path"), "/bin/x");
    assert_eq!(spec.get("/process/rlimits"), Some(&json!([{"type": "RLIMIT_NOFILE", "soft": 8, "hard": 9}])));
    assert_eq!(spec.get("/x"), Some(&json!(1)));
}

#[test]
fn linux_settings_change() {
    let mut spec = spec();
    let linux = LinuxContainerAdjustment {
        namespaces: vec![
            LinuxNamespace { r#type: "-ipc".into(), ..Default::default() },
            LinuxNamespace { r#type: "uts".into(), path: "/n".into() },
        ],
        sysctl: texts(&[("-s", ""), ("t", "2")]),
        oom_score_adj: Some(OptionalInt { value: -5 }),
        io_priority: Some(LinuxIoPriority { class: IoPrioClass::IoprioClassBe as i32, priority: 4 }),
        scheduler: Some(LinuxScheduler {
            policy: LinuxSchedulerPolicy::SchedFifo as i32,
            priority: 3,
            ..Default::default()
        }),
        devices: vec![LinuxDevice {
            path: "/dev/x".into(),
            r#type: "c".into(),
            major: 1,
            minor: 3,
            ..Default::default()
        }],
        resources: Some(LinuxResources {
            memory: Some(LinuxMemory { limit: Some(OptionalInt64 { value: 100 }), ..Default::default() }),
            cpu: Some(LinuxCpu { cpus: "0-1".into(), ..Default::default() }),
            pids: Some(LinuxPids { limit: 9 }),
            ..Default::default()
        }),
        seccomp_policy: Some(LinuxSeccomp { default_action: "SCMP_ACT_ALLOW".into(), ..Default::default() }),
        rdt: Some(LinuxRdt { clos_id: Some(OptionalString { value: "gold".into() }), ..Default::default() }),
        ..LinuxContainerAdjustment::default()
    };
    apply(&mut spec, &ContainerAdjustment { linux: Some(linux), ..Default::default() }).unwrap();
    assert_eq!(spec.get("/linux/namespaces"), Some(&json!([{"type": "pid"}, {"type": "uts", "path": "/n"}])));
    assert_eq!(spec.get("/linux/sysctl"), Some(&json!({"t": "2"})));
    assert_eq!(spec.get("/process/oomScoreAdj"), Some(&json!(-5)));
    assert_eq!(spec.get("/process/ioPriority"), Some(&json!({"class": "IOPRIO_CLASS_BE", "priority": 4})));
    assert_eq!(spec.get("/process/scheduler"), Some(&json!({"policy": "SCHED_FIFO", "priority": 3})));
    assert_eq!(spec.text("/linux/devices/0/path"), "/dev/x");
    assert_eq!(spec.text("/linux/resources/devices/0/access"), "rw");
    assert_eq!(spec.get("/linux/resources/memory"), Some(&json!({"limit": 100, "swap": 100})));
    assert_eq!(spec.get("/linux/resources/cpu"), Some(&json!({"shares": 2, "cpus": "0-1"})));
    assert_eq!(spec.get("/linux/seccomp"), Some(&json!({"defaultAction": "SCMP_ACT_ALLOW"})));
    assert_eq!(spec.text("/linux/intelRdt/closID"), "gold");
}

#[test]
fn what_the_host_does_not_know_is_refused() {
    let class = |name: &str| ContainerAdjustment {
        linux: Some(LinuxContainerAdjustment {
            resources: Some(LinuxResources {
                blockio_class: Some(OptionalString { value: name.into() }),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    assert!(apply(&mut spec(), &class("slow")).is_err());
    apply(&mut spec(), &class("")).unwrap();
    let resolver = |name: &str| Ok(json!({"weight": name.len()}));
    let mut adjusted = spec();
    apply_with(&mut adjusted, &class("slow"), &Host { block_io: Some(&resolver), ..Host::default() }).unwrap();
    assert_eq!(adjusted.get("/linux/resources/blockIO/weight"), Some(&json!(4)));
    let cdi = ContainerAdjustment { cdi_devices: vec![CdiDevice { name: "a.b/c=d".into() }], ..Default::default() };
    assert!(apply_with(&mut spec(), &cdi, &Host::default()).is_err());
    let score = LinuxContainerAdjustment { oom_score_adj: Some(OptionalInt { value: 5000 }), ..Default::default() };
    assert!(apply(&mut spec(), &ContainerAdjustment { linux: Some(score), ..Default::default() }).is_err());
}
