//! Pulls an image, runs it once with its own command or the arguments given, and leaves nothing behind.
//!
//! `cargo run -p containerd-sdk --example pull_and_run -- docker.io/library/busybox:latest echo hello`

use std::process::ExitCode;

use containerd_sdk::{
    Client, DEFAULT_ADDRESS, DEFAULT_FIFO_DIR, DEFAULT_NAMESPACE, Deletion, NewTask, Pull, Result, Stdio, Streams,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let mut args = std::env::args().skip(1);
    let reference = args.next().unwrap_or_else(|| "docker.io/library/busybox:latest".to_owned());
    let command: Vec<String> = args.collect();
    let address = std::env::var("CONTAINERD_ADDRESS").unwrap_or_else(|_| DEFAULT_ADDRESS.to_owned());

    let client = Client::connect(&address, DEFAULT_NAMESPACE).await?;
    let image = client.pull(&reference, Pull::default()).await?;
    let id = format!("example-{}", std::process::id());
    let container = client
        .create_from_image(&image, &id, "", &command, |container| {
            container.spec.set_hostname("example");
            Ok(())
        })
        .await?;

    let ran = async {
        let stdio = Stdio::Streams(Streams { stdin: None, ..Streams::inherit(DEFAULT_FIFO_DIR) });
        let mut task = container.new_task(stdio, NewTask::default()).await?;
        let wait = tokio::spawn(task.init().wait());
        let started = task.init_mut().start().await;
        if started.is_ok() {
            let _ = wait.await;
        }
        let status = task.init_mut().kill_and_delete().await;
        started?;
        status
    };
    let status = ran.await;
    container.delete(Deletion::WithSnapshot).await?;
    Ok(ExitCode::from(u8::try_from(status?.code).unwrap_or(u8::MAX)))
}
