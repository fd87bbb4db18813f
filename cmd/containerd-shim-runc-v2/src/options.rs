use std::{fs, io, path::Path};

use containerd_api::{any, runc::v1::Options};
use core_shim::RuntimeOptions;
use prost_types::Any;
use serde::{Deserialize, Serialize};

/// Type name of the options message.
pub(crate) const NAME: &str = "containerd.runc.v1.Options";
/// The file in the bundle that keeps them for the `delete` action; names are those of containerd's shim.
const FILE: &str = "options.json";

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Stored {
    #[serde(skip_serializing_if = "is_default")]
    no_pivot_root: bool,
    #[serde(skip_serializing_if = "is_default")]
    no_new_keyring: bool,
    #[serde(skip_serializing_if = "is_default")]
    shim_cgroup: String,
    #[serde(skip_serializing_if = "is_default")]
    io_uid: u32,
    #[serde(skip_serializing_if = "is_default")]
    io_gid: u32,
    #[serde(skip_serializing_if = "is_default")]
    binary_name: String,
    #[serde(skip_serializing_if = "is_default")]
    root: String,
    #[serde(skip_serializing_if = "is_default")]
    systemd_cgroup: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The options in an Any; other kinds of options have none for this runtime.
pub(crate) fn unpack(any: Option<&Any>) -> Result<Options, prost::DecodeError> {
    match any {
        Some(any) if any::is(any, NAME) => any::unpack(NAME, any),
        _ => Ok(Options::default()),
    }
}

/// How the runtime is to be called.
pub(crate) fn runtime(options: &Options) -> RuntimeOptions {
    RuntimeOptions {
        binary: options.binary_name.clone(),
        root: options.root.clone(),
        systemd_cgroup: options.systemd_cgroup,
        no_pivot: options.no_pivot_root,
        no_new_keyring: options.no_new_keyring,
    }
}

/// Keeps the options in the bundle.
pub(crate) fn write(bundle: &Path, options: &Options) -> io::Result<()> {
    let stored = Stored {
        no_pivot_root: options.no_pivot_root,
        no_new_keyring: options.no_new_keyring,
        shim_cgroup: options.shim_cgroup.clone(),
        io_uid: options.io_uid,
        io_gid: options.io_gid,
        binary_name: options.binary_name.clone(),
        root: options.root.clone(),
        systemd_cgroup: options.systemd_cgroup,
    };
    fs::write(bundle.join(FILE), serde_json::to_vec(&stored)?)?;
    // Older shims look for the program here.
    fs::write(bundle.join("runtime"), &options.binary_name)
}

/// The runtime of a bundle, as it was kept.
pub(crate) fn read(bundle: &Path) -> RuntimeOptions {
    let stored: Stored =
        fs::read(bundle.join(FILE)).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    RuntimeOptions {
        binary: stored.binary_name,
        root: stored.root,
        systemd_cgroup: stored.systemd_cgroup,
        no_pivot: stored.no_pivot_root,
        no_new_keyring: stored.no_new_keyring,
    }
}
