use containerd_sdk::{Client, Container, Deletion, Image, NewTask, ProcessStatus, Stdio};
use containerd_test::{Daemon, World, unique};

use super::{Collected, entries, fifos, pull, streams};

/// Makes a container that runs `script`.
async fn made(client: &Client, image: &Image, script: &str) -> Container {
    let change = |new: &mut containerd_sdk::NewContainer| {
        // A daemon in a test program has no shim beside it.
        new.runtime = Daemon::programs().join("containerd-shim-runc-v2").to_str().unwrap().to_owned();
        new.labels.insert("made-by".into(), "sdk".into());
        // The entry point of the image is no program.
        new.spec.set_args(["/bin/sh", "-c", script]);
        new.spec.set_hostname("inside");
        new.spec.add_env(&["GIVEN=yes".to_owned()]);
        new.spec.set_cwd("/tmp");
        Ok(())
    };
    client.create_from_image(image, &unique("sdk"), "", &[], change).await.unwrap()
}

pub(super) async fn sleeper(client: &Client, image: &Image) -> Container {
    made(client, image, "exec sleep 1000").await
}

pub(super) async fn start_detached(container: &Container) {
    let mut task = container.new_task(Stdio::Null, NewTask::default()).await.unwrap();
    task.init_mut().start().await.unwrap();
    task.into_init().detach();
}

pub(super) async fn end(container: &Container) {
    let mut task = container.task().await.unwrap();
    assert_eq!(task.init().status().await.unwrap(), ProcessStatus::Running);
    assert_eq!(task.init_mut().kill_and_delete().await.unwrap().code, 137);
    container.delete(Deletion::WithSnapshot).await.unwrap();
}

/// Everything from the pull to the removal.
pub(super) async fn whole(world: &World, client: &Client, name: &str) {
    let image = pull(client, name).await;
    assert_eq!(image.name(), name);
    let digest = image.target().digest.clone();
    assert!(client.images(&[]).await.unwrap().iter().any(|image| image.target().digest == digest));
    options_and_output(world, client, &image).await;
    processes(world, client, &image).await;
    assert!(client.containers(&[]).await.unwrap().is_empty());
    assert!(client.tasks().await.unwrap().is_empty());
    assert_eq!(entries(&fifos(world)), Vec::<String>::new());
}

async fn options_and_output(world: &World, client: &Client, image: &Image) {
    let script = "hostname; pwd; echo $GIVEN,$FROM_IMAGE; cat; echo wrong >&2; exit 7";
    let container = made(client, image, script).await;
    let label = "labels.made-by==sdk".to_owned();
    let found = client.containers(&[label]).await.unwrap();
    assert_eq!(found.iter().map(Container::id).collect::<Vec<_>>(), [container.id()]);
    assert_eq!(container.spec().unwrap().text("/hostname"), "inside");

    let (io, out, err) = streams(world, b"input\n");
    let mut task = container.new_task(Stdio::Streams(io), NewTask::default()).await.unwrap();
    assert_eq!(task.init().status().await.unwrap(), ProcessStatus::Created);
    let wait = tokio::spawn(task.init().wait());
    let pid = task.init_mut().start().await.unwrap();
    assert!(pid > 0);
    assert_eq!(wait.await.unwrap().unwrap().code, 7);
    assert_eq!(task.init_mut().delete().await.unwrap().code, 7);
    assert_eq!((out.text().as_str(), err.text().as_str()), ("inside\n/tmp\nyes,yes\ninput\n", "wrong\n"));
    container.delete(Deletion::WithSnapshot).await.unwrap();
    assert!(client.container(container.id()).await.unwrap_err().is_not_found());
    let snapshots = client.snapshotter("");
    assert!(snapshots.stat(container.id()).await.unwrap_err().is_not_found());
}

async fn processes(world: &World, client: &Client, image: &Image) {
    let container = sleeper(client, image).await;
    let mut task = container.new_task(Stdio::Null, NewTask::default()).await.unwrap();
    task.init_mut().start().await.unwrap();

    let mut process = container.spec().unwrap().process();
    let exec = async |process: &serde_json::Map<_, _>, code: u32| -> Collected {
        let (io, out, _) = streams(world, b"");
        let mut exec = task.exec("e", process.clone(), Stdio::Streams(io)).await.unwrap();
        let wait = tokio::spawn(exec.wait());
        exec.start().await.unwrap();
        assert_eq!(wait.await.unwrap().unwrap().code, code);
        assert_eq!(exec.delete().await.unwrap().code, code);
        out
    };
    let with_args = |args: &[&str]| {
        let mut process = process.clone();
        process.insert("args".into(), args.into());
        process
    };
    let out = exec(&with_args(&["/bin/sh", "-c", "echo $GIVEN; exit 3"]), 3).await;
    assert_eq!(out.text(), "yes\n");

    // One that cannot start: an error, an answer for who waits, and its id is free again.
    let mut wrong = task.exec("e", with_args(&["/no/such"]), Stdio::Null).await.unwrap();
    let wait = tokio::spawn(wrong.wait());
    let error = wrong.start().await.unwrap_err();
    assert!(error.to_string().contains("no such file"), "{error}");
    assert_eq!(wait.await.unwrap().unwrap().code, 255);
    wrong.delete().await.unwrap();
    exec(&with_args(&["/bin/true"]), 0).await;

    // One that is killed.
    process.insert("args".into(), ["/bin/sleep", "1000"].as_slice().into());
    let mut killed = task.exec("k", process.clone(), Stdio::Null).await.unwrap();
    killed.start().await.unwrap();
    assert_eq!(task.pids().await.unwrap().len(), 2);
    killed.kill(9, false).await.unwrap();
    assert_eq!(killed.wait().await.unwrap().code, 137);
    assert_eq!(killed.delete().await.unwrap().code, 137);

    task.pause().await.unwrap();
    assert_eq!(task.init().status().await.unwrap(), ProcessStatus::Paused);
    task.resume().await.unwrap();
    assert!(container.delete(Deletion::WithSnapshot).await.is_err(), "it has a task");
    let wait = tokio::spawn(task.init().wait());
    task.init().kill(15, false).await.unwrap();
    // `sleep` as the first process of its namespace ignores what it has no handler for.
    task.init().kill(9, true).await.unwrap();
    assert_eq!(wait.await.unwrap().unwrap().code, 137);
    assert_eq!(task.init_mut().delete().await.unwrap().code, 137);
    container.delete(Deletion::WithSnapshot).await.unwrap();
}
