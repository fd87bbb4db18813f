use std::time::Duration;

use k8s_cri::v1::{ContainerEventType as Kind, *};

use crate::node::{Node, skip};

#[tokio::test]
async fn each_step_of_pods_and_containers_is_an_event_in_order() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let mut readers = Vec::new();
    for _ in 0..2 {
        readers.push(node.runtime.get_container_events(GetEventsRequest {}).await.unwrap().into_inner());
    }
    let pod_config = node.pod();
    let pod = node.run_pod(&pod_config).await;
    let config = node.container("exit 3");
    let id = node.run(&pod, &pod_config, config).await;
    node.ended(&id).await;
    node.runtime.remove_container(RemoveContainerRequest { container_id: id.clone() }).await.unwrap();
    node.remove_pod(&pod).await;
    for mut reader in readers {
        let mut events = Vec::new();
        loop {
            let next = tokio::time::timeout(Duration::from_secs(60), reader.message()).await;
            let event = next.unwrap_or_else(|_| panic!("no more than {events:#?}")).unwrap().unwrap();
            let last = event.container_id == pod && event.container_event_type() == Kind::ContainerDeletedEvent;
            events.push(event);
            if last {
                break;
            }
        }
        let of = |wanted: &str| -> Vec<Kind> {
            let mine = events.iter().filter(|event| event.container_id == wanted);
            mine.map(ContainerEventResponse::container_event_type).collect()
        };
        let steps = [
            Kind::ContainerCreatedEvent,
            Kind::ContainerStartedEvent,
            Kind::ContainerStoppedEvent,
            Kind::ContainerDeletedEvent,
        ];
        assert_eq!(of(&id), steps, "of the container");
        assert_eq!(of(&pod), steps, "of the pod");
        assert!(events.is_sorted_by_key(|event| event.created_at));
        let stopped = events
            .iter()
            .find(|event| event.container_id == id && event.container_event_type() == Kind::ContainerStoppedEvent)
            .unwrap();
        let status = &stopped.containers_statuses[0];
        assert_eq!((status.state(), status.exit_code), (ContainerState::ContainerExited, 3));
        assert_eq!(stopped.pod_sandbox_status.as_ref().unwrap().state(), PodSandboxState::SandboxReady);
        let gone = events.last().unwrap();
        assert!(gone.pod_sandbox_status.is_none() && gone.containers_statuses.is_empty(), "{gone:?}");
    }
    node.assert_clean();
}
