use std::{fmt, path::PathBuf, sync::Arc};

use core_images::{MAX_DOCUMENT, is_tree};
use core_types::{Descriptor, Digest, Error, ErrorKind, Result, media_types};
use reqwest::{
    Method, Response, StatusCode,
    header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap},
};
use serde::Deserialize;

use crate::{
    Credentials, Fetcher, Pusher, Reference,
    auth::Authorizer,
    clients::{self, Clients},
    exchange::{Ask, Endpoint},
    failure::{self, Failure},
    hosts,
};

/// The manifests that are understood, and anything else rather than nothing.
pub(crate) const ACCEPT_MANIFESTS: &str = "application/vnd.docker.distribution.manifest.v2+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.oci.image.index.v1+json, */*";

/// How to reach registries.
#[derive(Clone, Default)]
pub struct ResolverOptions {
    /// Directories with a directory for each registry, separated by colons (`/etc/containerd/certs.d`).
    pub config_path: Option<PathBuf>,
    /// Headers for every request to a registry or its mirrors.
    pub headers: Vec<(String, String)>,
    /// Who knows the credentials.
    pub credentials: Option<Arc<dyn Credentials>>,
    /// `http` or `https` for registries without configuration.
    pub default_scheme: Option<String>,
}

impl fmt::Debug for ResolverOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResolverOptions").field("config_path", &self.config_path).finish_non_exhaustive()
    }
}

/// Finds out what references stand for. Holds no connection until it is used.
#[derive(Debug)]
pub struct Resolver {
    options: ResolverOptions,
    clients: Arc<Clients>,
}

/// A repository, and the hosts that serve it.
pub(crate) struct Repository {
    pub(crate) reference: Reference,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) clients: Arc<Clients>,
}

impl Repository {
    /// The scope that a token needs.
    pub(crate) fn scope(&self, actions: &str) -> Vec<String> {
        vec![format!("repository:{}:{actions}", self.reference.repository())]
    }
}

impl Resolver {
    /// A resolver.
    pub fn new(options: ResolverOptions) -> Self {
        Self { options, clients: Arc::default() }
    }

    /// The repository that a reference names, with its hosts in order.
    ///
    /// # Errors
    /// InvalidArgument for a malformed reference or configuration.
    async fn repository(&self, reference: &str) -> Result<Repository> {
        let parsed = Reference::parse(reference)?;
        if parsed.repository().is_empty() {
            return Err(Error::invalid_argument(format!("invalid reference {reference:?}: it names no repository")));
        }
        let (name, path, scheme) =
            (parsed.host().to_owned(), self.options.config_path.clone(), self.options.default_scheme.clone());
        let configs = tokio::task::spawn_blocking(move || hosts::hosts_for(&name, path.as_deref(), scheme.as_deref()))
            .await
            .map_err(|error| Error::internal(error.to_string()))??;
        let endpoints = configs
            .into_iter()
            .map(|config| {
                let authorizer = Authorizer::new(&config.host, reference, self.options.credentials.clone());
                Endpoint::new(config, parsed.host(), &self.options.headers, Arc::clone(&self.clients), authorizer)
            })
            .collect::<Result<_>>()?;
        Ok(Repository { reference: parsed, endpoints, clients: Arc::clone(&self.clients) })
    }

    /// What fetches the content of the repository that `reference` names.
    ///
    /// # Errors
    /// InvalidArgument for a malformed reference or configuration.
    pub async fn fetcher(&self, reference: &str) -> Result<Fetcher> {
        Ok(Fetcher::new(Arc::new(self.repository(reference).await?)))
    }

    /// What pushes to the repository that `reference` names.
    ///
    /// # Errors
    /// InvalidArgument for a malformed reference or configuration.
    pub async fn pusher(&self, reference: &str) -> Result<Pusher> {
        Ok(Pusher::new(Arc::new(self.repository(reference).await?)))
    }

    /// The descriptor of the manifest or index that a reference stands for, and what fetches it, with the
    /// authentication that was learnt on the way.
    ///
    /// # Errors
    /// NotFound, Unauthenticated, PermissionDenied, ResourceExhausted (too many requests) or Unavailable, with
    /// what each host said.
    pub async fn resolve(&self, reference: &str) -> Result<(Descriptor, Fetcher)> {
        let repository = self.repository(reference).await?;
        let parsed = repository.reference.clone();
        if parsed.object().is_empty() {
            return Err(Error::invalid_argument(format!("reference {reference:?} has neither tag nor digest")));
        }
        let digest = parsed.digest()?;
        let object = digest.as_ref().map_or(parsed.object(), Digest::as_str);
        let able: Vec<&Endpoint> = repository
            .endpoints
            .iter()
            .filter(|host| host.config.capabilities.pull && (digest.is_some() || host.config.capabilities.resolve))
            .collect();
        let mut failures = Vec::new();
        for (at, host) in able.iter().enumerate() {
            let is_last = at + 1 == able.len();
            match resolve_at(host, &repository, object, digest.as_ref(), is_last).await {
                Ok(descriptor) => return Ok((descriptor, Fetcher::new(Arc::new(repository)))),
                Err(failure) => {
                    tracing::debug!(host = host.name(), error = %failure.message, "cannot resolve here");
                    failures.push(failure);
                }
            }
        }
        Err(failure::combine(&format!("resolve {reference}"), &failures))
    }
}

/// Asks one host: HEAD, and GET where that does not say enough.
async fn resolve_at(
    host: &Endpoint,
    repository: &Repository,
    object: &str,
    digest: Option<&Digest>,
    is_last: bool,
) -> Result<Descriptor, Failure> {
    let fail = |error: Error| Failure::from_error(host.name(), &error);
    let scopes = repository.scope("pull");
    let url = host.url(&[repository.reference.repository(), "manifests", object]).map_err(fail)?;
    let ask = |method| Ask::new(method, url.clone(), &scopes).header(ACCEPT, ACCEPT_MANIFESTS);
    let head = host.send(ask(Method::HEAD), is_last).await?;
    if !head.status().is_success() {
        // HEAD has no body; the reason of a refusal is worth another request.
        if matches!(head.status(), StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS) {
            let status = head.status();
            let detail = match host.send(ask(Method::GET), false).await {
                Ok(response) if response.status() == status => failure::read_detail(response).await,
                _ => String::new(),
            };
            return Err(Failure::from_status(host.name(), status, &detail));
        }
        return Err(Failure::status(host.name(), head).await);
    }
    let media_type = media_type_of(head.headers());
    let size = head.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let named = match digest {
        Some(digest) => Some(digest.clone()),
        None => digest_of(head.headers()).map_err(fail)?,
    };
    if let (Some(digest), Some(size), true) = (&named, size, is_tree(&media_type)) {
        check_size(size).map_err(fail)?;
        return Ok(Descriptor::new(media_type, digest.clone(), size));
    }
    let response = host.send(ask(Method::GET), is_last).await?;
    if !response.status().is_success() {
        return Err(Failure::status(host.name(), response).await);
    }
    let media_type = media_type_of(response.headers());
    let body = read_body(response).await.map_err(fail)?;
    describe(media_type, &body, digest).map_err(fail)
}

fn check_size(size: u64) -> Result<()> {
    if size > MAX_DOCUMENT {
        return Err(Error::invalid_argument(format!("the manifest has {size} bytes, {MAX_DOCUMENT} are allowed")));
    }
    Ok(())
}

async fn read_body(mut response: Response) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    let reading = async {
        while let Some(chunk) = response.chunk().await.map_err(|error| Error::unavailable(clients::chain(&error)))? {
            check_size((body.len() + chunk.len()) as u64)?;
            body.extend_from_slice(&chunk);
        }
        Ok(())
    };
    match tokio::time::timeout(std::time::Duration::from_secs(120), reading).await {
        Ok(read) => read.map(|()| body),
        Err(_) => Err(Error::deadline_exceeded("the manifest did not come within two minutes")),
    }
}

/// Describes a manifest by its bytes. A host that does not say what it is leaves it to the manifest itself.
fn describe(media_type: String, body: &[u8], expected: Option<&Digest>) -> Result<Descriptor> {
    #[derive(Deserialize)]
    struct Inner {
        #[serde(default, rename = "mediaType")]
        media_type: String,
        #[serde(default, rename = "schemaVersion")]
        schema_version: u32,
    }
    let digest = match expected {
        None => Digest::of(body),
        Some(expected) => {
            let mut digester = expected.algorithm().digester();
            digester.update(body);
            let found = digester.finish();
            if found != *expected {
                return Err(Error::new(
                    ErrorKind::FailedPrecondition,
                    format!("the manifest has digest {found}, not {expected}"),
                ));
            }
            found
        }
    };
    let inner: Option<Inner> = serde_json::from_slice(body).ok();
    let media_type = match inner {
        Some(inner) if inner.schema_version == 1 => {
            return Err(Error::unimplemented(format!(
                "schema 1 manifests are no longer supported; rebuild the image as {} or {}",
                media_types::OCI_MANIFEST,
                media_types::DOCKER_MANIFEST
            )));
        }
        Some(inner) if !is_tree(&media_type) && is_tree(&inner.media_type) => inner.media_type,
        _ => media_type,
    };
    Ok(Descriptor::new(media_type, digest, body.len() as u64))
}

fn media_type_of(headers: &HeaderMap) -> String {
    let text = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim().to_owned()
}

fn digest_of(headers: &HeaderMap) -> Result<Option<Digest>> {
    let text = headers.get("docker-content-digest").and_then(|value| value.to_str().ok());
    text.filter(|text| !text.is_empty()).map(Digest::parse).transpose()
}
