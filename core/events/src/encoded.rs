//! Reads single fields of encoded task events, so that filters such as `event.container_id==web` work without
//! the generated types, which belong to the API layer.

use std::{borrow::Cow, str};

/// Field names and numbers of text fields of the task events (`api/events/task.proto`).
const CONTAINER_ID: (&str, u64) = ("container_id", 1);

/// Number of the text field at `path` in the message `type_url`; a path through a message has two numbers.
fn numbers(type_url: &str, path: &[&str]) -> Option<Vec<u64>> {
    let name = type_url.rsplit('/').next()?.strip_prefix("containerd.events.Task")?;
    let known =
        ["Create", "Start", "Delete", "Exit", "OOM", "ExecAdded", "ExecStarted", "Paused", "Resumed", "Checkpointed"];
    if !known.contains(&name) {
        return None;
    }
    let found = match (name, path) {
        (_, [field]) if *field == CONTAINER_ID.0 => vec![CONTAINER_ID.1],
        ("Create", ["bundle"]) => vec![2],
        ("Create", ["checkpoint"]) => vec![5],
        ("Create", ["io", "stdin"]) => vec![4, 1],
        ("Create", ["io", "stdout"]) => vec![4, 2],
        ("Create", ["io", "stderr"]) => vec![4, 3],
        ("Delete", ["id"]) => vec![5],
        ("Exit", ["id"]) | ("ExecAdded" | "ExecStarted", ["exec_id"]) | ("Checkpointed", ["checkpoint"]) => vec![2],
        _ => return None,
    };
    Some(found)
}

/// The text at `path` in an encoded event. Empty text counts as set, as it does in the decoded message.
pub(crate) fn field<'a>(type_url: &str, value: &'a [u8], path: &[&str]) -> Option<Cow<'a, str>> {
    let mut message = value;
    let numbers = numbers(type_url, path)?;
    let (last, through) = numbers.split_last()?;
    for number in through {
        message = last_bytes(message, *number)??;
    }
    let text = last_bytes(message, *last)?.unwrap_or_default();
    str::from_utf8(text).ok().map(Cow::Borrowed)
}

/// The last length-delimited field `number` of a message, as the encoding demands. None for a broken message,
/// an inner none for an absent field.
fn last_bytes(mut message: &[u8], number: u64) -> Option<Option<&[u8]>> {
    let mut found = None;
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        match tag & 7 {
            0 => drop(varint(&mut message)?),
            1 => drop(take(&mut message, 8)?),
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                let bytes = take(&mut message, length)?;
                if tag >> 3 == number {
                    found = Some(bytes);
                }
            }
            5 => drop(take(&mut message, 4)?),
            _ => return None,
        }
    }
    Some(found)
}

fn take<'a>(message: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = message.split_at_checked(length)?;
    *message = rest;
    Some(taken)
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXIT: &str = "containerd.events.TaskExit";
    /// container_id "web", id "exec-1", pid 300.
    const MESSAGE: &[u8] = b"\x0a\x03web\x12\x06exec-1\x18\xac\x02";

    #[test]
    fn text_fields_are_found_by_name() {
        assert_eq!(field(EXIT, MESSAGE, &["container_id"]).as_deref(), Some("web"));
        assert_eq!(
            field("type.googleapis.com/containerd.events.TaskExit", MESSAGE, &["id"]).as_deref(),
            Some("exec-1")
        );
        assert_eq!(field(EXIT, MESSAGE, &["pid"]), None);
        assert_eq!(field(EXIT, b"", &["id"]).as_deref(), Some(""));
        assert_eq!(field("containerd.events.Other", MESSAGE, &["container_id"]), None);
        let create = b"\x22\x05\x12\x03out";
        assert_eq!(field("containerd.events.TaskCreate", create, &["io", "stdout"]).as_deref(), Some("out"));
    }

    #[test]
    fn broken_messages_have_no_fields() {
        for message in
            [&b"\x0a"[..], b"\x0a\x7fx", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x0b", b"\x0a\x01\xff"]
        {
            assert_eq!(field(EXIT, message, &["container_id"]), None, "{message:?}");
        }
    }
}
