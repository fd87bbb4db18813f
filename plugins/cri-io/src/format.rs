//! From bytes to lines of a CRI log: `<time> stdout|stderr F|P <content>`.

use std::{io::Write, time::SystemTime};

/// Longest line when there is no limit, so that a container cannot use up the daemon's memory.
const HARD_LIMIT: usize = 64 << 20;

/// One of the two outputs of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    /// Both, in the order of every array of two here.
    pub(crate) const BOTH: [Self; 2] = [Self::Stdout, Self::Stderr];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// The start of a line, up to its content.
struct Head {
    full: Vec<u8>,
    partial: Vec<u8>,
}

impl Head {
    fn new(stream: Stream, now: SystemTime) -> Self {
        let head = |tag: char| {
            let mut head = Vec::with_capacity(48);
            let now = time::OffsetDateTime::from(now);
            let (date, time) = (now.date(), now.time());
            // Writing to memory does not fail.
            let _ = write!(
                head,
                "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:09}Z {} {tag} ",
                date.year(),
                u8::from(date.month()),
                date.day(),
                time.hour(),
                time.minute(),
                time.second(),
                time.nanosecond(),
                stream.name(),
            );
            head
        };
        Self { full: head('F'), partial: head('P') }
    }
}

/// Cuts a stream into lines, and those that are too long into parts.
///
/// What it makes of a stream does not depend on how the stream comes in pieces. A carriage return before the end
/// of a line belongs to the end. A line longer than the limit becomes parts of that length, the last tagged full;
/// the rest of a stream that does not end in a newline is tagged partial.
#[derive(Debug)]
pub(crate) struct Lines {
    stream: Stream,
    limit: usize,
    /// A line that has begun: at most `limit` bytes and a carriage return that may belong to its end.
    begun: Vec<u8>,
}

impl Lines {
    pub(crate) fn new(stream: Stream, limit: Option<usize>) -> Self {
        Self { stream, limit: limit.unwrap_or(HARD_LIMIT).clamp(1, HARD_LIMIT), begun: Vec::new() }
    }

    /// Appends the lines to `out` that `bytes`, read at `now`, complete.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], now: SystemTime, out: &mut Vec<u8>) {
        let head = Head::new(self.stream, now);
        while let Some(at) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = bytes.split_at(at);
            bytes = rest.get(1..).unwrap_or_default();
            if self.begun.is_empty() {
                self.put_line(&head, line, out);
            } else {
                let mut whole = std::mem::take(&mut self.begun);
                whole.extend_from_slice(line);
                self.put_line(&head, &whole, out);
                // Kept for the next: an unterminated line is likely to be followed by another.
                whole.clear();
                self.begun = whole;
            }
        }
        self.begin(&head, bytes, out);
    }

    /// Appends what is left as a partial line.
    pub(crate) fn finish(&mut self, now: SystemTime, out: &mut Vec<u8>) {
        let rest = std::mem::take(&mut self.begun);
        if !rest.is_empty() {
            let head = Head::new(self.stream, now);
            let rest = self.put_parts(&head, &rest, out);
            put(&head.partial, rest, out);
        }
    }

    pub(crate) fn has_begun(&self) -> bool {
        !self.begun.is_empty()
    }

    /// Keeps the start of a line, but for the parts that are complete.
    fn begin(&mut self, head: &Head, bytes: &[u8], out: &mut Vec<u8>) {
        if bytes.is_empty() {
            if self.begun.capacity() > 4096 && self.begun.is_empty() {
                self.begun = Vec::new();
            }
            return;
        }
        self.begun.extend_from_slice(bytes);
        if self.begun.len() > self.limit {
            let begun = std::mem::take(&mut self.begun);
            // A last carriage return may belong to the end of the line, and then the part is not a part.
            let kept = begun.strip_suffix(b"\r").unwrap_or(&begun);
            let rest = self.put_parts(head, kept, out).len() + begun.len() - kept.len();
            self.begun = begun.get(begun.len() - rest..).unwrap_or_default().to_vec();
        }
    }

    fn put_line(&self, head: &Head, line: &[u8], out: &mut Vec<u8>) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let rest = self.put_parts(head, line, out);
        put(&head.full, rest, out);
    }

    /// Puts all but the last part of a line, which is returned.
    fn put_parts<'a>(&self, head: &Head, mut line: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
        while line.len() > self.limit {
            let (part, rest) = line.split_at(self.limit);
            put(&head.partial, part, out);
            line = rest;
        }
        line
    }
}

fn put(head: &[u8], content: &[u8], out: &mut Vec<u8>) {
    out.reserve(head.len() + content.len() + 1);
    out.extend_from_slice(head);
    out.extend_from_slice(content);
    out.push(b'\n');
}

#[cfg(test)]
#[path = "format/tests.rs"]
mod tests;
