use std::path::Path;

use core_types::{Error, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{DeviceNode, Spec};

/// When a hook may run.
const HOOKS: [&str; 6] = ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

/// What using a device changes in a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Edits {
    env: Vec<String>,
    device_nodes: Vec<Node>,
    net_devices: Vec<NetDevice>,
    hooks: Vec<Hook>,
    mounts: Vec<Mount>,
    intel_rdt: Option<Value>,
    #[serde(rename = "additionalGids")]
    additional_gids: Vec<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Node {
    path: String,
    host_path: String,
    #[serde(rename = "type")]
    kind: String,
    major: i64,
    minor: i64,
    file_mode: Option<u32>,
    permissions: String,
    uid: Option<u32>,
    gid: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NetDevice {
    host_interface_name: String,
    name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Hook {
    hook_name: String,
    path: String,
    args: Vec<String>,
    env: Vec<String>,
    timeout: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Mount {
    host_path: String,
    container_path: String,
    #[serde(rename = "type")]
    kind: String,
    options: Vec<String>,
}

impl Edits {
    /// Refuses what no runtime could do.
    pub(super) fn check(&self) -> Result<()> {
        let invalid = |reason: String| Err(Error::invalid_argument(reason));
        let variables = self.env.iter().chain(self.hooks.iter().flat_map(|hook| &hook.env));
        for variable in variables {
            if variable.split_once('=').is_none_or(|(name, _)| name.is_empty()) {
                return invalid(format!("{variable:?} is no variable with its value"));
            }
        }
        for node in &self.device_nodes {
            let access = node.permissions.bytes().all(|byte| b"rwm".contains(&byte));
            if node.path.is_empty() || !access || !matches!(node.kind.as_str(), "" | "b" | "c" | "u" | "p") {
                return invalid(format!("device node {:?} has no path, or a wrong type or permissions", node.path));
            }
        }
        for hook in &self.hooks {
            if !HOOKS.contains(&hook.hook_name.as_str()) || hook.path.is_empty() {
                return invalid(format!("hook {:?} of {:?} is none that is known", hook.path, hook.hook_name));
            }
        }
        for mount in &self.mounts {
            if mount.host_path.is_empty() || mount.container_path.is_empty() {
                return invalid(format!("mount {:?} lacks a path", mount.container_path));
            }
        }
        if self.net_devices.iter().any(|device| device.host_interface_name.is_empty() || device.name.is_empty()) {
            return invalid("a network device lacks a name".into());
        }
        Ok(())
    }

    pub(super) fn apply(&self, spec: &mut Spec) -> Result<()> {
        spec.add_env(&self.env);
        for node in &self.device_nodes {
            let access = if node.permissions.is_empty() { "rwm" } else { &node.permissions };
            let node = node.complete(spec)?;
            spec.add_device(&node, access);
        }
        for device in &self.net_devices {
            let named = json!({"name": device.name});
            spec.object(&["linux", "netDevices"]).insert(device.host_interface_name.clone(), named);
        }
        self.add_mounts(spec);
        for hook in &self.hooks {
            spec.list(&["hooks"], &hook.hook_name).push(hook.to_json());
        }
        if let Some(rdt) = &self.intel_rdt {
            spec.object(&["linux"]).insert("intelRdt".into(), rdt.clone());
        }
        let groups = spec.list(&["process", "user"], "additionalGids");
        for gid in self.additional_gids.iter().filter(|gid| **gid != 0) {
            if !groups.iter().any(|have| have.as_u64() == Some(u64::from(*gid))) {
                groups.push(json!(gid));
            }
        }
        Ok(())
    }

    /// Adds the mounts, then sorts all so that none hides one below it.
    fn add_mounts(&self, spec: &mut Spec) {
        if self.mounts.is_empty() {
            return;
        }
        for mount in &self.mounts {
            spec.remove_mounts(&mount.container_path);
            let mut value = json!({
                "destination": mount.container_path, "source": mount.host_path, "options": mount.options,
            });
            if let (false, Value::Object(object)) = (mount.kind.is_empty(), &mut value) {
                object.insert("type".into(), json!(mount.kind));
            }
            spec.list(&[], "mounts").push(value);
        }
        let depth = |mount: &Value| {
            let path = Path::new(mount["destination"].as_str().unwrap_or_default());
            path.components().count()
        };
        spec.list(&[], "mounts").sort_by_key(depth);
    }
}

impl Node {
    /// The node with what the file leaves to the host's device.
    fn complete(&self, spec: &Spec) -> Result<DeviceNode> {
        let mut node = DeviceNode {
            path: self.path.clone(),
            kind: self.kind.clone(),
            major: self.major,
            minor: self.minor,
            mode: self.file_mode,
            uid: self.uid,
            gid: self.gid,
        };
        if node.kind.is_empty() || (node.major == 0 && node.kind != "p") {
            let host_path = if self.host_path.is_empty() { &self.path } else { &self.host_path };
            let found = DeviceNode::find(Path::new(host_path))?;
            let [device] = found.as_slice() else {
                return Err(Error::invalid_argument(format!("{host_path} is not one device")));
            };
            node.kind.clone_from(&device.kind);
            (node.major, node.minor) = (device.major, device.minor);
            node.mode = node.mode.or(device.mode);
        }
        // A device belongs to the user of the container when the file does not say.
        let id = |key: &str| {
            let id = spec.get(&format!("/process/user/{key}")).and_then(Value::as_u64);
            id.and_then(|id| u32::try_from(id).ok()).filter(|id| *id > 0)
        };
        node.uid = node.uid.or_else(|| id("uid"));
        node.gid = node.gid.or_else(|| id("gid"));
        Ok(node)
    }
}

impl Hook {
    fn to_json(&self) -> Value {
        let mut value = json!({"path": self.path});
        if let Value::Object(object) = &mut value {
            if !self.args.is_empty() {
                object.insert("args".into(), json!(self.args));
            }
            if !self.env.is_empty() {
                object.insert("env".into(), json!(self.env));
            }
            if let Some(timeout) = self.timeout {
                object.insert("timeout".into(), json!(timeout));
            }
        }
        value
    }
}
