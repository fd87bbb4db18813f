use std::{
    io::{Read as _, Write as _},
    os::unix::fs::PermissionsExt as _,
};

use tokio::io::AsyncReadExt as _;

use super::*;

const LONG: Duration = Duration::from_secs(30);

fn streams(dir: &Path, stdin: Option<Input>, stdout: Option<Output>) -> Stdio {
    Stdio::Streams(Streams { stdin, stdout, stderr: None, terminal: false, fifo_dir: dir.into() })
}

fn entries(dir: &Path) -> usize {
    fs::read_dir(dir).map(Iterator::count).unwrap_or(0)
}

#[test]
fn fifos_are_private_and_go_with_the_set() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().join("fifo");
    let set = FifoSet::create(&root, "web", true, false).unwrap();
    assert!(is_fifo(set.stdin()) && is_fifo(set.stdout()) && is_fifo(set.stderr()));
    assert!(set.stdout().ends_with("web-stdout"));
    let mode = fs::metadata(set.stdin().parent().unwrap()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    drop(set);
    assert_eq!(entries(&root), 0);
    let terminal = FifoSet::create(&root, "web", false, true).unwrap();
    assert!(terminal.stderr().as_os_str().is_empty() && terminal.stdin().as_os_str().is_empty());
}

#[test]
fn an_id_that_is_a_path_makes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let error = FifoSet::create(root.path(), "../x", true, false).unwrap_err();
    assert_eq!(error.kind(), core_types::ErrorKind::InvalidArgument);
    assert_eq!(entries(root.path()), 0);
}

#[test]
fn kept_fifos_can_be_adopted_and_removed() {
    let root = tempfile::tempdir().unwrap();
    let mut set = FifoSet::create(root.path(), "web", true, false).unwrap();
    set.keep();
    let [stdin, stdout, stderr] = [set.stdin(), set.stdout(), set.stderr()].map(text);
    drop(set);
    assert_eq!(entries(root.path()), 1);
    drop(FifoSet::adopt(&stdin, &stdout, &stderr));
    assert_eq!(entries(root.path()), 1, "adopting alone removes nothing");
    FifoSet::adopt(&stdin, &stdout, &stderr).remove();
    assert_eq!(entries(root.path()), 0);
}

#[test]
fn only_fifos_are_removed() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("precious");
    fs::write(&file, "x").unwrap();
    FifoSet::adopt(&text(&file), "", "binary:///bin/true").remove();
    assert!(file.exists());
}

#[tokio::test]
async fn output_comes_through_though_the_writer_is_late() {
    let root = tempfile::tempdir().unwrap();
    let (mine, theirs) = tokio::io::duplex(1024);
    let mut io = ProcessIo::prepare(streams(root.path(), None, Some(Box::new(theirs))), "p").unwrap();
    assert!(io.stdin.is_empty());
    let path = io.stdout.clone();
    let writer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        let mut fifo = fs::OpenOptions::new().write(true).open(path).unwrap();
        fifo.write_all(b"hello").unwrap();
    });
    let mut text = String::new();
    tokio::time::timeout(LONG, tokio::io::BufReader::new(mine).read_to_string(&mut text)).await.unwrap().unwrap();
    assert_eq!(text, "hello");
    writer.join().unwrap();
    io.remove();
    assert_eq!(entries(root.path()), 0);
}

#[tokio::test]
async fn input_written_before_anybody_reads_is_not_lost() {
    let root = tempfile::tempdir().unwrap();
    let input: Input = Box::new(&b"all of it"[..]);
    let mut io = ProcessIo::prepare(streams(root.path(), Some(input), None), "p").unwrap();
    let (done, closed) = tokio::sync::oneshot::channel();
    io.start_input(async move {
        let _ = done.send(());
    });
    let path = io.stdin.clone();
    let reader = tokio::task::spawn_blocking(move || {
        std::thread::sleep(Duration::from_millis(50));
        let mut text = String::new();
        fs::File::open(path).unwrap().read_to_string(&mut text).unwrap();
        text
    });
    assert_eq!(tokio::time::timeout(LONG, reader).await.unwrap().unwrap(), "all of it");
    tokio::time::timeout(LONG, closed).await.unwrap().unwrap();
}

#[tokio::test]
async fn draining_ends_when_nothing_comes() {
    let root = tempfile::tempdir().unwrap();
    let mut io = ProcessIo::prepare(streams(root.path(), None, None), "p").unwrap();
    let hold = fs::OpenOptions::new().read(true).write(true).open(&io.stdout).unwrap();
    tokio::time::timeout(LONG, io.drain(Duration::from_millis(20))).await.unwrap();
    drop(hold);
    drop(io);
    assert_eq!(entries(root.path()), 0);
}

#[tokio::test]
async fn fifos_for_later_let_a_writer_in_and_stay_when_kept() {
    let root = tempfile::tempdir().unwrap();
    let mut io = ProcessIo::prepare(Stdio::Fifos { dir: root.path().into(), terminal: false }, "p").unwrap();
    let path = io.stdout.clone();
    // Without a reader this would wait for ever.
    let opened = tokio::task::spawn_blocking(move || fs::OpenOptions::new().write(true).open(path));
    tokio::time::timeout(LONG, opened).await.unwrap().unwrap().unwrap();
    io.keep();
    drop(io);
    assert_eq!(entries(root.path()), 1);
}

/// Lets a directory be as old as it must be to be removed.
fn make_old(dir: &Path) {
    fs::File::open(dir).unwrap().set_modified(std::time::SystemTime::now() - 2 * NEW).unwrap();
}

#[tokio::test]
async fn fifos_of_a_killed_client_go_when_the_next_are_made() {
    let root = tempfile::tempdir().unwrap();
    let left = |terminal: bool| {
        let mut set = FifoSet::create(root.path(), "gone", true, terminal).unwrap();
        set.keep();
        set.stdout().parent().unwrap().to_owned()
    };
    let (old, terminal, young, used, foreign) = (left(false), left(true), left(false), left(false), left(true));
    // A shim holds the reading end for its process, whoever made the FIFO.
    let reader = pump::open_output(&used.join("gone-stderr")).unwrap();
    fs::write(foreign.join("precious"), "").unwrap();
    let other = root.path().join("1234567");
    fs::create_dir(&other).unwrap();
    for dir in [&old, &terminal, &used, &foreign, &other] {
        make_old(dir);
    }
    let new = FifoSet::create(root.path(), "new", true, false).unwrap();
    assert!(!old.exists() && !terminal.exists());
    assert!(young.exists() && used.exists() && foreign.exists() && other.exists());
    assert_eq!(entries(&used), 3);
    drop((reader, new));
    drop(FifoSet::create(root.path(), "new", true, false).unwrap());
    assert!(!used.exists());
}
