use std::{collections::BTreeMap, io, sync::Arc};

use bytes::Bytes;
use core_content::Reader;
use core_images::is_tree;
use core_types::{Descriptor, Error, Result, labels};
use futures::stream;
use reqwest::{
    Body, Method, Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, LOCATION},
};
use url::Url;

use crate::{
    exchange::{Activity, Ask, Endpoint, Upload},
    failure::{self, Failure},
    resolver::Repository,
};

/// How much of a blob is read at a time.
const PIECE: usize = 512 * 1024;
/// How often an upload is begun.
const MAX_UPLOADS: u32 = 3;

/// What pushing a blob came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It was there.
    Exists,
    /// The registry took it over from this repository of its own.
    Mounted(String),
    /// It was sent.
    Uploaded,
}

/// Called with the number of bytes sent so far.
pub type PushProgress = Arc<dyn Fn(u64) + Send + Sync>;

/// Pushes content to one repository.
#[derive(Clone)]
pub struct Pusher {
    repository: Arc<Repository>,
}

impl std::fmt::Debug for Pusher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Pusher").field(&self.repository.reference).finish()
    }
}

impl Pusher {
    pub(crate) fn new(repository: Arc<Repository>) -> Self {
        Self { repository }
    }

    fn host(&self) -> Result<&Endpoint> {
        self.repository
            .endpoints
            .iter()
            .find(|host| host.config.capabilities.push)
            .ok_or_else(|| failure::combine(&format!("push to {}", self.repository.reference), &[]))
    }

    fn fail(&self, descriptor: &Descriptor, failure: Failure) -> Error {
        failure::combine(&format!("push {} to {}", descriptor.digest, self.repository.reference), &[failure])
    }

    /// Pushes a blob or manifest. `sources` are its labels, of which those named
    /// `containerd.io/distribution.source.<host>` list repositories that the registry may take it from.
    ///
    /// # Errors
    /// Unauthenticated, PermissionDenied, ResourceExhausted, Unavailable …, with what the host said.
    pub async fn push(
        &self,
        descriptor: &Descriptor,
        content: Arc<dyn Reader>,
        sources: &BTreeMap<String, String>,
        progress: Option<PushProgress>,
    ) -> Result<Pushed> {
        if is_tree(&descriptor.media_type) {
            self.push_manifest(descriptor, content, progress).await
        } else {
            self.push_blob(descriptor, content, sources, progress).await
        }
    }

    /// Under which name a manifest goes: the tag when the reference's digest is this one or none, else its digest.
    fn object(&self, descriptor: &Descriptor) -> String {
        let reference = &self.repository.reference;
        let own = match reference.object().split_once('@') {
            Some((_, digest)) => digest == descriptor.digest.as_str(),
            None => true,
        };
        match reference.tag() {
            Some(tag) if own => tag.to_owned(),
            _ => descriptor.digest.to_string(),
        }
    }

    async fn push_manifest(
        &self,
        descriptor: &Descriptor,
        content: Arc<dyn Reader>,
        progress: Option<PushProgress>,
    ) -> Result<Pushed> {
        let host = self.host()?;
        let fail = |failure| self.fail(descriptor, failure);
        let object = self.object(descriptor);
        let url = host.url(&[self.repository.reference.repository(), "manifests", &object])?;
        let scopes = self.repository.scope("pull,push");
        let accept = format!("{}, */*", descriptor.media_type);
        let head = Ask::new(Method::HEAD, url.clone(), &scopes).header(ACCEPT, &accept);
        let response = host.send(head, true).await.map_err(fail)?;
        let named = response.headers().get("docker-content-digest").and_then(|value| value.to_str().ok());
        if response.status() == StatusCode::OK
            && (object == descriptor.digest.as_str() || named == Some(descriptor.digest.as_str()))
        {
            return Ok(Pushed::Exists);
        }
        if !response.status().is_success() && response.status() != StatusCode::NOT_FOUND {
            return Err(fail(Failure::status(host.name(), response).await));
        }
        let mut put = Ask::new(Method::PUT, url, &scopes).header(CONTENT_TYPE, &descriptor.media_type);
        put.body = Some(upload(content, progress));
        let response = host.send(put, true).await.map_err(fail)?;
        match response.status().as_u16() {
            200 | 201 | 204 => Ok(Pushed::Uploaded),
            _ => Err(fail(Failure::status(host.name(), response).await)),
        }
    }

    async fn push_blob(
        &self,
        descriptor: &Descriptor,
        content: Arc<dyn Reader>,
        sources: &BTreeMap<String, String>,
        progress: Option<PushProgress>,
    ) -> Result<Pushed> {
        let host = self.host()?;
        let fail = |failure| self.fail(descriptor, failure);
        let url = host.url(&[self.repository.reference.repository(), "blobs", descriptor.digest.as_str()])?;
        let head = Ask::new(Method::HEAD, url, &self.repository.scope("pull,push"));
        let response = host.send(head, true).await.map_err(fail)?;
        match response.status().as_u16() {
            200 => return Ok(Pushed::Exists),
            404 => {}
            // Some hosts allow pushing and not looking.
            401 => tracing::debug!(host = host.name(), "cannot look whether the blob is there"),
            _ => return Err(fail(Failure::status(host.name(), response).await)),
        }
        let from = mount_candidate(self.repository.reference.host(), self.repository.reference.repository(), sources);
        let mut last = None;
        for _ in 0..MAX_UPLOADS {
            let begun = self.begin(host, descriptor, from.as_deref()).await.map_err(fail)?;
            if begun.status() == StatusCode::CREATED {
                return Ok(from.map_or(Pushed::Exists, Pushed::Mounted));
            }
            if !matches!(begun.status().as_u16(), 200 | 202 | 204) {
                return Err(fail(Failure::status(host.name(), begun).await));
            }
            let put = self.put(host, &begun, descriptor, Arc::clone(&content), progress.clone())?;
            match host.send(put, false).await {
                Ok(response) if matches!(response.status().as_u16(), 200 | 201 | 204) => return Ok(Pushed::Uploaded),
                Ok(response) => {
                    let again = response.status().is_server_error() || response.status() == StatusCode::NOT_FOUND;
                    let failure = Failure::status(host.name(), response).await;
                    if !again {
                        return Err(fail(failure));
                    }
                    last = Some(failure);
                }
                Err(failure) => last = Some(failure),
            }
        }
        Err(last.map_or_else(|| Error::unavailable("upload failed"), fail))
    }

    /// Begins an upload, or has the registry mount the blob from another of its repositories.
    async fn begin(&self, host: &Endpoint, descriptor: &Descriptor, from: Option<&str>) -> Result<Response, Failure> {
        let repository = self.repository.reference.repository();
        let to_failure = |error: Error| Failure::from_error(host.name(), &error);
        let url = host.url(&[repository, "blobs", "uploads", ""]).map_err(to_failure)?;
        let scopes = self.repository.scope("pull,push");
        if let Some(from) = from {
            let mut mount = url.clone();
            mount.query_pairs_mut().append_pair("mount", descriptor.digest.as_str()).append_pair("from", from);
            let mut wide = scopes.clone();
            wide.push(format!("repository:{from}:pull"));
            let response = host.send(Ask::new(Method::POST, mount, &wide), true).await?;
            // Not being allowed to read there is no reason not to upload.
            if !matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
                return Ok(response);
            }
        }
        host.send(Ask::new(Method::POST, url, &scopes), true).await
    }

    /// The request that sends the whole blob to where the registry wants it.
    fn put(
        &self,
        host: &Endpoint,
        begun: &Response,
        descriptor: &Descriptor,
        content: Arc<dyn Reader>,
        progress: Option<PushProgress>,
    ) -> Result<Ask> {
        let refuse = || Error::failed_precondition(format!("{} names no place for the upload", host.name()));
        let location = begun.headers().get(LOCATION).and_then(|value| value.to_str().ok()).ok_or_else(refuse)?;
        let mut url: Url = begun.url().join(location).map_err(|_| refuse())?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(refuse());
        }
        url.query_pairs_mut().append_pair("digest", descriptor.digest.as_str());
        host.name_registry(&mut url);
        let mut put = Ask::new(Method::PUT, url, &self.repository.scope("pull,push"))
            .header(CONTENT_TYPE, "application/octet-stream");
        put.body = Some(upload(content, progress));
        Ok(put)
    }
}

fn upload(content: Arc<dyn Reader>, progress: Option<PushProgress>) -> Upload {
    let activity = Activity::new();
    let size = content.size();
    let watched = activity.clone();
    let make = move || {
        let state = (Arc::clone(&content), 0_u64, progress.clone(), watched.clone());
        Body::wrap_stream(stream::try_unfold(state, |(content, at, progress, activity)| async move {
            activity.touch();
            if let Some(progress) = &progress {
                progress(at);
            }
            if at >= content.size() {
                return Ok(None);
            }
            let reader = Arc::clone(&content);
            let piece = tokio::task::spawn_blocking(move || read_piece(reader.as_ref(), at))
                .await
                .map_err(|error| io::Error::other(error.to_string()))??;
            let next = at + piece.len() as u64;
            Ok::<_, io::Error>(Some((piece, (content, next, progress, activity))))
        }))
    };
    Upload { make: Box::new(make), size, activity }
}

fn read_piece(content: &dyn Reader, at: u64) -> io::Result<Bytes> {
    let left = usize::try_from(content.size() - at).unwrap_or(PIECE).min(PIECE);
    let mut buffer = vec![0; left];
    let count = content.read_at(&mut buffer, at)?;
    if count == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    buffer.truncate(count);
    Ok(buffer.into())
}

/// The repository of the same registry that has the blob and the longest path in common with ours.
fn mount_candidate(host: &str, repository: &str, sources: &BTreeMap<String, String>) -> Option<String> {
    let name = host.split(':').next().unwrap_or(host);
    let listed = sources
        .get(&format!("{}.{host}", labels::DISTRIBUTION_SOURCE))
        .or_else(|| sources.get(&format!("{}.{name}", labels::DISTRIBUTION_SOURCE)))?;
    let common = |other: &str| repository.split('/').zip(other.split('/')).take_while(|(a, b)| a == b).count();
    listed
        .split(',')
        .filter(|other| !other.is_empty() && *other != repository)
        .max_by_key(|other| common(other))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_repository_is_mounted_from() {
        let labels = |host: &str, value: &str| {
            BTreeMap::from([(format!("containerd.io/distribution.source.{host}"), value.to_owned())])
        };
        let found = mount_candidate("r.example", "a/b/c", &labels("r.example", "x/y,a/b/d,a/b/c"));
        assert_eq!(found.as_deref(), Some("a/b/d"));
        assert_eq!(mount_candidate("r.example", "a", &labels("r.example", "a")), None);
        assert_eq!(mount_candidate("r.example", "a", &labels("other", "b")), None);
        let with_port = mount_candidate("localhost:5000", "a", &labels("localhost", "b"));
        assert_eq!(with_port.as_deref(), Some("b"));
    }
}
