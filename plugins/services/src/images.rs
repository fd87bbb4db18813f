//! `containerd.services.images.v1.Images`: names of images.

use containerd_api::services::images::v1 as api;
use containerd_api_grpc::services::images::v1::images_server;
use core_images::Image;
use core_metadata::Database;
use tonic::{Request, Response, Status};

use crate::{
    GrpcService, convert,
    grpc::serve,
    scope::scope,
    status::{required, status},
};

/// The service.
pub struct Images {
    database: Database,
}

impl Images {
    /// A service over the database.
    pub fn new(database: Database) -> Self {
        Self { database }
    }

    /// The service, ready to be offered.
    pub fn service(self) -> GrpcService {
        serve!(images_server::ImagesServer, self)
    }
}

#[tonic::async_trait]
impl images_server::Images for Images {
    async fn get(&self, request: Request<api::GetImageRequest>) -> Result<Response<api::GetImageResponse>, Status> {
        let scope = scope(&request)?;
        let image = self.database.images(&scope).get(&request.get_ref().name).await.map_err(status)?;
        Ok(Response::new(api::GetImageResponse { image: Some(to_message(image)) }))
    }

    async fn list(
        &self,
        request: Request<api::ListImagesRequest>,
    ) -> Result<Response<api::ListImagesResponse>, Status> {
        let scope = scope(&request)?;
        let images = self.database.images(&scope).list(&request.get_ref().filters).await.map_err(status)?;
        Ok(Response::new(api::ListImagesResponse { images: images.into_iter().map(to_message).collect() }))
    }

    async fn create(
        &self,
        request: Request<api::CreateImageRequest>,
    ) -> Result<Response<api::CreateImageResponse>, Status> {
        let scope = scope(&request)?;
        let image = from_message(request.into_inner().image)?;
        let image = self.database.images(&scope).create(image).await.map_err(status)?;
        Ok(Response::new(api::CreateImageResponse { image: Some(to_message(image)) }))
    }

    async fn update(
        &self,
        request: Request<api::UpdateImageRequest>,
    ) -> Result<Response<api::UpdateImageResponse>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let fields = convert::paths(request.update_mask);
        let images = self.database.images(&scope);
        let mut message = required(request.image, "image")?;
        // A mask that leaves the target alone need not name it.
        if message.target.is_none() && !fields.is_empty() && fields.iter().all(|field| field != "target") {
            let present = images.get(&message.name).await.map_err(status)?.target;
            message.target = Some(convert::descriptor_to(present));
        }
        let image = images.update(from_message(Some(message))?, &fields).await.map_err(status)?;
        Ok(Response::new(api::UpdateImageResponse { image: Some(to_message(image)) }))
    }

    async fn delete(&self, request: Request<api::DeleteImageRequest>) -> Result<Response<()>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let target = request.target.map(convert::descriptor_from).transpose()?;
        self.database.images(&scope).delete(&request.name, target.as_ref()).await.map_err(status)?;
        if request.sync {
            self.database.collect().await.map_err(status)?;
        }
        Ok(Response::new(()))
    }
}

fn to_message(image: Image) -> api::Image {
    api::Image {
        name: image.name,
        labels: image.labels,
        target: Some(convert::descriptor_to(image.target)),
        created_at: convert::timestamp(image.created_at),
        updated_at: convert::timestamp(image.updated_at),
    }
}

fn from_message(message: Option<api::Image>) -> Result<Image, Status> {
    let message = required(message, "image")?;
    if message.name.is_empty() {
        return Err(Status::invalid_argument("image.name required"));
    }
    Ok(Image {
        name: message.name,
        labels: message.labels,
        target: convert::descriptor_from(required(message.target, "image.target")?)?,
        created_at: convert::time(message.created_at),
        updated_at: convert::time(message.updated_at),
    })
}
