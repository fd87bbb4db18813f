use containerd_api_nri::v1alpha1::{
    Container, ContainerUpdate, CreateContainerRequest, CreateContainerResponse, Event, LinuxResources, PluginInstance,
    PodSandbox, PostCreateContainerRequest, PostStartContainerRequest, PostUpdateContainerRequest,
    PostUpdatePodSandboxRequest, RemoveContainerRequest, RemovePodSandboxRequest, RunPodSandboxRequest,
    StartContainerRequest, StateChangeEvent, StopContainerRequest, StopContainerResponse, StopPodSandboxRequest,
    UpdateContainerRequest, UpdateContainerResponse, UpdatePodSandboxRequest, ValidateContainerAdjustmentRequest,
};
use core_types::Result;
use prost::Message;

use super::{Adjusted, Nri};
use crate::{
    merge::{Creation, Updates},
    validator,
};

/// Hooks of pods. All fail with what a plugin refuses, and never for a plugin that gives no answer.
impl Nri {
    /// A pod is run.
    ///
    /// # Errors
    /// What a plugin refuses.
    pub async fn run_pod_sandbox(&self, pod: &PodSandbox) -> Result<()> {
        self.tell(Event::RunPodSandbox, pod, None, |pod, _| RunPodSandboxRequest { pod }).await
    }

    /// A pod's limits are changed; `overhead` is what the pod itself takes, `resources` the sum of its containers.
    ///
    /// # Errors
    /// What a plugin refuses.
    pub async fn update_pod_sandbox(
        &self,
        pod: &PodSandbox,
        overhead: Option<LinuxResources>,
        resources: Option<LinuxResources>,
    ) -> Result<()> {
        self.tell(Event::UpdatePodSandbox, pod, None, |pod, _| UpdatePodSandboxRequest {
            pod,
            overhead_linux_resources: overhead,
            linux_resources: resources,
        })
        .await
    }

    /// A pod's limits were changed.
    ///
    /// # Errors
    /// What a plugin refuses.
    pub async fn post_update_pod_sandbox(&self, pod: &PodSandbox) -> Result<()> {
        self.tell(Event::PostUpdatePodSandbox, pod, None, |pod, _| PostUpdatePodSandboxRequest { pod }).await
    }

    /// A pod is stopped.
    ///
    /// # Errors
    /// What a plugin refuses.
    pub async fn stop_pod_sandbox(&self, pod: &PodSandbox) -> Result<()> {
        self.tell(Event::StopPodSandbox, pod, None, |pod, _| StopPodSandboxRequest { pod }).await
    }

    /// A pod is removed.
    ///
    /// # Errors
    /// What a plugin refuses.
    pub async fn remove_pod_sandbox(&self, pod: &PodSandbox) -> Result<()> {
        self.tell(Event::RemovePodSandbox, pod, None, |pod, _| RemovePodSandboxRequest { pod }).await
    }
}

/// Hooks of containers.
impl Nri {
    /// A container is made: what plugins want of it, accepted by all validators.
    ///
    /// # Errors
    /// What a plugin or validator refuses, FailedPrecondition when two plugins set the same.
    pub async fn create_container(&self, pod: &PodSandbox, container: &Container) -> Result<Adjusted> {
        if !self.active() {
            return Ok(Adjusted::default());
        }
        let _turn = self.0.turn.lock().await;
        let mut creation = Creation::of(container);
        let mut seen = Vec::new();
        for plugin in self.plugins() {
            seen.push(PluginInstance { name: plugin.name.clone(), index: plugin.index.clone() });
            let request = CreateContainerRequest { pod: Some(pod.clone()), container: Some(creation.view.clone()) };
            let answer: Option<CreateContainerResponse> = plugin.call(Event::CreateContainer, &request).await?;
            if let Some(answer) = answer {
                creation.add(answer, &plugin.full_name())?;
            }
        }
        self.validate(pod, container, &creation, seen).await?;
        Ok(Adjusted {
            adjustment: creation.adjustment,
            updates: creation.updates.finish(),
            evictions: creation.evictions,
        })
    }

    async fn validate(
        &self,
        pod: &PodSandbox,
        container: &Container,
        creation: &Creation,
        plugins: Vec<PluginInstance>,
    ) -> Result<()> {
        let config = &self.0.config.default_validator;
        let validators = self.wanting(Event::ValidateContainerAdjustment);
        if validators.is_empty() && !config.enable {
            return Ok(());
        }
        let request = ValidateContainerAdjustmentRequest {
            pod: Some(pod.clone()),
            container: Some(container.clone()),
            adjust: Some(creation.adjustment.clone().unwrap_or_default()),
            update: creation.updates.all().to_vec(),
            owners: Some(creation.owners().clone()),
            plugins,
        };
        if config.enable {
            validator::validate(config, &request)?;
        }
        let calls = validators.iter().map(|plugin| plugin.validate(&request));
        futures::future::try_join_all(calls).await.map(drop)
    }

    /// A container was made.
    ///
    /// # Errors
    /// What a plugin refuses.
    pub async fn post_create_container(&self, pod: &PodSandbox, container: &Container) -> Result<()> {
        let request = |pod, container| PostCreateContainerRequest { pod, container };
        self.tell(Event::PostCreateContainer, pod, Some(container), request).await
    }

    /// A container is started.
    ///
    /// # Errors
    /// What a plugin refuses.
    pub async fn start_container(&self, pod: &PodSandbox, container: &Container) -> Result<()> {
        let request = |pod, container| StartContainerRequest { pod, container };
        self.tell(Event::StartContainer, pod, Some(container), request).await
    }

    /// A container was started.
    ///
    /// # Errors
    /// What a plugin refuses.
    pub async fn post_start_container(&self, pod: &PodSandbox, container: &Container) -> Result<()> {
        let request = |pod, container| PostStartContainerRequest { pod, container };
        self.tell(Event::PostStartContainer, pod, Some(container), request).await
    }

    /// A container's limits are changed to `resources`: updates of others, and last, when a plugin wants other limits,
    /// that of the container with all it is to get.
    ///
    /// # Errors
    /// What a plugin refuses, FailedPrecondition when two plugins set the same.
    pub async fn update_container(
        &self,
        pod: &PodSandbox,
        container: &Container,
        resources: &LinuxResources,
    ) -> Result<Vec<ContainerUpdate>> {
        let mut updates = Updates::of(&container.id, resources);
        if !self.active() {
            return Ok(Vec::new());
        }
        let _turn = self.0.turn.lock().await;
        for plugin in self.wanting(Event::UpdateContainer) {
            let request = UpdateContainerRequest {
                pod: Some(pod.clone()),
                container: Some(container.clone()),
                linux_resources: Some(updates.own()),
            };
            let answer: Option<UpdateContainerResponse> = plugin.call(Event::UpdateContainer, &request).await?;
            let answer = answer.unwrap_or_default();
            for eviction in &answer.evict {
                tracing::warn!(id = eviction.container_id, "NRI: eviction with an update is not done");
            }
            updates.add(&answer.update, &plugin.full_name())?;
        }
        Ok(updates.finish())
    }

    /// A container's limits were changed.
    ///
    /// # Errors
    /// What a plugin refuses.
    pub async fn post_update_container(&self, pod: &PodSandbox, container: &Container) -> Result<()> {
        let request = |pod, container| PostUpdateContainerRequest { pod, container };
        self.tell(Event::PostUpdateContainer, pod, Some(container), request).await
    }

    /// A container is stopped: updates of others.
    ///
    /// # Errors
    /// What a plugin refuses, FailedPrecondition when two plugins set the same.
    pub async fn stop_container(&self, pod: &PodSandbox, container: &Container) -> Result<Vec<ContainerUpdate>> {
        if !self.active() {
            return Ok(Vec::new());
        }
        let _turn = self.0.turn.lock().await;
        let mut updates = Updates::default();
        for plugin in self.wanting(Event::StopContainer) {
            let request = StopContainerRequest { pod: Some(pod.clone()), container: Some(container.clone()) };
            let answer: Option<StopContainerResponse> = plugin.call(Event::StopContainer, &request).await?;
            updates.add(&answer.unwrap_or_default().update, &plugin.full_name())?;
        }
        Ok(updates.finish())
    }

    /// A container is removed.
    ///
    /// # Errors
    /// What a plugin refuses.
    pub async fn remove_container(&self, pod: &PodSandbox, container: &Container) -> Result<()> {
        let request = |pod, container| RemoveContainerRequest { pod, container };
        self.tell(Event::RemoveContainer, pod, Some(container), request).await
    }

    async fn tell<Q: Message>(
        &self,
        event: Event,
        pod: &PodSandbox,
        container: Option<&Container>,
        request: impl FnOnce(Option<PodSandbox>, Option<Container>) -> Q,
    ) -> Result<()> {
        if !self.active() {
            return Ok(());
        }
        let _turn = self.0.turn.lock().await;
        let plugins = self.wanting(event);
        if plugins.is_empty() {
            return Ok(());
        }
        let request = request(Some(pod.clone()), container.cloned());
        let state = StateChangeEvent { event: event.into(), pod: Some(pod.clone()), container: container.cloned() };
        for plugin in plugins {
            plugin.tell(event, &request, &state).await?;
        }
        Ok(())
    }
}
