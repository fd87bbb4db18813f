use containerd_api::services::{
    introspection::v1::{Plugin, PluginsRequest, ServerResponse},
    namespaces::v1::{
        CreateNamespaceRequest, DeleteNamespaceRequest, ListNamespacesRequest, Namespace as Message,
        UpdateNamespaceRequest,
    },
    version::v1::VersionResponse,
};
use core_types::Labels;

use crate::{Client, Result, convert};

/// Namespaces.
impl Client {
    /// All namespaces with their labels.
    ///
    /// # Errors
    /// What the daemon says.
    pub async fn namespaces(&self) -> Result<Vec<(String, Labels)>> {
        let request = ListNamespacesRequest { filter: String::new() };
        let answer = self.namespaces_service().list(request).await?.into_inner();
        Ok(answer.namespaces.into_iter().map(|namespace| (namespace.name, namespace.labels)).collect())
    }

    /// Makes a namespace.
    ///
    /// # Errors
    /// AlreadyExists for a name in use.
    pub async fn create_namespace(&self, name: &str, labels: Labels) -> Result<()> {
        let namespace = Some(Message { name: name.to_owned(), labels });
        self.namespaces_service().create(CreateNamespaceRequest { namespace }).await?;
        Ok(())
    }

    /// Sets labels of a namespace; an empty value removes one.
    ///
    /// # Errors
    /// NotFound when it is not there.
    pub async fn label_namespace(&self, name: &str, labels: &Labels) -> Result<()> {
        let paths: Vec<String> = labels.keys().map(|key| format!("labels.{key}")).collect();
        let namespace = Some(Message { name: name.to_owned(), labels: labels.clone() });
        let request = UpdateNamespaceRequest { namespace, update_mask: convert::mask(&paths) };
        self.namespaces_service().update(request).await?;
        Ok(())
    }

    /// Removes an empty namespace.
    ///
    /// # Errors
    /// FailedPrecondition while it holds something.
    pub async fn delete_namespace(&self, name: &str) -> Result<()> {
        self.namespaces_service().delete(DeleteNamespaceRequest { name: name.to_owned() }).await?;
        Ok(())
    }
}

/// The daemon itself.
impl Client {
    /// Its version and revision.
    ///
    /// # Errors
    /// What the daemon says.
    pub async fn version(&self) -> Result<VersionResponse> {
        Ok(self.version_service().version(()).await?.into_inner())
    }

    /// Its identity, process and use of deprecated features.
    ///
    /// # Errors
    /// What the daemon says.
    pub async fn server_info(&self) -> Result<ServerResponse> {
        Ok(self.introspection_service().server(()).await?.into_inner())
    }

    /// Its plugins, those that failed to start too.
    ///
    /// # Errors
    /// InvalidArgument for a malformed filter.
    pub async fn plugins(&self, filters: &[String]) -> Result<Vec<Plugin>> {
        let request = PluginsRequest { filters: filters.to_vec() };
        Ok(self.introspection_service().plugins(request).await?.into_inner().plugins)
    }
}
