//! A small HTTP server that answers as a test tells it, also wrongly.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// A request as it came.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub query: String,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// Where a requested range begins.
    pub fn range_start(&self) -> Option<usize> {
        self.header("range").strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

/// What to answer.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Break the connection off after so many bytes of the body.
    pub cut_after: Option<usize>,
    /// Wait before each 16 KiB of the body.
    pub delay: Duration,
}

impl Reply {
    pub fn new(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub fn cut_after(mut self, bytes: usize) -> Self {
        self.cut_after = Some(bytes);
        self
    }

    /// The rest of `whole` that a range asks for, or all of it.
    pub fn ranged(request: &Request, whole: &[u8]) -> Self {
        match request.range_start() {
            Some(start) if start < whole.len() => Self::new(206)
                .header("content-range", format!("bytes {start}-{}/{}", whole.len() - 1, whole.len()))
                .body(&whole[start..]),
            Some(_) => Self::new(416),
            None => Self::new(200).body(whole),
        }
    }
}

type Handler = dyn Fn(&Request) -> Reply + Send + Sync;

/// The server; it ends when it is dropped.
pub struct Server {
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub async fn start(handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        let handler: Arc<Handler> = Arc::new(handler);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (handler, seen) = (Arc::clone(&handler), Arc::clone(&seen));
                tokio::spawn(async move {
                    let _ = serve(stream, &handler, &seen).await;
                });
            }
        });
        Self { address, requests, task }
    }

    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// How many requests went to a path with that end.
    pub fn count(&self, method: &str, end: &str) -> usize {
        self.requests().iter().filter(|request| request.method == method && request.path.ends_with(end)).count()
    }
}

async fn serve(mut stream: TcpStream, handler: &Arc<Handler>, seen: &Mutex<Vec<Request>>) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        // A TLS greeting: answer as an HTTP server would.
        if bytes.first() == Some(&0x16) {
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").await?;
            return stream.shutdown().await;
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let method = first.next().unwrap_or_default().to_owned();
    let (path, query) = first.next().unwrap_or_default().split_once('?').map_or_else(
        || (head.split(' ').nth(1).unwrap_or_default().to_owned(), String::new()),
        |(path, query)| (path.to_owned(), query.to_owned()),
    );
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length: usize = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = bytes[head_end + 4..].to_vec();
    while body.len() < length {
        if stream.read_buf(&mut body).await? == 0 {
            return Ok(());
        }
    }
    let request = Request { method, path, query, headers, body };
    seen.lock().unwrap().push(request.clone());
    let reply = handler(&request);
    answer(stream, &request, reply).await
}

async fn answer(mut stream: TcpStream, request: &Request, reply: Reply) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {} X\r\nconnection: close\r\n", reply.status);
    if !reply.headers.iter().any(|(name, _)| name == "content-length") {
        head.push_str(&format!("content-length: {}\r\n", reply.body.len()));
    }
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await?;
    if request.method != "HEAD" {
        let end = reply.cut_after.unwrap_or(reply.body.len()).min(reply.body.len());
        for piece in reply.body[..end].chunks(16 * 1024) {
            if !reply.delay.is_zero() {
                tokio::time::sleep(reply.delay).await;
            }
            stream.write_all(piece).await?;
        }
    }
    stream.shutdown().await
}
