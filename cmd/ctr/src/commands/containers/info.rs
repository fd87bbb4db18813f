use anyhow::{Result, bail};
use serde_json::json;

use crate::{
    context::Context,
    output::{self, rfc3339},
};

/// Get info about a container.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only display the spec
    #[arg(long)]
    spec: bool,
    /// Id of the container
    container: Option<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    let Some(id) = args.container.filter(|id| !id.is_empty()) else { bail!("container id must be provided") };
    let container = context.client().await?.container(&id).await?;
    if args.spec {
        return output::json(&container.spec()?.into_value());
    }
    let record = container.record();
    let any = |any: &prost_types::Any| json!({"type_url": any.type_url, "value": hex(&any.value)});
    let runtime = record.runtime.clone().unwrap_or_default();
    let time = |time: &Option<prost_types::Timestamp>| rfc3339(containerd_sdk::timestamp_to_system(time.as_ref()));
    let extensions: serde_json::Map<_, _> =
        record.extensions.iter().map(|(name, value)| (name.clone(), any(value))).collect();
    let spec = match record.spec {
        Some(_) => container.spec()?.into_value(),
        None => serde_json::Value::Null,
    };
    output::json(&json!({
        "ID": record.id,
        "Labels": record.labels,
        "Image": record.image,
        "Runtime": {"Name": runtime.name, "Options": runtime.options.as_ref().map(any)},
        "SnapshotKey": record.snapshot_key,
        "Snapshotter": record.snapshotter,
        "CreatedAt": time(&record.created_at),
        "UpdatedAt": time(&record.updated_at),
        "Extensions": extensions,
        "SandboxID": record.sandbox,
        "Spec": spec,
    }))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
