//! The two events that the daemon publishes itself, for a task whose shim died: its shim would have.

use core_events::{Event, Publisher};
use core_types::Namespace;

use crate::{Any, ExitStatus, wire};

/// Topic of the end of a process.
pub(crate) const EXIT: &str = "/tasks/exit";
/// Topic of the end of a task.
pub(crate) const DELETE: &str = "/tasks/delete";

/// `containerd.events.TaskExit` of the first process.
pub(crate) fn exit(events: &dyn Publisher, namespace: &Namespace, id: &str, exit: &ExitStatus) {
    let value = wire::Writer::default()
        .bytes(1, id.as_bytes())
        .bytes(2, id.as_bytes())
        .number(3, u64::from(exit.pid))
        .number(4, u64::from(exit.status))
        .time(5, exit.exited_at)
        .finish();
    publish(events, namespace, EXIT, "containerd.events.TaskExit", value);
}

/// `containerd.events.TaskDelete`.
pub(crate) fn delete(events: &dyn Publisher, namespace: &Namespace, id: &str, exit: &ExitStatus) {
    let value = wire::Writer::default()
        .bytes(1, id.as_bytes())
        .number(2, u64::from(exit.pid))
        .number(3, u64::from(exit.status))
        .time(4, exit.exited_at)
        .finish();
    publish(events, namespace, DELETE, "containerd.events.TaskDelete", value);
}

fn publish(events: &dyn Publisher, namespace: &Namespace, topic: &str, name: &str, value: Vec<u8>) {
    let event = Event::Encoded(Any { type_url: name.to_owned(), value: value.into() });
    if let Err(error) = events.publish(namespace, topic, event) {
        tracing::warn!(%namespace, topic, %error, "event not published");
    }
}

/// Whose end an event that a shim published tells: the container's id, when it is of the first process.
pub(crate) fn subject(topic: &str, event: &Any) -> Option<String> {
    // TaskExit has the process's name in field 2, TaskDelete in field 5.
    let process = match topic {
        EXIT => 2,
        DELETE => 5,
        _ => return None,
    };
    let (mut container, mut name) = (String::new(), String::new());
    for (field, value) in wire::fields(&event.value).ok()? {
        match field {
            1 => container = value.text().ok()?,
            field if field == process => name = value.text().ok()?,
            _ => {}
        }
    }
    (name.is_empty() || name == container).then_some(container)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_process_counts() {
        let event = |fields: wire::Writer| Any { type_url: String::new(), value: fields.finish().into() };
        let init = event(wire::Writer::default().bytes(1, b"c").bytes(2, b"c").number(3, 5));
        let exec = event(wire::Writer::default().bytes(1, b"c").bytes(2, b"e").number(3, 5));
        assert_eq!(subject(EXIT, &init).as_deref(), Some("c"));
        assert_eq!(subject(EXIT, &exec), None);
        assert_eq!(subject("/tasks/start", &init), None);
        let delete = event(wire::Writer::default().bytes(1, b"c").number(2, 5));
        assert_eq!(subject(DELETE, &delete).as_deref(), Some("c"));
    }
}
