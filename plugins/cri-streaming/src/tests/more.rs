//! Timeouts, TLS, and what the older and rarer protocols are told.

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::*;
use crate::api::Request;
use crate::session::{CREATION, Context};

async fn server_with(config: Config) -> (Arc<Server>, mpsc::Receiver<()>) {
    let (sender, dropped) = mpsc::channel(1);
    let server = Arc::new(Server::bind(config, Arc::new(Echo(sender))).await.unwrap());
    let running = server.clone();
    tokio::spawn(async move { running.run(std::future::pending()).await });
    (server, dropped)
}

/// What each channel carried until `enough` or the end, and the code of the end.
async fn channels<S: Duplex>(
    socket: &mut WebSocketStream<S>,
    enough: impl Fn(&HashMap<u8, Vec<u8>>) -> bool,
) -> (HashMap<u8, Vec<u8>>, Option<CloseCode>) {
    let mut all: HashMap<u8, Vec<u8>> = HashMap::new();
    while !enough(&all) {
        match tokio::time::timeout(LONG, socket.next()).await.unwrap() {
            Some(Ok(Message::Binary(raw))) => all.entry(raw[0]).or_default().extend(&raw[1..]),
            Some(Ok(Message::Close(frame))) => return (all, frame.map(|f| f.code)),
            Some(Ok(_)) => {}
            _ => return (all, None),
        }
    }
    (all, None)
}

fn binary(raw: &[u8]) -> Message {
    Message::Binary(Bytes::copy_from_slice(raw))
}

#[tokio::test]
async fn websocket_clients_are_told_a_normal_end() {
    let (server, _) = server().await;
    for (protocol, status) in [("v1.channel.k8s.io", "exit status 7"), ("v4.channel.k8s.io", "NonZeroExitCode")] {
        let url = server.exec_url(&exec(&["exit", "7"], false, false)).unwrap();
        let (all, code) = channels(&mut websocket(&url, protocol).await, |_| false).await;
        assert!(String::from_utf8_lossy(&all[&3]).contains(status), "{all:?}");
        assert_eq!(all[&3].starts_with(b"{"), protocol.starts_with("v4"));
        assert_eq!(code, Some(CloseCode::Normal));
    }
}

#[tokio::test]
async fn spdy_clients_of_old_are_told_the_status_as_text() {
    let (server, _) = server().await;
    for protocol in ["channel.k8s.io", "v2.channel.k8s.io", "v3.channel.k8s.io"] {
        for (code, told) in [("0", ""), ("7", "command terminated with non-zero exit code: exit status 7")] {
            let url = server.exec_url(&exec(&["exit", code], false, false)).unwrap();
            let mut client = Spdy::connect(&url, protocol).await;
            for (id, kind) in [(1, "error"), (3, "stdout"), (5, "stderr")] {
                client.open(id, &[("streamtype", kind)]).await;
            }
            assert_eq!(client.collect(&[1]).await.get(&1).map_or("", |s| s), told);
        }
    }
}

#[tokio::test]
async fn attach_echoes_and_tells_what_is_missing() {
    let (server, _) = server().await;
    let mut request =
        AttachRequest { container: "c".into(), stdin: true, stdout: true, stderr: true, ..Default::default() };
    let mut socket = websocket(&server.attach_url(&request).unwrap(), "v5.channel.k8s.io").await;
    socket.send(binary(b"\0hello")).await.unwrap();
    channels(&mut socket, |all| all.get(&1).is_some_and(|out| out == b"hello")).await;
    socket.send(binary(&[255, 0])).await.unwrap();
    let (all, code) = channels(&mut socket, |_| false).await;
    assert!(String::from_utf8_lossy(&all[&3]).contains("Success"));
    assert_eq!(code, Some(CloseCode::Normal));

    request.container = "missing".into();
    let mut socket = websocket(&server.attach_url(&request).unwrap(), "v5.channel.k8s.io").await;
    let (all, _) = channels(&mut socket, |_| false).await;
    let status: serde_json::Value = serde_json::from_slice(&all[&3]).unwrap();
    assert_eq!(status["code"], 500);
    assert!(status["message"].as_str().unwrap().contains("no such container"), "{status}");
}

#[tokio::test]
async fn websocket_forwards_ports_by_pairs_of_channels() {
    let (server, _) = server().await;
    let request = PortForwardRequest { sandbox: "s".into(), ports: vec![8080, 1] };
    let mut socket = websocket(&server.port_forward_url(&request).unwrap(), "v4.channel.k8s.io").await;
    socket.send(binary(b"\0ping")).await.unwrap();
    let enough = |all: &HashMap<u8, Vec<u8>>| {
        all.get(&0).is_some_and(|data| data.len() == 6) && all.get(&3).is_some_and(|error| error.len() > 2)
    };
    let (all, _) = channels(&mut socket, enough).await;
    assert_eq!(all[&0], b"\x90\x1fping");
    assert_eq!(all[&1], b"\x90\x1f");
    assert_eq!(all[&2], b"\x01\0");
    assert!(String::from_utf8_lossy(&all[&3]).contains("connection refused"), "{all:?}");
}

#[tokio::test]
async fn spdy_goes_through_a_websocket() {
    let (server, _) = server().await;
    let request = PortForwardRequest { sandbox: "s".into(), ports: vec![] };
    let mut socket = websocket(&server.port_forward_url(&request).unwrap(), crate::handshake::TUNNEL).await;
    let (mut encoder, mut raw) = (Encoder::new(), BytesMut::new());
    for (stream, kind) in [(1, "error"), (3, "data")] {
        let block = encoder.encode(&[("streamtype", kind), ("port", "80"), ("requestid", "0")]).unwrap();
        Frame::SynStream { stream, fin: false, block }.write(&mut raw);
    }
    Frame::Data { stream: 3, fin: true, data: Bytes::from_static(b"ping") }.write(&mut raw);
    // The borders of messages mean nothing.
    for part in raw.chunks(7) {
        socket.send(binary(part)).await.unwrap();
    }
    let mut answer = Vec::new();
    while !answer.windows(4).any(|w| w == b"ping") {
        if let Message::Binary(raw) = tokio::time::timeout(LONG, socket.next()).await.unwrap().unwrap().unwrap() {
            answer.extend(raw);
        }
    }
}

#[tokio::test]
async fn a_stream_that_is_given_up_ends_its_forwarding_without_an_error() {
    let (server, _) = server().await;
    let request = PortForwardRequest { sandbox: "s".into(), ports: vec![] };
    let mut client = Spdy::connect(&server.port_forward_url(&request).unwrap(), "portforward.k8s.io").await;
    for (id, kind) in [(1, "error"), (3, "data")] {
        client.open(id, &[("streamtype", kind), ("port", "80"), ("requestid", "0")]).await;
    }
    client.data(3, b"x", false).await;
    while !matches!(client.next().await.unwrap(), Frame::Data { stream: 3, .. }) {}
    client.send(Frame::Reset { stream: 3, status: 5 }).await;
    assert_eq!(client.collect(&[1]).await.get(&1).map_or("", |s| s), "");
}

#[tokio::test]
async fn a_client_that_goes_is_noticed_when_nobody_takes_its_input() {
    let (server, mut dropped) = server().await;
    let url = server.exec_url(&exec(&["hang"], true, false)).unwrap();
    let mut socket = websocket(&url, "v5.channel.k8s.io").await;
    channels(&mut socket, |all| all.get(&1).is_some_and(|out| !out.is_empty())).await;
    let input = vec![0; 100_000];
    let fill = async { while socket.send(binary(&input)).await.is_ok() {} };
    // Until neither the session nor the kernel takes more.
    let _ = tokio::time::timeout(Duration::from_secs(1), fill).await;
    drop(socket);
    tokio::time::timeout(2 * LONG, dropped.recv()).await.unwrap().unwrap();
}

#[tokio::test]
async fn idle_connections_end() {
    let (server, mut dropped) =
        server_with(Config { idle_timeout: Duration::from_millis(300), ..Config::default() }).await;
    let url = server.exec_url(&exec(&["hang"], false, false)).unwrap();
    let socket = websocket(&url, "v5.channel.k8s.io").await;
    tokio::time::timeout(LONG, dropped.recv()).await.unwrap().unwrap();
    drop(socket);
}

#[tokio::test(start_paused = true)]
async fn clients_must_open_their_streams_soon_and_pings_do_not_count_as_traffic() {
    for (request, limit) in [
        (Request::Exec(exec(&["cat"], true, false)), CREATION),
        (Request::PortForward(PortForwardRequest::default()), Duration::from_secs(3600)),
    ] {
        let context = Context { runtime: Arc::new(Echo(mpsc::channel(1).0)), idle: Duration::from_secs(3600) };
        let (mut client, ours) = tokio::io::duplex(1024);
        let reading = tokio::spawn(async move {
            let mut all = Vec::new();
            client.read_to_end(&mut all).await.unwrap();
            all
        });
        let begun = tokio::time::Instant::now();
        crate::spdy::serve(ours, "v4.channel.k8s.io", request, context).await;
        assert_eq!(begun.elapsed().as_secs(), limit.as_secs());
        assert_eq!(reading.await.unwrap()[..12], [0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 2]);
    }
}

#[tokio::test]
async fn tls_is_served_with_a_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key, conf) = (dir.path().join("c.pem"), dir.path().join("k.pem"), dir.path().join("conf"));
    let text = "[req]\ndistinguished_name=dn\nx509_extensions=ext\nprompt=no\n[dn]\nCN=x\n\
                [ext]\nbasicConstraints=critical,CA:FALSE\nsubjectAltName=IP:127.0.0.1\n";
    std::fs::write(&conf, text).unwrap();
    let mut openssl = std::process::Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]);
    openssl.arg("-config").arg(&conf).arg("-keyout").arg(&key).arg("-out").arg(&certificate);
    match openssl.output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(e) => return eprintln!("skipped: openssl: {e}"),
    }
    let tls = Some(Tls { certificate: certificate.clone(), key });
    let (server, _) = server_with(Config { tls, ..Config::default() }).await;
    let url = server.exec_url(&exec(&["exit", "0"], false, false)).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&certificate).unwrap()).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let connector = TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()));
    let host = url.strip_prefix("https://").unwrap().split_once('/').unwrap().0;
    // One that speaks no TLS is turned away, and its token stays good.
    let mut wrong = TcpStream::connect(host).await.unwrap();
    wrong.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let socket = connector.connect(name, TcpStream::connect(host).await.unwrap()).await.unwrap();
    let mut request = url.replacen("http", "ws", 1).into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", "v5.channel.k8s.io".parse().unwrap());
    let mut socket = tokio_tungstenite::client_async(request, socket).await.unwrap().0;
    let (all, code) = channels(&mut socket, |_| false).await;
    assert!(String::from_utf8_lossy(&all[&3]).contains("Success"));
    assert_eq!(code, Some(CloseCode::Normal));
}
