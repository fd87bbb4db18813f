use core_mount::Mount;
use core_snapshots::{Kind, LABEL_GID_MAPPING, LABEL_UID_MAPPING};
use core_types::{Error, Labels, Result};
use plugin_snapshot_storage::{Directories, Snapshot};

/// What all mounts of a snapshotter have in common.
pub(crate) struct Options {
    /// Options of overlay mounts.
    pub(crate) overlay: Vec<String>,
    /// Whether the kernel maps ids of overlay mounts.
    pub(crate) remap_ids: bool,
}

pub(crate) fn upper(directories: &Directories, id: u64) -> String {
    directories.of(id).join("fs").to_string_lossy().into_owned()
}

fn bind(source: String, mut options: Vec<String>, access: &str) -> Vec<Mount> {
    options.extend([access.to_owned(), "rbind".to_owned()]);
    vec![Mount { kind: "bind".into(), source, target: String::new(), options }]
}

/// The mounts of an active snapshot or view, in containerd's words and order.
pub(crate) fn mounts(directories: &Directories, common: &Options, snapshot: &Snapshot) -> Vec<Mount> {
    let mut options = Vec::new();
    if common.remap_ids {
        for (label, option) in [(LABEL_UID_MAPPING, "uidmap"), (LABEL_GID_MAPPING, "gidmap")] {
            options.extend(snapshot.info.labels.get(label).map(|ids| format!("{option}={ids}")));
        }
    }
    let writable = snapshot.info.kind == Kind::Active;
    match &snapshot.parent_ids[..] {
        [] => return bind(upper(directories, snapshot.id), options, if writable { "rw" } else { "ro" }),
        [parent] if !writable => return bind(upper(directories, *parent), options, "ro"),
        _ => {}
    }
    if writable {
        let work = directories.of(snapshot.id).join("work");
        options.push(format!("workdir={}", work.display()));
        options.push(format!("upperdir={}", upper(directories, snapshot.id)));
    }
    let lower: Vec<String> = snapshot.parent_ids.iter().map(|id| upper(directories, *id)).collect();
    options.push(format!("lowerdir={}", lower.join(":")));
    options.extend(common.overlay.iter().cloned());
    vec![Mount { kind: "overlay".into(), source: "overlay".into(), target: String::new(), options }]
}

/// Which user and group of the host a container's root is, when the labels map ids.
pub(crate) fn mapped_root(labels: &Labels) -> Result<Option<(u32, u32)>> {
    if !labels.contains_key(LABEL_UID_MAPPING) && !labels.contains_key(LABEL_GID_MAPPING) {
        return Ok(None);
    }
    let root = |label: &str| {
        let map = labels.get(label).map_or("", String::as_str);
        map.split(',').find_map(root_of_range).ok_or_else(|| {
            Error::invalid_argument(format!("label {label}: {map:?} does not map id 0 (<container>:<host>:<length>)"))
        })
    };
    Ok(Some((root(LABEL_UID_MAPPING)?, root(LABEL_GID_MAPPING)?)))
}

/// The host's id of 0 in `container:host:length`.
fn root_of_range(range: &str) -> Option<u32> {
    let mut numbers = range.split(':').map(|number| number.trim().parse::<u32>().ok());
    match (numbers.next()??, numbers.next()??, numbers.next()??, numbers.next()) {
        (0, host, 1.., None) => Some(host),
        _ => None,
    }
}
