//! The gRPC service: each request goes to the part that has its job.

use std::sync::Arc;

use containerd_api_cri::v1::{self, runtime_service_server::RuntimeService};
use core_types::{Error, Result};
use futures::{StreamExt, stream};
use plugin_services::{BoxStream, status::status};
use tonic::{Request, Response, Status};

use crate::{container, cri::Cri, exec, node, sandbox, stats, stream::StreamUrls};

/// Items of one message of a streamed list: well below the longest message.
const CHUNK: usize = 256;

type Answer<T> = std::result::Result<Response<T>, Status>;

/// `runtime.v1.RuntimeService`.
pub(crate) struct Service {
    cri: Arc<Cri>,
    urls: StreamUrls,
}

impl Service {
    /// The service; streams are reached by `urls`.
    pub(crate) fn new(cri: Arc<Cri>, urls: StreamUrls) -> Self {
        Self { cri, urls }
    }
}

fn answer<T>(outcome: Result<T>) -> Answer<T> {
    outcome.map(Response::new).map_err(status)
}

/// A list as a stream of parts. An empty list is an empty stream.
fn parts<I, T>(items: Result<Vec<I>>, message: fn(Vec<I>) -> T) -> Answer<BoxStream<T>>
where
    I: Clone + Send + 'static,
    T: Send + 'static,
{
    let items = items.map_err(status)?;
    let parts: Vec<T> = items.chunks(CHUNK).map(|part| message(part.to_vec())).collect();
    Ok(Response::new(stream::iter(parts.into_iter().map(Ok)).boxed()))
}

#[tonic::async_trait]
impl RuntimeService for Service {
    type StreamPodSandboxesStream = BoxStream<v1::StreamPodSandboxesResponse>;
    type StreamContainersStream = BoxStream<v1::StreamContainersResponse>;
    type StreamContainerStatsStream = BoxStream<v1::StreamContainerStatsResponse>;
    type StreamPodSandboxStatsStream = BoxStream<v1::StreamPodSandboxStatsResponse>;
    type StreamPodSandboxMetricsStream = BoxStream<v1::StreamPodSandboxMetricsResponse>;
    type GetContainerEventsStream = BoxStream<v1::ContainerEventResponse>;

    async fn version(&self, _: Request<v1::VersionRequest>) -> Answer<v1::VersionResponse> {
        answer(Ok(node::version()))
    }

    async fn run_pod_sandbox(&self, request: Request<v1::RunPodSandboxRequest>) -> Answer<v1::RunPodSandboxResponse> {
        let ran = sandbox::run::run(&self.cri, request.into_inner()).await;
        answer(ran.map(|pod_sandbox_id| v1::RunPodSandboxResponse { pod_sandbox_id }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<v1::StopPodSandboxRequest>,
    ) -> Answer<v1::StopPodSandboxResponse> {
        let stopped = sandbox::stop::stop(&self.cri, &request.into_inner().pod_sandbox_id).await;
        answer(stopped.map(|()| v1::StopPodSandboxResponse {}))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<v1::RemovePodSandboxRequest>,
    ) -> Answer<v1::RemovePodSandboxResponse> {
        let removed = sandbox::stop::remove(&self.cri, &request.into_inner().pod_sandbox_id).await;
        answer(removed.map(|()| v1::RemovePodSandboxResponse {}))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<v1::PodSandboxStatusRequest>,
    ) -> Answer<v1::PodSandboxStatusResponse> {
        let request = request.into_inner();
        answer(sandbox::status::response(&self.cri, &request.pod_sandbox_id, request.verbose).await)
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<v1::ListPodSandboxRequest>,
    ) -> Answer<v1::ListPodSandboxResponse> {
        let items = sandbox::status::list(&self.cri, request.into_inner().filter.as_ref());
        answer(items.map(|items| v1::ListPodSandboxResponse { items }))
    }

    async fn stream_pod_sandboxes(
        &self,
        request: Request<v1::StreamPodSandboxesRequest>,
    ) -> Answer<Self::StreamPodSandboxesStream> {
        let items = sandbox::status::list(&self.cri, request.into_inner().filter.as_ref());
        parts(items, |pod_sandboxes| v1::StreamPodSandboxesResponse { pod_sandboxes })
    }

    async fn create_container(
        &self,
        request: Request<v1::CreateContainerRequest>,
    ) -> Answer<v1::CreateContainerResponse> {
        let made = container::create::create(&self.cri, request.into_inner()).await;
        answer(made.map(|container_id| v1::CreateContainerResponse { container_id }))
    }

    async fn start_container(&self, request: Request<v1::StartContainerRequest>) -> Answer<v1::StartContainerResponse> {
        let started = container::start::start(&self.cri, &request.into_inner().container_id).await;
        answer(started.map(|()| v1::StartContainerResponse {}))
    }

    async fn stop_container(&self, request: Request<v1::StopContainerRequest>) -> Answer<v1::StopContainerResponse> {
        let request = request.into_inner();
        let stopped = container::stop::stop(&self.cri, &request.container_id, request.timeout).await;
        answer(stopped.map(|()| v1::StopContainerResponse {}))
    }

    async fn remove_container(
        &self,
        request: Request<v1::RemoveContainerRequest>,
    ) -> Answer<v1::RemoveContainerResponse> {
        let removed = container::remove::remove(&self.cri, &request.into_inner().container_id).await;
        answer(removed.map(|()| v1::RemoveContainerResponse {}))
    }

    async fn list_containers(&self, request: Request<v1::ListContainersRequest>) -> Answer<v1::ListContainersResponse> {
        let containers = container::status::list(&self.cri, request.into_inner().filter.as_ref());
        answer(containers.map(|containers| v1::ListContainersResponse { containers }))
    }

    async fn stream_containers(
        &self,
        request: Request<v1::StreamContainersRequest>,
    ) -> Answer<Self::StreamContainersStream> {
        let items = container::status::list(&self.cri, request.into_inner().filter.as_ref());
        parts(items, |containers| v1::StreamContainersResponse { containers })
    }

    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> Answer<v1::ContainerStatusResponse> {
        let request = request.into_inner();
        answer(container::status::response(&self.cri, &request.container_id, request.verbose).await)
    }

    async fn update_container_resources(
        &self,
        request: Request<v1::UpdateContainerResourcesRequest>,
    ) -> Answer<v1::UpdateContainerResourcesResponse> {
        let updated = container::update::update(&self.cri, request.into_inner()).await;
        answer(updated.map(|()| v1::UpdateContainerResourcesResponse {}))
    }

    async fn reopen_container_log(
        &self,
        request: Request<v1::ReopenContainerLogRequest>,
    ) -> Answer<v1::ReopenContainerLogResponse> {
        let reopened = container::log::reopen(&self.cri, &request.into_inner().container_id).await;
        answer(reopened.map(|()| v1::ReopenContainerLogResponse {}))
    }

    async fn exec_sync(&self, request: Request<v1::ExecSyncRequest>) -> Answer<v1::ExecSyncResponse> {
        answer(exec::sync(&self.cri, request.into_inner()).await)
    }

    async fn exec(&self, request: Request<v1::ExecRequest>) -> Answer<v1::ExecResponse> {
        let request = request.into_inner();
        answer(self.urls.exec(&self.cri, request).map(|url| v1::ExecResponse { url }))
    }

    async fn attach(&self, request: Request<v1::AttachRequest>) -> Answer<v1::AttachResponse> {
        let request = request.into_inner();
        answer(self.urls.attach(&self.cri, request).map(|url| v1::AttachResponse { url }))
    }

    async fn port_forward(&self, request: Request<v1::PortForwardRequest>) -> Answer<v1::PortForwardResponse> {
        let request = request.into_inner();
        answer(self.urls.port_forward(&self.cri, request).map(|url| v1::PortForwardResponse { url }))
    }

    async fn container_stats(&self, request: Request<v1::ContainerStatsRequest>) -> Answer<v1::ContainerStatsResponse> {
        let stats = stats::container(&self.cri, &request.into_inner().container_id).await;
        answer(stats.map(|stats| v1::ContainerStatsResponse { stats: Some(stats) }))
    }

    async fn list_container_stats(
        &self,
        request: Request<v1::ListContainerStatsRequest>,
    ) -> Answer<v1::ListContainerStatsResponse> {
        let stats = stats::containers(&self.cri, request.into_inner().filter.as_ref()).await;
        answer(stats.map(|stats| v1::ListContainerStatsResponse { stats }))
    }

    async fn stream_container_stats(
        &self,
        request: Request<v1::StreamContainerStatsRequest>,
    ) -> Answer<Self::StreamContainerStatsStream> {
        let stats = stats::containers(&self.cri, request.into_inner().filter.as_ref()).await;
        parts(stats, |container_stats| v1::StreamContainerStatsResponse { container_stats })
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<v1::PodSandboxStatsRequest>,
    ) -> Answer<v1::PodSandboxStatsResponse> {
        let stats = stats::sandbox(&self.cri, &request.into_inner().pod_sandbox_id).await;
        answer(stats.map(|stats| v1::PodSandboxStatsResponse { stats: Some(stats) }))
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<v1::ListPodSandboxStatsRequest>,
    ) -> Answer<v1::ListPodSandboxStatsResponse> {
        let stats = stats::sandboxes(&self.cri, request.into_inner().filter.as_ref()).await;
        answer(stats.map(|stats| v1::ListPodSandboxStatsResponse { stats }))
    }

    async fn stream_pod_sandbox_stats(
        &self,
        request: Request<v1::StreamPodSandboxStatsRequest>,
    ) -> Answer<Self::StreamPodSandboxStatsStream> {
        let stats = stats::sandboxes(&self.cri, request.into_inner().filter.as_ref()).await;
        parts(stats, |pod_sandbox_stats| v1::StreamPodSandboxStatsResponse { pod_sandbox_stats })
    }

    async fn update_runtime_config(
        &self,
        request: Request<v1::UpdateRuntimeConfigRequest>,
    ) -> Answer<v1::UpdateRuntimeConfigResponse> {
        let updated = node::update_config(&self.cri, request.into_inner()).await;
        answer(updated.map(|()| v1::UpdateRuntimeConfigResponse {}))
    }

    async fn status(&self, request: Request<v1::StatusRequest>) -> Answer<v1::StatusResponse> {
        answer(Ok(node::status(&self.cri, request.into_inner().verbose).await))
    }

    async fn checkpoint_container(
        &self,
        request: Request<v1::CheckpointContainerRequest>,
    ) -> Answer<v1::CheckpointContainerResponse> {
        let id = request.into_inner().container_id;
        let refused = self.cri.containers.get(&id).and_then(|_| {
            Err(Error::unimplemented("checkpoints of containers are not there yet, with or without criu"))
        });
        answer(refused)
    }

    async fn get_container_events(&self, _: Request<v1::GetEventsRequest>) -> Answer<Self::GetContainerEventsStream> {
        let mut events = self.cri.feed.subscribe();
        let events = stream::poll_fn(move |context| events.poll_recv(context)).map(Ok);
        Ok(Response::new(events.boxed()))
    }

    async fn list_metric_descriptors(
        &self,
        _: Request<v1::ListMetricDescriptorsRequest>,
    ) -> Answer<v1::ListMetricDescriptorsResponse> {
        answer(Ok(v1::ListMetricDescriptorsResponse { descriptors: stats::descriptors() }))
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: Request<v1::ListPodSandboxMetricsRequest>,
    ) -> Answer<v1::ListPodSandboxMetricsResponse> {
        let metrics = stats::metrics(&self.cri).await;
        answer(metrics.map(|pod_metrics| v1::ListPodSandboxMetricsResponse { pod_metrics }))
    }

    async fn stream_pod_sandbox_metrics(
        &self,
        _: Request<v1::StreamPodSandboxMetricsRequest>,
    ) -> Answer<Self::StreamPodSandboxMetricsStream> {
        let metrics = stats::metrics(&self.cri).await;
        parts(metrics, |pod_sandbox_metrics| v1::StreamPodSandboxMetricsResponse { pod_sandbox_metrics })
    }

    async fn runtime_config(&self, _: Request<v1::RuntimeConfigRequest>) -> Answer<v1::RuntimeConfigResponse> {
        answer(Ok(node::runtime_config(&self.cri.handlers)))
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<v1::UpdatePodSandboxResourcesRequest>,
    ) -> Answer<v1::UpdatePodSandboxResourcesResponse> {
        let updated = sandbox::resources::update(&self.cri, request.into_inner()).await;
        answer(updated.map(|()| v1::UpdatePodSandboxResourcesResponse {}))
    }
}
