//! Listening, TLS, routing, URLs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use core_types::{Error, Result};
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::{AttachRequest, Duplex, ExecRequest, PortForwardRequest, Request, Runtime};
use crate::handshake::{self, Transport};
use crate::session::{CREATION, Context};
use crate::tokens::Tokens;
use crate::{spdy, websocket};

type Body = Full<bytes::Bytes>;

/// Most connections at a time.
const MAX_CONNECTIONS: usize = 4096;

/// Certificate and key of a server with TLS, as PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The certificate, followed by its chain.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// How the server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where to listen; port 0 takes any free one.
    pub address: SocketAddr,
    /// The host (and port) that URLs name instead of the address that is listened on.
    pub advertised: Option<String>,
    /// Connections without traffic end after this time.
    pub idle_timeout: Duration,
    /// Serve with TLS.
    pub tls: Option<Tls>,
}

impl Default for Config {
    /// Any port of the loopback address, without TLS, idle for four hours.
    fn default() -> Self {
        Config {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertised: None,
            idle_timeout: Duration::from_secs(4 * 60 * 60),
            tls: None,
        }
    }
}

/// The streaming server.
pub struct Server {
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    base: String,
    shared: Arc<Shared>,
}

struct Shared {
    tokens: Tokens,
    context: Context,
    sessions: TaskTracker,
    stop: CancellationToken,
}

impl Server {
    /// Listens, and reads certificate and key; nothing is served before [`Server::run`].
    pub async fn bind(config: Config, runtime: Arc<dyn Runtime>) -> Result<Self> {
        let acceptor = config.tls.as_ref().map(acceptor).transpose()?;
        let address = config.address;
        let listener = TcpListener::bind(address)
            .await
            .map_err(|e| Error::io(format!("listen on {address} for streaming (stream_server_address)"), e))?;
        let address = listener.local_addr().map_err(|e| Error::io("read the streaming address", e))?;
        let scheme = if acceptor.is_some() { "https" } else { "http" };
        let base = format!("{scheme}://{}", config.advertised.unwrap_or_else(|| address.to_string()));
        let context = Context { runtime, idle: config.idle_timeout };
        let shared =
            Shared { tokens: Tokens::default(), context, sessions: TaskTracker::new(), stop: CancellationToken::new() };
        Ok(Server { listener, acceptor, base, shared: Arc::new(shared) })
    }

    /// A URL that runs the request, once and within a minute.
    ///
    /// `InvalidArgument` for requests without streams or with both terminal and stderr, `ResourceExhausted` when 1000
    /// URLs wait for their clients.
    pub fn exec_url(&self, request: &ExecRequest) -> Result<String> {
        self.url(Request::Exec(request.clone()))
    }

    /// As [`Server::exec_url`], to attach.
    pub fn attach_url(&self, request: &AttachRequest) -> Result<String> {
        self.url(Request::Attach(request.clone()))
    }

    /// As [`Server::exec_url`], to forward ports.
    pub fn port_forward_url(&self, request: &PortForwardRequest) -> Result<String> {
        self.url(Request::PortForward(request.clone()))
    }

    fn url(&self, request: Request) -> Result<String> {
        request.check()?;
        let verb = request.verb();
        Ok(format!("{}/{verb}/{}", self.base, self.shared.tokens.put(request)?))
    }

    /// Serves until `shutdown`, then ends all sessions.
    pub async fn run(&self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            let accepted = tokio::select! {
                () = &mut shutdown => break,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((socket, _)) if self.shared.sessions.len() < MAX_CONNECTIONS => {
                    let _ = socket.set_nodelay(true);
                    let (shared, acceptor) = (self.shared.clone(), self.acceptor.clone());
                    let work = connection(socket, acceptor, self.shared.clone());
                    self.shared.sessions.spawn(async move { shared.stop.run_until_cancelled(work).await });
                }
                Ok(_) => tracing::warn!("too many streaming connections: one more is refused"),
                Err(e) => {
                    tracing::warn!(error = %e, "cannot accept a streaming connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        self.shared.stop.cancel();
        self.shared.sessions.close();
        self.shared.sessions.wait().await;
    }
}

fn acceptor(tls: &Tls) -> Result<TlsAcceptor> {
    let bad = |file: &PathBuf, e: &dyn std::fmt::Display| {
        Error::invalid_argument(format!("TLS of the streaming server: {}: {e}", file.display()))
    };
    let chain = CertificateDer::pem_file_iter(&tls.certificate)
        .and_then(|certificates| certificates.collect::<Result<Vec<_>, _>>())
        .map_err(|e| bad(&tls.certificate, &e))?;
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|e| bad(&tls.key, &e))?;
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|e| bad(&tls.certificate, &e))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn connection(socket: TcpStream, acceptor: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let Some(acceptor) = acceptor else { return http(socket, shared).await };
    match tokio::time::timeout(CREATION, acceptor.accept(socket)).await {
        Ok(Ok(socket)) => http(socket, shared).await,
        _ => tracing::debug!("no TLS session with a streaming client"),
    }
}

async fn http(socket: impl Duplex + 'static, shared: Arc<Shared>) {
    let service = service_fn(|request| {
        let shared = shared.clone();
        async move { answer(request, shared) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(CREATION)
        .serve_connection(TokioIo::new(socket), service)
        .with_upgrades()
        .await;
    if let Err(e) = served {
        tracing::debug!(error = %e, "a streaming client broke HTTP");
    }
}

fn plain(status: StatusCode, message: &str) -> Result<Response<Body>, http::Error> {
    Response::builder().status(status).body(format!("{message}\n").into())
}

fn answer(mut request: http::Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Body>, http::Error> {
    let path = request.uri().path().trim_start_matches('/').trim_end_matches('/');
    let Some((verb, token)) = path.split_once('/').filter(|(v, _)| ["exec", "attach", "portforward"].contains(v))
    else {
        return plain(StatusCode::NOT_FOUND, "404: Page Not Found");
    };
    if ![Method::GET, Method::POST].contains(request.method()) {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed");
    }
    let Some(asked) = shared.tokens.take(token).filter(|asked| asked.verb() == verb) else {
        return plain(StatusCode::NOT_FOUND, "404: no such request, or it was used or is too old");
    };
    let transport = match handshake::negotiate(request.headers(), verb == "portforward") {
        Ok(transport) => transport,
        Err(refusal) => return handshake::refusal(refusal),
    };
    let answer = handshake::switch(transport, request.headers(), Body::default())?;
    let upgrade = hyper::upgrade::on(&mut request);
    let (sessions, stop, context) = (shared.sessions.clone(), shared.stop.clone(), shared.context.clone());
    sessions.spawn(async move {
        stop.run_until_cancelled(async move {
            let Ok(Ok(io)) = tokio::time::timeout(CREATION, upgrade).await else { return };
            match transport {
                Transport::Spdy(protocol) => spdy::serve(TokioIo::new(io), protocol, asked, context).await,
                Transport::WebSocket(protocol) => websocket::serve(TokioIo::new(io), protocol, asked, context).await,
            }
        })
        .await
    });
    Ok(answer)
}
