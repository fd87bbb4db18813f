//! What plugins want of a container that is made, merged: each sees what those before it did.

/// Resources: claims and overlays.
mod resources;
/// Updates of containers that are there.
mod updates;

use std::collections::{BTreeMap, BTreeSet};

use containerd_api_nri::v1alpha1::{
    Container, ContainerAdjustment, ContainerEviction, CreateContainerResponse, Field, Hooks, KeyValue,
    LinuxContainerAdjustment, LinuxDevice, LinuxNamespace, LinuxRdt, Mount, OptionalString, OwningPlugins,
};
use core_types::{Error, Result};

use crate::owners::{Claims, removed};

pub(crate) use updates::Updates;

/// The merge for one container that is made.
#[derive(Default)]
pub(crate) struct Creation {
    /// The container as the next plugin sees it.
    pub(crate) view: Container,
    pub(crate) adjustment: Option<ContainerAdjustment>,
    pub(crate) updates: Updates,
    pub(crate) evictions: Vec<ContainerEviction>,
}

impl Creation {
    pub(crate) fn of(container: &Container) -> Self {
        Self { view: container.clone(), ..Self::default() }
    }

    /// Who set what.
    pub(crate) fn owners(&self) -> &OwningPlugins {
        &self.updates.owners
    }

    /// Merges the answer of a plugin.
    pub(crate) fn add(&mut self, answer: CreateContainerResponse, plugin: &str) -> Result<()> {
        if let Some(wanted) = answer.adjust {
            let id = self.view.id.clone();
            let claims = &mut Claims { owners: &mut self.updates.owners, id: &id, plugin };
            adjust(&mut self.view, self.adjustment.get_or_insert_default(), wanted, claims)?;
        }
        if let Some(update) = answer.update.iter().find(|update| update.container_id == self.view.id) {
            return Err(Error::invalid_argument(format!(
                "NRI plugin {plugin:?} asked for an update of container {} while it is made: it has to adjust it",
                update.container_id
            )));
        }
        self.evictions.extend(answer.evict);
        self.updates.add(&answer.update, plugin)
    }
}

fn adjust(
    view: &mut Container,
    merged: &mut ContainerAdjustment,
    wanted: ContainerAdjustment,
    claims: &mut Claims<'_>,
) -> Result<()> {
    map(Field::Annotations, wanted.annotations, &mut merged.annotations, &mut view.annotations, claims)?;
    list(wanted.mounts, &mut merged.mounts, &mut view.mounts, claims)?;
    env(wanted.env, &mut merged.env, &mut view.env, claims)?;
    args(wanted.args, &mut merged.args, &mut view.args, claims)?;
    if let Some(hooks) = wanted.hooks {
        add_hooks(&hooks, merged.hooks.get_or_insert_default(), view.hooks.get_or_insert_default(), claims);
    }
    for limit in wanted.rlimits {
        claims.entry(Field::Rlimits, &limit.r#type)?;
        view.rlimits.retain(|have| have.r#type != limit.r#type);
        view.rlimits.push(limit.clone());
        merged.rlimits.push(limit);
    }
    for device in wanted.cdi_devices {
        claims.entry(Field::CdiDevices, &device.name)?;
        merged.cdi_devices.push(device);
    }
    match wanted.linux {
        Some(linux) => adjust_linux(view, merged.linux.get_or_insert_default(), linux, claims),
        None => Ok(()),
    }
}

fn adjust_linux(
    view: &mut Container,
    merged: &mut LinuxContainerAdjustment,
    wanted: LinuxContainerAdjustment,
    claims: &mut Claims<'_>,
) -> Result<()> {
    let view = view.linux.get_or_insert_default();
    list(wanted.devices, &mut merged.devices, &mut view.devices, claims)?;
    if let Some(limits) = wanted.resources {
        resources::claim(&limits, claims)?;
        resources::overlay(&limits, view.resources.get_or_insert_default());
        resources::overlay(&limits, merged.resources.get_or_insert_default());
    }
    if !wanted.cgroups_path.is_empty() {
        claims.field(Field::CgroupsPath)?;
        view.cgroups_path.clone_from(&wanted.cgroups_path);
        merged.cgroups_path = wanted.cgroups_path;
    }
    one(Field::OomScoreAdj, wanted.oom_score_adj, &mut merged.oom_score_adj, &mut view.oom_score_adj, claims)?;
    one(Field::IoPriority, wanted.io_priority, &mut merged.io_priority, &mut view.io_priority, claims)?;
    one(Field::SeccompPolicy, wanted.seccomp_policy, &mut merged.seccomp_policy, &mut view.seccomp_policy, claims)?;
    one(Field::LinuxSched, wanted.scheduler, &mut merged.scheduler, &mut view.scheduler, claims)?;
    one(Field::MemoryPolicy, wanted.memory_policy, &mut merged.memory_policy, &mut None, claims)?;
    namespaces(wanted.namespaces, &mut merged.namespaces, &mut view.namespaces, claims)?;
    map(Field::Sysctl, wanted.sysctl, &mut merged.sysctl, &mut view.sysctl, claims)?;
    map(Field::LinuxNetDevices, wanted.net_devices, &mut merged.net_devices, &mut view.net_devices, claims)?;
    wanted.rdt.map_or(Ok(()), |wanted| rdt(wanted, merged.rdt.get_or_insert_default(), claims))
}

/// A field that one plugin sets.
fn one<T: Clone>(
    field: Field,
    wanted: Option<T>,
    merged: &mut Option<T>,
    view: &mut Option<T>,
    claims: &mut Claims<'_>,
) -> Result<()> {
    if wanted.is_some() {
        claims.field(field)?;
        view.clone_from(&wanted);
        *merged = wanted;
    }
    Ok(())
}

/// Entries by key; a key with the removal mark takes the entry away.
fn map<T: Clone + Default>(
    field: Field,
    wanted: BTreeMap<String, T>,
    merged: &mut BTreeMap<String, T>,
    view: &mut BTreeMap<String, T>,
    claims: &mut Claims<'_>,
) -> Result<()> {
    for key in wanted.keys().filter_map(|key| removed(key)) {
        view.remove(key);
        if merged.remove(key).is_some() || wanted.contains_key(key) {
            claims.clear_entry(field, key);
        }
        merged.insert(format!("-{key}"), T::default());
    }
    for (key, value) in wanted.into_iter().filter(|(key, _)| removed(key).is_none()) {
        claims.entry(field, &key)?;
        view.insert(key.clone(), value.clone());
        merged.insert(key, value);
    }
    Ok(())
}

/// Things of a list that have a key.
trait Keyed: Clone {
    const FIELD: Field;
    fn key(&self) -> &str;
}

impl Keyed for Mount {
    const FIELD: Field = Field::Mounts;
    fn key(&self) -> &str {
        &self.destination
    }
}

impl Keyed for LinuxDevice {
    const FIELD: Field = Field::Devices;
    fn key(&self) -> &str {
        &self.path
    }
}

impl Keyed for KeyValue {
    const FIELD: Field = Field::Env;
    fn key(&self) -> &str {
        &self.key
    }
}

/// Merges a list into what was collected; the keys that are gone, and what is new.
fn collect<T: Keyed>(
    wanted: Vec<T>,
    merged: &mut Vec<T>,
    claims: &mut Claims<'_>,
) -> Result<(BTreeSet<String>, Vec<T>)> {
    let (gone, add): (Vec<T>, Vec<T>) = wanted.into_iter().partition(|thing| removed(thing.key()).is_some());
    let keys: BTreeSet<String> = gone.iter().filter_map(|thing| removed(thing.key())).map(str::to_owned).collect();
    merged.retain(|have| {
        let goes = keys.contains(have.key());
        if goes {
            claims.clear_entry(T::FIELD, have.key());
        }
        !goes
    });
    let stays_gone = |thing: &T| !add.iter().any(|new| Some(new.key()) == removed(thing.key()));
    merged.extend(gone.iter().filter(|thing| stays_gone(thing)).cloned());
    for thing in &add {
        claims.entry(T::FIELD, thing.key())?;
        merged.push(thing.clone());
    }
    Ok((keys, add))
}

fn list<T: Keyed>(wanted: Vec<T>, merged: &mut Vec<T>, view: &mut Vec<T>, claims: &mut Claims<'_>) -> Result<()> {
    let (gone, add) = collect(wanted, merged, claims)?;
    view.retain(|have| !gone.contains(have.key()) && !add.iter().any(|new| new.key() == have.key()));
    view.extend(add);
    Ok(())
}

fn env(
    wanted: Vec<KeyValue>,
    merged: &mut Vec<KeyValue>,
    view: &mut Vec<String>,
    claims: &mut Claims<'_>,
) -> Result<()> {
    let (gone, add) = collect(wanted, merged, claims)?;
    view.retain(|have| {
        let key = have.split_once('=').map_or(have.as_str(), |(key, _)| key);
        !gone.contains(key) && !add.iter().any(|new| new.key == key)
    });
    view.extend(add.iter().map(|new| format!("{}={}", new.key, new.value)));
    Ok(())
}

/// Arguments; an empty first one says that another plugin's may be replaced.
fn args(wanted: Vec<String>, merged: &mut Vec<String>, view: &mut Vec<String>, claims: &mut Claims<'_>) -> Result<()> {
    let replaces = match wanted.first() {
        None => return Ok(()),
        Some(first) => first.is_empty(),
    };
    if replaces {
        claims.clear(Field::Args);
    }
    claims.field(Field::Args)?;
    *merged = wanted.into_iter().skip(usize::from(replaces)).collect();
    view.clone_from(merged);
    Ok(())
}

fn add_hooks(wanted: &Hooks, merged: &mut Hooks, view: &mut Hooks, claims: &mut Claims<'_>) {
    if *wanted != Hooks::default() {
        claims.share(Field::OciHooks);
    }
    for to in [merged, view] {
        to.prestart.extend_from_slice(&wanted.prestart);
        to.create_runtime.extend_from_slice(&wanted.create_runtime);
        to.create_container.extend_from_slice(&wanted.create_container);
        to.start_container.extend_from_slice(&wanted.start_container);
        to.poststart.extend_from_slice(&wanted.poststart);
        to.poststop.extend_from_slice(&wanted.poststop);
    }
}

fn namespaces(
    wanted: Vec<LinuxNamespace>,
    merged: &mut Vec<LinuxNamespace>,
    view: &mut Vec<LinuxNamespace>,
    claims: &mut Claims<'_>,
) -> Result<()> {
    for namespace in wanted {
        let gone = removed(&namespace.r#type);
        let kind = gone.unwrap_or(&namespace.r#type);
        claims.entry(Field::Namespace, kind)?;
        view.retain(|have| have.r#type != kind);
        if gone.is_none() {
            view.push(namespace.clone());
        }
        merged.push(namespace);
    }
    Ok(())
}

fn rdt(wanted: LinuxRdt, merged: &mut LinuxRdt, claims: &mut Claims<'_>) -> Result<()> {
    if wanted.remove {
        for field in [Field::RdtClosId, Field::RdtSchemata, Field::RdtEnableMonitoring] {
            claims.clear(field);
        }
        *merged = LinuxRdt { remove: true, ..LinuxRdt::default() };
    }
    let LinuxRdt { clos_id, schemata, enable_monitoring, .. } = wanted;
    let sets = clos_id.is_some() || schemata.is_some() || enable_monitoring.is_some();
    one::<OptionalString>(Field::RdtClosId, clos_id, &mut merged.clos_id, &mut None, claims)?;
    one(Field::RdtSchemata, schemata, &mut merged.schemata, &mut None, claims)?;
    one(Field::RdtEnableMonitoring, enable_monitoring, &mut merged.enable_monitoring, &mut None, claims)?;
    merged.remove &= !sets;
    Ok(())
}

#[cfg(test)]
mod tests;
