use core_types::ErrorKind;
use tonic::Code;

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong in using the API.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The daemon answered with an error.
    #[error("{message}")]
    Rpc {
        /// Its gRPC code.
        code: Code,
        /// Its text.
        message: String,
    },
    /// The daemon could not be reached.
    #[error("cannot connect to {address}: {reason} (is containerd running there?)")]
    Connect {
        /// Where it was looked for.
        address: String,
        /// Why not.
        reason: String,
    },
    /// This side failed, for example in reading a file.
    #[error("{0}")]
    Local(#[from] core_types::Error),
    /// The daemon's answer lacks something that the API promises.
    #[error("the daemon's answer has no {0}")]
    Incomplete(&'static str),
}

impl Error {
    /// The kind of failure, by which to act.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Rpc { code, .. } => ErrorKind::from_code((*code).into()),
            Self::Connect { .. } => ErrorKind::Unavailable,
            Self::Local(error) => error.kind(),
            Self::Incomplete(_) => ErrorKind::Internal,
        }
    }

    /// The gRPC code, when the daemon answered.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Rpc { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether the object is not there.
    pub fn is_not_found(&self) -> bool {
        self.kind() == ErrorKind::NotFound
    }

    /// Whether the object is there already.
    pub fn is_already_exists(&self) -> bool {
        self.kind() == ErrorKind::AlreadyExists
    }

    /// Whether the daemon does not offer this.
    pub fn is_unimplemented(&self) -> bool {
        self.kind() == ErrorKind::Unimplemented
    }

    pub(crate) fn io(doing: impl std::fmt::Display, error: std::io::Error) -> Self {
        Self::Local(core_types::Error::io(doing, error))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::Local(core_types::Error::invalid_argument(message))
    }
}

impl From<tonic::Status> for Error {
    fn from(status: tonic::Status) -> Self {
        let kind = kind_text(status.code());
        let message = match status.message() {
            "" => kind.to_owned(),
            message if message.ends_with(kind) => message.to_owned(),
            message => format!("{message}: {kind}"),
        };
        Self::Rpc { code: status.code(), message }
    }
}

impl From<Error> for core_types::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Local(error) => error,
            other => Self::new(other.kind(), other.to_string()),
        }
    }
}

/// How clients of containerd write a code; it ends the text of every error.
fn kind_text(code: Code) -> &'static str {
    match code {
        Code::Cancelled => "context canceled",
        Code::InvalidArgument => "invalid argument",
        Code::DeadlineExceeded => "context deadline exceeded",
        Code::NotFound => "not found",
        Code::AlreadyExists => "already exists",
        Code::PermissionDenied => "permission denied",
        Code::ResourceExhausted => "resource exhausted",
        Code::FailedPrecondition => "failed precondition",
        Code::Aborted => "aborted",
        Code::OutOfRange => "out of range",
        Code::Unimplemented => "not implemented",
        Code::Internal => "internal",
        Code::Unavailable => "unavailable",
        Code::DataLoss => "data loss",
        Code::Unauthenticated => "unauthenticated",
        Code::Ok | Code::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_an_answer_is_kept() {
        let error = Error::from(tonic::Status::not_found("container \"x\": not found"));
        assert!(error.is_not_found());
        assert_eq!(error.code(), Some(Code::NotFound));
        let core = core_types::Error::from(error);
        assert_eq!(core.message(), "container \"x\": not found");
        assert!(core.is_not_found());
    }

    #[test]
    fn every_text_ends_with_its_kind_once() {
        let text = |status| Error::from(status).to_string();
        assert_eq!(text(tonic::Status::not_found("image \"x\"")), "image \"x\": not found");
        assert_eq!(text(tonic::Status::unavailable("")), "unavailable");
        assert_eq!(text(tonic::Status::unknown("runc create failed: unknown")), "runc create failed: unknown");
    }
}
