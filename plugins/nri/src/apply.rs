//! An adjustment written into a runtime specification.

/// Limits.
mod resources;

use std::path::PathBuf;

use containerd_api_nri::v1alpha1::{
    ContainerAdjustment, Hook, Hooks, IoPrioClass, KeyValue, LinuxContainerAdjustment, LinuxDevice, LinuxMemoryPolicy,
    LinuxRdt, LinuxScheduler, LinuxSchedulerFlag, LinuxSchedulerPolicy, LinuxSeccomp, Mount, MpolFlag, MpolMode,
};
use core_oci::{CdiRegistry, DeviceNode, Spec};
use core_types::{Error, Result};
use serde_json::{Map, Value, json};

use crate::owners::removed;

/// A class of the node to the object of the specification that it stands for.
pub type Resolver<'a> = &'a (dyn Fn(&str) -> Result<Value> + Send + Sync);

/// What an adjustment may refer to on this host.
#[derive(Default)]
pub struct Host<'a> {
    /// CDI devices; none refuses them.
    pub cdi: Option<&'a CdiRegistry>,
    /// Block I/O classes (`linux.resources.blockIO`); none refuses them.
    pub block_io: Option<Resolver<'a>>,
    /// RDT classes (`linux.intelRdt`); none refuses them.
    pub rdt: Option<Resolver<'a>>,
}

/// Writes an adjustment into a specification, with the CDI devices of `/etc/cdi` and `/var/run/cdi` and no classes.
///
/// # Errors
/// See [`apply_with`].
pub fn apply(spec: &mut Spec, adjustment: &ContainerAdjustment) -> Result<()> {
    let directories = [PathBuf::from("/etc/cdi"), PathBuf::from("/var/run/cdi")];
    let registry = (!adjustment.cdi_devices.is_empty()).then(|| CdiRegistry::load(&directories));
    apply_with(spec, adjustment, &Host { cdi: registry.as_ref(), ..Host::default() })
}

/// Writes an adjustment into a specification.
///
/// # Errors
/// InvalidArgument for values that the specification has not, NotFound for unknown CDI devices, FailedPrecondition for
/// classes and devices that the host does not know of. The specification is then half changed.
pub fn apply_with(spec: &mut Spec, adjustment: &ContainerAdjustment, host: &Host<'_>) -> Result<()> {
    let annotations = adjustment.annotations.iter().map(|(key, value)| (key, json!(value)));
    entries(spec, &[], "annotations", annotations);
    env(spec, &adjustment.env);
    if !adjustment.args.is_empty() {
        spec.set_args(adjustment.args.iter().map(String::as_str));
    }
    if let Some(hooks) = &adjustment.hooks {
        add_hooks(spec, hooks);
    }
    if !adjustment.cdi_devices.is_empty() {
        let registry =
            host.cdi.ok_or_else(|| Error::failed_precondition("CDI devices are not enabled on this host"))?;
        let mut injection = registry.injection();
        for device in &adjustment.cdi_devices {
            injection.add(&device.name)?;
        }
        injection.apply(spec)?;
    }
    if let Some(linux) = &adjustment.linux {
        apply_linux(spec, linux, host)?;
    }
    mounts(spec, &adjustment.mounts);
    for limit in &adjustment.rlimits {
        spec.set_rlimit(&limit.r#type, limit.soft, limit.hard);
    }
    Ok(())
}

fn apply_linux(spec: &mut Spec, linux: &LinuxContainerAdjustment, host: &Host<'_>) -> Result<()> {
    devices(spec, &linux.devices);
    if !linux.cgroups_path.is_empty() {
        spec.set_cgroups_path(&linux.cgroups_path);
    }
    if let Some(score) = linux.oom_score_adj {
        let score = i32::try_from(score.value).ok().filter(|score| (-1000..=1000).contains(score));
        spec.set_oom_score_adj(score.ok_or_else(|| Error::invalid_argument("the OOM score is not in -1000..1000"))?);
    }
    if let Some(priority) = &linux.io_priority {
        let class = IoPrioClass::try_from(priority.class).map_err(|_| unknown("I/O priority class", priority.class))?;
        let process = spec.object(&["process"]);
        match class {
            IoPrioClass::IoprioClassNone => process.remove("ioPriority"),
            class => process
                .insert("ioPriority".into(), json!({"class": class.as_str_name(), "priority": priority.priority})),
        };
    }
    if let Some(scheduler) = &linux.scheduler {
        set_scheduler(spec, scheduler)?;
    }
    if let Some(policy) = &linux.seccomp_policy {
        spec.object(&["linux"]).insert("seccomp".into(), seccomp(policy));
    }
    for namespace in &linux.namespaces {
        match removed(&namespace.r#type) {
            Some(kind) => spec.use_host_namespace(kind),
            None => {
                let path = Some(namespace.path.as_str()).filter(|path| !path.is_empty());
                spec.set_namespace(&namespace.r#type, path)?;
            }
        }
    }
    entries(spec, &["linux"], "sysctl", linux.sysctl.iter().map(|(key, value)| (key, json!(value))));
    let net_devices = linux
        .net_devices
        .iter()
        .map(|(key, device)| (key, if device.name.is_empty() { json!({}) } else { json!({"name": device.name}) }));
    entries(spec, &["linux"], "netDevices", net_devices);
    if let Some(policy) = &linux.memory_policy {
        set_memory_policy(spec, policy)?;
    }
    if let Some(limits) = &linux.resources {
        resources::apply(spec, limits, host)?;
    }
    if let Some(rdt) = &linux.rdt {
        set_rdt(spec, rdt);
    }
    Ok(())
}

fn unknown(what: &str, value: i32) -> Error {
    Error::invalid_argument(format!("{what} {value} is not known"))
}

/// Sets entries of an object and takes away those marked for it, which come first.
fn entries<'a>(spec: &mut Spec, path: &[&str], key: &str, changes: impl Iterator<Item = (&'a String, Value)>) {
    let (gone, set): (Vec<_>, Vec<_>) = changes.partition(|(name, _)| removed(name).is_some());
    if gone.is_empty() && set.is_empty() {
        return;
    }
    let path: Vec<&str> = path.iter().copied().chain([key]).collect();
    let object = spec.object(&path);
    for name in gone.iter().filter_map(|(name, _)| removed(name)) {
        object.remove(name);
    }
    for (name, value) in set {
        object.insert(name.clone(), value);
    }
}

fn env(spec: &mut Spec, changes: &[KeyValue]) {
    if changes.is_empty() {
        return;
    }
    let list = spec.list(&["process"], "env");
    let has = |variable: &Value, name: &str| {
        variable.as_str().is_some_and(|text| text.split_once('=').map_or(text, |(key, _)| key) == name)
    };
    for name in changes.iter().filter_map(|change| removed(&change.key)) {
        list.retain(|variable| !has(variable, name));
    }
    for change in changes.iter().filter(|change| removed(&change.key).is_none()) {
        let new = json!(format!("{}={}", change.key, change.value));
        match list.iter_mut().find(|variable| has(variable, &change.key)) {
            Some(variable) => *variable = new,
            None => list.push(new),
        }
    }
}

fn add_hooks(spec: &mut Spec, hooks: &Hooks) {
    let kinds = [
        ("prestart", &hooks.prestart),
        ("createRuntime", &hooks.create_runtime),
        ("createContainer", &hooks.create_container),
        ("startContainer", &hooks.start_container),
        ("poststart", &hooks.poststart),
        ("poststop", &hooks.poststop),
    ];
    for (kind, hooks) in kinds.into_iter().filter(|(_, hooks)| !hooks.is_empty()) {
        spec.list(&["hooks"], kind).extend(hooks.iter().map(hook));
    }
}

fn hook(hook: &Hook) -> Value {
    let mut object = Map::from_iter([("path".to_owned(), json!(hook.path))]);
    for (key, list) in [("args", &hook.args), ("env", &hook.env)] {
        if !list.is_empty() {
            object.insert(key.into(), json!(list));
        }
    }
    if let Some(timeout) = hook.timeout {
        object.insert("timeout".into(), json!(timeout.value));
    }
    Value::Object(object)
}

fn devices(spec: &mut Spec, changes: &[LinuxDevice]) {
    for path in changes.iter().filter_map(|device| removed(&device.path)) {
        spec.list(&["linux"], "devices").retain(|have| have["path"].as_str() != Some(path));
    }
    for device in changes.iter().filter(|device| removed(&device.path).is_none()) {
        let node = DeviceNode {
            path: device.path.clone(),
            kind: device.r#type.clone(),
            major: device.major,
            minor: device.minor,
            mode: device.file_mode.map(|mode| mode.value),
            uid: device.uid.map(|uid| uid.value),
            gid: device.gid.map(|gid| gid.value),
        };
        spec.add_device(&node, if device.r#type == "b" { "rwm" } else { "rw" });
    }
}

fn set_scheduler(spec: &mut Spec, scheduler: &LinuxScheduler) -> Result<()> {
    let policy = LinuxSchedulerPolicy::try_from(scheduler.policy);
    let policy = policy.map_err(|_| unknown("scheduling policy", scheduler.policy))?;
    let process = spec.object(&["process"]);
    if policy == LinuxSchedulerPolicy::SchedNone {
        process.remove("scheduler");
        return Ok(());
    }
    let flags = scheduler.flags.iter().map(|flag| {
        LinuxSchedulerFlag::try_from(*flag)
            .map(|flag| flag.as_str_name())
            .map_err(|_| unknown("scheduling flag", *flag))
    });
    let mut object = Map::from_iter([("policy".to_owned(), json!(policy.as_str_name()))]);
    let numbers = [("nice", i64::from(scheduler.nice)), ("priority", i64::from(scheduler.priority))];
    object.extend(numbers.into_iter().filter(|(_, n)| *n != 0).map(|(key, n)| (key.to_owned(), json!(n))));
    let times = [("runtime", scheduler.runtime), ("deadline", scheduler.deadline), ("period", scheduler.period)];
    object.extend(times.into_iter().filter(|(_, n)| *n != 0).map(|(key, n)| (key.to_owned(), json!(n))));
    let flags = flags.collect::<Result<Vec<_>>>()?;
    if !flags.is_empty() {
        object.insert("flags".into(), json!(flags));
    }
    process.insert("scheduler".into(), Value::Object(object));
    Ok(())
}

fn seccomp(policy: &LinuxSeccomp) -> Value {
    let mut object = Map::from_iter([("defaultAction".to_owned(), json!(policy.default_action))]);
    if let Some(errno) = policy.default_errno {
        object.insert("defaultErrnoRet".into(), json!(errno.value));
    }
    for (key, list) in [("architectures", &policy.architectures), ("flags", &policy.flags)] {
        if !list.is_empty() {
            object.insert(key.into(), json!(list));
        }
    }
    for (key, text) in [("listenerPath", &policy.listener_path), ("listenerMetadata", &policy.listener_metadata)] {
        if !text.is_empty() {
            object.insert(key.into(), json!(text));
        }
    }
    let rules = policy.syscalls.iter().map(|rule| {
        let mut object = json!({"names": rule.names, "action": rule.action});
        if let Some(errno) = rule.errno_ret {
            object["errnoRet"] = json!(errno.value);
        }
        let args = rule
            .args
            .iter()
            .map(|arg| json!({"index": arg.index, "value": arg.value, "valueTwo": arg.value_two, "op": arg.op}));
        if !rule.args.is_empty() {
            object["args"] = args.collect();
        }
        object
    });
    if !policy.syscalls.is_empty() {
        object.insert("syscalls".into(), rules.collect());
    }
    Value::Object(object)
}

fn set_memory_policy(spec: &mut Spec, policy: &LinuxMemoryPolicy) -> Result<()> {
    let mode = MpolMode::try_from(policy.mode).map_err(|_| unknown("memory policy", policy.mode))?;
    let flags = policy.flags.iter().map(|flag| {
        MpolFlag::try_from(*flag).map(|flag| flag.as_str_name()).map_err(|_| unknown("memory policy flag", *flag))
    });
    let flags = flags.collect::<Result<Vec<_>>>()?;
    let mut object = json!({"mode": mode.as_str_name(), "nodes": policy.nodes});
    if !flags.is_empty() {
        object["flags"] = json!(flags);
    }
    spec.object(&["linux"]).insert("memoryPolicy".into(), object);
    Ok(())
}

fn set_rdt(spec: &mut Spec, rdt: &LinuxRdt) {
    if rdt.remove {
        spec.object(&["linux"]).remove("intelRdt");
    }
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            spec.object(&["linux", "intelRdt"]).insert(key.into(), value);
        }
    };
    set("closID", rdt.clos_id.as_ref().map(|id| json!(id.value)));
    set("schemata", rdt.schemata.as_ref().map(|lines| json!(lines.value)));
    set("enableMonitoring", rdt.enable_monitoring.map(|enable| json!(enable.value)));
}

/// Mounts; the list is then sorted so that no mount hides one below it.
fn mounts(spec: &mut Spec, changes: &[Mount]) {
    if changes.is_empty() {
        return;
    }
    for mount in changes {
        spec.remove_mounts(removed(&mount.destination).unwrap_or(&mount.destination));
    }
    for mount in changes.iter().filter(|mount| removed(&mount.destination).is_none()) {
        let has = |option: &str| mount.options.iter().any(|have| have == option);
        let root = spec.text("/linux/rootfsPropagation").to_owned();
        if has("rshared") {
            spec.set_rootfs_propagation("rshared");
        } else if has("rslave") && root != "rshared" && root != "rslave" {
            spec.set_rootfs_propagation("rslave");
        }
        let mut object = json!({"destination": mount.destination, "type": mount.r#type, "source": mount.source});
        if !mount.options.is_empty() {
            object["options"] = json!(mount.options);
        }
        spec.list(&[], "mounts").push(object);
    }
    spec.list(&[], "mounts").sort_by_key(|mount| {
        let destination = mount["destination"].as_str().unwrap_or_default();
        destination.split('/').filter(|part| !part.is_empty()).count()
    });
}

#[cfg(test)]
mod tests;
