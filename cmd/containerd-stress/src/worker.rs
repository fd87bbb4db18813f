use std::time::Instant;

use containerd_sdk::{Client, Deletion, Image, NewTask, Result, Stdio, Task};
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use crate::{Args, report::Report};

/// Runs all loops until the time is over.
pub(crate) async fn run_all(client: &Client, image: &Image, args: &Args) -> Report {
    let started = Instant::now();
    let mut loops = JoinSet::new();
    for worker in 0..args.concurrent.max(1) {
        let (client, image, args) = (client.clone(), image.clone(), args.clone());
        loops.spawn(async move { run_loop(&client, &image, &args, worker, started).await });
    }
    let mut report = Report::default();
    while let Some(finished) = loops.join_next().await {
        match finished {
            Ok(one) => report.merge(one),
            Err(_) => report.failure(),
        }
    }
    report.elapsed = started.elapsed();
    report
}

async fn run_loop(client: &Client, image: &Image, args: &Args, worker: u32, started: Instant) -> Report {
    let mut report = Report::default();
    let mut round = 0_u64;
    while started.elapsed() < args.duration {
        round += 1;
        let id = format!("stress-{worker}-{round}");
        let begun = Instant::now();
        match run_one(client, image, args, &id, &mut report).await {
            Ok(()) => report.container(begun.elapsed()),
            Err(error) => {
                report.failure();
                if args.debug {
                    eprintln!("containerd-stress: {id}: {error}");
                }
            }
        }
    }
    report
}

/// One container from record to removal.
async fn run_one(client: &Client, image: &Image, args: &Args, id: &str, report: &mut Report) -> Result<()> {
    let command: &[&str] = if args.exec { &["sleep", "30"] } else { &["true"] };
    let command: Vec<String> = command.iter().map(ToString::to_string).collect();
    let container = client
        .create_from_image(image, id, &args.snapshotter, &[], |container| {
            container.runtime.clone_from(&args.runtime);
            container.spec.set_args(command);
            Ok(())
        })
        .await?;
    let ran = async {
        let mut task = container.new_task(Stdio::Null, NewTask::default()).await?;
        let wait = tokio::spawn(task.init().wait());
        let worked = async {
            task.init_mut().start().await?;
            if args.exec {
                let begun = Instant::now();
                exec_once(&task, container.spec()?.process()).await?;
                report.exec(begun.elapsed());
            } else if let Ok(status) = wait.await {
                status?;
            }
            Ok(())
        };
        let worked = worked.await;
        task.init_mut().kill_and_delete().await?;
        worked
    };
    let ran = ran.await;
    container.delete(Deletion::WithSnapshot).await?;
    ran
}

async fn exec_once(task: &Task, mut process: Map<String, Value>) -> Result<()> {
    process.insert("args".into(), json!(["true"]));
    let mut process = task.exec("exec", process, Stdio::Null).await?;
    let wait = tokio::spawn(process.wait());
    let started = process.start().await;
    if started.is_ok()
        && let Ok(status) = wait.await
    {
        status?;
    }
    process.delete().await?;
    started.map(|_| ())
}
