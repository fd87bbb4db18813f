use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use containerd_sdk::{Archive, Destination, ImageStore, Output, Source, api::types::transfer::ImageReference};

use crate::{commands::shared::refuse_local, context::Context, progress::Display, values};

/// Export images to an OCI tar archive.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Do not add Docker compatible manifest.json to archive
    #[arg(long)]
    skip_manifest_json: bool,
    /// Do not add non-distributable blobs such as Windows layers to archive
    #[arg(long)]
    skip_non_distributable: bool,
    /// Export content of a specific platform
    #[arg(long)]
    platform: Vec<String>,
    /// Exports content from all platforms
    #[arg(long)]
    all_platforms: bool,
    /// Run export locally rather than through transfer API (not available)
    #[arg(long)]
    local: bool,
    /// Output file, `-` for standard output
    out: Option<PathBuf>,
    /// Images
    images: Vec<String>,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<()> {
    refuse_local(args.local)?;
    let Some(out) = args.out.filter(|_| !args.images.is_empty()) else {
        bail!("please provide both an output filename and an image reference to export");
    };
    let archive = Archive {
        platforms: values::platforms(&args.platform)?,
        all_platforms: args.all_platforms,
        skip_docker_manifest: args.skip_manifest_json,
        skip_non_distributable: args.skip_non_distributable,
        ..Archive::default()
    };
    let reference = |name: &String| ImageReference { name: name.clone(), ..ImageReference::default() };
    let store = ImageStore { extra_references: args.images.iter().map(reference).collect(), ..ImageStore::default() };
    let client = context.client().await?;
    let to_stdout = out.as_os_str() == "-";
    // An archive goes to another name first, so that a failure never looks like a result.
    let partial = out.with_added_extension_text(".partial");
    let writer: Output = if to_stdout {
        Box::new(tokio::io::stdout())
    } else {
        let file = tokio::fs::File::create(&partial).await.with_context(|| format!("create {}", partial.display()))?;
        Box::new(file)
    };
    let display = if to_stdout { Display::on_stderr() } else { Display::new() };
    let done = client.transfer(Source::Store(store), Destination::Archive(archive, writer), Some(display.sink())).await;
    if !to_stdout {
        match &done {
            Ok(()) => tokio::fs::rename(&partial, &out).await.with_context(|| format!("write {}", out.display()))?,
            Err(_) => drop(tokio::fs::remove_file(&partial).await),
        }
    }
    done?;
    display.finish();
    Ok(())
}

trait AddExtension {
    fn with_added_extension_text(&self, text: &str) -> PathBuf;
}

impl AddExtension for PathBuf {
    fn with_added_extension_text(&self, text: &str) -> PathBuf {
        let mut name = self.clone().into_os_string();
        name.push(text);
        name.into()
    }
}
