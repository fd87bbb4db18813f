//! Authentication: challenges, tokens, who may know what.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use core_types::{Error, ErrorKind, Result};
use reqwest::{
    Client, RequestBuilder, StatusCode,
    header::{AUTHORIZATION, HeaderValue},
};
use serde::Deserialize;
use url::Url;

use crate::{Credential, Credentials, Secret, challenge::Challenge, clients::chain, failure, hosts::is_loopback};

/// The longest answer of a token server, in bytes.
const MAX_TOKEN_ANSWER: usize = 1024 * 1024;
/// The longest time that a token server has for an answer.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Answers the challenges of one host.
pub(crate) struct Authorizer {
    host: String,
    reference: String,
    credentials: Option<Arc<dyn Credentials>>,
    known: Mutex<Option<Known>>,
    tokens: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Option<Token>>>>>,
    credential: tokio::sync::OnceCell<Credential>,
}

#[derive(Clone)]
enum Known {
    Fixed(HeaderValue),
    Bearer(Bearer),
}

#[derive(Clone)]
struct Bearer {
    realm: Url,
    service: Option<String>,
    scopes: Vec<String>,
}

struct Token {
    header: HeaderValue,
    expires: Option<Instant>,
}

impl Token {
    fn is_fresh(&self) -> bool {
        self.expires.is_none_or(|expires| expires > Instant::now())
    }
}

impl Authorizer {
    pub(crate) fn new(host: &str, reference: &str, credentials: Option<Arc<dyn Credentials>>) -> Self {
        Self {
            host: host.to_owned(),
            reference: reference.to_owned(),
            credentials,
            known: Mutex::default(),
            tokens: Mutex::default(),
            credential: tokio::sync::OnceCell::new(),
        }
    }

    fn known(&self) -> Option<Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The `Authorization` header for a request that needs `scopes`; none before the host asked for any.
    pub(crate) async fn header(&self, client: &Client, scopes: &[String]) -> Result<Option<HeaderValue>> {
        match self.known() {
            None => Ok(None),
            Some(Known::Fixed(header)) => Ok(Some(header)),
            Some(Known::Bearer(bearer)) => self.token(client, &bearer, scopes).await.map(Some),
        }
    }

    /// Learns from a refusal. Whether it is worth trying again: `used` is the header that was refused.
    pub(crate) async fn refused(
        &self,
        challenge: &Challenge,
        used: Option<&HeaderValue>,
        over_tls: bool,
        scopes: &[String],
    ) -> Result<bool> {
        let credential = self.credential().await?;
        if let Credential::Header(secret) = credential {
            return self.offer(used, fixed(secret.expose())?);
        }
        if challenge.scheme == "basic" {
            let Credential::Password { username, password } = credential else { return Ok(false) };
            let pair = STANDARD.encode(format!("{username}:{}", password.expose()));
            return self.offer(used, fixed(&format!("Basic {pair}"))?);
        }
        let bearer = self.bearer(challenge, over_tls, credential)?;
        let scope_key = all_scopes(&bearer, scopes).join(" ");
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(Known::Bearer(bearer));
        let Some(used) = used else { return Ok(true) };
        let slot = self.slot(&scope_key);
        let mut token = slot.lock().await;
        // Another request may have fetched a new one already.
        if token.as_ref().is_some_and(|token| token.header == used) {
            *token = None;
        }
        Ok(true)
    }

    /// Uses a header that does not change, unless it is the one that was refused.
    fn offer(&self, used: Option<&HeaderValue>, header: HeaderValue) -> Result<bool> {
        if used == Some(&header) {
            return Ok(false);
        }
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(Known::Fixed(header));
        Ok(true)
    }

    fn bearer(&self, challenge: &Challenge, over_tls: bool, credential: &Credential) -> Result<Bearer> {
        let realm = challenge.realm.as_deref().unwrap_or_default();
        let realm = Url::parse(realm)
            .ok()
            .filter(|realm| matches!(realm.scheme(), "http" | "https") && realm.host_str().is_some())
            .ok_or_else(|| {
                let shown = failure::printable(realm);
                Error::unauthenticated(format!("{} names no usable token server: {shown:?}", self.host))
            })?;
        let plain = realm.scheme() == "http" && !realm.host_str().is_some_and(is_loopback);
        if plain && over_tls && *credential != Credential::Anonymous {
            return Err(Error::unauthenticated(format!(
                "{} names a token server without TLS, which gets no credentials",
                self.host
            )));
        }
        let scopes = challenge.scope.as_deref().unwrap_or_default();
        let scopes = scopes.split(' ').filter(|scope| !scope.is_empty()).map(str::to_owned).collect();
        Ok(Bearer { realm, service: challenge.service.clone(), scopes })
    }

    async fn credential(&self) -> Result<&Credential> {
        self.credential
            .get_or_try_init(|| async {
                match &self.credentials {
                    Some(credentials) => credentials.credential(&self.host, &self.reference).await,
                    None => Ok(Credential::Anonymous),
                }
            })
            .await
    }

    fn slot(&self, scope_key: &str) -> Arc<tokio::sync::Mutex<Option<Token>>> {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(tokens.entry(scope_key.to_owned()).or_default())
    }

    /// A token for the scopes; requests that want the same wait for one fetch.
    async fn token(&self, client: &Client, bearer: &Bearer, scopes: &[String]) -> Result<HeaderValue> {
        let scopes = all_scopes(bearer, scopes);
        let slot = self.slot(&scopes.join(" "));
        let mut token = slot.lock().await;
        if let Some(token) = token.as_ref().filter(|token| token.is_fresh()) {
            return Ok(token.header.clone());
        }
        let credential = self.credential().await?;
        let fetched = tokio::time::timeout(TOKEN_TIMEOUT, fetch_token(client, bearer, &scopes, credential))
            .await
            .unwrap_or_else(|_| Err(Error::deadline_exceeded(format!("no answer within {TOKEN_TIMEOUT:?}"))))
            .map_err(|error| error.context(format!("get a token from {}", server_of(&bearer.realm))))?;
        let header = fetched.header.clone();
        *token = Some(fetched);
        Ok(header)
    }
}

fn server_of(realm: &Url) -> String {
    let mut bare = realm.clone();
    bare.set_query(None);
    let _ = bare.set_username("");
    let _ = bare.set_password(None);
    bare.to_string()
}

fn fixed(text: &str) -> Result<HeaderValue> {
    let mut header = HeaderValue::from_str(text)
        .map_err(|_| Error::invalid_argument("the credential has characters that no header can hold"))?;
    header.set_sensitive(true);
    Ok(header)
}

/// The scopes that the challenge and the request name, sorted, each once.
fn all_scopes(bearer: &Bearer, scopes: &[String]) -> Vec<String> {
    let mut all: Vec<String> = scopes.iter().chain(&bearer.scopes).cloned().collect();
    all.sort();
    all.dedup();
    all
}

#[derive(Deserialize)]
struct TokenAnswer {
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    access_token: Option<String>,
    #[serde(default)]
    expires_in: Option<u64>,
}

/// With a secret: OAuth by POST, and GET for servers that do not know it; without: GET.
async fn fetch_token(client: &Client, bearer: &Bearer, scopes: &[String], credential: &Credential) -> Result<Token> {
    if matches!(credential, Credential::Password { .. } | Credential::Refresh(_)) {
        let response = send(post(client, bearer, scopes, credential)).await?;
        let status = response.status();
        if status.is_success() {
            return read_token(response).await;
        }
        let knows_no_post = matches!(status.as_u16(), 400 | 401 | 404)
            || (status == StatusCode::METHOD_NOT_ALLOWED && matches!(credential, Credential::Password { .. }));
        if !knows_no_post {
            return Err(refusal(response).await);
        }
    }
    let response = send(get(client, bearer, scopes, credential)).await?;
    if response.status().is_success() { read_token(response).await } else { Err(refusal(response).await) }
}

async fn send(request: RequestBuilder) -> Result<reqwest::Response> {
    request.send().await.map_err(|error| Error::unavailable(chain(&error)))
}

async fn refusal(response: reqwest::Response) -> Error {
    let status = response.status();
    let detail = failure::read_detail(response).await;
    let kind = match status.as_u16() {
        400 | 401 | 404 => ErrorKind::Unauthenticated,
        403 => ErrorKind::PermissionDenied,
        429 => ErrorKind::ResourceExhausted,
        _ => ErrorKind::Unavailable,
    };
    let separator = if detail.is_empty() { "" } else { ": " };
    Error::new(kind, format!("refused with {status}{separator}{detail}"))
}

fn post(client: &Client, bearer: &Bearer, scopes: &[String], credential: &Credential) -> RequestBuilder {
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    if !scopes.is_empty() {
        form.append_pair("scope", &scopes.join(" "));
    }
    form.append_pair("service", bearer.service.as_deref().unwrap_or_default());
    form.append_pair("client_id", "containerd-client");
    match credential {
        Credential::Password { username, password } => {
            form.append_pair("grant_type", "password");
            form.append_pair("username", username);
            form.append_pair("password", password.expose());
        }
        Credential::Refresh(secret) => {
            form.append_pair("grant_type", "refresh_token");
            form.append_pair("refresh_token", secret.expose());
        }
        Credential::Anonymous | Credential::Header(_) => {}
    }
    client
        .post(bearer.realm.clone())
        .header("content-type", "application/x-www-form-urlencoded; charset=utf-8")
        .body(form.finish())
}

fn get(client: &Client, bearer: &Bearer, scopes: &[String], credential: &Credential) -> RequestBuilder {
    let mut url = bearer.realm.clone();
    {
        let mut query = url.query_pairs_mut();
        if let Some(service) = bearer.service.as_deref().filter(|service| !service.is_empty()) {
            query.append_pair("service", service);
        }
        for scope in scopes {
            query.append_pair("scope", scope);
        }
    }
    let basic = |name: &str, secret: &Secret| {
        fixed(&format!("Basic {}", STANDARD.encode(format!("{name}:{}", secret.expose()))))
    };
    let header = match credential {
        Credential::Password { username, password } => basic(username, password).ok(),
        Credential::Refresh(secret) => basic("", secret).ok(),
        Credential::Anonymous | Credential::Header(_) => None,
    };
    let request = client.get(url);
    match header {
        Some(header) => request.header(AUTHORIZATION, header),
        None => request,
    }
}

async fn read_token(mut response: reqwest::Response) -> Result<Token> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| Error::unavailable(chain(&error)))? {
        if body.len() + chunk.len() > MAX_TOKEN_ANSWER {
            return Err(Error::resource_exhausted("the answer is too long"));
        }
        body.extend_from_slice(&chunk);
    }
    // The parser's message would quote the token.
    let answer: TokenAnswer =
        serde_json::from_slice(&body).map_err(|_| Error::unauthenticated("the answer is malformed"))?;
    let token = answer.access_token.filter(|token| !token.is_empty()).or(answer.token).unwrap_or_default();
    if token.is_empty() {
        return Err(Error::unauthenticated("the answer has no token"));
    }
    let expires = answer.expires_in.filter(|seconds| *seconds > 0).map(|seconds| {
        let whole = Duration::from_secs(seconds.min(24 * 60 * 60));
        Instant::now() + whole - (whole / 10).min(Duration::from_secs(10))
    });
    Ok(Token { header: fixed(&format!("Bearer {token}"))?, expires })
}
