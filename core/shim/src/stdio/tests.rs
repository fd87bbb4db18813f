#![allow(clippy::unwrap_used)]

use std::{
    io::Read,
    process::{Command, Stdio as Redirect},
};

use super::*;

const OWNER: Owner<'_> = Owner { id: "c", namespace: "ns", uid: 0, gid: 0 };

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("stdio-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn fifo(&self, name: &str) -> String {
        let path = self.0.join(name);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        path.to_str().unwrap().into()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn shell(script: &str, streams: ChildStreams) -> Command {
    let or_null = |fd: Option<OwnedFd>| fd.map_or_else(Redirect::null, Redirect::from);
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command.stdin(or_null(streams.stdin)).stdout(or_null(streams.stdout)).stderr(or_null(streams.stderr));
    command
}

#[tokio::test]
async fn a_fifo_carries_output_and_survives_its_reader() {
    let reaper = Reaper::start().unwrap();
    let dir = Dir::new("fifo");
    let stdio = Stdio { stdin: dir.fifo("in"), stdout: dir.fifo("out"), ..Stdio::default() };
    let (mut io, streams) = ProcessIo::open(&stdio, OWNER, &reaper).await.unwrap();
    // A reader that comes and goes before anything is written.
    drop(File::open(&stdio.stdout).unwrap());
    let mut command = shell("read a; echo got $a; cat; echo end", streams);
    let (_, exit) = reaper.spawn(&mut command).unwrap();
    drop(command);
    io.connect().unwrap();
    let mut writer = File::options().write(true).open(&stdio.stdin).unwrap();
    writer.write_all(b"one\ntwo\n").unwrap();
    drop(writer);
    // The input has not ended: the shim holds it.
    io.close_stdin();
    assert_eq!(exit.await.unwrap().status, 0);
    let mut text = String::new();
    // Not blocking: a FIFO without writers would wait for one to come.
    let mut reader = File::from(open(Path::new(&stdio.stdout), OFlags::RDONLY | OFlags::NONBLOCK).unwrap());
    // The writer is gone and the shim's end is a reader's: so this ends.
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "got one\ntwo\nend\n");
    io.finish().await;
}

#[tokio::test]
async fn a_file_takes_both_streams() {
    let reaper = Reaper::start().unwrap();
    let dir = Dir::new("file");
    let path = dir.0.join("sub/log file");
    let stdio = Stdio { stdout: format!("file://{}/sub/log%20file", dir.0.display()), ..Stdio::default() };
    let (mut io, streams) = ProcessIo::open(&stdio, OWNER, &reaper).await.unwrap();
    let mut command = shell("echo out; echo err >&2", streams);
    let (_, exit) = reaper.spawn(&mut command).unwrap();
    drop(command);
    io.connect().unwrap();
    exit.await.unwrap();
    io.finish().await;
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains("out\n") && text.contains("err\n"), "{text}");
}

#[tokio::test]
async fn a_log_program_gets_both_streams_and_knows_the_container() {
    let reaper = Reaper::start().unwrap();
    let dir = Dir::new("binary");
    let program = dir.0.join("logger");
    let script = "#!/bin/sh\nexec 5>&-\ncat <&3 > $2.out\ncat <&4 > $2.err\n/bin/echo $CONTAINER_ID $CONTAINER_NAMESPACE $1 > $2\n";
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let out = dir.0.join("log");
    let stdio = Stdio { stdout: format!("binary://{}?to={}", program.display(), out.display()), ..Stdio::default() };
    let (io, streams) = ProcessIo::open(&stdio, OWNER, &reaper).await.unwrap();
    let mut command = shell("echo out; echo err >&2", streams);
    let (_, exit) = reaper.spawn(&mut command).unwrap();
    drop(command);
    exit.await.unwrap();
    io.finish().await;
    let end = std::time::Instant::now() + Duration::from_secs(30);
    while std::fs::read_to_string(&out).map_or(true, |text| text.is_empty()) {
        assert!(std::time::Instant::now() < end, "the log program did not finish");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "c ns to\n");
    assert_eq!(std::fs::read_to_string(out.with_extension("out")).unwrap(), "out\n");
    assert_eq!(std::fs::read_to_string(out.with_extension("err")).unwrap(), "err\n");
}

#[tokio::test]
async fn what_cannot_be_opened_is_named() {
    let reaper = Reaper::start().unwrap();
    let missing = Stdio { stdout: "/nonexistent/fifo".into(), ..Stdio::default() };
    let error = ProcessIo::open(&missing, OWNER, &reaper).await.unwrap_err();
    assert!(error.message().contains("/nonexistent/fifo"), "{error}");
    let odd = Stdio { stdout: "ftp://x".into(), ..Stdio::default() };
    assert!(ProcessIo::open(&odd, OWNER, &reaper).await.is_err());
    let absent = Stdio { stdout: "binary:///nonexistent/logger".into(), ..Stdio::default() };
    assert!(ProcessIo::open(&absent, OWNER, &reaper).await.is_err());
}

#[tokio::test]
async fn standard_error_is_held_back_until_the_process_exists() {
    let reaper = Reaper::start().unwrap();
    let dir = Dir::new("held");
    let stdio = Stdio { stderr: dir.fifo("err"), ..Stdio::default() };
    let mut reader = File::from(open(Path::new(&stdio.stderr), OFlags::RDONLY | OFlags::NONBLOCK).unwrap());
    let run = async |io: &mut ProcessIo, streams, connect: bool| {
        // The child of the child holds the stream for long after the end.
        let mut command = shell("echo complaint >&2; sleep 1000 & echo $! >&2", streams);
        let (_, exit) = reaper.spawn(&mut command).unwrap();
        drop(command);
        if connect {
            io.connect().unwrap();
        }
        exit.await.unwrap();
    };
    let kill = |text: &str| {
        let pid = text.lines().last().unwrap().parse().unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), rustix::process::Signal::KILL)
            .unwrap();
    };

    let (mut io, streams) = ProcessIo::open(&stdio, OWNER, &reaper).await.unwrap();
    run(&mut io, streams, false).await;
    let complaint = io.complaint().unwrap();
    assert!(complaint.starts_with("complaint\n"), "{complaint}");
    kill(&complaint);
    drop(io);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "", "nothing reached the reader");

    let (mut io, streams) = ProcessIo::open(&stdio, OWNER, &reaper).await.unwrap();
    run(&mut io, streams, true).await;
    let before = std::time::Instant::now();
    io.finish().await;
    assert!(before.elapsed() < DRAIN, "what holds the stream open is not waited for");
    reader.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("complaint\n"), "{text}");
    kill(&text);
}

#[tokio::test]
async fn a_runtime_that_complains_at_length_does_not_wait_for_a_reader() {
    let reaper = Reaper::start().unwrap();
    let dir = Dir::new("length");
    let stdio = Stdio { stderr: dir.fifo("err"), ..Stdio::default() };
    let (io, streams) = ProcessIo::open(&stdio, OWNER, &reaper).await.unwrap();
    let mut command = shell("echo complaint >&2; head -c 300000 /dev/zero >&2", streams);
    let (_, exit) = reaper.spawn(&mut command).unwrap();
    drop(command);
    tokio::time::timeout(Duration::from_secs(60), exit).await.unwrap().unwrap();
    assert!(io.complaint().unwrap().starts_with("complaint\n"));
}
