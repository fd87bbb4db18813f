use std::{
    collections::{BTreeMap, HashMap},
    time::{SystemTime, UNIX_EPOCH},
};

use containerd_api_cri::v1 as api;
use core_types::{Error, Result as CoreResult};
use futures::stream;
use plugin_services::{BoxStream, GrpcService, MAX_MESSAGE_SIZE, status::status};
use serde::Serialize;
use serde_json::Value;
use tonic::{Request, Response, Status};

use crate::{Image, Images, PullRequest, SnapshotUsage, images::handler_of};

/// Images in one message of a stream.
const STREAMED: usize = 512;
/// What an image configuration says of itself (OCI image specification); builders add more.
const SPEC_KEYS: [&str; 10] =
    ["created", "author", "architecture", "variant", "os", "os.version", "os.features", "config", "rootfs", "history"];

/// The gRPC service `runtime.v1.ImageService`.
pub(crate) fn service(images: Images) -> GrpcService {
    GrpcService::new(
        api::image_service_server::ImageServiceServer::new(Service(images))
            .max_decoding_message_size(MAX_MESSAGE_SIZE)
            .max_encoding_message_size(MAX_MESSAGE_SIZE),
    )
}

struct Service(Images);

impl Service {
    fn listed(&self, filter: Option<api::ImageFilter>) -> CoreResult<Vec<api::Image>> {
        let wanted = filter.and_then(|filter| filter.image).map(|spec| spec.image).filter(|image| !image.is_empty());
        let images = match wanted {
            Some(wanted) => self.0.resolve(&wanted)?.into_iter().collect(),
            None => self.0.list(),
        };
        Ok(images.iter().map(message).collect())
    }

    fn filesystems(&self) -> api::ImageFsInfoResponse {
        let mut answer = api::ImageFsInfoResponse::default();
        for name in self.0.snapshotters() {
            let none = SnapshotUsage { timestamp: SystemTime::now(), bytes: 0, inodes: 0 };
            let total = self.0.total(&name);
            let mountpoint = self.0.snapshotter_root(&name).unwrap_or_default();
            answer.image_filesystems.push(filesystem(mountpoint, total.map_or(none, |total| total.all)));
            answer.container_filesystems.push(filesystem(mountpoint, total.map_or(none, |total| total.active)));
        }
        answer
    }
}

#[tonic::async_trait]
impl api::image_service_server::ImageService for Service {
    async fn list_images(
        &self,
        request: Request<api::ListImagesRequest>,
    ) -> Result<Response<api::ListImagesResponse>, Status> {
        let images = self.listed(request.into_inner().filter).map_err(status)?;
        Ok(Response::new(api::ListImagesResponse { images }))
    }

    type StreamImagesStream = BoxStream<api::StreamImagesResponse>;

    async fn stream_images(
        &self,
        request: Request<api::StreamImagesRequest>,
    ) -> Result<Response<Self::StreamImagesStream>, Status> {
        let images = self.listed(request.into_inner().filter).map_err(status)?;
        let parts: Vec<_> =
            images.chunks(STREAMED).map(|part| Ok(api::StreamImagesResponse { images: part.to_vec() })).collect();
        Ok(Response::new(Box::pin(stream::iter(parts))))
    }

    async fn image_status(
        &self,
        request: Request<api::ImageStatusRequest>,
    ) -> Result<Response<api::ImageStatusResponse>, Status> {
        let request = request.into_inner();
        let Some(image) = self.0.resolve_spec(request.image.as_ref()).map_err(status)? else {
            return Ok(Response::new(api::ImageStatusResponse::default()));
        };
        let info = if request.verbose { verbose(&self.0, &image).await.map_err(status)? } else { HashMap::new() };
        Ok(Response::new(api::ImageStatusResponse { image: Some(message(&image)), info: info.into_iter().collect() }))
    }

    async fn pull_image(
        &self,
        request: Request<api::PullImageRequest>,
    ) -> Result<Response<api::PullImageResponse>, Status> {
        let request = request.into_inner();
        let spec = request.image.unwrap_or_default();
        if spec.image.is_empty() {
            return Err(Status::invalid_argument("image.image required"));
        }
        let handler = handler_of(&spec.runtime_handler, request.sandbox_config.as_ref());
        let pull = PullRequest { image: spec.image, auth: request.auth, handler };
        let image = self.0.pull(pull).await.map_err(status)?;
        Ok(Response::new(api::PullImageResponse { image_ref: image.id }))
    }

    async fn remove_image(
        &self,
        request: Request<api::RemoveImageRequest>,
    ) -> Result<Response<api::RemoveImageResponse>, Status> {
        if let Some(image) = self.0.resolve_spec(request.get_ref().image.as_ref()).map_err(status)? {
            self.0.remove(&image).await.map_err(status)?;
        }
        Ok(Response::new(api::RemoveImageResponse {}))
    }

    async fn image_fs_info(
        &self,
        _: Request<api::ImageFsInfoRequest>,
    ) -> Result<Response<api::ImageFsInfoResponse>, Status> {
        Ok(Response::new(self.filesystems()))
    }
}

fn message(image: &Image) -> api::Image {
    let (uid, username) = user(&image.user);
    api::Image {
        id: image.id.clone(),
        repo_tags: image.repo_tags.clone(),
        repo_digests: image.repo_digests.clone(),
        size: image.size,
        uid: uid.map(|value| api::Int64Value { value }),
        username,
        spec: None,
        pinned: image.pinned,
    }
}

/// Uid or name of a configuration's `User`; its group is left out.
fn user(text: &str) -> (Option<i64>, String) {
    let user = text.split(':').next().unwrap_or_default();
    match user.parse::<i64>() {
        Ok(uid) => (Some(uid), String::new()),
        Err(_) => (None, user.to_owned()),
    }
}

fn filesystem(mountpoint: &str, usage: SnapshotUsage) -> api::FilesystemUsage {
    let since = usage.timestamp.duration_since(UNIX_EPOCH).unwrap_or_default();
    api::FilesystemUsage {
        timestamp: i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        fs_id: Some(api::FilesystemIdentifier { mountpoint: mountpoint.to_owned() }),
        used_bytes: Some(api::UInt64Value { value: usage.bytes }),
        inodes_used: Some(api::UInt64Value { value: usage.inodes }),
    }
}

/// `info` of a verbose status, as containerd gives it.
#[derive(Serialize)]
struct Verbose<'a> {
    #[serde(rename = "chainID")]
    chain_id: &'a str,
    #[serde(rename = "imageSpec")]
    image_spec: BTreeMap<String, Value>,
}

async fn verbose(images: &Images, image: &Image) -> CoreResult<HashMap<String, String>> {
    let bytes = images.config_bytes(image).await?;
    let malformed = |error: serde_json::Error| Error::invalid_argument(format!("image configuration: {error}"));
    let mut spec: BTreeMap<String, Value> = serde_json::from_slice(&bytes).map_err(malformed)?;
    spec.retain(|key, _| SPEC_KEYS.contains(&key.as_str()));
    let info = serde_json::to_string(&Verbose { chain_id: &image.chain_id, image_spec: spec }).map_err(malformed)?;
    Ok(HashMap::from([("info".to_owned(), info)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_uids_or_names() {
        let cases = [
            ("", None, ""),
            ("0", Some(0), ""),
            ("1000:1000", Some(1000), ""),
            ("www:www", None, "www"),
            (":5", None, ""),
        ];
        for (text, uid, name) in cases {
            assert_eq!(user(text), (uid, name.to_owned()), "{text}");
        }
    }
}
