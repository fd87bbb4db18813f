//! Interactive streams of the CRI as clients have them: WebSockets to the addresses that Exec, Attach and PortForward
//! answer.

// Helpers of a test are tests too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::time::Duration;

use k8s_cri::v1::{AttachRequest, ExecRequest, PortForwardRequest};
use node::Node;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A node: registry, networks, daemon, and requests as kubelet makes them.
#[allow(dead_code)]
#[path = "cri/node.rs"]
mod node;

const LONG: Duration = Duration::from_secs(60);

/// A client of the channel protocol.
struct Client(TcpStream);

impl Client {
    /// Connects, or answers the status line of the refusal.
    async fn ask(url: &str, protocol: &str) -> Result<Self, String> {
        let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let mut socket = TcpStream::connect(host).await.unwrap();
        let request = format!(
            "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
             Sec-WebSocket-Protocol: {protocol}\r\n\r\n"
        );
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(tokio::time::timeout(LONG, socket.read_u8()).await.unwrap().unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        if head.starts_with("HTTP/1.1 101") { Ok(Self(socket)) } else { Err(head) }
    }

    async fn connect(url: &str) -> Self {
        Self::ask(url, "v5.channel.k8s.io").await.unwrap()
    }

    async fn send(&mut self, channel: u8, data: &[u8]) {
        assert!(data.len() < 125, "short messages alone");
        // Binary, masked with zeros.
        let mut raw = vec![0x82, 0x80 | (data.len() + 1) as u8, 0, 0, 0, 0, channel];
        raw.extend(data);
        self.0.write_all(&raw).await.unwrap();
    }

    async fn close(&mut self, channel: u8) {
        self.send(255, &[channel]).await;
    }

    /// The next message and its kind; None at the end.
    async fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let read = async {
            let kind = self.0.read_u8().await.ok()? & 0xf;
            let length = match self.0.read_u8().await.ok()? {
                126 => self.0.read_u16().await.ok()?.into(),
                127 => self.0.read_u64().await.ok()? as usize,
                short => usize::from(short),
            };
            let mut payload = vec![0; length];
            self.0.read_exact(&mut payload).await.ok()?;
            Some((kind, payload))
        };
        tokio::time::timeout(LONG, read).await.unwrap()
    }

    /// What comes on a channel until it holds `text`.
    async fn until(&mut self, channel: u8, text: &str) -> String {
        let mut all = Vec::new();
        loop {
            let seen = String::from_utf8_lossy(&all).into_owned();
            if seen.contains(text) {
                return seen;
            }
            match self.next().await {
                Some((2, message)) if message[0] == channel => all.extend(&message[1..]),
                Some(_) => {}
                None => panic!("ended before {text:?}: {seen:?}"),
            }
        }
    }

    /// All of an output and the status, to the close of the connection, which must be a normal one.
    async fn rest(&mut self) -> (Vec<u8>, String) {
        let (mut out, mut status) = (Vec::new(), Vec::new());
        loop {
            match self.next().await.expect("a close before the end") {
                (2, message) if message[0] == 1 => out.extend(&message[1..]),
                (2, message) if message[0] == 3 => status.extend(&message[1..]),
                (8, code) => {
                    assert_eq!(code, 1000_u16.to_be_bytes());
                    return (out, String::from_utf8(status).unwrap());
                }
                _ => {}
            }
        }
    }
}

async fn exec(node: &mut Node, container: &str, script: &str, tty: bool) -> Client {
    let request = ExecRequest {
        container_id: container.into(),
        cmd: ["sh", "-c", script].map(str::to_owned).into(),
        tty,
        stdin: true,
        stdout: true,
        stderr: !tty,
    };
    Client::connect(&node.runtime.exec(request).await.unwrap().into_inner().url).await
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_has_input_terminals_and_codes_and_ends_with_its_client() {
    if node::skip() {
        return;
    }
    let mut node = Node::start().await;
    let config = node.pod();
    let pod = node.run_pod(&config).await;
    let container = node.container("sleep 10000");
    let id = node.run(&pod, &config, container).await;

    let mut client = exec(&mut node, &id, "cat; exit 7", false).await;
    client.send(0, b"hello").await;
    client.close(0).await;
    let (out, status) = client.rest().await;
    assert_eq!(out, b"hello");
    assert!(status.contains(r#""message":"7""#), "{status}");

    let mut client =
        exec(&mut node, &id, "while ! stty size | grep -q '33 101'; do sleep 0.1; done; echo sized", true).await;
    client.send(4, br#"{"Width":101,"Height":33}"#).await;
    client.until(1, "sized").await;
    assert!(client.rest().await.1.contains("Success"));

    let mut client = exec(&mut node, &id, "dd if=/dev/zero bs=1M count=20 2>/dev/null", false).await;
    assert_eq!(client.rest().await.0.len(), 20 << 20);

    let mut client = exec(&mut node, &id, "echo here; sleep 4321", false).await;
    client.until(1, "here").await;
    drop(client);
    let gone = "for i in $(seq 600); do ps -o args | grep -q '[s]leep 4321' || exit 0; sleep 0.1; done; exit 1";
    node.output(&id, gone).await;
    node.finish(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attach_leaves_and_comes_again_and_ports_are_forwarded() {
    if node::skip() {
        return;
    }
    let mut node = Node::start().await;
    let config = node.pod();
    let pod = node.run_pod(&config).await;
    let mut container = node.container("while read l; do echo got $l; done; echo over; nc -ll -p 7000 -e cat");
    (container.stdin, container.stdin_once) = (true, true);
    let id = node.run(&pod, &config, container).await;
    let attach = AttachRequest { container_id: id.clone(), stdin: true, stdout: true, ..AttachRequest::default() };
    // One that goes without a word ends the input too, as that of `stdin_once` does.
    let url = node.runtime.attach(attach.clone()).await.unwrap().into_inner().url;
    let mut client = Client::connect(&url).await;
    client.send(0, b"one\n").await;
    client.until(1, "got one\n").await;
    let used = Client::ask(&url, "v5.channel.k8s.io").await.err().expect("an address works once");
    assert!(used.starts_with("HTTP/1.1 404"), "{used}");
    client.close(0).await;
    client.until(1, "over\n").await;

    let request = PortForwardRequest { pod_sandbox_id: pod.clone(), port: vec![7000] };
    // Until the container listens.
    for _ in 0..600 {
        let url = node.runtime.port_forward(request.clone()).await.unwrap().into_inner().url;
        let mut client = Client::ask(&url, "v4.channel.k8s.io").await.unwrap();
        client.send(0, b"ping").await;
        let answer = loop {
            match client.next().await {
                Some((2, message)) if message[1..].ends_with(b"ping") => break true,
                Some((2, message)) if message[0] == 1 && message.len() > 3 => break false,
                Some(_) => {}
                None => break false,
            }
        };
        if answer {
            node.runtime
                .stop_container(k8s_cri::v1::StopContainerRequest { container_id: id.clone(), timeout: 0 })
                .await
                .unwrap();
            let refused = node.runtime.attach(attach).await.unwrap_err();
            assert_eq!(refused.code(), tonic::Code::FailedPrecondition, "{refused}");
            return node.finish(&pod).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the port was not forwarded within a minute");
}
