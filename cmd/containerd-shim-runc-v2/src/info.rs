use std::{io::Read, process::Command};

use containerd_api::types::{RuntimeInfo, RuntimeVersion};
use prost::Message;
use prost_types::Any;

use crate::{Result, options};

/// Type name of the runtime specification's features, whose value is JSON.
const FEATURES: &str = "types.containerd.io/opencontainers/runtime-spec/1/features/Features";

/// The text of `-v`.
pub(crate) fn version() -> String {
    format!("containerd-shim-runc-v2:\n  Version:  {}\n  Revision: \n\n", env!("CARGO_PKG_VERSION"))
}

/// Describes the runtime that the options on standard input name.
pub(crate) fn info() -> Result<Vec<u8>> {
    let mut input = Vec::new();
    std::io::stdin().take(1 << 20).read_to_end(&mut input)?;
    let given = if input.is_empty() { None } else { Some(Any::decode(input.as_slice())?) };
    let options = options::unpack(given.as_ref())?;
    let binary = if options.binary_name.is_empty() { "runc" } else { options.binary_name.as_str() };
    let output = Command::new(binary).arg("features").output();
    let output = output.map_err(|error| format!("failed to run {binary:?}: {error}"))?;
    // Not every runtime knows this command.
    let features = (output.status.success() && serde_json::from_slice::<serde_json::Value>(&output.stdout).is_ok())
        .then(|| Any { type_url: FEATURES.to_owned(), value: output.stdout });
    let info = RuntimeInfo {
        name: "io.containerd.runc.v2".to_owned(),
        version: Some(RuntimeVersion { version: env!("CARGO_PKG_VERSION").to_owned(), revision: String::new() }),
        options: given,
        features,
        ..RuntimeInfo::default()
    };
    Ok(info.encode_to_vec())
}
