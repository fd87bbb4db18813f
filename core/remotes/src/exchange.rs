//! One request to one host: authentication, redirects, retries.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use core_types::{Error, ErrorKind, Result};
use reqwest::{
    Body, Method, Response, StatusCode,
    header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, LOCATION},
};
use url::Url;

use crate::{
    auth::Authorizer,
    challenge,
    clients::{self, Clients},
    failure::Failure,
    hosts::HostConfig,
    retry,
};

/// The longest wait for the head of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest time in which an upload may stand still.
const UPLOAD_STALL: Duration = Duration::from_secs(120);
const MAX_REDIRECTS: usize = 10;
/// How often one request may be refused for want of authentication: before the challenge is known, and when the
/// token has expired.
const MAX_REFUSALS: u32 = 2;

/// When an upload's body was read last.
#[derive(Clone, Debug)]
pub(crate) struct Activity(Arc<Mutex<Instant>>);

impl Activity {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    pub(crate) fn touch(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn idle(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }
}

/// The body of an upload, which can be sent again.
pub(crate) struct Upload {
    pub(crate) make: Box<dyn Fn() -> Body + Send + Sync>,
    pub(crate) size: u64,
    pub(crate) activity: Activity,
}

/// What to ask a host.
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) scopes: Vec<String>,
    pub(crate) body: Option<Upload>,
}

impl Ask {
    pub(crate) fn new(method: Method, url: Url, scopes: &[String]) -> Self {
        Self { method, url, headers: Vec::new(), scopes: scopes.to_vec(), body: None }
    }

    #[must_use]
    pub(crate) fn header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.push((name, value));
        }
        self
    }
}

/// A host and all that is known of it.
pub(crate) struct Endpoint {
    pub(crate) config: HostConfig,
    registry: String,
    headers: HeaderMap,
    clients: Arc<Clients>,
    authorizer: Authorizer,
    speaks_plain: AtomicBool,
}

/// An answer and the authorization it was asked with.
struct Answer {
    response: Response,
    used: Option<HeaderValue>,
}

enum Trouble {
    Transport(reqwest::Error),
    Other(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl Endpoint {
    /// `registry` is the name in the reference, for which `config` is one host; `headers` go to it as well as its
    /// own.
    pub(crate) fn new(
        config: HostConfig,
        registry: &str,
        headers: &[(String, String)],
        clients: Arc<Clients>,
        authorizer: Authorizer,
    ) -> Result<Self> {
        let mut all = HeaderMap::new();
        for (name, value) in headers.iter().chain(&config.headers) {
            let refuse = || Error::invalid_argument(format!("header {name:?} for {} is malformed", config.host));
            let mut value = HeaderValue::from_str(value).map_err(|_| refuse())?;
            value.set_sensitive(true);
            all.append(HeaderName::from_bytes(name.as_bytes()).map_err(|_| refuse())?, value);
        }
        Ok(Self {
            config,
            registry: registry.to_owned(),
            headers: all,
            clients,
            authorizer,
            speaks_plain: AtomicBool::new(false),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.config.host
    }

    /// The URL of `parts` below the host's API root, for a mirror with the registry's name.
    pub(crate) fn url(&self, parts: &[&str]) -> Result<Url> {
        let base = format!("{}://{}", self.scheme(), self.config.host);
        let mut url = Url::parse(&base)
            .map_err(|error| Error::invalid_argument(format!("{:?} is no host: {error}", self.config.host)))?;
        let mut path = self.config.path.trim_end_matches('/').to_owned();
        for part in parts {
            path.push('/');
            path.push_str(part);
        }
        url.set_path(&path);
        self.name_registry(&mut url);
        Ok(url)
    }

    /// Tells a mirror which registry is meant.
    pub(crate) fn name_registry(&self, url: &mut Url) {
        if self.config.is_proxy_for(&self.registry) {
            url.query_pairs_mut().append_pair("ns", &self.registry);
        }
    }

    pub(crate) fn scheme(&self) -> &str {
        if self.speaks_plain.load(Ordering::Relaxed) { "http" } else { &self.config.scheme }
    }

    /// Asks, and asks again where that helps: after a challenge; when told to wait, and after a passing fault of
    /// the host or the network, if this is the last host there is.
    pub(crate) async fn send(&self, mut ask: Ask, is_last: bool) -> Result<Response, Failure> {
        let mut refusals = 0;
        let mut attempt = 1;
        loop {
            let answer = match self.once(&ask).await {
                Ok(answer) => answer,
                Err(trouble) => {
                    let (failure, passing) = self.judge(trouble);
                    if !is_last || !passing || attempt >= retry::MAX_ATTEMPTS {
                        return Err(failure);
                    }
                    tracing::debug!(host = self.name(), attempt, error = %failure.message, "trying again");
                    pause(retry::wait_before_next(attempt, None)).await;
                    attempt += 1;
                    continue;
                }
            };
            let status = answer.response.status();
            if status == StatusCode::UNAUTHORIZED {
                refusals += 1;
                if refusals > MAX_REFUSALS || !self.learn(&answer, &ask).await? {
                    return Ok(answer.response);
                }
                continue;
            }
            if status == StatusCode::METHOD_NOT_ALLOWED && ask.method == Method::HEAD {
                ask.method = Method::GET;
                continue;
            }
            if !is_last || !is_passing(status) || attempt >= retry::MAX_ATTEMPTS {
                return Ok(answer.response);
            }
            let Some(wait) = retry::wait_before_next(attempt, Some(answer.response.headers())) else {
                return Ok(answer.response);
            };
            tracing::debug!(host = self.name(), attempt, %status, ?wait, "trying again");
            drop(answer);
            pause(Some(wait)).await;
            attempt += 1;
        }
    }

    /// What to say of trouble, and whether it may pass.
    fn judge(&self, trouble: Trouble) -> (Failure, bool) {
        match trouble {
            Trouble::Transport(error) => {
                let passing = !error.is_builder() && (!error.is_connect() || error.is_timeout());
                (Failure::transport(self.name(), &error), passing)
            }
            Trouble::Other(error) => {
                let passing = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::DeadlineExceeded);
                (Failure::from_error(self.name(), &error), passing)
            }
        }
    }

    /// Takes in the challenge of a refusal; whether to try again.
    async fn learn(&self, answer: &Answer, ask: &Ask) -> Result<bool, Failure> {
        let Some(challenge) = challenge::best(answer.response.headers()) else { return Ok(false) };
        // Only the host itself may ask for credentials, not where it sent us.
        if !same_origin(answer.response.url(), &self.current(&ask.url)) {
            return Ok(false);
        }
        let over_tls = answer.response.url().scheme() == "https";
        self.authorizer
            .refused(&challenge, answer.used.as_ref(), over_tls, &ask.scopes)
            .await
            .map_err(|error| Failure::from_error(self.name(), &error))
    }

    /// The URL with the scheme that the host turned out to speak.
    fn current(&self, url: &Url) -> Url {
        let mut url = url.clone();
        if self.speaks_plain.load(Ordering::Relaxed) && self.owns(&url) {
            let port = url.port();
            let _ = url.set_scheme("http");
            let _ = url.set_port(port);
        }
        url
    }

    /// Whether the URL is on this very host, so that its headers and credentials may go there.
    fn owns(&self, url: &Url) -> bool {
        let base = |scheme: &str| Url::parse(&format!("{scheme}://{}", self.config.host)).ok();
        let schemes: &[&str] = if self.config.falls_back_to_http { &["https", "http"] } else { &[&self.config.scheme] };
        schemes.iter().filter_map(|scheme| base(scheme)).any(|base| same_origin(&base, url))
    }

    async fn once(&self, ask: &Ask) -> Result<Answer, Trouble> {
        let was_plain = self.speaks_plain.load(Ordering::Relaxed);
        match self.follow(ask).await {
            Err(Trouble::Transport(error)) if !was_plain && self.may_fall_back(&error) => {
                tracing::debug!(host = self.name(), "does not speak TLS, using plain HTTP");
                self.speaks_plain.store(true, Ordering::Relaxed);
                self.follow(ask).await
            }
            other => other,
        }
    }

    fn may_fall_back(&self, error: &reqwest::Error) -> bool {
        let has_port = Url::parse(&format!("x://{}", self.config.host)).is_ok_and(|url| url.port().is_some());
        self.config.falls_back_to_http && (clients::speaks_no_tls(error) || error.is_connect() && !has_port)
    }

    /// Sends and follows redirects. What proves or tells who we are goes to the host alone.
    async fn follow(&self, ask: &Ask) -> Result<Answer, Trouble> {
        let mut url = self.current(&ask.url);
        for _ in 0..=MAX_REDIRECTS {
            let own = self.owns(&url);
            let client = self.clients.for_host(&self.config, url.scheme() == "https")?;
            let mut request = client.request(ask.method.clone(), url.clone());
            let mut used = None;
            if own {
                request = request.headers(self.headers.clone());
                used = self.authorizer.header(&client, &ask.scopes).await?;
                if let Some(header) = &used {
                    request = request.header(AUTHORIZATION, header.clone());
                }
            }
            for (name, value) in &ask.headers {
                request = request.header(name.clone(), value.clone());
            }
            if let Some(body) = &ask.body {
                request = request.header("content-length", body.size).body((body.make)());
            }
            let response = deliver(request, ask.body.as_ref()).await?;
            let Some(next) = redirect(&response, &ask.method)? else {
                return Ok(Answer { response, used });
            };
            url = next;
        }
        Err(Error::failed_precondition(format!("more than {MAX_REDIRECTS} redirects")).into())
    }
}

async fn deliver(request: reqwest::RequestBuilder, body: Option<&Upload>) -> Result<Response, Trouble> {
    let sending = request.send();
    let Some(body) = body else {
        return match tokio::time::timeout(ANSWER_TIMEOUT, sending).await {
            Ok(sent) => sent.map_err(Trouble::Transport),
            Err(_) => Err(Error::deadline_exceeded(format!("no answer within {ANSWER_TIMEOUT:?}")).into()),
        };
    };
    body.activity.touch();
    tokio::pin!(sending);
    loop {
        tokio::select! {
            sent = &mut sending => return sent.map_err(Trouble::Transport),
            () = tokio::time::sleep(Duration::from_secs(5)) => {
                if body.activity.idle() > UPLOAD_STALL {
                    return Err(Error::deadline_exceeded(format!("the upload stood still for {UPLOAD_STALL:?}")).into());
                }
            }
        }
    }
}

/// Where a redirect leads; none for other answers.
fn redirect(response: &Response, method: &Method) -> Result<Option<Url>> {
    let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    if !is_redirect || !matches!(*method, Method::GET | Method::HEAD) {
        return Ok(None);
    }
    let refuse = || Error::failed_precondition("a redirect leads nowhere");
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).ok_or_else(refuse)?;
    let url = response.url().join(location).map_err(|_| refuse())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refuse());
    }
    Ok(Some(url))
}

fn same_origin(left: &Url, right: &Url) -> bool {
    left.scheme() == right.scheme()
        && left.host_str() == right.host_str()
        && left.port_or_known_default() == right.port_or_known_default()
}

fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504)
}

async fn pause(wait: Option<Duration>) {
    if let Some(wait) = wait {
        tokio::time::sleep(wait).await;
    }
}
