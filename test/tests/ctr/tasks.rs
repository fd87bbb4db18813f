use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::Stdio,
    sync::mpsc,
    time::Duration,
};

use containerd_test::{Output, eventually, unique};

use super::{Setup, cell, entries};

#[test]
fn a_task_is_driven() {
    let Some(setup) = Setup::new() else { return };
    let ctr = |args: &[&str]| setup.daemon.ctr(args);
    let id = setup.sleeper();
    let listed = ctr(&["tasks", "ls"]).ok();
    assert_eq!(listed.split_whitespace().take(3).collect::<Vec<_>>(), ["TASK", "PID", "STATUS"]);
    assert_eq!(cell(&listed, &id, "STATUS"), "RUNNING");
    let pid: i32 = cell(&listed, &id, "PID").parse().unwrap();
    let shown = ctr(&["tasks", "ps", &id]).ok();
    assert_eq!(cell(&shown, &pid.to_string(), "PID"), pid.to_string());

    ctr(&["tasks", "pause", &id]).ok();
    assert_eq!(cell(&ctr(&["tasks", "ls"]).ok(), &id, "STATUS"), "PAUSED");
    ctr(&["tasks", "resume", &id]).ok();
    assert_eq!(cell(&ctr(&["tasks", "ls"]).ok(), &id, "STATUS"), "RUNNING");
    let metrics = ctr(&["tasks", "metrics", &id]).ok();
    assert!(metrics.contains("ID") && metrics.contains(&id) && metrics.contains("memory"), "{metrics}");
    let json: serde_json::Value =
        serde_json::from_str(&ctr(&["tasks", "metrics", "--format", "json", &id]).ok()).unwrap();
    assert!(json.is_object(), "{json}");

    assert!(ctr(&["tasks", "rm", &id]).code != 0, "it runs");
    assert!(ctr(&["containers", "rm", &id]).code != 0, "it has a task");
    ctr(&["tasks", "kill", "-s", "SIGKILL", &id]).ok();
    eventually("it stops", || (cell(&ctr(&["tasks", "ls"]).ok(), &id, "STATUS") == "STOPPED").then_some(()));
    let again = ctr(&["tasks", "kill", &id]);
    assert!(again.code == 1 && again.stderr.starts_with("ctr: "), "{again:?}");
    let removed = ctr(&["tasks", "rm", &id]);
    assert!(removed.stderr.contains("137") || removed.code == 137, "{removed:?}");
    assert!(ctr(&["tasks", "kill", &id]).refused().contains("not found"));
    // A container can be started again.
    ctr(&["tasks", "start", "-d", &id]).ok();
    assert_eq!(cell(&ctr(&["tasks", "ls"]).ok(), &id, "STATUS"), "RUNNING");
    setup.remove(&id);
    setup.nothing_left();
}

#[test]
fn further_processes() {
    let Some(setup) = Setup::new() else { return };
    let ctr = |args: &[&str]| setup.daemon.ctr(args);
    let id = setup.sleeper();
    let out = ctr(&["tasks", "exec", "--exec-id", "e1", &id, "/bin/sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!((out.code, out.stdout.as_str(), out.stderr.as_str()), (3, "out\n", "err\n"));
    assert_eq!(ctr(&["tasks", "exec", "--exec-id", "e1", "--cwd", "/tmp", &id, "/bin/pwd"]).ok(), "/tmp\n");
    assert_eq!(ctr(&["tasks", "exec", "--exec-id", "e1", "--user", "1000:1000", &id, "/bin/id", "-u"]).ok(), "1000\n");
    for _ in 0..2 {
        // The id is free again after the failure.
        let text = ctr(&["tasks", "exec", "--exec-id", "e2", &id, "/no/such"]).refused();
        assert!(text.lines().count() == 1 && text.starts_with("ctr: ") && text.contains("no such file"), "{text}");
    }
    ctr(&["tasks", "exec", "-d", "--exec-id", "e3", &id, "/bin/sleep", "500"]).ok();
    let twice = ctr(&["tasks", "exec", "--exec-id", "e3", &id, "/bin/true"]).refused();
    assert!(twice.contains("already exists"), "{twice}");
    assert!(ctr(&["tasks", "ps", &id]).ok().lines().count() == 3);
    ctr(&["tasks", "kill", "-s", "9", "--exec-id", "e3", &id]).ok();
    eventually("it can be removed", || {
        let out = ctr(&["tasks", "rm", "--exec-id", "e3", &id]);
        (out.code == 0 || out.code == 137).then_some(())
    });
    setup.remove(&id);
    setup.nothing_left();
}

#[test]
fn another_client_attaches() {
    let Some(setup) = Setup::new() else { return };
    let id = unique("ctr");
    let script = "echo first; echo wrong >&2; read word; echo got $word; exit 4";
    setup.daemon.ctr(&["run", "-d", &setup.name, &id, "/bin/sh", "-c", script]).ok();
    let mut command = setup.daemon.ctr_command(&["tasks", "attach", &id]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let output = child.wait_with_output().unwrap();
    // What was written before waited for the first who reads.
    assert_eq!(String::from_utf8_lossy(&output.stdout), "first\ngot hello\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "wrong\n");
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    eventually("the task is gone or stopped", || {
        let listed = setup.daemon.ctr(&["tasks", "ls"]).ok();
        (!listed.contains("RUNNING")).then_some(())
    });
    setup.remove_if_there(&id);
    setup.nothing_left();
}

#[test]
fn a_further_process_has_a_terminal_that_follows_in_size() {
    if containerd_test::skip_without(&["script", "stty"]) {
        return;
    }
    let Some(setup) = Setup::new() else { return };
    let id = unique("ctr");
    let dir = setup.world.dir().join("shared");
    std::fs::create_dir(&dir).unwrap();
    let mount = format!("type=bind,src={},dst=/tmp,options=rbind:rw", dir.display());
    setup.daemon.ctr(&["run", "-d", "--mount", &mount, &setup.name, &id, "/bin/sleep", "1000"]).ok();
    let has = |size: &str| format!("until [ \"$(stty size)\" = \"{size}\" ]; do sleep 0.1; done");
    let script = format!(
        "test -t 0 && test -t 1 && test -t 2 || exit 1; {}; touch /tmp/first; {}; echo sized; exit 5",
        has("37 91"),
        has("40 100")
    );
    let exec = setup.daemon.ctr_command(&["tasks", "exec", "-t", "--exec-id", "tty", &id, "/bin/sh", "-c", &script]);
    let quote = |text: &std::ffi::OsStr| format!("'{}'", text.to_string_lossy());
    let words: Vec<String> = std::iter::once(exec.get_program()).chain(exec.get_args()).map(quote).collect();
    // The terminal of `script` has one size at first and another once the process has seen that.
    let line = format!(
        "stty rows 37 cols 91; (until test -e {}/first; do sleep 0.1; done; stty rows 40 cols 100 < /dev/tty) & {}",
        dir.display(),
        words.join(" ")
    );
    let out = Output::of(std::process::Command::new("script").args(["-q", "-e", "-c", &line, "/dev/null"]));
    assert!(out.code == 5 && out.stdout.ends_with("sized\r\n"), "{out:?}");
    setup.remove(&id);
    setup.nothing_left();
}

#[test]
fn a_killed_container_ends_the_client_with_137() {
    let Some(setup) = Setup::new() else { return };
    let id = unique("ctr");
    let mut command = setup.daemon.ctr_command(&["run", "--rm", &setup.name, &id, "/bin/sleep", "1000"]);
    let mut child = command.stdin(Stdio::null()).spawn().unwrap();
    eventually("the container runs", || setup.daemon.ctr(&["tasks", "ls"]).ok().contains("RUNNING").then_some(()));
    setup.daemon.ctr(&["tasks", "kill", "-s", "SIGKILL", &id]).ok();
    assert_eq!(child.wait().unwrap().code(), Some(137));
    setup.nothing_left();
}

impl Setup {
    /// Removes a container whose task may be gone already.
    fn remove_if_there(&self, id: &str) {
        let _ = self.daemon.ctr(&["tasks", "rm", "-f", id]);
        self.daemon.ctr(&["containers", "rm", id]).ok();
    }
}

#[test]
fn events_come_in_order() {
    let Some(setup) = Setup::new() else { return };
    let id = unique("ctr");
    let mut command = setup.daemon.ctr_command(&["events"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (sender, events) = mpsc::channel();
    std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let next = || events.recv_timeout(Duration::from_millis(200)).ok();
    // A namespace is made until the stream shows one: then it is there.
    eventually("events are streamed", || {
        setup.daemon.ctr(&["namespaces", "create", &unique("ns")]).ok();
        next().map(drop)
    });
    let out = setup.daemon.ctr(&["run", "--rm", &setup.name, &id, "/bin/sh", "-c", "exit 9"]);
    assert_eq!(out.code, 9);
    let mut seen = Vec::new();
    eventually("the container is deleted", || {
        let line = next()?;
        let topic = line.split_whitespace().find(|word| word.starts_with('/'))?.to_owned();
        if line.contains(&id) && !topic.starts_with("/snapshot") {
            assert!(topic != "/tasks/exit" || line.contains("\"exit_status\":9"), "{line}");
            seen.push(topic);
        }
        (seen.last()? == "/containers/delete").then_some(())
    });
    let wanted =
        ["/containers/create", "/tasks/create", "/tasks/start", "/tasks/exit", "/tasks/delete", "/containers/delete"];
    assert_eq!(seen, wanted);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn signals_reach_the_process_and_an_interrupted_client_leaves_nothing() {
    let Some(setup) = Setup::new() else { return };
    let id = unique("ctr");
    let script = "trap 'echo stopped; exit 6' TERM; echo ready; while true; do sleep 0.1; done";
    let mut command = setup.daemon.ctr_command(&["run", "--rm", &setup.name, &id, "/bin/sh", "-c", script]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "stopped");
    assert_eq!(child.wait().unwrap().code(), Some(6));
    assert_eq!(entries(Path::new("/run/containerd/fifo")), Vec::<String>::new());
    setup.nothing_left();
}
