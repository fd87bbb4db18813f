//! Exit records: what a shim leaves in `<bundle>/exits/<exec id or init>.json` until the exit is acknowledged
//! by Delete, so that no exit code is lost when daemon or shim die in between.

use std::{path::Path, time::SystemTime};

use serde::Deserialize;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::ExitStatus;

#[derive(Deserialize)]
struct Record {
    #[serde(default)]
    pid: u32,
    status: u32,
    #[serde(default)]
    exited_at: String,
}

/// How a process ended (the first one for an empty `exec_id`), when there is a record.
pub(crate) fn read(bundle: &Path, exec_id: &str) -> Option<ExitStatus> {
    let name = if exec_id.is_empty() { "init" } else { exec_id };
    core_types::identifiers::validate(name).ok()?;
    let data = std::fs::read(bundle.join("exits").join(format!("{name}.json"))).ok()?;
    let record: Record = serde_json::from_slice(&data).ok()?;
    let exited_at = OffsetDateTime::parse(&record.exited_at, &Rfc3339).ok().map(SystemTime::from);
    Some(ExitStatus { pid: record.pid, status: record.status, exited_at })
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
        std::fs::write(exits.join("init.json"), r#"{"pid":7,"status":143,"exited_at":"2023-11-14T22:13:20.000000005Z"}"#)
            .unwrap();
        std::fs::write(exits.join("e1.json"), "{").unwrap();
        let exit = read(dir.path(), "").unwrap();
        assert_eq!((exit.pid, exit.status), (7, 143));
        assert_eq!(exit.exited_at, Some(UNIX_EPOCH + Duration::new(1_700_000_000, 5)));
        assert!(read(dir.path(), "e1").is_none());
        assert!(read(dir.path(), "../init").is_none());
    }
}
