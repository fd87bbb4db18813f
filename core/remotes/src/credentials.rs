use std::fmt;

use async_trait::async_trait;
use core_types::Result;

/// A password or token. Its text never appears in `Debug` output.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the one place that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<hidden>")
    }
}

/// How a client proves who it is to a registry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Credential {
    /// Not at all.
    #[default]
    Anonymous,
    /// By name and password.
    Password {
        /// The name.
        username: String,
        /// The password.
        password: Secret,
    },
    /// By a refresh token (identity token), which the token server exchanges.
    Refresh(Secret),
    /// By this `Authorization` header, as it is.
    Header(Secret),
}

/// Knows the credentials for registries. It is asked only after a host demanded authentication, and the answer
/// goes only to that host or the token server that it names.
#[async_trait]
pub trait Credentials: Send + Sync {
    /// The credential for `host` (as in the URL, with its port; `registry-1.docker.io` for Docker Hub), wanted
    /// in dealing with the image `reference`.
    ///
    /// # Errors
    /// What kept it from finding out; the request fails then.
    async fn credential(&self, host: &str, reference: &str) -> Result<Credential>;
}
