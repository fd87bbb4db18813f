//! Exit records: what a shim leaves in the bundle until the exit is acknowledged by Delete, so that no exit code
//! is lost when daemon or shim die in between.
//!
//! `exit.json` is of the first process, `exits/<exec id or init>.json` of any: pid, status, and `exited_at` as
//! nanoseconds since 1970 or as RFC 3339.

use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::Deserialize;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::ExitStatus;

#[derive(Deserialize)]
struct Record {
    #[serde(default)]
    pid: u32,
    status: u32,
    exited_at: Option<Moment>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Moment {
    Nanos(u64),
    Text(String),
}

impl Moment {
    fn time(self) -> Option<SystemTime> {
        match self {
            Self::Nanos(nanos) => UNIX_EPOCH.checked_add(Duration::from_nanos(nanos)),
            Self::Text(text) => OffsetDateTime::parse(&text, &Rfc3339).ok().map(SystemTime::from),
        }
    }
}

/// How a process ended (the first one for an empty `exec_id`), when there is a record.
pub(crate) fn read(bundle: &Path, exec_id: &str) -> Option<ExitStatus> {
    let name = if exec_id.is_empty() { "init" } else { exec_id };
    core_types::identifiers::validate(name).ok()?;
    let single = exec_id.is_empty().then(|| bundle.join("exit.json"));
    let each = bundle.join("exits").join(format!("{name}.json"));
    let data = single.into_iter().chain([each]).find_map(|path| std::fs::read(path).ok())?;
    let record: Record = serde_json::from_slice(&data).ok()?;
    Some(ExitStatus { pid: record.pid, status: record.status, exited_at: record.exited_at.and_then(Moment::time) })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_record_is_read_and_a_broken_one_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let exits = dir.path().join("exits");
        std::fs::create_dir(&exits).unwrap();
        std::fs::write(
            exits.join("init.json"),
            r#"{"pid":7,"status":143,"exited_at":"2023-11-14T22:13:20.000000005Z"}"#,
        )
        .unwrap();
        std::fs::write(exits.join("e1.json"), "{").unwrap();
        let exit = read(dir.path(), "").unwrap();
        assert_eq!((exit.pid, exit.status), (7, 143));
        assert_eq!(exit.exited_at, Some(UNIX_EPOCH + Duration::new(1_700_000_000, 5)));
        assert!(read(dir.path(), "e1").is_none());
        std::fs::write(
            dir.path().join("exit.json"),
            r#"{"pid":8,"status":9,"exited_at":1700000000000000005,"oom_killed":false}"#,
        )
        .unwrap();
        assert_eq!(read(dir.path(), "").unwrap(), ExitStatus { pid: 8, status: 9, exited_at: exit.exited_at });
        assert!(read(dir.path(), "../init").is_none());
    }
}
