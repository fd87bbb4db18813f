use core_types::Error;

/// Result of starting a plugin.
pub type InitResult<T> = Result<T, InitError>;

/// Why a plugin did not start.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// It has nothing to do on this machine or with this configuration; not a fault.
    #[error("skip plugin: {0}")]
    Skip(String),
    /// It should have started.
    #[error("{0}")]
    Failed(#[from] Error),
}

impl InitError {
    /// The plugin has nothing to do, and why.
    pub fn skip(why: impl Into<String>) -> Self {
        Self::Skip(why.into())
    }

    /// Whether this is no fault.
    pub fn is_skip(&self) -> bool {
        matches!(self, Self::Skip(_))
    }
}
