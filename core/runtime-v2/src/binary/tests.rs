use std::os::unix::fs::PermissionsExt;

use core_types::ErrorKind;

use super::*;

struct Bed {
    dir: tempfile::TempDir,
    runner: Arc<Runner>,
    namespace: Namespace,
}

impl Bed {
    /// A shim that runs `script`; `$dir` is its directory.
    fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let runner = Runner::new(Daemon {
            grpc: "/run/x.sock".into(),
            ttrpc: "/run/x.sock.ttrpc".into(),
            executable: "/usr/bin/containerd".into(),
            version: "2.3.0".into(),
            socket_dir: "/run/x/s".into(),
            debug: true,
            env: vec!["EXTRA=1".into()],
        });
        let bed = Self { dir, runner, namespace: Namespace::new("ns").unwrap() };
        bed.script(script);
        bed
    }

    fn binary(&self) -> PathBuf {
        self.dir.path().join("shim")
    }

    fn script(&self, script: &str) {
        // By rename: a file that some other test's child still holds open for writing cannot be executed.
        let text = format!("#!/bin/sh\ndir={}\nfor action; do :; done\n{script}\n", self.dir.path().display());
        let temp = self.dir.path().join("new");
        std::fs::write(&temp, text).unwrap();
        std::fs::set_permissions(&temp, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(&temp, self.binary()).unwrap();
    }

    async fn start(&self, options: Option<&Any>) -> Result<Endpoint> {
        let binary = self.binary();
        let target = Target { binary: &binary, namespace: &self.namespace, id: "c1", bundle: self.dir.path() };
        self.runner.start(&target, options, Duration::from_secs(30)).await
    }

    fn file(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.dir.path().join(name)).unwrap()
    }
}

fn options() -> Any {
    Any { type_url: "containerd.runc.v1.Options".into(), value: vec![0x40, 1].into() }
}

#[tokio::test]
async fn a_shim_is_told_everything_in_both_ways() {
    let bed = Bed::new("cat >$dir/stdin; echo \"$@\" >$dir/args; env >$dir/env; pwd >$dir/cwd; printf unix:///s/1");
    let endpoint = bed.start(Some(&options())).await.unwrap();
    assert_eq!((endpoint.version, endpoint.address.as_str()), (2, "unix:///s/1"));
    let args = String::from_utf8(bed.file("args")).unwrap();
    assert_eq!(
        args.trim(),
        "-namespace ns -address /run/x.sock -publish-binary /usr/bin/containerd -id c1 -debug start"
    );
    let env = String::from_utf8(bed.file("env")).unwrap();
    for line in
        ["TTRPC_ADDRESS=/run/x.sock.ttrpc", "GRPC_ADDRESS=/run/x.sock", "NAMESPACE=ns", "MAX_SHIM_VERSION=2", "EXTRA=1"]
    {
        assert!(env.lines().any(|other| other == line), "{line}");
    }
    assert_eq!(String::from_utf8(bed.file("cwd")).unwrap().trim(), bed.dir.path().to_str().unwrap());
    let stdin = bed.file("stdin");
    let fields: std::collections::BTreeMap<_, _> = wire::fields(&stdin).unwrap().into_iter().collect();
    assert_eq!(fields[&1].bytes(), b"c1");
    assert_eq!(fields[&2].bytes(), b"ns");
    assert_eq!(fields[&3].number() as i64, -4);
    assert_eq!(fields[&5].bytes(), b"/run/x.sock.ttrpc");
    assert_eq!(fields[&9].bytes(), b"/run/x/s");
    let extension = wire::fields(fields[&8].bytes()).unwrap();
    assert_eq!(extension, [(1, wire::Value::Bytes(&bootstrap::any(&options())))]);
}

#[tokio::test]
async fn an_older_shim_gets_options_and_is_remembered() {
    // The first field of an Any is its type: with the newer form it is the container's id.
    let bed = Bed::new(
        "echo run >>$dir/runs; cat >$dir/stdin; grep -q runc.v1.Options $dir/stdin && ! grep -q containerd/x $dir/stdin \
         && ! grep -q x.sock $dir/stdin || { echo 'no such type' >&2; exit 1; }; printf unix:///s/2",
    );
    bed.start(Some(&options())).await.unwrap();
    assert_eq!(bed.file("stdin"), bootstrap::any(&options()));
    assert_eq!(bed.file("runs"), b"run\nrun\n");
    bed.start(Some(&options())).await.unwrap();
    assert_eq!(bed.file("runs"), b"run\nrun\nrun\n", "the second start asks in the older form at once");
}

#[tokio::test]
async fn failures_carry_what_the_shim_said() {
    let bed = Bed::new("echo run >>$dir/runs; cat >/dev/null; echo cannot do it >&2; exit 3");
    let error = bed.start(None).await.unwrap_err();
    assert_eq!(bed.file("runs"), b"run\n", "this is no old shim, it is not asked twice");
    assert!(error.message().contains("cannot do it") && error.message().contains('3'), "{error}");
    bed.script("cat >/dev/null; echo this is no address");
    let error = bed.start(None).await.unwrap_err();
    assert!(error.message().contains("this is no address"), "{error}");
    bed.script("cat >/dev/null; printf '{\"version\":9,\"address\":\"unix:///x\",\"protocol\":\"ttrpc\"}'");
    assert_eq!(bed.start(None).await.unwrap_err().kind(), ErrorKind::Unimplemented);
}

#[tokio::test]
async fn a_shim_that_hangs_is_killed_with_its_children() {
    let bed = Bed::new("sleep 1000 & echo $! >$dir/child; echo waiting >&2; wait");
    let binary = bed.binary();
    let target = Target { binary: &binary, namespace: &bed.namespace, id: "c1", bundle: bed.dir.path() };
    let error = bed.runner.start(&target, None, Duration::from_secs(2)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    assert!(error.message().contains("waiting"), "{error}");
    let child = String::from_utf8(bed.file("child")).unwrap();
    let stat = PathBuf::from(format!("/proc/{}/stat", child.trim()));
    let until = std::time::Instant::now() + Duration::from_secs(30);
    // Gone, or a zombie that its new parent has not collected.
    while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(std::time::Instant::now() < until, "the child lives");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_child_that_keeps_the_output_open_holds_up_nothing() {
    let bed = Bed::new("cat >/dev/null; sleep 5 & printf unix:///s/3");
    let started = std::time::Instant::now();
    bed.start(None).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn delete_tells_how_the_task_ended() {
    // pid 7, status 137, at 1700000000.
    let bed = Bed::new(r#"echo "$@" >$dir/args; printf '\010\007\020\211\001\032\006\010\200\342\317\252\006'"#);
    let binary = bed.binary();
    let target = Target { binary: &binary, namespace: &bed.namespace, id: "c1", bundle: bed.dir.path() };
    let exit = bed.runner.delete(&target, Duration::from_secs(30)).await.unwrap();
    assert_eq!((exit.pid, exit.status), (7, 137));
    assert_eq!(exit.exited_at, Some(std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000)));
    let args = String::from_utf8(bed.file("args")).unwrap();
    assert!(args.contains(&format!("-bundle {} -debug delete", bed.dir.path().display())), "{args}");
}
