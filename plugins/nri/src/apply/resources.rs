use containerd_api_nri::v1alpha1::{LinuxCpu, LinuxMemory, LinuxResources, OptionalString};
use core_oci::Spec;
use core_types::{Error, Result};
use serde_json::{Value, json};

use super::{Host, Resolver};

/// Writes limits into the specification.
pub(super) fn apply(spec: &mut Spec, limits: &LinuxResources, host: &Host<'_>) -> Result<()> {
    if let Some(limits) = &limits.memory {
        memory(spec, limits);
    }
    if let Some(limits) = &limits.cpu {
        cpu(spec, limits);
    }
    for page in &limits.hugepage_limits {
        let list = spec.list(&["linux", "resources"], "hugepageLimits");
        list.retain(|have| have["pageSize"].as_str() != Some(&page.page_size));
        list.push(json!({"pageSize": page.page_size, "limit": page.limit}));
    }
    for (key, value) in &limits.unified {
        spec.object(&["linux", "resources", "unified"]).insert(key.clone(), json!(value));
    }
    if let Some(pids) = limits.pids {
        spec.object(&["linux", "resources"]).insert("pids".into(), json!({"limit": pids.limit}));
    }
    for device in &limits.devices {
        let mut rule = json!({"allow": device.allow, "access": device.access});
        if !device.r#type.is_empty() {
            rule["type"] = json!(device.r#type);
        }
        for (key, number) in [("major", device.major), ("minor", device.minor)] {
            if let Some(number) = number {
                rule[key] = json!(number.value);
            }
        }
        spec.list(&["linux", "resources"], "devices").push(rule);
    }
    class(spec, &["linux", "resources"], "blockIO", &limits.blockio_class, host.block_io)?;
    class(spec, &["linux"], "intelRdt", &limits.rdt_class, host.rdt)
}

fn set(spec: &mut Spec, group: &str, fields: &[(&str, Option<Value>)]) {
    for (key, value) in fields {
        if let Some(value) = value {
            spec.object(&["linux", "resources", group]).insert((*key).to_owned(), value.clone());
        }
    }
}

/// Limits of memory. One without a limit for swap gets the same, that is no swap, as the CRI does it.
fn memory(spec: &mut Spec, limits: &LinuxMemory) {
    let limit = limits.limit.map(|limit| limit.value).filter(|limit| *limit != 0);
    let swap = limits.swap.map(|swap| swap.value).or(limit);
    let fields = [
        ("limit", limit.map(|value| json!(value))),
        ("swap", swap.map(|value| json!(value))),
        ("reservation", limits.reservation.map(|v| json!(v.value))),
        ("kernel", limits.kernel.map(|v| json!(v.value))),
        ("kernelTCP", limits.kernel_tcp.map(|v| json!(v.value))),
        ("swappiness", limits.swappiness.map(|v| json!(v.value))),
        ("disableOOMKiller", limits.disable_oom_killer.map(|v| json!(v.value))),
        ("useHierarchy", limits.use_hierarchy.map(|v| json!(v.value))),
    ];
    set(spec, "memory", &fields);
}

fn cpu(spec: &mut Spec, limits: &LinuxCpu) {
    let text = |text: &String| (!text.is_empty()).then(|| json!(text));
    let fields = [
        ("shares", limits.shares.map(|v| json!(v.value))),
        ("quota", limits.quota.map(|v| json!(v.value))),
        ("period", limits.period.map(|v| json!(v.value))),
        ("realtimeRuntime", limits.realtime_runtime.map(|v| json!(v.value))),
        ("realtimePeriod", limits.realtime_period.map(|v| json!(v.value))),
        ("cpus", text(&limits.cpus)),
        ("mems", text(&limits.mems)),
    ];
    set(spec, "cpu", &fields);
}

/// A class of the node; an empty one takes away what is there.
fn class(
    spec: &mut Spec,
    path: &[&str],
    key: &str,
    class: &Option<OptionalString>,
    resolver: Option<Resolver<'_>>,
) -> Result<()> {
    let Some(OptionalString { value: class }) = class else { return Ok(()) };
    if class.is_empty() {
        spec.object(path).remove(key);
        return Ok(());
    }
    let resolver = resolver.ok_or_else(|| {
        Error::failed_precondition(format!("class {class:?} for {key}: no classes are configured on this node"))
    })?;
    let value = resolver(class)?;
    spec.object(path).insert(key.into(), value);
    Ok(())
}
