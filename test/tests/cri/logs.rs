use std::fs;

use k8s_cri::v1::*;
use tonic::Code;

use crate::node::{Node, skip};

/// Tag and content of a line: `<time> <stream> <tag> <content>`.
fn parts(line: &str) -> (&str, &str) {
    let (tag, content) = line.split_once(' ').unwrap().1.split_once(' ').unwrap();
    (tag, content)
}

#[tokio::test]
async fn long_and_unfinished_lines_are_flagged() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let pod_config = node.pod();
    let pod = node.run_pod(&pod_config).await;
    let config = node.container("head -c 40000 /dev/zero | busybox tr '\\000' x; echo; echo short; echo -n end");
    let id = node.run(&pod, &pod_config, config).await;
    let status = node.ended(&id).await;
    let lines = node.log(&status);
    let (long, short) = lines.split_at(lines.len() - 2);
    let tags: Vec<&str> = long.iter().map(|line| parts(line).0).collect();
    assert!(tags.len() > 2 && tags[..tags.len() - 1].iter().all(|tag| *tag == "P"), "{tags:?}");
    assert_eq!(tags.last(), Some(&"F"));
    assert_eq!(long.iter().map(|line| parts(line).1.len()).sum::<usize>(), 40_000);
    assert!(long.iter().all(|line| parts(line).1.len() <= 16 * 1024));
    assert_eq!(short[0], "stdout F short");
    assert_eq!(parts(&short[1]).1, "end");
    // Times are RFC 3339 with nanoseconds, and do not go back.
    let text = fs::read_to_string(&status.log_path).unwrap();
    let times: Vec<&str> = text.lines().map(|line| line.split_once(' ').unwrap().0).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert!(times.iter().all(|time| time.len() >= 20 && time.as_bytes()[10] == b'T'), "{times:?}");
    node.finish(&pod).await;
}

#[tokio::test]
async fn rotation_under_a_writer_loses_nothing() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let pod_config = node.pod();
    let pod = node.run_pod(&pod_config).await;
    const LINES: usize = 200_000;
    let config = node.container(&format!("seq 1 {LINES}; until [ -e /dev/shm/go ]; do sleep 0.05; done"));
    let id = node.run(&pod, &pod_config, config).await;
    let path = node.status(&id).await.log_path;
    let mut files = Vec::new();
    for turn in 0..5 {
        let rotated = format!("{path}.{turn}");
        fs::rename(&path, &rotated).unwrap();
        files.push(rotated);
        let request = ReopenContainerLogRequest { container_id: id.clone() };
        node.runtime.reopen_container_log(request).await.unwrap();
        assert!(fs::exists(&path).unwrap(), "the new file is there when the call answers");
    }
    node.output(&id, "touch /dev/shm/go").await;
    node.ended(&id).await;
    files.push(path);
    let mut next = 1;
    for file in &files {
        for line in fs::read_to_string(file).unwrap().lines() {
            let wanted = format!("stdout F {next}");
            assert_eq!(line.split_once(' ').unwrap().1, wanted, "in {file}");
            next += 1;
        }
    }
    assert_eq!(next, LINES + 1);
    let request = ReopenContainerLogRequest { container_id: id };
    let error = node.runtime.reopen_container_log(request).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
    node.finish(&pod).await;
}

#[tokio::test]
async fn terminals_and_containers_without_a_log() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let pod_config = node.pod();
    let pod = node.run_pod(&pod_config).await;
    let config = ContainerConfig { tty: true, ..node.container("test -t 1 && echo tty; echo also >&2") };
    let printed = node.prints(&pod, &pod_config, config).await;
    assert_eq!(printed.replace('\r', ""), "tty\nalso");
    let silent = ContainerConfig { log_path: String::new(), ..node.container("seq 1 100000; exit 4") };
    let id = node.run(&pod, &pod_config, silent).await;
    let status = node.ended(&id).await;
    assert_eq!((status.exit_code, status.log_path.as_str()), (4, ""), "output without a log holds nothing up");
    // Stdin that nobody attaches to is open and empty.
    let waits = ContainerConfig { stdin: true, ..node.container("cat; exit 5") };
    let id = node.run(&pod, &pod_config, waits).await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(node.status(&id).await.state(), ContainerState::ContainerRunning);
    // A process that is left behind does not hold up the end of its container.
    let leaves = node.container("sleep 1000 & echo parent");
    assert_eq!(node.prints(&pod, &pod_config, leaves).await, "parent");
    node.finish(&pod).await;
}
