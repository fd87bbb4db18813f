use core_types::Namespace;
use serde_json::{Value, json};

use super::*;

fn spec() -> Spec {
    Spec::linux(&Namespace::new("k8s.io").unwrap(), "c")
}

fn write(directory: &Path, name: &str, file: &Value) {
    fs::write(directory.join(name), file.to_string()).unwrap();
}

fn inject(registry: &CdiRegistry, names: &[&str]) -> Result<Spec> {
    let mut spec = spec();
    let mut injection = registry.injection();
    names.iter().try_for_each(|name| injection.add(name))?;
    injection.apply(&mut spec)?;
    Ok(spec)
}

fn device(name: &str, variable: &str) -> Value {
    json!({"name": name, "containerEdits": {"env": [variable]}})
}

fn whole() -> Value {
    json!({
        "cdiVersion": "1.0.0",
        "kind": "vendor.com/net",
        "containerEdits": {
            "env": ["VENDOR=1"],
            "hooks": [{"hookName": "createContainer", "path": "/bin/hook", "args": ["hook", "x"], "timeout": 5}],
        },
        "devices": [{
            "name": "dev-0",
            "containerEdits": {
                "deviceNodes": [
                    {"path": "/dev/vendor", "hostPath": "/dev/null", "permissions": "rw"},
                    {"path": "/dev/made", "type": "c", "major": 99, "minor": 7, "fileMode": 438, "uid": 1, "gid": 2},
                ],
                "mounts": [
                    {"hostPath": "/lib/v", "containerPath": "/usr/lib/v", "options": ["ro", "rbind"]},
                    {"hostPath": "/run/v", "containerPath": "/v", "type": "bind"},
                ],
                "netDevices": [{"hostInterfaceName": "eth7", "name": "net0"}],
                "intelRdt": {"closID": "gold"},
                "additionalGids": [44, 0, 44],
            },
        }],
    })
}

#[test]
fn all_kinds_of_edits() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "v.json", &whole());
    let registry = CdiRegistry::load(&[dir.path().to_owned()]);
    assert!(registry.failures().is_empty(), "{:?}", registry.failures());
    let spec = inject(&registry, &["vendor.com/net=dev-0"]).unwrap();
    assert!(spec.texts("/process/env").contains(&"VENDOR=1".into()));
    assert_eq!(
        spec.get("/hooks/createContainer").unwrap(),
        &json!([{"path": "/bin/hook", "args": ["hook", "x"], "timeout": 5}])
    );
    let devices = spec.get("/linux/devices").unwrap();
    assert_eq!(
        (&devices[0]["path"], &devices[0]["major"], &devices[0]["minor"]),
        (&json!("/dev/vendor"), &json!(1), &json!(3))
    );
    assert_eq!(
        devices[1],
        json!({"path": "/dev/made", "type": "c", "major": 99, "minor": 7, "fileMode": 438, "uid": 1, "gid": 2})
    );
    let rules = spec.get("/linux/resources/devices").unwrap();
    assert_eq!(rules[1], json!({"allow": true, "type": "c", "major": 1, "minor": 3, "access": "rw"}));
    assert_eq!(rules[2]["access"], "rwm");
    let mounts = spec.get("/mounts").unwrap().as_array().unwrap();
    let destinations: Vec<&str> = mounts.iter().map(|mount| mount["destination"].as_str().unwrap()).collect();
    let at = |path: &str| destinations.iter().position(|have| *have == path).unwrap();
    assert!(at("/v") < at("/dev/pts") && at("/dev/pts") < at("/usr/lib/v"), "by depth: {destinations:?}");
    assert_eq!(spec.get("/linux/netDevices").unwrap(), &json!({"eth7": {"name": "net0"}}));
    assert_eq!(spec.get("/linux/intelRdt").unwrap(), &json!({"closID": "gold"}));
    assert_eq!(spec.get("/process/user/additionalGids").unwrap(), &json!([44]));
}

#[test]
fn devices_belong_to_the_user_unless_the_file_says() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "v.json", &whole());
    let registry = CdiRegistry::load(&[dir.path().to_owned()]);
    let mut spec = spec();
    spec.set_user(&crate::ResolvedUser { uid: 1000, gid: 1001, groups: vec![1001] });
    let mut injection = registry.injection();
    injection.add("vendor.com/net=dev-0").unwrap();
    injection.apply(&mut spec).unwrap();
    let devices = spec.get("/linux/devices").unwrap();
    assert_eq!((&devices[0]["uid"], &devices[0]["gid"]), (&json!(1000), &json!(1001)));
    assert_eq!((&devices[1]["uid"], &devices[1]["gid"]), (&json!(1), &json!(2)));
}

#[test]
fn later_directories_win_and_equals_conflict() {
    let (low, high) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = |variable: &str| json!({"cdiVersion": "0.5.0", "kind": "v.com/c", "devices": [device("d", variable)]});
    write(low.path(), "a.json", &file("FROM=low"));
    write(high.path(), "a.json", &file("FROM=high"));
    let directories = [low.path().to_owned(), high.path().to_owned(), "/no/such/directory".into()];
    let spec = inject(&CdiRegistry::load(&directories), &["v.com/c=d"]).unwrap();
    assert!(spec.texts("/process/env").contains(&"FROM=high".into()));
    write(high.path(), "b.json", &file("FROM=other"));
    let error = inject(&CdiRegistry::load(&directories), &["v.com/c=d"]).unwrap_err();
    assert!(error.message().contains("a.json") && error.message().contains("b.json"), "{error}");
}

#[test]
fn a_wrong_file_hurts_only_its_own_devices() {
    let dir = tempfile::tempdir().unwrap();
    let good = json!({"cdiVersion": "0.5.0", "kind": "v.com/c", "devices": [device("d", "A=1")]});
    write(dir.path(), "good.json", &good);
    fs::write(dir.path().join("notes.txt"), "no CDI").unwrap();
    let bad_with = |key: &str, value: Value| {
        let mut bad = good.clone();
        bad["kind"] = json!("bad.com/c");
        bad[key] = value;
        write(dir.path(), "bad.json", &bad);
        let registry = CdiRegistry::load(&[dir.path().to_owned()]);
        inject(&registry, &["v.com/c=d"]).unwrap();
        assert_eq!(registry.failures().len(), 1, "{key}");
        let error = inject(&registry, &["bad.com/c=d"]).unwrap_err();
        assert!(error.is_not_found() && error.message().contains("bad.json"), "{error}");
    };
    bad_with("cdiVersion", json!("7.0.0"));
    bad_with("kind", json!("noslash"));
    bad_with("kind", json!("../c"));
    bad_with("devices", json!([device("d", "A=1"), device("d", "A=2")]));
    bad_with("devices", json!([device("-", "A=1")]));
    bad_with("devices", json!([device("d", "NOVALUE")]));
    bad_with("containerEdits", json!({"hooks": [{"hookName": "never", "path": "/x"}]}));
    bad_with("containerEdits", json!({"mounts": [{"hostPath": "/x"}]}));
    bad_with("containerEdits", json!({"deviceNodes": [{"path": "/dev/x", "permissions": "rwx"}]}));
}

#[test]
fn names_are_qualified() {
    let registry = CdiRegistry::default();
    for bad in ["", "d", "v.com=d", "v.com/c=", "v.com/c", "/c=d", "v.com/c=d=e", "1/c=d", "v.com/c=../d"] {
        let error = inject(&registry, &[bad]).unwrap_err();
        assert_eq!(error.kind(), core_types::ErrorKind::InvalidArgument, "{bad}");
    }
    assert!(inject(&registry, &["v.com/c=d:1.2-a"]).unwrap_err().is_not_found());
}
