use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use containerd_test::{Output, eventually, unique};

use super::{Setup, entries};

#[test]
fn passes_on_output_and_exit_codes_and_leaves_nothing() {
    let Some(setup) = Setup::new() else { return };
    let id = unique("ctr");
    let out = setup.daemon.ctr(&["run", "--rm", &setup.name, &id, "/bin/sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!((out.code, out.stdout.as_str(), out.stderr.as_str()), (7, "out\n", "err\n"));
    assert_eq!(setup.sh(&[], "seq 1 20000").lines().last(), Some("20000"));
    setup.nothing_left();
}

#[test]
fn feeds_standard_input() {
    use std::io::Write as _;
    let Some(setup) = Setup::new() else { return };
    let id = unique("ctr");
    let mut command = setup.daemon.ctr_command(&["run", "--rm", &setup.name, &id, "/bin/cat"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let text = "line\n".repeat(50_000);
    let mut stdin = child.stdin.take().unwrap();
    let sent = text.clone();
    let writer = std::thread::spawn(move || stdin.write_all(sent.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    assert!(output.stdout == text.as_bytes(), "{} of {} bytes", output.stdout.len(), text.len());
    setup.nothing_left();
}

#[test]
fn flags_shape_environment_user_and_directory() {
    let Some(setup) = Setup::new() else { return };
    assert_eq!(setup.sh(&["--env", "A=1", "--env", "B=x y"], "echo $A,$B,$FROM_IMAGE"), "1,x y,yes\n");
    let file = setup.world.dir().join("env");
    fs::write(&file, "C=from-file\n").unwrap();
    assert_eq!(setup.sh(&["--env-file", file.to_str().unwrap()], "echo $C"), "from-file\n");
    assert_eq!(setup.sh(&["--cwd", "/tmp"], "pwd"), "/tmp\n");
    assert_eq!(setup.sh(&["--user", "user"], "id -u; id -g; id -G"), "1000\n1000\n1000 10\n");
    assert_eq!(setup.sh(&["--user", "12:34"], "id -u; id -g"), "12\n34\n");
    assert_eq!(setup.sh(&["--hostname", "given"], "hostname"), "given\n");
    let out = setup.daemon.ctr(&["run", "--rm", "--user", "nobody-here", &setup.name, &unique("ctr"), "/bin/true"]);
    assert!(out.refused().starts_with("ctr: "));
    setup.nothing_left();
}

#[test]
fn flags_shape_mounts_and_root() {
    let Some(setup) = Setup::new() else { return };
    let dir = setup.world.dir().join("shared");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("file"), "shared\n").unwrap();
    let mount = format!("type=bind,src={},dst=/tmp,options=rbind:ro", dir.display());
    let out = setup.sh(&["--mount", &mount], "cat /tmp/file; touch /tmp/x 2>/dev/null || echo refused");
    assert_eq!(out, "shared\nrefused\n");
    let out = setup.sh(&["--read-only"], "touch /tmp/x 2>/dev/null || echo refused");
    assert_eq!(out, "refused\n");
    assert_eq!(setup.sh(&[], "touch /tmp/x && echo made"), "made\n");
    setup.daemon.ctr(&["images", "pull", "--plain-http", "--snapshotter", "native", &setup.name]).ok();
    assert_eq!(setup.sh(&["--snapshotter", "native"], "touch /tmp/x && echo made"), "made\n");
    setup.nothing_left();
}

#[test]
fn flags_shape_privileges() {
    let Some(setup) = Setup::new() else { return };
    let effective = |flags: &[&str]| {
        let status = setup.sh(flags, "cat /proc/self/status");
        let line = status.lines().find(|line| line.starts_with("CapEff")).unwrap().to_owned();
        u64::from_str_radix(line.split_whitespace().last().unwrap(), 16).unwrap()
    };
    // Numbers of capabilities in the kernel's interface.
    let (chown, sys_admin) = (1u64, 1u64 << 21);
    let default = effective(&[]);
    assert_eq!((default & chown, default & sys_admin), (chown, 0), "{default:x}");
    let added = effective(&["--cap-add", "CAP_SYS_ADMIN", "--cap-drop", "CAP_CHOWN"]);
    assert_eq!(added, default & !chown | sys_admin, "{added:x}");
    let all = effective(&["--privileged"]);
    assert_eq!(all & default, default);
    assert_ne!(all & sys_admin, 0, "{all:x}");
    let seccomp = |flags: &[&str]| setup.sh(flags, "cat /proc/self/status").contains("Seccomp:\t2");
    assert!(seccomp(&["--seccomp"]) && !seccomp(&[]));
    let none = setup.sh(&[], "cat /proc/self/status");
    assert!(none.contains("NoNewPrivs:\t1"), "{none}");
    assert!(setup.sh(&["--allow-new-privs"], "cat /proc/self/status").contains("NoNewPrivs:\t0"));
    setup.nothing_left();
}

#[test]
fn shares_the_network_of_the_host_when_asked() {
    let Some(setup) = Setup::new() else { return };
    let host = fs::read_link("/proc/self/ns/net").unwrap().display().to_string();
    let shown = |flags: &[&str]| setup.sh(flags, "ls -l /proc/self/ns/net");
    assert!(shown(&["--net-host"]).contains(&host));
    assert!(!shown(&[]).contains(&host));
}

#[test]
fn limits_reach_the_cgroup() {
    let Some(setup) = Setup::new() else { return };
    let id = unique("ctr");
    let limits = ["--memory-limit", "67108864", "--cpus", "0.5"];
    let mut args = vec!["run", "-d"];
    args.extend(limits);
    args.extend([setup.name.as_str(), &id, "/bin/sleep", "1000"]);
    let out = setup.daemon.ctr(&args);
    let group = Path::new("/sys/fs/cgroup/default").join(&id);
    if out.code == 0 && group.join("memory.max").exists() {
        assert_eq!(fs::read_to_string(group.join("memory.max")).unwrap().trim(), "67108864");
        assert_eq!(fs::read_to_string(group.join("cpu.max")).unwrap().trim(), "50000 100000");
    } else {
        // Where the machine has no such cgroup, the specification must still ask for it.
        eprintln!("skipped: the values in the cgroup, this machine has no memory controller of version 2");
    }
    let info = setup.daemon.ctr(&["containers", "info", &id]).ok();
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    let resources = &info["Spec"]["linux"]["resources"];
    assert_eq!(resources["memory"]["limit"], 67_108_864, "{resources}");
    assert_eq!((&resources["cpu"]["quota"], &resources["cpu"]["period"]), (&50_000.into(), &100_000.into()));
    setup.remove(&id);
    setup.nothing_left();
}

/// `script` gives the program a terminal; its output is what the terminal showed.
fn on_a_terminal(setup: &Setup, args: &[&str]) -> Option<Output> {
    if containerd_test::skip_without(&["script"]) {
        return None;
    }
    let command = setup.daemon.ctr_command(args);
    let quote = |text: &std::ffi::OsStr| format!("'{}'", text.to_string_lossy());
    let line: Vec<String> = std::iter::once(command.get_program()).chain(command.get_args()).map(quote).collect();
    Some(Output::of(Command::new("script").args(["-q", "-e", "-c", &line.join(" "), "/dev/null"])))
}

#[test]
fn gives_a_terminal() {
    let Some(setup) = Setup::new() else { return };
    let id = unique("ctr");
    let script = "test -t 0 && test -t 1 && test -t 2 && echo terminal; exit 5";
    let Some(out) = on_a_terminal(&setup, &["run", "--rm", "-t", &setup.name, &id, "/bin/sh", "-c", script]) else {
        return;
    };
    // `script` shows the end of its own input before it.
    assert!(out.code == 5 && out.stdout.ends_with("terminal\r\n"), "{out:?}");
    // Without a terminal of its own, ctr says so and makes nothing that stays.
    let out = setup.daemon.ctr(&["run", "--rm", "-t", &setup.name, &id, "/bin/true"]);
    assert!(out.refused().starts_with("ctr: "));
    setup.nothing_left();
}

#[test]
fn failures_are_told_and_leave_nothing() {
    let Some(setup) = Setup::new() else { return };
    let id = unique("ctr");
    let fails = |args: &[&str]| {
        let mut all = vec!["run", "--rm"];
        all.extend(args);
        let text = setup.daemon.ctr(&all).refused();
        assert!(text.starts_with("ctr: ") && text.lines().count() == 1, "{args:?}: {text}");
        text
    };
    let text = fails(&[&setup.name, &id, "/no/such/program"]);
    assert!(text.contains("no such file"), "{text}");
    assert!(text.contains("/no/such/program"), "{text}");
    let text = fails(&["--runtime", "io.containerd.nothere.v1", &setup.name, &id]);
    assert!(text.contains("nothere"), "{text}");
    assert!(fails(&["no.such/image:1", &id]).contains("not found"));
    assert!(fails(&[&setup.name, "a/b"]).contains("identifier"));
    assert!(fails(&[&setup.name]).contains("container id must be provided"));
    assert!(fails(&["--snapshotter", "nothere", &setup.name, &id]).contains("nothere"));
    assert!(fails(&["-d", &setup.name, &id]).contains("cannot be specified together"));
    let label = format!("k={}", "v".repeat(5000));
    assert!(fails(&["--label", &label, &setup.name, &id]).contains("4096"));
    setup.nothing_left();
    let id = setup.sleeper();
    let out = setup.daemon.ctr(&["run", "-d", &setup.name, &id, "/bin/true"]);
    assert!(out.refused().contains("already exists"));
    setup.remove(&id);
    setup.nothing_left();
}

#[test]
fn fifos_of_a_killed_client_stay_for_another_until_the_task_is_removed() {
    let Some(setup) = Setup::new() else { return };
    let id = unique("ctr");
    let mut command = setup.daemon.ctr_command(&["run", &setup.name, &id, "/bin/sleep", "1000"]);
    let mut child = command.stdin(Stdio::null()).spawn().unwrap();
    eventually("the container runs", || setup.daemon.ctr(&["tasks", "ls"]).ok().contains("RUNNING").then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    let fifo = Path::new("/run/containerd/fifo");
    assert_eq!(entries(fifo).len(), 1);
    // While the task is there, another client may want to attach: its FIFOs stay.
    assert_eq!(setup.sh(&[], "echo x"), "x\n");
    assert_eq!(entries(fifo).len(), 1);
    setup.remove(&id);
    assert_eq!(entries(fifo), Vec::<String>::new());
    setup.nothing_left();
}
