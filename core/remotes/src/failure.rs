use core_types::{Error, ErrorKind};
use reqwest::{Response, StatusCode};
use serde::Deserialize;

use crate::clients::chain;

/// The most bytes read of the body of an error.
const MAX_ERROR_BODY: usize = 16 * 1024;
/// The most characters of a registry's message that are shown.
const MAX_SHOWN: usize = 512;

/// Why one host did not give what it was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The host.
    pub(crate) host: String,
    /// What it answered with, if it answered.
    pub(crate) status: Option<StatusCode>,
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
}

impl Failure {
    /// A failure before or instead of an answer.
    pub(crate) fn new(host: &str, kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { host: host.to_owned(), status: None, kind, message: message.into() }
    }

    pub(crate) fn from_error(host: &str, error: &Error) -> Self {
        Self::new(host, error.kind(), error.message())
    }

    /// The transport failed.
    pub(crate) fn transport(host: &str, error: &reqwest::Error) -> Self {
        let kind = if error.is_timeout() { ErrorKind::DeadlineExceeded } else { ErrorKind::Unavailable };
        Self::new(host, kind, chain(error))
    }

    /// The host answered, but not with what was asked for. Reads the registry's own explanation.
    pub(crate) async fn status(host: &str, response: Response) -> Self {
        let status = response.status();
        let detail = read_detail(response).await;
        Self::from_status(host, status, &detail)
    }

    pub(crate) fn from_status(host: &str, status: StatusCode, detail: &str) -> Self {
        let mut message = match status {
            StatusCode::NOT_FOUND => "not found".to_owned(),
            StatusCode::UNAUTHORIZED => {
                "access denied, the repository does not exist or may require authorization (401)".to_owned()
            }
            other => format!("unexpected status {other}"),
        };
        if !detail.is_empty() {
            message = format!("{message}: {detail}");
        }
        Self { host: host.to_owned(), status: Some(status), kind: kind_of(status), message }
    }

    /// How far it got: a host that answered says more than one that did not, and "no" says more than "not here".
    fn weight(&self) -> u8 {
        match self.status {
            None if self.kind == ErrorKind::Unauthenticated => 3,
            None => 1,
            Some(StatusCode::NOT_FOUND) => 2,
            Some(_) => 3,
        }
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.status == Some(StatusCode::NOT_FOUND)
    }
}

fn kind_of(status: StatusCode) -> ErrorKind {
    match status.as_u16() {
        400 | 405 | 406 | 413 | 414 | 415 => ErrorKind::InvalidArgument,
        401 => ErrorKind::Unauthenticated,
        403 => ErrorKind::PermissionDenied,
        404 | 410 => ErrorKind::NotFound,
        408 | 504 => ErrorKind::DeadlineExceeded,
        409 | 412 => ErrorKind::FailedPrecondition,
        416 => ErrorKind::OutOfRange,
        429 => ErrorKind::ResourceExhausted,
        501 => ErrorKind::Unimplemented,
        500..=599 => ErrorKind::Unavailable,
        _ => ErrorKind::Unknown,
    }
}

/// One error of all hosts' failures; the kind is that of the one that got farthest.
pub(crate) fn combine(doing: &str, failures: &[Failure]) -> Error {
    let mut best: Option<&Failure> = None;
    for failure in failures {
        if best.is_none_or(|best| failure.weight() > best.weight()) {
            best = Some(failure);
        }
    }
    let Some(best) = best else {
        return Error::not_found(format!("{doing}: no host is configured for this"));
    };
    let mut seen: Vec<String> = Vec::new();
    for failure in failures {
        let line = format!("{}: {}", failure.host, failure.message);
        if !seen.contains(&line) {
            seen.push(line);
        }
    }
    Error::new(best.kind, format!("{doing}: {}", seen.join("; ")))
}

#[derive(Deserialize)]
struct Errors {
    #[serde(default)]
    errors: Vec<OneError>,
    /// Some token servers answer with this alone.
    #[serde(default)]
    details: Option<String>,
}

#[derive(Deserialize)]
struct OneError {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// What the registry says in the body of an error, short and printable.
pub(crate) async fn read_detail(mut response: Response) -> String {
    let mut body = Vec::new();
    let reading = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            let room = MAX_ERROR_BODY - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if body.len() == MAX_ERROR_BODY {
                break;
            }
        }
    };
    // A body that does not come costs the explanation, nothing else.
    let _ = tokio::time::timeout(std::time::Duration::from_secs(10), reading).await;
    detail_of(&body)
}

fn detail_of(body: &[u8]) -> String {
    let Ok(parsed) = serde_json::from_slice::<Errors>(body) else { return String::new() };
    let mut parts: Vec<String> = parsed
        .errors
        .into_iter()
        .take(4)
        .map(|error| match (error.code.is_empty(), error.message.is_empty()) {
            (false, false) => format!("{}: {}", error.code, error.message),
            (false, true) => error.code,
            _ => error.message,
        })
        .filter(|text| !text.is_empty())
        .collect();
    parts.extend(parsed.details);
    printable(&parts.join("; "))
}

/// Text from outside, bounded and without control characters.
pub(crate) fn printable(text: &str) -> String {
    text.chars().take(MAX_SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_hosts_are_named_and_the_farthest_gives_the_kind() {
        let failures = [
            Failure::new("mirror.example", ErrorKind::Unavailable, "connection refused"),
            Failure::from_status("a.example", StatusCode::NOT_FOUND, ""),
            Failure::from_status("b.example", StatusCode::FORBIDDEN, "DENIED: no"),
        ];
        let error = combine("resolve x", &failures);
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        for part in ["mirror.example: connection refused", "a.example: not found", "b.example: ", "DENIED: no"] {
            assert!(error.message().contains(part), "{error}");
        }
        assert_eq!(combine("x", &failures[..2]).kind(), ErrorKind::NotFound);
        assert_eq!(combine("x", &[]).kind(), ErrorKind::NotFound);
    }

    #[test]
    fn bodies_of_errors_are_bounded_and_printable() {
        let body = br#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest\u001b[2Junknown","detail":{"a":1}}]}"#;
        assert_eq!(detail_of(body), "MANIFEST_UNKNOWN: manifest [2Junknown");
        assert_eq!(detail_of(b"<html>"), "");
        let long = format!(r#"{{"errors":[{{"code":"{}"}}]}}"#, "x".repeat(10_000));
        assert_eq!(detail_of(long.as_bytes()).len(), MAX_SHOWN);
    }
}
