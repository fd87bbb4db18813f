use std::{
    fs::File,
    process::{Command, Stdio},
};

use tokio::io::AsyncReadExt;

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a script on the streams and returns its exit code.
async fn run(io: Io, script: &'static str) -> i32 {
    let ended = tokio::task::spawn_blocking(move || {
        let write = |path: &str| File::options().write(true).open(path).unwrap();
        let stdin = if io.stdin.is_empty() { Stdio::null() } else { File::open(&io.stdin).unwrap().into() };
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(stdin).stdout(write(&io.stdout)).stderr(write(&io.stderr));
        let mut child = command.spawn().unwrap();
        drop(command);
        child.wait().unwrap().code().unwrap()
    });
    ended.await.unwrap()
}

async fn collect(script: &'static str, limit: usize, drain: Option<Duration>) -> (i32, Collected) {
    let dir = tempfile::tempdir().unwrap();
    let io = ExecIo::create(dir.path(), "e1", false, false).await.unwrap();
    let exited = run(io.streams(), script);
    let collected = tokio::time::timeout(PATIENCE, io.collect(limit, exited, drain)).await.expect("in time");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    collected
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_collected_to_the_end() {
    let (code, all) = collect("printf out; printf err >&2; exit 3", 100, None).await;
    assert_eq!(code, 3);
    assert_eq!(all, Collected { stdout: b"out".into(), stderr: b"err".into(), ..Collected::default() });
    let (_, all) = collect("head -c 5000000 /dev/zero", 8 << 20, None).await;
    assert_eq!((all.stdout.len(), all.truncated, all.held), (5_000_000, false, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_the_limit_is_read_and_dropped() {
    let (code, all) = collect("head -c 5000000 /dev/zero; printf abc >&2", 1000, None).await;
    assert_eq!((code, all.stdout.len(), all.stderr.len(), all.truncated), (0, 1000, 3, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_left_behind_does_not_hang_the_call() {
    let (code, all) = collect("sleep 20 & echo ok", 1000, Some(Duration::from_millis(200))).await;
    assert_eq!((code, all.stdout.as_slice(), all.held), (0, &b"ok\n"[..], true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_never_opened_its_streams_ends() {
    let dir = tempfile::tempdir().unwrap();
    let io = ExecIo::create(dir.path(), "e1", true, false).await.unwrap();
    let collected = io.collect(10, async { 7 }, None);
    let (code, all) = tokio::time::timeout(PATIENCE, collected).await.expect("in time");
    assert_eq!((code, all), (7, Collected::default()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_types_and_reads() {
    let dir = tempfile::tempdir().unwrap();
    let io = ExecIo::create(dir.path(), "e1", true, false).await.unwrap();
    let (mut near, far) = tokio::io::duplex(64);
    // The shim's end, which it closes when told.
    let shim = File::options().read(true).write(true).open(&io.streams().stdin).unwrap();
    let exited = run(io.streams(), "cat; exit 4");
    let text = "many words ".repeat(10_000);
    let streams = AttachStreams {
        stdin: Some(Box::new(std::io::Cursor::new(text.clone()))),
        stdout: Some(Box::new(far)),
        close_stdin: Some(Box::pin(async move { drop(shim) })),
        ..AttachStreams::default()
    };
    let attached = tokio::spawn(io.attach(streams, exited, None));
    let mut output = String::new();
    tokio::time::timeout(PATIENCE, near.read_to_string(&mut output)).await.expect("in time").unwrap();
    assert!(output == text, "{} of {}", output.len(), text.len());
    assert_eq!(attached.await.unwrap(), (4, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_has_gone_does_not_stop_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let io = ExecIo::create(dir.path(), "e1", false, false).await.unwrap();
    let (near, far) = tokio::io::duplex(64);
    drop(near);
    let exited = run(io.streams(), "head -c 5000000 /dev/zero");
    let streams = AttachStreams { stdout: Some(Box::new(far)), ..AttachStreams::default() };
    let attached = io.attach(streams, exited, None);
    assert_eq!(tokio::time::timeout(PATIENCE, attached).await.expect("in time"), (0, false));
}
