use containerd_api_nri::v1alpha1::{ContainerUpdate, LinuxContainerUpdate, LinuxPids, LinuxResources, OptionalInt};

use super::*;

fn mount(destination: &str, source: &str) -> Mount {
    Mount { destination: destination.into(), source: source.into(), ..Mount::default() }
}

fn env(key: &str, value: &str) -> KeyValue {
    KeyValue { key: key.into(), value: value.into() }
}

fn add(creation: &mut Creation, plugin: &str, adjust: ContainerAdjustment) -> Result<()> {
    creation.add(CreateContainerResponse { adjust: Some(adjust), ..Default::default() }, plugin)
}

fn creation() -> Creation {
    Creation::of(&Container {
        id: "c".into(),
        env: vec!["A=1".into(), "B=2".into()],
        mounts: vec![mount("/data", "/one")],
        ..Container::default()
    })
}

#[test]
fn a_removal_takes_away_what_was_there_and_only_its_plugin_sets_it_again() {
    let mut merge = creation();
    let env_of = |list: Vec<KeyValue>| ContainerAdjustment { env: list, ..Default::default() };
    add(&mut merge, "10-a", env_of(vec![env("-A", ""), env("C", "3")])).unwrap();
    assert_eq!(merge.view.env, ["B=2", "C=3"]);
    add(&mut merge, "20-b", env_of(vec![env("-C", ""), env("C", "4")])).unwrap();
    assert_eq!(merge.view.env, ["B=2", "C=4"]);
    assert_eq!(merge.adjustment.clone().unwrap().env, [env("-A", ""), env("C", "4")]);
    assert!(add(&mut merge, "30-c", env_of(vec![env("C", "5")])).is_err());
}

#[test]
fn mounts_are_replaced_by_their_destination() {
    let mut merge = creation();
    let of = |mount: Mount| ContainerAdjustment { mounts: vec![mount], ..Default::default() };
    add(&mut merge, "10-a", of(mount("/data", "/two"))).unwrap();
    assert_eq!(merge.view.mounts, [mount("/data", "/two")]);
    assert!(add(&mut merge, "20-b", of(mount("/data", "/three"))).is_err());
    add(&mut merge, "20-b", of(mount("-/data", ""))).unwrap();
    assert!(merge.view.mounts.is_empty());
    assert_eq!(merge.adjustment.unwrap().mounts, [mount("-/data", "")]);
}

#[test]
fn single_fields_conflict_and_hooks_add_up() {
    let mut merge = creation();
    let linux = |score| ContainerAdjustment {
        linux: Some(LinuxContainerAdjustment {
            oom_score_adj: Some(OptionalInt { value: score }),
            ..Default::default()
        }),
        hooks: Some(Hooks { poststop: vec![Default::default()], ..Default::default() }),
        ..Default::default()
    };
    add(&mut merge, "10-a", linux(1)).unwrap();
    assert!(add(&mut merge, "20-b", linux(2)).is_err());
    let owner = &merge.owners().owners["c"].simple[&(Field::OciHooks as i32)];
    assert_eq!(owner, "10-a,20-b");
}

#[test]
fn updates_of_one_container_are_merged_and_its_own_comes_last() {
    let pids = |id: &str, limit, ignore_failure| ContainerUpdate {
        container_id: id.into(),
        linux: Some(LinuxContainerUpdate {
            resources: Some(LinuxResources { pids: Some(LinuxPids { limit }), ..Default::default() }),
        }),
        ignore_failure,
    };
    let mut updates = Updates::of("own", &LinuxResources::default());
    updates.add(&[pids("own", 5, false), pids("other", 6, false)], "10-a").unwrap();
    assert_eq!(updates.own().pids, Some(LinuxPids { limit: 5 }));
    updates.add(&[pids("other", 7, true)], "20-b").unwrap();
    assert!(updates.add(&[pids("other", 7, false)], "20-b").is_err());
    assert_eq!(updates.finish(), [pids("other", 6, false), pids("own", 5, false)]);
}
