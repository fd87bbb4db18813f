use std::{error::Error as StdError, fmt};

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kinds of failure that the API knows, with gRPC's codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The caller gave up.
    Cancelled = 1,
    /// Nothing better is known.
    Unknown = 2,
    /// The request can never be right.
    InvalidArgument = 3,
    /// The time allowed ran out.
    DeadlineExceeded = 4,
    /// The named object is not there.
    NotFound = 5,
    /// The named object is there already.
    AlreadyExists = 6,
    /// The caller may not.
    PermissionDenied = 7,
    /// Disk, memory or another limit is used up.
    ResourceExhausted = 8,
    /// The object is in a state that forbids the request.
    FailedPrecondition = 9,
    /// Another request was faster.
    Aborted = 10,
    /// An offset is outside the object.
    OutOfRange = 11,
    /// Not offered here.
    Unimplemented = 12,
    /// A fault of this program or its host.
    Internal = 13,
    /// Try again later.
    Unavailable = 14,
    /// Stored data is damaged.
    DataLoss = 15,
    /// The caller did not say who it is.
    Unauthenticated = 16,
}

impl ErrorKind {
    /// Every kind, in the order of the codes.
    const ALL: [Self; 16] = [
        Self::Cancelled,
        Self::Unknown,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::NotFound,
        Self::AlreadyExists,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Aborted,
        Self::OutOfRange,
        Self::Unimplemented,
        Self::Internal,
        Self::Unavailable,
        Self::DataLoss,
        Self::Unauthenticated,
    ];

    /// Its code in gRPC and ttrpc, the one table of the workspace.
    pub fn code(self) -> i32 {
        self as i32
    }

    /// The kind of a code; Unknown for one that stands for no failure that is known here.
    pub fn from_code(code: i32) -> Self {
        Self::ALL.into_iter().find(|kind| kind.code() == code).unwrap_or(Self::Unknown)
    }
}

/// What went wrong, of which kind, and in doing what.
///
/// The text reads from the outside in: each [`context`](Error::context) is put before what it wraps.
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

macro_rules! constructors {
    ($($name:ident => $kind:ident),* $(,)?) => {
        impl Error {
            $(
                #[doc = concat!("An error of kind [`ErrorKind::", stringify!($kind), "`].")]
                pub fn $name(message: impl Into<String>) -> Self {
                    Self::new(ErrorKind::$kind, message)
                }
            )*
        }
    };
}

constructors! {
    cancelled => Cancelled,
    unknown => Unknown,
    invalid_argument => InvalidArgument,
    deadline_exceeded => DeadlineExceeded,
    not_found => NotFound,
    already_exists => AlreadyExists,
    permission_denied => PermissionDenied,
    resource_exhausted => ResourceExhausted,
    failed_precondition => FailedPrecondition,
    aborted => Aborted,
    out_of_range => OutOfRange,
    unimplemented => Unimplemented,
    internal => Internal,
    unavailable => Unavailable,
    data_loss => DataLoss,
    unauthenticated => Unauthenticated,
}

impl Error {
    /// An error of any kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Keeps the error that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Says what was being done when it happened; the kind stays.
    #[must_use]
    pub fn context(mut self, doing: impl fmt::Display) -> Self {
        self.message = format!("{doing}: {}", self.message);
        self
    }

    /// An I/O error with the kind its cause suggests, and what was being done.
    pub fn io(doing: impl fmt::Display, error: std::io::Error) -> Self {
        Self::from(error).context(doing)
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The whole text.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether the object was not there.
    pub fn is_not_found(&self) -> bool {
        self.kind == ErrorKind::NotFound
    }

    /// Whether the object was there already.
    pub fn is_already_exists(&self) -> bool {
        self.kind == ErrorKind::AlreadyExists
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as &(dyn StdError + 'static))
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind as Io;
        let kind = match error.kind() {
            Io::NotFound => ErrorKind::NotFound,
            Io::AlreadyExists => ErrorKind::AlreadyExists,
            Io::PermissionDenied => ErrorKind::PermissionDenied,
            Io::StorageFull | Io::QuotaExceeded | Io::OutOfMemory => ErrorKind::ResourceExhausted,
            Io::TimedOut => ErrorKind::DeadlineExceeded,
            Io::InvalidInput => ErrorKind::InvalidArgument,
            Io::ConnectionRefused | Io::ConnectionReset | Io::BrokenPipe => ErrorKind::Unavailable,
            _ => ErrorKind::Unknown,
        };
        Self::new(kind, error.to_string()).with_source(error)
    }
}

/// Adds context to results that hold an [`Error`] or anything that becomes one.
pub trait ResultExt<T> {
    /// Says what was being done; see [`Error::context`].
    ///
    /// # Errors
    /// The error that was there, with the text in front.
    fn doing(self, what: impl fmt::Display) -> Result<T>;
}

impl<T, E: Into<Error>> ResultExt<T> for Result<T, E> {
    fn doing(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|error| error.into().context(what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_reads_from_the_outside_in_and_keeps_the_kind() {
        let error = Error::not_found("no such file").context("open config").context("start");
        assert_eq!(error.to_string(), "start: open config: no such file");
        assert!(error.is_not_found());
    }

    #[test]
    fn codes_are_those_of_grpc_and_lead_back() {
        assert_eq!(
            (ErrorKind::Cancelled.code(), ErrorKind::NotFound.code(), ErrorKind::Unauthenticated.code()),
            (1, 5, 16)
        );
        for (at, kind) in (1..).zip(ErrorKind::ALL) {
            assert_eq!((kind.code(), ErrorKind::from_code(at)), (at, kind));
        }
        assert_eq!([0, 17, -1].map(ErrorKind::from_code), [ErrorKind::Unknown; 3]);
    }

    #[test]
    fn a_full_disk_is_resource_exhausted() {
        let error = Error::io("write blob", std::io::Error::from_raw_os_error(28));
        assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
        assert!(error.message().starts_with("write blob: "));
    }
}
