use std::{
    fs,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::Path,
};

use core_types::{Error, Result};
use serde_json::{Value, json};

use crate::Spec;

/// Directories below `/dev` that hold nothing to pass on.
const SKIPPED_DIRECTORIES: [&str; 7] = ["pts", "shm", "fd", "mqueue", ".lxc", ".lxd-mounts", ".udev"];
/// How deep a tree of devices may be.
const MAX_DEPTH: usize = 16;

/// Character devices of every container: null, random, full, tty, zero, urandom, console, pts, ptmx.
const DEFAULT_DEVICES: [(u32, Option<u32>); 9] = [
    (1, Some(3)),
    (1, Some(8)),
    (1, Some(7)),
    (5, Some(0)),
    (1, Some(5)),
    (1, Some(9)),
    (5, Some(1)),
    (136, None),
    (5, Some(2)),
];

/// A device node to make in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceNode {
    /// Where, in the container.
    pub path: String,
    /// `b` for a block device, `c` for one of characters, `p` for a named pipe.
    pub kind: String,
    /// Major number.
    pub major: i64,
    /// Minor number.
    pub minor: i64,
    /// Permission bits; `None` for what the runtime takes.
    pub mode: Option<u32>,
    /// Owner; `None` for what the runtime takes.
    pub uid: Option<u32>,
    /// Group; `None` for what the runtime takes.
    pub gid: Option<u32>,
}

impl DeviceNode {
    /// The device at a path of the host, or all below a directory, with their paths there.
    ///
    /// # Errors
    /// NotFound for a path that is not there, InvalidArgument for a file that is no device.
    pub fn find(path: &Path) -> Result<Vec<Self>> {
        devices_at(path, 0)
    }

    fn to_json(&self) -> Value {
        let mut value = json!({"path": self.path, "type": self.kind, "major": self.major, "minor": self.minor});
        for (key, number) in [("fileMode", self.mode), ("uid", self.uid), ("gid", self.gid)] {
            if let (Some(number), Value::Object(object)) = (number, &mut value) {
                object.insert(key.into(), json!(number));
            }
        }
        value
    }
}

impl Spec {
    /// Makes a device node in the container and allows its use, `access` being some of `rwm`. One that is there
    /// at the same path is replaced.
    pub fn add_device(&mut self, device: &DeviceNode, access: &str) {
        let list = self.list(&["linux"], "devices");
        list.retain(|have| have["path"].as_str() != Some(&device.path));
        list.push(device.to_json());
        self.allow_device(device, access);
    }

    /// Allows the use of a device that gets into the container in another way, `access` being some of `rwm`.
    pub fn allow_device(&mut self, device: &DeviceNode, access: &str) {
        if matches!(device.kind.as_str(), "b" | "c") {
            self.list(&["linux", "resources"], "devices").push(json!({
                "allow": true, "type": device.kind, "major": device.major, "minor": device.minor, "access": access,
            }));
        }
    }

    /// Makes device nodes in the container without a rule for their use; see [`Spec::allow_all_devices`].
    pub fn make_devices(&mut self, devices: &[DeviceNode]) {
        let list = self.list(&["linux"], "devices");
        let new = |device: &&DeviceNode| !list.iter().any(|have| have["path"].as_str() == Some(&device.path));
        let made: Vec<Value> = devices.iter().filter(new).map(DeviceNode::to_json).collect();
        list.extend(made);
    }

    /// Lets the container use the devices that every program expects.
    pub fn allow_default_devices(&mut self) {
        let rules = self.list(&["linux", "resources"], "devices");
        for (major, minor) in DEFAULT_DEVICES {
            rules.push(match minor {
                Some(minor) => json!({"allow": true, "type": "c", "major": major, "minor": minor, "access": "rwm"}),
                None => json!({"allow": true, "type": "c", "major": major, "access": "rwm"}),
            });
        }
    }

    /// Lets the container use every device.
    pub fn allow_all_devices(&mut self) {
        self.object(&["linux", "resources"]).insert("devices".into(), json!([{"allow": true, "access": "rwm"}]));
    }

    /// Makes a device of the host, or all of a directory, in the container and allows its use.
    ///
    /// # Errors
    /// NotFound for a path that is not there, InvalidArgument for a file that is no device.
    pub fn add_devices(&mut self, path: &Path) -> Result<()> {
        for device in devices_at(path, 0)? {
            self.add_device(&device, "rwm");
        }
        Ok(())
    }

    /// Makes all devices of the host in the container; use with [`Spec::allow_all_devices`].
    ///
    /// # Errors
    /// What reading `/dev` says.
    pub fn add_host_devices(&mut self) -> Result<()> {
        let devices = devices_at(Path::new("/dev"), 0)?;
        self.make_devices(&devices);
        Ok(())
    }
}

fn devices_at(path: &Path, depth: usize) -> Result<Vec<DeviceNode>> {
    let metadata = fs::metadata(path).map_err(|error| Error::io(format!("device {}", path.display()), error))?;
    if !metadata.is_dir() {
        let device = device(path)?;
        return device
            .map(|device| vec![device])
            .ok_or_else(|| Error::invalid_argument(format!("{} is not a device node", path.display())));
    }
    if depth > MAX_DEPTH {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    let listing = fs::read_dir(path).map_err(|error| Error::io(format!("list {}", path.display()), error))?;
    for entry in listing.flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        let name = entry.file_name();
        if kind.is_dir() {
            if !SKIPPED_DIRECTORIES.iter().any(|skipped| name == *skipped) {
                found.extend(devices_at(&entry.path(), depth + 1)?);
            }
        } else if name != "console" {
            // One that vanishes meanwhile is no loss.
            found.extend(device(&entry.path()).ok().flatten());
        }
    }
    Ok(found)
}

/// The node at `path`, `None` when it is another kind of file.
fn device(path: &Path) -> Result<Option<DeviceNode>> {
    let metadata =
        fs::symlink_metadata(path).map_err(|error| Error::io(format!("device {}", path.display()), error))?;
    let kind = metadata.file_type();
    let kind = match (kind.is_block_device(), kind.is_char_device()) {
        (true, _) => "b",
        (_, true) => "c",
        _ => return Ok(None),
    };
    Ok(Some(DeviceNode {
        path: path.to_string_lossy().into_owned(),
        kind: kind.to_owned(),
        major: rustix::fs::major(metadata.rdev()).into(),
        minor: rustix::fs::minor(metadata.rdev()).into(),
        mode: Some(metadata.mode() & 0o7777),
        uid: Some(metadata.uid()),
        gid: Some(metadata.gid()),
    }))
}

#[cfg(test)]
mod tests {
    use core_types::Namespace;

    use super::*;

    #[test]
    fn a_device_comes_with_its_rule() {
        let mut spec = Spec::linux(&Namespace::new("default").unwrap(), "c");
        spec.add_devices(Path::new("/dev/null")).unwrap();
        assert_eq!(spec.get("/linux/devices/0/path").unwrap(), "/dev/null");
        assert_eq!(spec.get("/linux/devices/0/minor").unwrap(), 3);
        assert_eq!(spec.get("/linux/resources/devices/1/allow").unwrap(), true);
        assert!(spec.add_devices(Path::new("/etc/passwd")).is_err());
        assert!(spec.add_devices(Path::new("/dev/no-such-device")).unwrap_err().is_not_found());
    }
}
