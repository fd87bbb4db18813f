use std::{fmt, io};

use core_types::ErrorKind;

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a layer could not be read, extracted or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The archive breaks its format or a limit, or tries to leave its root.
    #[error("invalid layer archive: {0}")]
    Invalid(String),
    /// The archive or its compressed stream stops before its end.
    #[error("layer archive is truncated: {0}")]
    Truncated(String),
    /// The compressed stream is corrupt.
    #[error("layer cannot be decompressed: {0}")]
    Compression(#[source] io::Error),
    /// A kind of archive or entry that is not handled.
    #[error("{0}")]
    Unsupported(String),
    /// Something else changed the tree while it was read.
    #[error("{0}")]
    Changed(String),
    /// Reading the layer or touching the disk failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// The cause.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(doing: impl fmt::Display, source: impl Into<io::Error>) -> Self {
        Self::Io { doing: doing.to_string(), source: source.into() }
    }

    pub(crate) fn invalid(why: impl fmt::Display) -> Self {
        Self::Invalid(why.to_string())
    }
}

impl From<Error> for core_types::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Invalid(_) | Error::Compression(_) => ErrorKind::InvalidArgument,
            Error::Truncated(_) => ErrorKind::DataLoss,
            Error::Unsupported(_) => ErrorKind::Unimplemented,
            Error::Changed(_) => ErrorKind::Aborted,
            Error::Io { source, .. } => {
                // A full error from a stream that speaks our language keeps its kind.
                let known = source.get_ref().and_then(|inner| inner.downcast_ref::<Self>());
                known.map_or_else(|| Self::from(io::Error::from(source.kind())).kind(), Self::kind)
            }
        };
        Self::new(kind, error.to_string()).with_source(error)
    }
}

/// A name from an archive as error text: lossy, quoted, cut.
pub(crate) fn shown(name: &[u8]) -> String {
    let cut = &name[..name.len().min(256)];
    format!("{:?}{}", String::from_utf8_lossy(cut), if cut.len() < name.len() { "…" } else { "" })
}
