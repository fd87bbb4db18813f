use anyhow::Result;
use serde_json::json;

use crate::{
    context::Context,
    output::{self, rfc3339},
};

pub(crate) async fn run(context: &Context) -> Result<()> {
    let server = context.client().await?.server_info().await?;
    let mut shown = json!({"uuid": server.uuid, "pid": server.pid, "pidns": server.pidns});
    if !server.deprecations.is_empty() {
        let warning = |warning: &containerd_sdk::api::services::introspection::v1::DeprecationWarning| {
            let last = containerd_sdk::timestamp_to_system(warning.last_occurrence.as_ref());
            json!({"id": warning.id, "message": warning.message, "last_occurrence": rfc3339(last)})
        };
        shown["deprecations"] = server.deprecations.iter().map(warning).collect();
    }
    output::json(&json!({"server": shown}))
}
