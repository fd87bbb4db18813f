use std::time::SystemTime;

use containerd_api::{any, events, types};
use containerd_ttrpc::Status;
use core_mount::Mount;
use core_shim::Event;
use core_types::Error;
use prost::Message;

/// The status that an error is reported as.
pub(crate) fn status(error: Error) -> Status {
    Status::new(error.kind().code(), error.message())
}

/// A mount of a request.
pub(crate) fn mount(mount: types::Mount) -> Mount {
    Mount { kind: mount.r#type, source: mount.source, target: mount.target, options: mount.options }
}

fn api_mount(mount: Mount) -> types::Mount {
    types::Mount { r#type: mount.kind, source: mount.source, target: mount.target, options: mount.options }
}

/// An event as the daemon takes it.
pub(crate) fn envelope(event: Event, namespace: &str) -> types::Envelope {
    let pack = |topic: &str, name: &str, value: Vec<u8>| {
        (topic.to_owned(), prost_types::Any { type_url: format!("containerd.events.{name}"), value })
    };
    let (topic, event) = match event {
        Event::Create { id, bundle, rootfs, stdio, checkpoint, pid } => {
            let io = events::TaskIo {
                stdin: stdio.stdin,
                stdout: stdio.stdout,
                stderr: stdio.stderr,
                terminal: stdio.terminal,
            };
            let rootfs = rootfs.into_iter().map(api_mount).collect();
            let message = events::TaskCreate { container_id: id, bundle, rootfs, io: Some(io), checkpoint, pid };
            pack("/tasks/create", "TaskCreate", message.encode_to_vec())
        }
        Event::Start { id, pid } => {
            pack("/tasks/start", "TaskStart", events::TaskStart { container_id: id, pid }.encode_to_vec())
        }
        Event::ExecAdded { id, exec_id } => {
            let message = events::TaskExecAdded { container_id: id, exec_id };
            pack("/tasks/exec-added", "TaskExecAdded", message.encode_to_vec())
        }
        Event::ExecStarted { id, exec_id, pid } => {
            let message = events::TaskExecStarted { container_id: id, exec_id, pid };
            pack("/tasks/exec-started", "TaskExecStarted", message.encode_to_vec())
        }
        Event::Oom { id } => pack("/tasks/oom", "TaskOOM", events::TaskOom { container_id: id }.encode_to_vec()),
        Event::Exit { id, process, exit } => {
            let message = events::TaskExit {
                container_id: id,
                id: process,
                pid: exit.pid,
                exit_status: exit.status,
                exited_at: Some(exit.at.into()),
            };
            pack("/tasks/exit", "TaskExit", message.encode_to_vec())
        }
        Event::Delete { id, exit } => {
            let message = events::TaskDelete {
                container_id: id,
                pid: exit.pid,
                exit_status: exit.status,
                exited_at: Some(exit.at.into()),
                id: String::new(),
            };
            pack("/tasks/delete", "TaskDelete", message.encode_to_vec())
        }
        Event::Paused { id } => {
            pack("/tasks/paused", "TaskPaused", events::TaskPaused { container_id: id }.encode_to_vec())
        }
        Event::Resumed { id } => {
            pack("/tasks/resumed", "TaskResumed", events::TaskResumed { container_id: id }.encode_to_vec())
        }
    };
    types::Envelope {
        timestamp: Some(SystemTime::now().into()),
        namespace: namespace.to_owned(),
        topic,
        event: Some(event),
    }
}

/// What says which exec a process is.
pub(crate) fn process_details(exec_id: String) -> prost_types::Any {
    any::pack("containerd.runc.v1.ProcessDetails", &containerd_api::runc::v1::ProcessDetails { exec_id })
}
