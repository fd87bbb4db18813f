//! Processes with a terminal.

use containerd_api::task::v3::ResizePtyRequest;
use serde_json::json;

use crate::setup::{Streams, with_runc};

#[test]
fn a_terminal_carries_both_directions_and_has_a_size() {
    with_runc(async |world| {
        let dir = world.bundle(
            "t",
            json!(["sh", "-c", "read a; stty size; tty >/dev/null && echo is $a; exit 4"]),
            json!({"terminal": true}),
        );
        let shim = world.shim("t", &dir).await;
        let mut io = Streams::terminal("t");
        shim.create("t", &dir, &io).await.unwrap();
        let size = ResizePtyRequest { id: "t".into(), exec_id: String::new(), width: 91, height: 37 };
        shim.task.resize_pty(&shim.context(), &size).await.unwrap();
        shim.start("").await.unwrap();
        io.input("word\n");
        let text = io.output("is word").await;
        assert!(text.contains("37 91"), "{text}");
        assert_eq!(shim.wait("").await.unwrap(), 4);
        shim.delete("").await.unwrap();
        shim.shutdown().await;
    });
}

#[test]
fn an_exec_can_have_a_terminal() {
    with_runc(async |world| {
        let dir = world.bundle("t", json!(["sleep", "1000"]), json!({}));
        let shim = world.shim("t", &dir).await;
        shim.create("t", &dir, &Streams::default()).await.unwrap();
        shim.start("").await.unwrap();
        let mut io = Streams::terminal("e");
        shim.exec("e", json!(["sh", "-c", "tty >/dev/null && echo yes; exit 6"]), &io).await.unwrap();
        shim.start("e").await.unwrap();
        io.output("yes").await;
        assert_eq!(shim.wait("e").await.unwrap(), 6);
        shim.delete("e").await.unwrap();
        shim.kill("", 9, true).await.unwrap();
        shim.wait("").await.unwrap();
        shim.delete("").await.unwrap();
        shim.shutdown().await;
    });
}
