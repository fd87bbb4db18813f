use containerd_api_cri::v1::HugepageLimit;

use super::*;
use crate::fixture::{Case, host};

fn limits() -> LinuxContainerResources {
    LinuxContainerResources {
        cpu_period: 100_000,
        cpu_quota: 50_000,
        cpu_shares: 512,
        memory_limit_in_bytes: 64 << 20,
        oom_score_adj: 985,
        cpuset_cpus: "0-1".into(),
        cpuset_mems: "0".into(),
        ..Default::default()
    }
}

fn field_of(resources: LinuxContainerResources, options: &Options) -> String {
    let spec = Case::default().spec();
    update_resources(&spec, &resources, options, &host()).unwrap_err().field().to_owned()
}

#[test]
fn cgroup_paths_of_both_drivers() {
    for (parent, path) in [
        ("/kubepods/pod1", "/kubepods/pod1/c"),
        ("kubepods//pod1/", "kubepods/pod1/c"),
        ("/", "/c"),
        (
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice",
            "kubepods-burstable-pod1.slice:cri-containerd:c",
        ),
        ("system.slice", "system.slice:cri-containerd:c"),
        ("/a.slice/b", "/a.slice/b/c"),
    ] {
        assert_eq!(cgroups_path(parent, "c").unwrap(), path);
    }
    assert!(cgroups_path("/a/../b", "c").is_err());
}

#[test]
fn limits_of_a_request() {
    let mut case = Case::default();
    case.linux().resources =
        Some(LinuxContainerResources { unified: [("memory.high".to_owned(), "1000".to_owned())].into(), ..limits() });
    let spec = case.spec();
    let resources = spec.get("/linux/resources").unwrap();
    assert_eq!(
        resources["cpu"],
        json!({"period": 100_000, "quota": 50_000, "shares": 512, "cpus": "0-1", "mems": "0"})
    );
    assert_eq!(resources["memory"], json!({"limit": 64 << 20, "swap": 64 << 20}), "no swap unless asked for");
    assert_eq!(resources["unified"], json!({"memory.high": "1000"}));
    assert_eq!(spec.get("/process/oomScoreAdj").unwrap(), 985);
    case.linux().resources = None;
    assert!(case.spec().get("/process/oomScoreAdj").is_none());
}

#[test]
fn swap() {
    let with = |limit: i64, swap: i64, controller: bool| {
        let mut case = Case::default();
        case.host.swap_controller = controller;
        case.linux().resources = Some(LinuxContainerResources {
            memory_limit_in_bytes: limit,
            memory_swap_limit_in_bytes: swap,
            ..Default::default()
        });
        case.spec().get("/linux/resources/memory").unwrap().clone()
    };
    assert_eq!(with(100, 200, true), json!({"limit": 100, "swap": 200}));
    assert_eq!(with(100, -1, true), json!({"limit": 100, "swap": -1}));
    assert_eq!(with(100, 200, false), json!({"limit": 100}));
    assert_eq!(with(0, 0, true), json!({}));
}

#[test]
fn huge_pages_need_the_controller() {
    let pages = |size: &str| LinuxContainerResources {
        hugepage_limits: vec![HugepageLimit { page_size: size.into(), limit: 4 << 20 }],
        ..Default::default()
    };
    let enabled = Options { disable_hugetlb_controller: false, ..Options::default() };
    let spec = Case::default().spec();
    let list = |host: &Host, options: &Options| {
        let update = update_resources(&spec, &pages("2MB"), options, host)?;
        // A second update replaces and does not pile up.
        let update = update_resources(&update.spec, &pages("2MB"), options, host)?;
        Ok::<_, SpecError>(update.resources["hugepageLimits"].clone())
    };
    assert_eq!(list(&host(), &enabled).unwrap(), json!([{"pageSize": "2MB", "limit": 4 << 20}]));
    assert_eq!(list(&host(), &Options::default()).unwrap(), Value::Null);
    let without = Host { hugetlb_controller: false, ..host() };
    assert_eq!(list(&without, &enabled).unwrap(), Value::Null);
    let strict = Options { tolerate_missing_hugetlb_controller: false, ..enabled.clone() };
    assert_eq!(list(&without, &strict).unwrap_err().field(), "linux.hugepage_limits");
    for bad in ["", "MB", "2", "2mb", "2MB/../x", "999999999999999999999MB"] {
        assert_eq!(field_of(pages(bad), &enabled), "linux.hugepage_limits[0].page_size", "{bad}");
    }
}

#[test]
fn an_update_keeps_what_it_does_not_name() {
    let mut case = Case::default();
    case.linux().resources = Some(limits());
    let spec = case.spec();
    let change = LinuxContainerResources { memory_limit_in_bytes: 128 << 20, ..Default::default() };
    let update = update_resources(&spec, &change, &case.options, &case.host).unwrap();
    assert_eq!(update.resources["memory"], json!({"limit": 128 << 20, "swap": 128 << 20}));
    assert_eq!(update.resources["cpu"]["quota"], 50_000);
    assert_eq!(update.resources["devices"], spec.get("/linux/resources/devices").unwrap().clone());
    assert_eq!(update.spec.get("/linux/resources").unwrap(), &update.resources);
    assert_eq!(update.spec.get("/process"), spec.get("/process"));
    assert_eq!(spec.get("/linux/resources/memory/limit").unwrap(), 64 << 20, "the old one stays as it is");
}

#[test]
fn bad_limits_are_refused_by_field() {
    let options = Options::default();
    let base = LinuxContainerResources::default;
    for (bad, field) in [
        (LinuxContainerResources { cpu_period: -1, ..base() }, "cpu_period"),
        (LinuxContainerResources { cpu_shares: -2, ..base() }, "cpu_shares"),
        (LinuxContainerResources { memory_limit_in_bytes: -2, ..base() }, "memory_limit_in_bytes"),
        (LinuxContainerResources { cpuset_cpus: "0;rm".into(), ..base() }, "cpuset_cpus"),
        (LinuxContainerResources { cpuset_mems: "1-".into(), ..base() }, "cpuset_mems"),
        (
            LinuxContainerResources { memory_limit_in_bytes: 200, memory_swap_limit_in_bytes: 100, ..base() },
            "memory_swap_limit_in_bytes",
        ),
        (
            LinuxContainerResources { unified: [("../x".to_owned(), "1".to_owned())].into(), ..base() },
            r#"unified["../x"]"#,
        ),
    ] {
        assert_eq!(field_of(bad, &options), format!("linux.{field}"));
    }
    let mut case = Case::default();
    case.linux().resources = Some(LinuxContainerResources { oom_score_adj: 1001, ..base() });
    assert_eq!(case.refused(), "config.linux.resources.oom_score_adj");
}
