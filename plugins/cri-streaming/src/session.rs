//! Running exec or attach with streams of either transport; the final status.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use core_types::Result;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::api::{Reader, Request, Runtime, Streams, TerminalSize, Writer};

/// What a stream holds in each direction, in bytes.
pub(crate) const PIPE: usize = 64 << 10;
/// How long the client may take to open its streams.
pub(crate) const CREATION: Duration = Duration::from_secs(30);
/// How long nothing may be sent before a ping is: a client that is gone without a word, or whose input nobody takes,
/// is noticed by writing alone.
pub(crate) const KEEPALIVE: Duration = Duration::from_secs(5);
/// Sizes of the terminal that wait for the runtime.
pub(crate) const RESIZES: usize = 16;
/// The longest size message, in bytes.
const MAX_SIZE_MESSAGE: usize = 1024;

/// What a session is given by the server.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) idle: Duration,
}

/// When something last moved.
#[derive(Clone)]
pub(crate) struct Activity(Arc<Mutex<Instant>>);

impl Activity {
    pub(crate) fn new() -> Self {
        Activity(Arc::new(Mutex::new(Instant::now())))
    }

    pub(crate) fn touch(&self) {
        *self.0.lock().unwrap_or_else(|e| e.into_inner()) = Instant::now();
    }

    /// Returns once nothing moved for `limit`.
    pub(crate) async fn idle(&self, limit: Duration) {
        loop {
            let last = *self.0.lock().unwrap_or_else(|e| e.into_inner());
            if last.elapsed() >= limit {
                return;
            }
            tokio::time::sleep_until(last + limit).await;
        }
    }
}

/// How the end is told on the error stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatusForm {
    /// Before version 4: the message of the error, nothing for success.
    Text,
    /// From version 4 on: a `Status` of the Kubernetes API.
    Json,
}

pub(crate) struct Pipes {
    pub(crate) stdin: Option<Reader>,
    pub(crate) stdout: Option<Writer>,
    pub(crate) stderr: Option<Writer>,
    pub(crate) resize: mpsc::Receiver<TerminalSize>,
    pub(crate) error: Writer,
}

/// Runs exec or attach, then tells its end.
pub(crate) async fn run(
    request: Request,
    runtime: Arc<dyn Runtime>,
    pipes: Pipes,
    form: StatusForm,
    resizing: Option<impl Future<Output = ()>>,
) {
    let Pipes { stdin, stdout, stderr, resize, mut error } = pipes;
    let streams = Streams { stdin, stdout, stderr, tty: request.wanted().tty, resize };
    let work = async {
        match request {
            Request::Exec(exec) => {
                runtime.exec(&exec.container, exec.command, streams).await.map_err(|e| (e, "executing command in"))
            }
            Request::Attach(attach) => {
                runtime.attach(&attach.container, streams).await.map(|()| 0).map_err(|e| (e, "attaching to"))
            }
            Request::PortForward(_) => Ok(0),
        }
    };
    let sizes = async {
        if let Some(resizing) = resizing {
            resizing.await;
        }
        std::future::pending::<()>().await;
    };
    let end = tokio::select! {
        end = work => end,
        () = sizes => return,
    };
    let end = end.map_err(|(e, doing)| format!("error {doing} container: {e}"));
    let status = status(end, form);
    let _ = error.write_all(status.as_bytes()).await;
    let _ = error.shutdown().await;
}

fn status(end: Result<i32, String>, form: StatusForm) -> String {
    let exited = |code| format!("command terminated with non-zero exit code: exit status {code}");
    match (end, form) {
        (Ok(0), StatusForm::Text) => String::new(),
        (Ok(code), StatusForm::Text) => exited(code),
        (Err(message), StatusForm::Text) => message,
        (Ok(0), StatusForm::Json) => json!({"metadata": {}, "status": "Success"}).to_string(),
        (Ok(code), StatusForm::Json) => json!({
            "metadata": {},
            "status": "Failure",
            "message": exited(code),
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        })
        .to_string(),
        (Err(message), StatusForm::Json) => json!({
            "metadata": {},
            "status": "Failure",
            "message": format!("Internal error occurred: {message}"),
            "reason": "InternalError",
            "details": {"causes": [{"message": message}]},
            "code": 500,
        })
        .to_string(),
    }
}

/// A size as the clients write it, `{"Width":80,"Height":24}`.
pub(crate) fn parse_size(raw: &[u8]) -> Option<TerminalSize> {
    let value: serde_json::Value = serde_json::from_slice(raw).ok()?;
    let side = |name: &str| value.get(name)?.as_u64().and_then(|n| u16::try_from(n).ok());
    Some(TerminalSize { width: side("Width")?, height: side("Height")? })
}

/// Reads sizes (JSON objects one after the other) until the stream ends.
pub(crate) async fn read_sizes(mut from: impl AsyncRead + Unpin, to: mpsc::Sender<TerminalSize>) {
    let mut object = Vec::new();
    let mut chunk = [0; 512];
    loop {
        let Ok(n @ 1..) = from.read(&mut chunk).await else { return };
        for byte in chunk.get(..n).unwrap_or_default() {
            object.push(*byte);
            if *byte == b'}' {
                // When the runtime lags, the next size tells it more.
                if let Some(size) = parse_size(&object) {
                    let _ = to.try_send(size);
                }
                object.clear();
            } else if object.len() > MAX_SIZE_MESSAGE {
                return;
            }
        }
    }
}
