//! Processes beside init.

use containerd_api::v1::types::Status;
use serde_json::json;

use crate::setup::{Shim, Streams, World, with_runc};

async fn sleeper(world: &World) -> Shim {
    let dir = world.bundle("s", json!(["sleep", "1000"]), json!({}));
    let shim = world.shim("s", &dir).await;
    shim.create("s", &dir, &Streams::default()).await.unwrap();
    shim.start("").await.unwrap();
    shim
}

async fn end(shim: &Shim) {
    shim.kill("", 9, false).await.unwrap_or(());
    shim.wait("").await.unwrap();
    shim.delete("").await.unwrap();
    shim.shutdown().await;
}

#[test]
fn an_exec_has_streams_and_a_code() {
    with_runc(async |world| {
        world.daemon();
        let shim = sleeper(&world).await;
        let mut io = Streams::new("e");
        shim.exec("e", json!(["sh", "-c", "cat; echo done >&2; exit 3"]), &io).await.unwrap();
        assert_eq!(shim.exec("e", json!(["true"]), &Streams::default()).await.unwrap_err().code, 6);
        assert_eq!(shim.kill("e", 9, false).await.unwrap_err().code, 9);
        shim.start("e").await.unwrap();
        assert_eq!(shim.start("e").await.unwrap_err().code, 9);
        assert_eq!(shim.delete("e").await.unwrap_err().code, 9);
        io.input("through\n");
        assert!(io.output("\n").await.contains("through"));
        let close = containerd_api::task::v3::CloseIoRequest { id: shim.id.clone(), exec_id: "e".into(), stdin: true };
        shim.task.close_io(&shim.context(), &close).await.unwrap();
        assert_eq!(shim.wait("e").await.unwrap(), 3);
        assert!(io.errors("\n").await.contains("done"));
        assert_eq!(shim.delete("e").await.unwrap().exit_status, 3);
        assert_eq!(shim.state("e").await.unwrap_err().code, 5);
        world.topic("/tasks/exit", 1).await;
        assert_eq!(
            world.topics(),
            ["/tasks/create", "/tasks/start", "/tasks/exec-added", "/tasks/exec-started", "/tasks/exit"]
        );
        end(&shim).await;
    });
}

#[test]
fn input_that_ends_as_soon_as_it_can_ends_the_process() {
    with_runc(async |world| {
        let shim = std::rc::Rc::new(sleeper(&world).await);
        for number in 0..5 {
            let id = format!("e{number}");
            let mut io = Streams::new(&id);
            shim.exec(&id, json!(["cat"]), &io).await.unwrap();
            // A client opens the FIFO, writes, and asks to close at once: the opening waits for the shim.
            let path = io.stdin.clone();
            let written = tokio::task::spawn_blocking(move || std::fs::write(path, "piped\n").unwrap());
            let close = async {
                written.await.unwrap();
                let close =
                    containerd_api::task::v3::CloseIoRequest { id: shim.id.clone(), exec_id: id.clone(), stdin: true };
                shim.task.close_io(&shim.context(), &close).await.unwrap();
            };
            let (started, ()) = tokio::join!(shim.start(&id), close);
            started.unwrap();
            assert_eq!(shim.wait(&id).await.unwrap(), 0);
            assert!(io.output("\n").await.contains("piped"));
            shim.delete(&id).await.unwrap();
        }
        end(&shim).await;
    });
}

#[test]
fn a_missing_program_is_an_error_and_no_exit() {
    with_runc(async |world| {
        world.daemon();
        let shim = sleeper(&world).await;
        let mut io = Streams::new("e");
        shim.exec("e", json!(["/no/such/program"]), &io).await.unwrap();
        // Who waits from before the start gets an answer too.
        let (code, error) = tokio::join!(shim.wait("e"), async { shim.start("e").await.unwrap_err() });
        assert!(error.message.contains("/no/such/program"), "{error}");
        assert_eq!(io.errors_now(), "", "what the runtime says is in the error alone");
        assert_eq!(code.unwrap(), 255);
        assert_eq!(shim.wait("e").await.unwrap(), 255);
        let state = shim.state("e").await.unwrap();
        assert_eq!((state.status(), state.exit_status, state.pid), (Status::Stopped, 255, 0));
        assert!(state.exited_at.is_some_and(|at| at.seconds > 0));
        assert!(shim.start("e").await.unwrap_err().message.contains("cannot start a stopped process"));
        assert_eq!(shim.delete("e").await.unwrap().exit_status, 255);
        end(&shim).await;
        world.topic("/tasks/delete", 1).await;
        assert_eq!(world.topics().iter().filter(|topic| *topic == "/tasks/exit").count(), 1);
    });
}

fn count(pid: i32, folder: &str) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/{folder}")).unwrap().count()
}

#[test]
fn many_execs_lose_no_code_and_leave_nothing() {
    with_runc(async |world| {
        let shim = std::rc::Rc::new(sleeper(&world).await);
        let pid = world.shims.borrow()[0];
        let before = count(pid, "fd");
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                let mut all = tokio::task::JoinSet::new();
                for number in 0..24 {
                    let shim = shim.clone();
                    all.spawn_local(async move {
                        let id = format!("e{number}");
                        shim.exec(&id, json!(["sh", "-c", format!("exit {number}")]), &Streams::default())
                            .await
                            .unwrap();
                        shim.start(&id).await.unwrap();
                        assert_eq!(shim.wait(&id).await.unwrap(), number);
                        assert_eq!(shim.delete(&id).await.unwrap().exit_status, number);
                    });
                }
                while let Some(done) = all.join_next().await {
                    done.unwrap();
                }
            })
            .await;
        assert!(count(pid, "fd") <= before, "descriptors leak");
        end(&shim).await;
    });
}

#[test]
fn init_may_end_while_an_exec_starts() {
    with_runc(async |world| {
        world.daemon();
        let shim = sleeper(&world).await;
        shim.exec("e", json!(["sleep", "1000"]), &Streams::default()).await.unwrap();
        let (started, killed) = tokio::join!(shim.start("e"), shim.kill("", 9, false));
        killed.unwrap();
        assert_eq!(shim.wait("").await.unwrap(), 137);
        world.topic("/tasks/exit", 1 + usize::from(started.is_ok())).await;
        let topics = world.topics();
        let exits = topics.iter().filter(|topic| *topic == "/tasks/exit").count();
        assert_eq!(exits, 1 + usize::from(started.is_ok()), "{topics:?}");
        // Nothing starts any more.
        assert_eq!(shim.exec("f", json!(["true"]), &Streams::default()).await.unwrap_err().code, 9);
        shim.delete("").await.unwrap();
        shim.shutdown().await;
    });
}
