//! `containerd.services.introspection.v1.Introspection`: what the daemon is made of.

use std::{borrow::Cow, fs, io, os::unix::fs::MetadataExt, path::Path, sync::Arc};

use containerd_api::{google::rpc, services::introspection::v1 as api};
use containerd_api_grpc::services::introspection::v1::introspection_server;
use core_plugin::{PluginInfo, PluginSet};
use core_types::{
    Error, Result as CoreResult, ResultExt,
    filter::{Fields, Filter},
};
use tonic::{Request, Response, Status};

use crate::{
    GrpcService, convert,
    grpc::serve,
    status::{self, status},
};

/// The service.
pub struct Introspection {
    plugins: Arc<PluginSet>,
    uuid: String,
}

impl Introspection {
    /// A service about `plugins`; the daemon's uuid is kept in the directory `root`, which exists.
    ///
    /// # Errors
    /// When the uuid can neither be read nor written.
    pub fn new(plugins: Arc<PluginSet>, root: &Path) -> CoreResult<Self> {
        Ok(Self { plugins, uuid: read_uuid(&root.join("uuid"))? })
    }

    /// The service, ready to be offered.
    pub fn service(self) -> GrpcService {
        serve!(introspection_server::IntrospectionServer, self)
    }
}

#[tonic::async_trait]
impl introspection_server::Introspection for Introspection {
    async fn plugins(&self, request: Request<api::PluginsRequest>) -> Result<Response<api::PluginsResponse>, Status> {
        let filter = Filter::parse_all(&request.get_ref().filters).map_err(status)?;
        let mut infos = self.plugins.infos();
        infos.retain(|info| filter.matches(&Plugin(info)));
        Ok(Response::new(api::PluginsResponse { plugins: infos.into_iter().map(to_message).collect() }))
    }

    async fn server(&self, _: Request<()>) -> Result<Response<api::ServerResponse>, Status> {
        let pidns = fs::metadata("/proc/self/ns/pid").map(|metadata| metadata.ino());
        Ok(Response::new(api::ServerResponse {
            uuid: self.uuid.clone(),
            pid: std::process::id().into(),
            pidns: pidns.doing("read the pid namespace").map_err(status)?,
            deprecations: Vec::new(),
        }))
    }

    async fn plugin_info(
        &self,
        request: Request<api::PluginInfoRequest>,
    ) -> Result<Response<api::PluginInfoResponse>, Status> {
        let request = request.into_inner();
        let info = self.plugins.infos().into_iter().find(|info| info.kind == request.r#type && info.id == request.id);
        let info =
            info.ok_or_else(|| Status::not_found(format!("plugin {}.{} not found", request.r#type, request.id)))?;
        if request.options.is_some() {
            let message = format!("plugin {} answers no questions with options", info.uri());
            return Err(Status::unimplemented(message));
        }
        Ok(Response::new(api::PluginInfoResponse { plugin: Some(to_message(info)), extra: None }))
    }
}

struct Plugin<'a>(&'a PluginInfo);

impl Fields for Plugin<'_> {
    fn field(&self, path: &[&str]) -> Option<Cow<'_, str>> {
        match path {
            ["type"] => Some(Cow::Borrowed(&self.0.kind)),
            ["id"] => Some(Cow::Borrowed(&self.0.id)),
            _ => None,
        }
    }
}

fn to_message(info: PluginInfo) -> api::Plugin {
    let init_err =
        info.error.map(|(kind, message)| rpc::Status { code: status::code(kind).into(), message, details: Vec::new() });
    api::Plugin {
        r#type: info.kind,
        id: info.id,
        requires: info.requires,
        platforms: info.platforms.into_iter().map(convert::platform_to).collect(),
        exports: info.exports,
        capabilities: info.capabilities,
        init_err,
    }
}

/// The uuid in a file, which is made when there is none.
fn read_uuid(path: &Path) -> CoreResult<String> {
    match fs::read_to_string(path) {
        Ok(text) if !text.trim().is_empty() => return Ok(text.trim().to_owned()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::io(format_args!("read {}", path.display()), error)),
    }
    let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid").doing("make a uuid")?.trim().to_owned();
    let temporary = path.with_extension("tmp");
    fs::write(&temporary, &uuid)
        .and_then(|()| fs::rename(&temporary, path))
        .doing(format_args!("write {}", path.display()))?;
    Ok(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uuid_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("uuid");
        let uuid = read_uuid(&path).unwrap();
        assert_eq!(uuid.len(), 36);
        assert_eq!(read_uuid(&path).unwrap(), uuid);
        fs::write(&path, "").unwrap();
        assert_ne!(read_uuid(&path).unwrap(), uuid);
    }
}
