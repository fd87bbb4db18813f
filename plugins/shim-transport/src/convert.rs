use std::time::SystemTime;

use containerd_api::{types::Mount, v1::types as task};
use containerd_ttrpc::Status;
use core_runtime_v2::{Any, Process, Status as TaskStatus};
use core_types::{Error, ErrorKind};

/// A status as the error of the same kind.
pub(crate) fn error(status: Status) -> Error {
    Error::new(ErrorKind::from_code(status.code), status.message)
}

/// An error as the status of the same code.
pub(crate) fn status(error: &Error) -> Status {
    Status::new(error.kind().code(), error.message())
}

pub(crate) fn any_to(any: Any) -> prost_types::Any {
    prost_types::Any { type_url: any.type_url, value: any.value.into() }
}

pub(crate) fn any_from(any: prost_types::Any) -> Any {
    Any { type_url: any.type_url, value: any.value.into() }
}

/// A time; none for the zero time, which Go writes as year 1, and for what is before 1970.
pub(crate) fn time(stamp: Option<prost_types::Timestamp>) -> Option<SystemTime> {
    let stamp = stamp.filter(|stamp| stamp.seconds > 0)?;
    SystemTime::try_from(stamp).ok()
}

pub(crate) fn mount(mount: core_mount::Mount) -> Mount {
    Mount { r#type: mount.kind, source: mount.source, target: mount.target, options: mount.options }
}

pub(crate) fn task_status(status: i32) -> TaskStatus {
    match task::Status::try_from(status) {
        Ok(task::Status::Created) => TaskStatus::Created,
        Ok(task::Status::Running) => TaskStatus::Running,
        Ok(task::Status::Stopped) => TaskStatus::Stopped,
        Ok(task::Status::Paused) => TaskStatus::Paused,
        Ok(task::Status::Pausing) => TaskStatus::Pausing,
        _ => TaskStatus::Unknown,
    }
}

pub(crate) fn process(process: task::ProcessInfo) -> Process {
    Process { pid: process.pid, info: process.info.map(any_from) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_survive_the_way_there_and_back() {
        for code in 1..=16 {
            let back = status(&error(Status::new(code, "why")));
            assert_eq!((back.code, back.message.as_str()), (code, "why"));
        }
        assert_eq!(error(Status::new(99, "")).kind(), ErrorKind::Unknown);
    }

    #[test]
    fn gos_zero_time_is_no_time() {
        assert_eq!(time(Some(prost_types::Timestamp { seconds: -62_135_596_800, nanos: 0 })), None);
        assert!(time(Some(prost_types::Timestamp { seconds: 1_700_000_000, nanos: 5 })).is_some());
    }
}
