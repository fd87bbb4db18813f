//! Whole sessions with clients of both transports.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use core_types::{Error, Result};
use futures::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

mod more;

use crate::spdy::frame::{Frame, Head};
use crate::spdy::header::{Decoder, Encoder};
use crate::*;

const LONG: Duration = Duration::from_secs(30);

/// Echoes; `exit N` exits, `size` writes the first size, `hang` waits for ever and tells when it is dropped.
struct Echo(mpsc::Sender<()>);

struct Dropped(mpsc::Sender<()>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.try_send(());
    }
}

#[async_trait]
impl Runtime for Echo {
    async fn exec(&self, container: &str, command: Vec<String>, mut streams: Streams) -> Result<i32> {
        match command[0].as_str() {
            "exit" => return Ok(command[1].parse().unwrap()),
            "size" => {
                let size = streams.resize.recv().await.unwrap();
                let text = format!("{}x{}", size.width, size.height);
                streams.stdout.unwrap().write_all(text.as_bytes()).await.unwrap();
            }
            "hang" => {
                let _dropped = Dropped(self.0.clone());
                streams.stdout.as_mut().unwrap().write_all(b"started").await.unwrap();
                std::future::pending::<()>().await;
            }
            _ => self.attach(container, streams).await?,
        }
        Ok(0)
    }

    async fn attach(&self, container: &str, streams: Streams) -> Result<()> {
        if container == "missing" {
            return Err(Error::not_found("no such container"));
        }
        tokio::io::copy(&mut streams.stdin.unwrap(), &mut streams.stdout.unwrap()).await.unwrap();
        Ok(())
    }

    async fn port_forward(&self, _: &str, port: u16, stream: Box<dyn Duplex>) -> Result<()> {
        if port == 1 {
            return Err(Error::unavailable("connection refused"));
        }
        let (mut from, mut to) = tokio::io::split(stream);
        tokio::io::copy(&mut from, &mut to).await.unwrap();
        Ok(())
    }
}

async fn server() -> (Arc<Server>, mpsc::Receiver<()>) {
    let (sender, dropped) = mpsc::channel(1);
    let server = Arc::new(Server::bind(Config::default(), Arc::new(Echo(sender))).await.unwrap());
    let running = server.clone();
    tokio::spawn(async move { running.run(std::future::pending()).await });
    (server, dropped)
}

fn exec(command: &[&str], stdin: bool, tty: bool) -> ExecRequest {
    let command = command.iter().map(|c| c.to_string()).collect();
    ExecRequest { container: "c".into(), command, tty, stdin, stdout: true, stderr: !tty }
}

/// Sends a request with `headers` and returns the connection and the head of the answer.
async fn ask(url: &str, method: &str, headers: &str) -> (TcpStream, String) {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut socket = TcpStream::connect(host).await.unwrap();
    socket.write_all(format!("{method} /{path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n").as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tokio::time::timeout(LONG, socket.read_u8()).await.unwrap().unwrap());
    }
    (socket, String::from_utf8(head).unwrap())
}

struct Spdy(TcpStream, Encoder, Decoder);

impl Spdy {
    async fn connect(url: &str, protocol: &str) -> Self {
        let headers = format!("Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: {protocol}\r\n");
        let (socket, head) = ask(url, "POST", &headers).await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        Spdy(socket, Encoder::new(), Decoder::new())
    }

    async fn send(&mut self, frame: Frame) {
        let mut raw = BytesMut::new();
        frame.write(&mut raw);
        self.0.write_all(&raw).await.unwrap();
    }

    async fn open(&mut self, stream: u32, headers: &[(&str, &str)]) {
        let block = self.1.encode(headers).unwrap();
        self.send(Frame::SynStream { stream, fin: false, block }).await;
    }

    async fn data(&mut self, stream: u32, data: &[u8], fin: bool) {
        self.send(Frame::Data { stream, fin, data: Bytes::copy_from_slice(data) }).await;
    }

    async fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 8];
        tokio::time::timeout(LONG, self.0.read_exact(&mut head)).await.unwrap().ok()?;
        let head = Head::parse(head).unwrap();
        let mut payload = vec![0; head.length];
        self.0.read_exact(&mut payload).await.ok()?;
        let frame = Frame::parse(head, payload.into()).unwrap();
        if let Frame::SynReply { block, .. } = &frame {
            self.2.decode(block).unwrap();
        }
        Some(frame)
    }

    /// What each stream carried until all of `streams` ended.
    async fn collect(&mut self, streams: &[u32]) -> HashMap<u32, String> {
        let mut all: HashMap<u32, String> = HashMap::new();
        let mut open = streams.to_vec();
        while !open.is_empty() {
            if let Frame::Data { stream, fin, data } = self.next().await.expect("streams end before the connection") {
                all.entry(stream).or_default().push_str(std::str::from_utf8(&data).unwrap());
                open.retain(|s| !(fin && *s == stream));
            }
        }
        all
    }
}

#[tokio::test]
async fn spdy_exec_echoes_until_stdin_is_half_closed() {
    let (server, _) = server().await;
    let url = server.exec_url(&exec(&["cat"], true, false)).unwrap();
    let mut client = Spdy::connect(&url, "v4.channel.k8s.io").await;
    for (id, kind) in [(1, "error"), (3, "stdin"), (5, "stdout"), (7, "stderr")] {
        client.open(id, &[("streamtype", kind)]).await;
    }
    client.send(Frame::Ping(1)).await;
    client.data(3, b"hello", false).await;
    client.data(3, b"", true).await;
    let all = client.collect(&[1, 5, 7]).await;
    assert_eq!(all[&5], "hello");
    assert_eq!(all[&1], r#"{"metadata":{},"status":"Success"}"#);
    let (_, head) = ask(&url, "GET", "").await;
    assert!(head.starts_with("HTTP/1.1 404"), "a token works once: {head}");
}

#[tokio::test]
async fn spdy_tells_exit_codes_and_takes_sizes() {
    let (server, _) = server().await;
    let url = server.exec_url(&exec(&["exit", "7"], false, false)).unwrap();
    let mut client = Spdy::connect(&url, "v4.channel.k8s.io").await;
    for (id, kind) in [(1, "error"), (3, "stdout"), (5, "stderr")] {
        client.open(id, &[("streamtype", kind)]).await;
    }
    let status: serde_json::Value = serde_json::from_str(&client.collect(&[1]).await[&1]).unwrap();
    assert_eq!(status["reason"], "NonZeroExitCode");
    assert_eq!(status["details"]["causes"][0]["message"], "7");

    let url = server.exec_url(&exec(&["size"], false, true)).unwrap();
    let mut client = Spdy::connect(&url, "v3.channel.k8s.io").await;
    for (id, kind) in [(1, "error"), (3, "stdout"), (5, "resize")] {
        client.open(id, &[("streamtype", kind)]).await;
    }
    client.data(5, br#"{"Width":80,"Height":24}"#, false).await;
    assert_eq!(client.collect(&[1, 3]).await[&3], "80x24");
}

#[tokio::test]
async fn spdy_forwards_pairs_and_one_error_leaves_the_others() {
    let (server, _) = server().await;
    let request = PortForwardRequest { sandbox: "s".into(), ports: vec![] };
    let mut client = Spdy::connect(&server.port_forward_url(&request).unwrap(), "portforward.k8s.io").await;
    for (first, port, id) in [(1, "1", "0"), (5, "80", "1")] {
        client.open(first, &[("streamtype", "error"), ("port", port), ("requestid", id)]).await;
        client.data(first, b"", true).await;
        client.open(first + 2, &[("streamtype", "data"), ("port", port), ("requestid", id)]).await;
    }
    client.data(7, b"ping", true).await;
    let all = client.collect(&[1, 3, 5, 7]).await;
    assert!(all[&1].contains("connection refused"), "{all:?}");
    assert_eq!(all[&7], "ping");
}

#[tokio::test]
async fn a_client_that_goes_ends_the_runtimes_work() {
    let (server, mut dropped) = server().await;
    let url = server.exec_url(&exec(&["hang"], false, true)).unwrap();
    let mut client = Spdy::connect(&url, "v4.channel.k8s.io").await;
    for (id, kind) in [(1, "error"), (3, "stdout"), (5, "resize")] {
        client.open(id, &[("streamtype", kind)]).await;
    }
    while !matches!(client.next().await.unwrap(), Frame::Data { stream: 3, .. }) {}
    drop(client);
    tokio::time::timeout(LONG, dropped.recv()).await.unwrap().unwrap();
}

#[tokio::test]
async fn hostile_frames_end_the_connection_and_too_many_streams_are_refused() {
    let (server, _) = server().await;
    let request = PortForwardRequest { sandbox: "s".into(), ports: vec![] };
    let url = || server.port_forward_url(&request).unwrap();
    let bomb = Encoder::new().encode(&[("x", &"a".repeat(5 << 20))]).unwrap();
    let mut large = Spdy::connect(&url(), "portforward.k8s.io").await;
    large.0.write_all(&[0, 0, 0, 1, 0, 0xff, 0xff, 0xff]).await.unwrap();
    let mut bombed = Spdy::connect(&url(), "portforward.k8s.io").await;
    bombed.send(Frame::SynStream { stream: 1, fin: false, block: bomb }).await;
    let mut even = Spdy::connect(&url(), "portforward.k8s.io").await;
    even.open(2, &[]).await;
    for client in [&mut large, &mut bombed, &mut even] {
        assert!(matches!(client.next().await, Some(Frame::GoAway { status: 1, .. })));
        assert_eq!(client.next().await, None);
    }
    let mut many = Spdy::connect(&url(), "portforward.k8s.io").await;
    for n in 0..600 {
        many.open(2 * n + 1, &[("streamtype", "data"), ("port", "9"), ("requestid", &n.to_string())]).await;
    }
    while !matches!(many.next().await.unwrap(), Frame::Reset { status: 3, .. }) {}
    let mut overflow = Spdy::connect(&url(), "portforward.k8s.io").await;
    overflow.open(1, &[("streamtype", "data"), ("port", "9"), ("requestid", "1")]).await;
    overflow.send(Frame::WindowUpdate { stream: 1, delta: 0x7fff_ffff }).await;
    while !matches!(overflow.next().await.unwrap(), Frame::Reset { status: 7, .. }) {}
}

async fn websocket(url: &str, protocol: &str) -> tokio_tungstenite::WebSocketStream<TcpStream> {
    let mut request = url.replacen("http", "ws", 1).into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", protocol.parse().unwrap());
    let host = url.strip_prefix("http://").unwrap().split_once('/').unwrap().0;
    let socket = TcpStream::connect(host).await.unwrap();
    tokio_tungstenite::client_async(request, socket).await.unwrap().0
}

#[tokio::test]
async fn websocket_v5_closes_stdin_and_tells_the_status() {
    let (server, _) = server().await;
    let mut socket = websocket(&server.exec_url(&exec(&["cat"], true, false)).unwrap(), "v5.channel.k8s.io").await;
    socket.send(Message::Binary(Bytes::from_static(b"\0hello"))).await.unwrap();
    socket.send(Message::Binary(Bytes::from_static(&[255, 0]))).await.unwrap();
    let mut all: HashMap<u8, Vec<u8>> = HashMap::new();
    while let Some(Ok(Message::Binary(raw))) = tokio::time::timeout(LONG, socket.next()).await.unwrap() {
        all.entry(raw[0]).or_default().extend(&raw[1..]);
    }
    assert_eq!(all[&1], b"hello");
    assert_eq!(all[&3], br#"{"metadata":{},"status":"Success"}"#);
}

#[tokio::test]
async fn websocket_base64_carries_text() {
    let (server, _) = server().await;
    let url = server.exec_url(&exec(&["size"], false, true)).unwrap();
    let mut socket = websocket(&url, "v4.base64.channel.k8s.io").await;
    // {"Width":80,"Height":24}
    socket.send(Message::Text("4eyJXaWR0aCI6ODAsIkhlaWdodCI6MjR9".into())).await.unwrap();
    let mut texts = vec![];
    while let Some(Ok(Message::Text(text))) = tokio::time::timeout(LONG, socket.next()).await.unwrap() {
        texts.push(text.to_string());
    }
    assert!(texts.contains(&"1ODB4MjQ=".to_owned()), "{texts:?}");
}

#[tokio::test]
async fn requests_are_checked() {
    let (server, _) = server().await;
    let mut request = exec(&["cat"], false, true);
    request.stderr = true;
    assert!(server.exec_url(&request).is_err());
    let none = AttachRequest { container: "c".into(), ..AttachRequest::default() };
    assert!(server.attach_url(&none).is_err());
    let url = server.exec_url(&exec(&["cat"], false, true)).unwrap();
    assert!(ask(&url, "DELETE", "").await.1.starts_with("HTTP/1.1 405"));
    let upgrade = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v9\r\n";
    assert!(ask(&url, "POST", upgrade).await.1.starts_with("HTTP/1.1 403"));
}
