use std::{
    fs::File,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

/// What a shim keeps of a container: both ends of each FIFO.
struct Shim {
    kept: Vec<File>,
    stdin: Option<File>,
    io: Io,
}

impl Shim {
    fn new(io: Io) -> Self {
        let both = |path: &str| File::options().read(true).write(true).open(path).unwrap();
        let kept =
            [&io.stdout, &io.stderr].into_iter().filter(|path| !path.is_empty()).map(|path| both(path)).collect();
        let stdin = (!io.stdin.is_empty()).then(|| both(&io.stdin));
        Self { kept, stdin, io }
    }

    fn run(&self, script: &str) -> Child {
        let output = |path: &str| match path {
            "" => Stdio::null(),
            path => File::options().write(true).open(path).unwrap().into(),
        };
        let input = match &self.stdin {
            Some(_) => File::open(&self.io.stdin).unwrap().into(),
            None => Stdio::null(),
        };
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(input).stdout(output(&self.io.stdout)).stderr(output(&self.io.stderr));
        command.spawn().unwrap()
    }

    /// The process has ended and the task is deleted.
    fn end(mut self, mut child: Child) {
        assert!(child.wait().unwrap().success());
        self.kept.clear();
    }
}

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn io(&self) -> PathBuf {
        self.dir.path().join("c/io")
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("0.log")
    }

    /// Stream, tag and content of each line of the log.
    fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.log()).unwrap();
        text.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
    }
}

async fn bounded<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("in time")
}

async fn wait(shim: Shim, child: Child) {
    bounded(tokio::task::spawn_blocking(move || shim.end(child))).await.unwrap();
}

/// A daemon goes: what it has read it writes, before the next one reads.
async fn gone(io: ContainerIo) {
    let tasks = std::mem::take(&mut io.pumps.lock().unwrap().tasks);
    drop(io);
    bounded(futures::future::join_all(tasks)).await;
}

async fn eventually(mut holds: impl FnMut() -> bool) {
    let end = tokio::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(tokio::time::Instant::now() < end, "in time");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Content of a log, with a newline after each full line.
fn content(log: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    for line in log.split_inclusive(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\n").expect("whole lines");
        let mut fields = line.splitn(4, |byte| *byte == b' ');
        let (time, stream, tag) = (fields.next().unwrap(), fields.next().unwrap(), fields.next().unwrap());
        assert_eq!((time.len(), stream), (30, &b"stdout"[..]));
        content.extend_from_slice(fields.next().unwrap());
        if tag == b"F" {
            content.push(b'\n');
        }
    }
    content
}

#[tokio::test(flavor = "multi_thread")]
async fn both_outputs_reach_the_log_and_nothing_stays() {
    let place = Place::new();
    let io = ContainerIo::create(&place.io(), "c1", IoOptions::default()).await.unwrap();
    assert_eq!(io.streams().stdout, place.io().join("c1-stdout").to_str().unwrap());
    assert_eq!((io.streams().stdin.as_str(), io.streams().terminal), ("", false));
    io.start_log(Some(&place.log())).await.unwrap();
    let shim = Shim::new(io.streams());
    let child = shim.run("echo out; echo err >&2; printf rest");
    wait(shim, child).await;
    bounded(io.finished()).await;
    let mut lines = place.lines();
    lines.sort();
    assert_eq!(lines, ["stderr F err", "stdout F out", "stdout P rest"]);
    io.close().await;
    assert!(!place.io().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_has_one_output_and_without_a_log_it_is_drained() {
    let place = Place::new();
    let options = IoOptions { tty: true, stdin: true, ..IoOptions::default() };
    let io = ContainerIo::create(&place.io(), "c1", options).await.unwrap();
    assert!(io.streams().stderr.is_empty() && io.streams().terminal && !io.streams().stdin.is_empty());
    io.start_log(None).await.unwrap();
    let shim = Shim::new(io.streams());
    let child = shim.run("head -c 20000000 /dev/zero");
    wait(shim, child).await;
    bounded(io.finished()).await;
    io.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_process_that_never_wrote_is_noticed() {
    let place = Place::new();
    let io = ContainerIo::create(&place.io(), "c1", IoOptions::default()).await.unwrap();
    bounded(io.finished()).await;
    drop(io);
    let io = ContainerIo::reattach(&place.io(), "c1", IoOptions::default()).await.unwrap();
    io.start_log(Some(&place.log())).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(50), io.hub.ended()).await.is_err());
    bounded(io.finished()).await;
    io.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rotation_under_a_fast_writer_keeps_every_byte_once() {
    const LINES: usize = 600_000;
    let place = Place::new();
    let io = Arc::new(ContainerIo::create(&place.io(), "c1", IoOptions::default()).await.unwrap());
    io.start_log(Some(&place.log())).await.unwrap();
    let shim = Shim::new(io.streams());
    let child = shim.run(&format!("seq -f '%015.0f of many lines' {LINES}"));
    let ended = tokio::spawn(wait(shim, child));
    let mut files = Vec::new();
    while !ended.is_finished() && files.len() < 500 {
        let old = place.dir.path().join(format!("{}.old", files.len()));
        std::fs::rename(place.log(), &old).unwrap();
        io.reopen_log(&place.log()).await.unwrap();
        let size = old.metadata().unwrap().len();
        files.push((old, size));
    }
    bounded(ended).await.unwrap();
    bounded(io.finished()).await;
    let mut whole = Vec::new();
    for (path, size) in &files {
        let log = std::fs::read(path).unwrap();
        assert_eq!(log.len() as u64, *size, "nothing is written to a file that was left");
        whole.extend(content(&log));
    }
    whole.extend(content(&std::fs::read(place.log()).unwrap()));
    let expected: Vec<u8> =
        (1..=LINES).flat_map(|number| format!("{number:015} of many lines\n").into_bytes()).collect();
    assert!(files.len() > 2 && whole == expected, "{} files, {} of {}", files.len(), whole.len(), expected.len());
    io.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_comes_back_goes_on() {
    let place = Place::new();
    let io = ContainerIo::create(&place.io(), "c1", IoOptions::default()).await.unwrap();
    io.start_log(Some(&place.log())).await.unwrap();
    let (shim, streams) = (Shim::new(io.streams()), io.streams());
    // The shim keeps reading ends until the daemon deletes the task, so what waits survives the last writer.
    let held = [&streams.stdout, &streams.stderr].map(|path| File::open(path).unwrap());
    let child = shim.run("for i in $(seq 3000); do echo $i; echo; done; printf end");
    let ended = tokio::spawn(wait(shim, child));
    eventually(|| place.log().metadata().unwrap().len() > 0).await;
    gone(io).await;
    let mut restarts = 0;
    let io = loop {
        let last = ended.is_finished();
        let io = if restarts % 2 == 0 {
            ContainerIo::reattach(&place.io(), "c1", IoOptions::default()).await.unwrap()
        } else {
            ContainerIo::reattach_streams(&streams, IoOptions::default()).await.unwrap()
        };
        io.start_log(Some(&place.log())).await.unwrap();
        restarts += 1;
        if last || restarts > 200 {
            break io;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
        gone(io).await;
    };
    bounded(ended).await.unwrap();
    bounded(io.finished()).await;
    let expected = (1..=3000).map(|number| format!("{number}\n\n")).collect::<String>() + "end";
    assert_eq!(String::from_utf8(content(&std::fs::read(place.log()).unwrap())).unwrap(), expected);
    drop(held);
    io.close().await;
}

fn client(size: usize) -> (tokio::io::DuplexStream, AttachStreams) {
    let (near, far) = tokio::io::duplex(size);
    (near, AttachStreams { stdout: Some(Box::new(far)), ..AttachStreams::default() })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_client_is_let_go_and_its_neighbour_gets_everything() {
    const BYTES: usize = 64 << 20;
    let place = Place::new();
    let io = Arc::new(ContainerIo::create(&place.io(), "c1", IoOptions::default()).await.unwrap());
    io.start_log(None).await.unwrap();
    let (_slow, streams) = client(1024);
    let slow = tokio::spawn({
        let io = io.clone();
        async move { io.attach(streams).await }
    });
    let shim = Shim::new(io.streams());
    // The neighbour reads at its own pace, so the writer waits for each piece to be read.
    let (mut good, streams) = client(1 << 20);
    let neighbour = tokio::spawn({
        let io = io.clone();
        async move { io.attach(streams).await }
    });
    eventually(|| io.hub.members() == 2).await;
    let mut writer = File::options().write(true).open(&io.streams().stdout).unwrap();
    let mut got = 0;
    let mut buffer = vec![0; 1 << 20];
    let piece = vec![7; 1 << 20];
    while got < BYTES {
        let piece = piece.clone();
        writer = bounded(tokio::task::spawn_blocking(move || {
            std::io::Write::write_all(&mut writer, &piece).unwrap();
            writer
        }))
        .await
        .unwrap();
        bounded(good.read_exact(&mut buffer)).await.unwrap();
        got += buffer.len();
    }
    drop((writer, shim));
    assert_eq!(bounded(good.read(&mut buffer)).await.unwrap(), 0);
    bounded(neighbour).await.unwrap().unwrap();
    let error = bounded(slow).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), core_types::ErrorKind::ResourceExhausted);
    bounded(io.finished()).await;
    io.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_clients_input_is_the_only_one_if_asked() {
    let place = Place::new();
    let options = IoOptions { stdin: true, stdin_once: true, ..IoOptions::default() };
    let io = Arc::new(ContainerIo::create(&place.io(), "c1", options).await.unwrap());
    io.start_log(Some(&place.log())).await.unwrap();
    let mut shim = Shim::new(io.streams());
    let child = shim.run("cat; echo done");
    let shims_end = shim.stdin.take();
    let (mut near, mut streams) = client(1 << 16);
    streams.stdin = Some(Box::new(&b"hello\n"[..]));
    streams.close_stdin = Some(Box::pin(async move { drop(shims_end) }));
    let attached = tokio::spawn({
        let io = io.clone();
        async move { io.attach(streams).await }
    });
    wait(shim, child).await;
    let mut output = String::new();
    bounded(near.read_to_string(&mut output)).await.unwrap();
    assert_eq!(output, "hello\ndone\n");
    bounded(attached).await.unwrap().unwrap();
    bounded(io.finished()).await;
    assert_eq!(place.lines(), ["stdout F hello", "stdout F done"]);
    // Whoever comes after the end sees the end.
    let (mut near, streams) = client(16);
    bounded(io.attach(streams)).await.unwrap();
    assert_eq!(near.read(&mut [0]).await.unwrap(), 0);
    io.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn input_stays_open_for_the_next_client() {
    let place = Place::new();
    let options = IoOptions { stdin: true, ..IoOptions::default() };
    let io = ContainerIo::create(&place.io(), "c1", options).await.unwrap();
    io.start_log(Some(&place.log())).await.unwrap();
    let shim = Shim::new(io.streams());
    let child = shim.run("read a; read b; echo $a $b");
    for line in ["one\n", "two\n"] {
        let streams = AttachStreams { stdin: Some(Box::new(line.as_bytes())), ..AttachStreams::default() };
        bounded(io.attach(streams)).await.unwrap();
    }
    wait(shim, child).await;
    bounded(io.finished()).await;
    assert_eq!(place.lines(), ["stdout F one two"]);
    io.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_is_forgotten() {
    let place = Place::new();
    let options = IoOptions { stdin: true, tty: true, ..IoOptions::default() };
    let io = ContainerIo::create(&place.io(), "c1", options).await.unwrap();
    io.start_log(None).await.unwrap();
    let shim = Shim::new(io.streams());
    for _ in 0..100 {
        let (near, mut streams) = client(16);
        let (mut typed, stdin) = tokio::io::duplex(16);
        streams.stdin = Some(Box::new(stdin));
        typed.write_all(b"x").await.unwrap();
        drop((typed, near));
        bounded(io.attach(streams)).await.unwrap();
    }
    assert_eq!(io.hub.members(), 0);
    io.close().await;
    drop(shim);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_leaves_nothing() {
    let place = Place::new();
    for id in ["", "a/b", "a\0b"] {
        let error = ContainerIo::create(&place.io(), id, IoOptions::default()).await.unwrap_err();
        assert_eq!(error.kind(), core_types::ErrorKind::InvalidArgument);
    }
    assert!(!place.io().exists());
    let error = ContainerIo::reattach(place.dir.path(), "c1", IoOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), core_types::ErrorKind::NotFound);
}
