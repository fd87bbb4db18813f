use core_types::{Error, ErrorKind};

/// Result with [`SpecError`].
pub type Result<T, E = SpecError> = std::result::Result<T, E>;

/// Why no specification can be made of a request. Every kind names the field of the request, as
/// `config.linux.security_context.run_as_group`.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// The field can never be right as it is.
    #[error("{field}: {reason}")]
    Invalid {
        /// The field.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The field asks for something that this host or its configuration does not have.
    #[error("{field}: {reason}")]
    Unsupported {
        /// The field.
        field: String,
        /// What is missing.
        reason: String,
    },
    /// What the field names could not be looked up.
    #[error("{field}: {source}")]
    Lookup {
        /// The field.
        field: String,
        /// Why not.
        #[source]
        source: Error,
    },
}

impl SpecError {
    /// A field that is wrong.
    pub(crate) fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), reason: reason.into() }
    }

    /// A field that asks for too much of this host.
    pub(crate) fn unsupported(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Unsupported { field: field.into(), reason: reason.into() }
    }

    /// For `map_err` of a look-up.
    pub(crate) fn at(field: impl Into<String>) -> impl FnOnce(Error) -> Self {
        let field = field.into();
        move |source| Self::Lookup { field, source }
    }

    /// The field that is wrong.
    pub fn field(&self) -> &str {
        match self {
            Self::Invalid { field, .. } | Self::Unsupported { field, .. } | Self::Lookup { field, .. } => field,
        }
    }
}

impl From<SpecError> for Error {
    fn from(error: SpecError) -> Self {
        match error {
            SpecError::Invalid { .. } => Self::invalid_argument(error.to_string()),
            SpecError::Unsupported { .. } => Self::failed_precondition(error.to_string()),
            // What a request names and is not there, is an error of the request; NotFound would be read as
            // "no such container".
            SpecError::Lookup { source, field } if source.kind() == ErrorKind::NotFound => {
                Self::invalid_argument(format!("{field}: {source}"))
            }
            SpecError::Lookup { source, field } => source.context(field),
        }
    }
}
