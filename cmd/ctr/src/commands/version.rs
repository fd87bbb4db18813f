use anyhow::Result;

use crate::{
    context::{Context, warn},
    output,
};

pub(crate) async fn run(context: &Context) -> Result<()> {
    output::line("Client:")?;
    output::line(format!("  Version:  {}", env!("CARGO_PKG_VERSION")))?;
    output::line("")?;
    let client = context.client().await?;
    let version = client.version().await?;
    output::line("Server:")?;
    output::line(format!("  Version:  {}", version.version))?;
    output::line(format!("  Revision: {}", version.revision))?;
    output::line(format!("  UUID: {}", client.server_info().await?.uuid))?;
    if version.version != env!("CARGO_PKG_VERSION") {
        warn("WARNING: version mismatch");
    }
    Ok(())
}
