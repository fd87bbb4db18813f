//! `containerd-stress`: runs containers in parallel for a while and reports how many, how fast, and what failed.
//!
//! All is removed again: containers, snapshots, the namespace.

#![forbid(unsafe_code)]
// A command line program talks by printing.
#![allow(clippy::print_stdout, clippy::print_stderr)]

/// What was measured, and how it is shown.
mod report;
/// One of the parallel loops.
mod worker;

use std::{process::ExitCode, str::FromStr as _, time::Duration};

use anyhow::{Context as _, Result};
use clap::Parser;
use containerd_sdk::{Client, DEFAULT_ADDRESS, DEFAULT_RUNTIME, DEFAULT_SNAPSHOTTER, Pull};

/// The namespace in which the containers are made.
const NAMESPACE: &str = "stress";

/// Stress a containerd daemon with containers that come and go
#[derive(Clone, Debug, Parser)]
#[command(name = "containerd-stress", version)]
struct Args {
    /// Say what fails as it fails
    #[arg(long)]
    debug: bool,
    /// Path to the containerd socket
    #[arg(short, long, default_value = DEFAULT_ADDRESS)]
    address: String,
    /// Set the concurrency of the stress test
    #[arg(short, long, default_value_t = 1)]
    concurrent: u32,
    /// Set the duration of the stress test
    #[arg(short, long, default_value = "1m", value_parser = duration)]
    duration: Duration,
    /// Add execs to the stress test
    #[arg(long)]
    exec: bool,
    /// Image to be utilized for testing
    #[arg(short, long, default_value = "docker.io/library/alpine:latest")]
    image: String,
    /// Fetch the image over plain HTTP
    #[arg(long)]
    plain_http: bool,
    /// Output results in json format
    #[arg(short, long)]
    json: bool,
    /// Set the runtime to stress test
    #[arg(long, default_value = DEFAULT_RUNTIME)]
    runtime: String,
    /// Set the snapshotter to use
    #[arg(long, default_value = DEFAULT_SNAPSHOTTER)]
    snapshotter: String,
}

fn duration(text: &str) -> Result<Duration, String> {
    humantime::Duration::from_str(text).map(Into::into).map_err(|error| error.to_string())
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("containerd-stress: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the test and answers how many containers failed.
async fn run(args: Args) -> Result<usize> {
    let client = Client::connect(&args.address, NAMESPACE).await?;
    let image = match client.image(&args.image).await {
        Ok(image) => image,
        Err(error) if error.is_not_found() => {
            let mut pull = Pull { snapshotter: args.snapshotter.clone(), ..Pull::default() };
            if args.plain_http {
                pull.registry.default_scheme = "http".to_owned();
            }
            client.pull(&args.image, pull).await.with_context(|| format!("pull {}", args.image))?
        }
        Err(error) => return Err(error.into()),
    };
    let report = worker::run_all(&client, &image, &args).await;
    if args.json {
        report.print_json()?
    } else {
        report.print()
    }
    clean_up(&client, &args.image).await;
    Ok(report.failures())
}

/// Removes image and namespace; what cannot be removed is told.
async fn clean_up(client: &Client, image: &str) {
    let image_gone = client.delete_image(image, true).await;
    let namespace_gone = client.delete_namespace(NAMESPACE).await;
    for error in [image_gone.err(), namespace_gone.err()].into_iter().flatten() {
        eprintln!("containerd-stress: clean up: {error}");
    }
}
