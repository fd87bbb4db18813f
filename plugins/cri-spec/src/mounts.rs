use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use containerd_api_cri::v1::{LinuxContainerSecurityContext, Mount, MountPropagation, NamespaceMode};
use core_mount::MountInfo;
use core_oci::{IdMapping, Spec, clean_absolute};
use serde_json::{Value, json};

use crate::{
    ContainerInput, HostFiles, Result, SpecError, Volume,
    namespaces::{self, IdMappings, id_mappings},
    process::no_zero_byte,
};

/// Most mounts of a request.
const MAX_MOUNTS: usize = 16 * 1024;
/// Options of the host's cgroup file system that a container in the host's cgroup namespace must not change: there
/// is one file system for both, and a mount sets them anew.
const SHARED_CGROUP_OPTIONS: [&str; 2] = ["nsdelegate", "memory_recursiveprot"];

/// What mounting needs done beside the specification.
#[derive(Debug, Default)]
pub(crate) struct Mounted {
    pub(crate) volumes: Vec<Volume>,
    pub(crate) relabel: Vec<PathBuf>,
}

/// A mount that is checked and found.
struct Bind {
    /// Cleaned destination, to compare with.
    key: String,
    destination: String,
    source: PathBuf,
    options: Vec<&'static str>,
    root_propagation: Option<&'static str>,
    uids: Vec<IdMapping>,
    gids: Vec<IdMapping>,
    relabel: bool,
}

/// Sets the mounts of a container: the default ones, then those of the request, of the pod and of the image by the
/// depth of their destination. A later kind gives way to an earlier one at the same destination, a default to any.
pub(crate) fn set_mounts(
    spec: &mut Spec,
    input: &ContainerInput<'_>,
    security: &LinuxContainerSecurityContext,
    users: Option<&IdMappings>,
    files: &dyn HostFiles,
) -> Result<Mounted> {
    let mut mounted = Mounted::default();
    let mut binds = requested(input, files)?;
    let taken: BTreeSet<String> = binds.iter().map(|bind| bind.key.clone()).collect();
    let of_pod = pod_files(input, security, users)?.into_iter();
    binds.extend(of_pod.filter(|bind| !taken.contains(&bind.key)));
    if !input.options.ignore_image_defined_volumes {
        for (bind, volume) in image_volumes(input, users) {
            if !taken.contains(&bind.key) {
                binds.push(bind);
                mounted.volumes.push(volume);
            }
        }
    }
    binds.sort_by_key(|bind| depth(&bind.key));

    add_cgroup(spec, input, files)?;
    let all: BTreeSet<&str> = binds.iter().map(|bind| bind.key.as_str()).collect();
    let own_dev = all.contains("/dev");
    spec.list(&[], "mounts").retain(|have| {
        let destination = clean_absolute(have["destination"].as_str().unwrap_or_default());
        !(all.contains(destination.as_str()) || own_dev && destination.starts_with("/dev/"))
    });
    if let Some(mode) = binds.iter().filter_map(|bind| bind.root_propagation).max_by_key(|mode| *mode == "rshared") {
        spec.set_rootfs_propagation(mode);
    }
    mounted.relabel = binds.iter().filter(|bind| bind.relabel).map(|bind| bind.source.clone()).collect();
    let list = spec.list(&[], "mounts");
    list.extend(binds.iter().map(Bind::to_json));
    Ok(mounted)
}

impl Bind {
    /// A mount of a file of the pod or a volume.
    fn own(destination: &str, source: PathBuf, readonly: bool, users: Option<&IdMappings>) -> Self {
        Self {
            key: clean_absolute(destination),
            destination: destination.to_owned(),
            source,
            options: vec!["rbind", "rprivate", if readonly { "ro" } else { "rw" }],
            root_propagation: None,
            uids: users.map(|users| users.uids.clone()).unwrap_or_default(),
            gids: users.map(|users| users.gids.clone()).unwrap_or_default(),
            relabel: true,
        }
    }

    fn to_json(&self) -> Value {
        let mut value = json!({
            "destination": self.destination,
            "type": "bind",
            "source": self.source.to_string_lossy(),
            "options": self.options,
        });
        for (key, maps) in [("uidMappings", &self.uids), ("gidMappings", &self.gids)] {
            if let (false, Value::Object(object)) = (maps.is_empty(), &mut value) {
                object.insert(key.into(), maps.iter().map(|map| map.to_json()).collect());
            }
        }
        value
    }
}

/// The mounts of the request, in its order.
fn requested(input: &ContainerInput<'_>, files: &dyn HostFiles) -> Result<Vec<Bind>> {
    if input.config.mounts.len() > MAX_MOUNTS {
        return Err(SpecError::invalid("config.mounts", format!("are more than {MAX_MOUNTS}")));
    }
    let mut table = None;
    let binds = input.config.mounts.iter().enumerate();
    binds
        .map(|(index, mount)| request_mount(&format!("config.mounts[{index}]"), mount, input, files, &mut table))
        .collect()
}

fn request_mount(
    field: &str,
    mount: &Mount,
    input: &ContainerInput<'_>,
    files: &dyn HostFiles,
    table: &mut Option<Vec<MountInfo>>,
) -> Result<Bind> {
    for (name, path) in [("container_path", &mount.container_path), ("host_path", &mount.host_path)] {
        let field = format!("{field}.{name}");
        no_zero_byte(&field, path)?;
        if !path.starts_with('/') {
            let image = name == "host_path" && mount.image.is_some();
            let reason = if image { "is not there yet: the image is not mounted" } else { "is not an absolute path" };
            return Err(SpecError::invalid(field, reason));
        }
    }
    let propagation = MountPropagation::try_from(mount.propagation).map_err(|_| {
        let reason = format!("{} is no propagation (PRIVATE, HOST_TO_CONTAINER or BIDIRECTIONAL)", mount.propagation);
        SpecError::invalid(format!("{field}.propagation"), reason)
    })?;
    let access = access(field, mount, propagation, input)?;
    let host_path = format!("{field}.host_path");
    let source = files.mount_source(Path::new(&mount.host_path)).map_err(SpecError::at(&host_path))?;
    let (option, root_propagation) = match propagation {
        MountPropagation::PropagationPrivate => ("rprivate", None),
        MountPropagation::PropagationBidirectional => ("rshared", Some("rshared")),
        MountPropagation::PropagationHostToContainer => ("rslave", Some("rslave")),
    };
    if root_propagation.is_some() {
        let table = match table {
            Some(table) => table,
            None => table.insert(files.mounts().map_err(SpecError::at(&host_path))?),
        };
        check_peer(&host_path, &source, table, option == "rslave")?;
    }
    Ok(Bind {
        key: clean_absolute(&mount.container_path),
        destination: mount.container_path.clone(),
        source,
        options: vec!["rbind", option, access],
        root_propagation,
        uids: id_mappings(&format!("{field}.uid_mappings"), &mount.uid_mappings)?,
        gids: id_mappings(&format!("{field}.gid_mappings"), &mount.gid_mappings)?,
        relabel: mount.selinux_relabel,
    })
}

/// Whether a mount is written to: `rw`, `ro` or, for all below it too, `rro`.
fn access(
    field: &str,
    mount: &Mount,
    propagation: MountPropagation,
    input: &ContainerInput<'_>,
) -> Result<&'static str> {
    let field = format!("{field}.recursive_read_only");
    match (mount.readonly, mount.recursive_read_only) {
        (false, false) => Ok("rw"),
        (true, false) => Ok("ro"),
        (false, true) => Err(SpecError::invalid(field, "conflicts with a mount that is not read-only")),
        (true, true) if !input.handler.recursive_read_only_mounts => {
            // The first word is what kubelet looks for.
            let reason = "RROUnsupported: the runtime handler does not support recursive read-only mounts";
            Err(SpecError::unsupported(field, reason))
        }
        (true, true) if propagation != MountPropagation::PropagationPrivate => {
            Err(SpecError::invalid(field, "needs private propagation"))
        }
        (true, true) => Ok("rro"),
    }
}

/// Mounts only travel where the host's mount is a peer (or, towards the container alone, gets them itself).
fn check_peer(field: &str, source: &Path, table: &[MountInfo], slave_is_enough: bool) -> Result<()> {
    let covering = table.iter().filter(|mount| source.starts_with(&mount.mount_point));
    let Some(mount) = covering.max_by_key(|mount| mount.mount_point.components().count()) else {
        return Err(SpecError::invalid(field, format!("no mount holds {}", source.display())));
    };
    let is = |kind: &str| mount.optional.iter().any(|option| option.starts_with(kind));
    if is("shared:") || slave_is_enough && is("master:") {
        return Ok(());
    }
    let wanted = if slave_is_enough { "a shared or slave mount" } else { "a shared mount" };
    let at = mount.mount_point.display();
    Err(SpecError::invalid(field, format!("{} is mounted on {at}, which is not {wanted}", source.display())))
}

/// The pod's files that every container gets.
fn pod_files(
    input: &ContainerInput<'_>,
    security: &LinuxContainerSecurityContext,
    users: Option<&IdMappings>,
) -> Result<Vec<Bind>> {
    const FIELD: &str = "config.linux.security_context.namespace_options";
    let readonly = security.readonly_rootfs;
    let files = input.files;
    let etc =
        [("/etc/hostname", &files.hostname), ("/etc/hosts", &files.hosts), ("/etc/resolv.conf", &files.resolv_conf)];
    let there = etc.into_iter().filter_map(|(destination, source)| Some((destination, source.clone()?)));
    let mut binds: Vec<Bind> =
        there.map(|(destination, source)| Bind::own(destination, source, readonly, users)).collect();
    let own = namespaces::Modes::of(FIELD, security.namespace_options.as_ref())?;
    let pod = namespaces::sandbox_options(input.sandbox_config);
    let pod = namespaces::Modes::of(&FIELD.replacen("config", "sandbox_config", 1), pod)?;
    let host = own.ipc == NamespaceMode::Node || pod.ipc == NamespaceMode::Node;
    let shm = if host { Some(PathBuf::from("/dev/shm")) } else { files.shm.clone() };
    if let Some(shm) = shm {
        // It starts empty and takes ids as they come, so it needs no mapping, which older kernels lack for tmpfs.
        binds.push(Bind { relabel: !host, ..Bind::own("/dev/shm", shm, false, None) });
    }
    Ok(binds)
}

fn image_volumes(input: &ContainerInput<'_>, users: Option<&IdMappings>) -> Vec<(Bind, Volume)> {
    let volumes = input.image.volumes().into_iter().enumerate();
    let volume = |(index, container_path): (usize, String)| {
        let host_path = input.volumes_dir.join(index.to_string());
        let bind = Bind::own(&container_path, host_path.clone(), false, users);
        (bind, Volume { container_path, host_path })
    };
    volumes.map(volume).collect()
}

/// Shows the container its cgroup.
fn add_cgroup(spec: &mut Spec, input: &ContainerInput<'_>, files: &dyn HostFiles) -> Result<()> {
    let mode = if input.handler.cgroup_writable { "rw" } else { "ro" };
    let mut options: Vec<String> = ["nosuid", "noexec", "nodev", "relatime", mode].map(str::to_owned).into();
    let own = spec
        .get("/linux/namespaces")
        .and_then(Value::as_array)
        .is_some_and(|list| list.iter().any(|namespace| namespace["type"] == "cgroup"));
    if !own {
        let table = files.mounts().map_err(SpecError::at("config"))?;
        let host = table.iter().rfind(|mount| mount.mount_point == Path::new("/sys/fs/cgroup"));
        let have = host.map(|mount| mount.super_options.split(',').collect::<Vec<_>>()).unwrap_or_default();
        options.extend(SHARED_CGROUP_OPTIONS.into_iter().filter(|name| have.contains(name)).map(str::to_owned));
    }
    spec.remove_mounts("/sys/fs/cgroup");
    spec.list(&[], "mounts").push(json!({
        "destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": options,
    }));
    Ok(())
}

fn depth(clean: &str) -> usize {
    clean.matches('/').count()
}

#[cfg(test)]
mod tests;
