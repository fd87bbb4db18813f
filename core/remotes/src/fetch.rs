use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use core_images::{is_foreign_layer, is_tree};
use core_types::{Descriptor, Error, ErrorKind, Result};
use reqwest::{
    Method, Response, StatusCode,
    header::{ACCEPT, CONTENT_RANGE, RANGE},
};
use url::Url;

use crate::{
    clients,
    exchange::{Ask, Endpoint},
    failure::{self, Failure},
    resolver::Repository,
    retry,
};

/// How long a body may stand still before it is asked for again.
const STALL: Duration = Duration::from_secs(60);
/// How often in a row a body may break off without a byte more.
const MAX_STALLS: u32 = 5;
/// How often one body may break off in all.
const MAX_BREAKS: u32 = 50;

/// Fetches the content of one repository.
#[derive(Clone)]
pub struct Fetcher {
    repository: Arc<Repository>,
}

impl std::fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Fetcher").field(&self.repository.reference).finish()
    }
}

impl Fetcher {
    pub(crate) fn new(repository: Arc<Repository>) -> Self {
        Self { repository }
    }

    /// Opens a blob or manifest from `offset` on. The download goes on by itself after a break.
    ///
    /// # Errors
    /// NotFound, Unauthenticated, PermissionDenied, ResourceExhausted or Unavailable, with what each host said.
    pub async fn fetch(&self, descriptor: &Descriptor, offset: u64) -> Result<Download> {
        let mut download = Download {
            fetcher: self.clone(),
            descriptor: descriptor.clone(),
            position: offset,
            current: None,
            stalls: 0,
            breaks: 0,
            no_ranges: false,
        };
        download.open().await?;
        Ok(download)
    }

    /// Tries all places in order: for a manifest `manifests`, then, when no host has it, `blobs`; for a blob `blobs`;
    /// for a foreign layer its own URLs first.
    async fn open(&self, descriptor: &Descriptor, offset: u64) -> Result<Response> {
        let mut failures = Vec::new();
        let foreign = is_foreign_layer(&descriptor.media_type);
        if foreign && let Some(response) = self.open_urls(descriptor, offset, &mut failures).await {
            return Ok(response);
        }
        let places: &[&str] = if is_tree(&descriptor.media_type) { &["manifests", "blobs"] } else { &["blobs"] };
        for place in places {
            if let Some(response) = self.open_at(place, descriptor, offset, &mut failures).await {
                return Ok(response);
            }
            if !failures.iter().all(Failure::is_not_found) {
                break;
            }
        }
        if !foreign
            && failures.iter().all(Failure::is_not_found)
            && let Some(response) = self.open_urls(descriptor, offset, &mut failures).await
        {
            return Ok(response);
        }
        Err(failure::combine(&format!("fetch {} of {}", descriptor.digest, self.repository.reference), &failures))
    }

    async fn open_at(
        &self,
        place: &str,
        descriptor: &Descriptor,
        offset: u64,
        failures: &mut Vec<Failure>,
    ) -> Option<Response> {
        let able: Vec<&Endpoint> =
            self.repository.endpoints.iter().filter(|host| host.config.capabilities.pull).collect();
        for (at, host) in able.iter().enumerate() {
            let url = match host.url(&[self.repository.reference.repository(), place, descriptor.digest.as_str()]) {
                Ok(url) => url,
                Err(error) => {
                    failures.push(Failure::from_error(host.name(), &error));
                    continue;
                }
            };
            let mut ask = Ask::new(Method::GET, url, &self.repository.scope("pull"))
                .header(ACCEPT, &accept(&descriptor.media_type));
            if offset > 0 {
                ask = ask.header(RANGE, &format!("bytes={offset}-"));
            }
            match host.send(ask, at + 1 == able.len()).await {
                Ok(response) if is_content(&response, offset) => return Some(response),
                Ok(response) => failures.push(Failure::status(host.name(), response).await),
                Err(failure) => failures.push(failure),
            }
        }
        None
    }

    /// Asks the URLs in the descriptor, which come from the image's author: without any credentials or headers.
    async fn open_urls(&self, descriptor: &Descriptor, offset: u64, failures: &mut Vec<Failure>) -> Option<Response> {
        for text in descriptor.urls.iter().take(8) {
            let Some(url) = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https")) else {
                continue;
            };
            let name = url.host_str().unwrap_or_default().to_owned();
            match self.open_bare(url, offset).await {
                Ok(response) if is_content(&response, offset) => return Some(response),
                Ok(response) => failures.push(Failure::status(&name, response).await),
                Err(error) => failures.push(Failure::from_error(&name, &error)),
            }
        }
        None
    }

    async fn open_bare(&self, mut url: Url, offset: u64) -> Result<Response> {
        let client = self.repository.clients.plain()?;
        for _ in 0..5 {
            let mut request = client.get(url.clone());
            if offset > 0 {
                request = request.header(RANGE, format!("bytes={offset}-"));
            }
            let sent = tokio::time::timeout(STALL, request.send()).await;
            let response = sent
                .map_err(|_| Error::deadline_exceeded(format!("no answer within {STALL:?}")))?
                .map_err(|error| Error::unavailable(clients::chain(&error)))?;
            if !response.status().is_redirection() {
                return Ok(response);
            }
            let location = response.headers().get("location").and_then(|value| value.to_str().ok());
            url = location
                .and_then(|location| url.join(location).ok())
                .filter(|url| matches!(url.scheme(), "http" | "https"))
                .ok_or_else(|| Error::failed_precondition("a redirect leads nowhere"))?;
        }
        Err(Error::failed_precondition("too many redirects"))
    }
}

fn accept(media_type: &str) -> String {
    if media_type.is_empty() { "*/*".to_owned() } else { format!("{media_type}, */*") }
}

/// Whether the answer has the body; a range that cannot be had is for the caller to see.
fn is_content(response: &Response, offset: u64) -> bool {
    response.status().is_success() || offset > 0 && response.status() == StatusCode::RANGE_NOT_SATISFIABLE
}

/// A body being read.
struct Current {
    response: Response,
    /// Bytes to leave out, for a host that sends the whole.
    skip: u64,
}

/// A blob or manifest on its way. Breaks are mended: the rest is asked for by range, and where that does not work
/// the whole is, without what was had already.
pub struct Download {
    fetcher: Fetcher,
    descriptor: Descriptor,
    position: u64,
    current: Option<Current>,
    stalls: u32,
    breaks: u32,
    no_ranges: bool,
}

impl std::fmt::Debug for Download {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Download").field("digest", &self.descriptor.digest).field("position", &self.position).finish()
    }
}

impl Download {
    /// Where the next piece belongs.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next piece; `None` at the end, which is where the descriptor's size says (when it says one).
    ///
    /// # Errors
    /// Unavailable when the host breaks off too often, FailedPrecondition when it sends more than was described.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        let size = self.descriptor.size;
        loop {
            if size > 0 && self.position >= size {
                return Ok(None);
            }
            if self.current.is_none() {
                self.open().await?;
            }
            match self.read().await {
                Ok(Some(piece)) => return self.accept(piece).map(Some),
                Ok(None) if size == 0 || self.position == size => return Ok(None),
                Ok(None) => self.mend("the body ended early").await?,
                Err(why) => self.mend(&why).await?,
            }
        }
    }

    fn accept(&mut self, piece: Bytes) -> Result<Bytes> {
        self.stalls = 0;
        self.position += piece.len() as u64;
        let size = self.descriptor.size;
        if size > 0 && self.position > size {
            return Err(Error::new(
                ErrorKind::FailedPrecondition,
                format!("{} is longer than the {size} bytes that its descriptor says", self.descriptor.digest),
            ));
        }
        Ok(piece)
    }

    /// One piece that is not to be skipped.
    async fn read(&mut self) -> Result<Option<Bytes>, String> {
        let Some(current) = self.current.as_mut() else { return Ok(None) };
        loop {
            let chunk = match tokio::time::timeout(STALL, current.response.chunk()).await {
                Err(_) => return Err(format!("no byte for {STALL:?}")),
                Ok(Err(error)) => return Err(clients::chain(&error)),
                Ok(Ok(None)) => return Ok(None),
                Ok(Ok(Some(chunk))) => chunk,
            };
            let skipped = current.skip.min(chunk.len() as u64);
            current.skip -= skipped;
            let rest = chunk.slice(usize::try_from(skipped).unwrap_or(chunk.len())..);
            if !rest.is_empty() {
                return Ok(Some(rest));
            }
        }
    }

    async fn mend(&mut self, why: &str) -> Result<()> {
        self.current = None;
        self.stalls += 1;
        self.breaks += 1;
        tracing::debug!(digest = %self.descriptor.digest, position = self.position, why, "download broke off");
        if self.stalls > MAX_STALLS || self.breaks > MAX_BREAKS {
            return Err(Error::unavailable(format!(
                "fetch {}: broke off {} times, last at byte {}: {why}",
                self.descriptor.digest, self.breaks, self.position
            )));
        }
        if let Some(wait) = retry::wait_before_next(self.stalls, None) {
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    async fn open(&mut self) -> Result<()> {
        let wanted = if self.no_ranges { 0 } else { self.position };
        let mut response = self.fetcher.open(&self.descriptor, wanted).await?;
        if wanted > 0 && !is_range_from(&response, wanted) && response.status() != StatusCode::OK {
            // An odd answer to a range: take the whole.
            self.no_ranges = true;
            response = self.fetcher.open(&self.descriptor, 0).await?;
        }
        let skip = if wanted > 0 && is_range_from(&response, wanted) { 0 } else { self.position };
        self.current = Some(Current { response, skip });
        Ok(())
    }
}

fn is_range_from(response: &Response, offset: u64) -> bool {
    let range = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
    response.status() == StatusCode::PARTIAL_CONTENT
        && range.is_some_and(|range| range.starts_with(&format!("bytes {offset}-")))
}
