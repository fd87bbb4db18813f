use anyhow::Result;

use crate::{
    context::{Context, warn},
    output,
};

/// Version of the API that both sides speak, and of this program.
const VERSION: &str = concat!("v2.3.4+rust.", env!("CARGO_PKG_VERSION"));

pub(crate) async fn run(context: &Context) -> Result<()> {
    output::line("Client:")?;
    output::line(format!("  Version:  {VERSION}"))?;
    output::line("")?;
    let client = context.client().await?;
    let version = client.version().await?;
    output::line("Server:")?;
    output::line(format!("  Version:  {}", version.version))?;
    output::line(format!("  Revision: {}", version.revision))?;
    output::line(format!("  UUID: {}", client.server_info().await?.uuid))?;
    if version.version != VERSION {
        warn("WARNING: version mismatch");
    }
    Ok(())
}
