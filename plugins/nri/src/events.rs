//! Events: the method that carries each, the bit that subscribes to it.

use containerd_api_nri::v1alpha1::Event;

/// The mask of every event there is.
pub(crate) const ALL: i32 = (1 << (Event::Last as i32 - 1)) - 1;

/// The bit of an event in a subscription.
pub(crate) fn bit(event: Event) -> i32 {
    match event {
        Event::Unknown | Event::Last => 0,
        event => 1 << (event as i32 - 1),
    }
}

/// The method of the plugin that takes an event.
pub(crate) fn method(event: Event) -> &'static str {
    match event {
        Event::RunPodSandbox => "RunPodSandbox",
        Event::UpdatePodSandbox => "UpdatePodSandbox",
        Event::PostUpdatePodSandbox => "PostUpdatePodSandbox",
        Event::StopPodSandbox => "StopPodSandbox",
        Event::RemovePodSandbox => "RemovePodSandbox",
        Event::CreateContainer => "CreateContainer",
        Event::PostCreateContainer => "PostCreateContainer",
        Event::StartContainer => "StartContainer",
        Event::PostStartContainer => "PostStartContainer",
        Event::UpdateContainer => "UpdateContainer",
        Event::PostUpdateContainer => "PostUpdateContainer",
        Event::StopContainer => "StopContainer",
        Event::RemoveContainer => "RemoveContainer",
        Event::ValidateContainerAdjustment => "ValidateContainerAdjustment",
        Event::Unknown | Event::Last => "StateChange",
    }
}

/// Whether a plugin that lacks the method of an event takes it as a change of state.
pub(crate) fn is_state_change(event: Event) -> bool {
    !matches!(
        event,
        Event::UpdatePodSandbox
            | Event::CreateContainer
            | Event::UpdateContainer
            | Event::StopContainer
            | Event::ValidateContainerAdjustment
    )
}
