use std::collections::BTreeMap;

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use containerd_api_cri::v1::AuthConfig;
use core_remotes::{Credential, Credentials, Secret};
use core_types::{Error, Result};

use crate::{RegistryAuth, RegistryConfig};

/// The host of a URL or of a bare address.
pub(crate) fn host_of(address: &str) -> &str {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    rest.split('/').next().unwrap_or_default()
}

/// Docker Hub has several names.
fn canonical(host: &str) -> &str {
    match host {
        "docker.io" | "index.docker.io" | "registry-1.docker.io" => "docker.io",
        other => other,
    }
}

/// Credentials of one pull: those of the request, else those of the configuration.
pub(crate) struct PullCredentials {
    pub(crate) request: Option<AuthConfig>,
    pub(crate) configs: BTreeMap<String, RegistryConfig>,
}

#[async_trait]
impl Credentials for PullCredentials {
    async fn credential(&self, host: &str, _reference: &str) -> Result<Credential> {
        if let Some(auth) = &self.request {
            return credential(auth, host);
        }
        let found = self.configs.iter().find(|(name, _)| canonical(name) == canonical(host));
        match found.and_then(|(_, config)| config.auth.as_ref()) {
            Some(auth) => credential(&from_config(auth), host),
            None => Ok(Credential::Anonymous),
        }
    }
}

fn from_config(auth: &RegistryAuth) -> AuthConfig {
    AuthConfig {
        username: auth.username.clone(),
        password: auth.password.clone(),
        auth: auth.auth.clone(),
        identity_token: auth.identitytoken.clone(),
        ..AuthConfig::default()
    }
}

/// What a request's credentials are for a host. Credentials for another host are none.
///
/// # Errors
/// InvalidArgument when `auth` is not base64 of user, colon and password.
fn credential(auth: &AuthConfig, host: &str) -> Result<Credential> {
    let address = host_of(&auth.server_address);
    if !address.is_empty() && canonical(address) != canonical(host) {
        return Ok(Credential::Anonymous);
    }
    if !auth.username.is_empty() {
        let password = Secret::new(&auth.password);
        return Ok(Credential::Password { username: auth.username.clone(), password });
    }
    if !auth.identity_token.is_empty() {
        return Ok(Credential::Refresh(Secret::new(&auth.identity_token)));
    }
    if !auth.auth.is_empty() {
        return decode(&auth.auth);
    }
    if !auth.registry_token.is_empty() {
        return Ok(Credential::Header(Secret::new(format!("Bearer {}", auth.registry_token))));
    }
    Ok(Credential::Anonymous)
}

fn decode(text: &str) -> Result<Credential> {
    // The text itself is a secret and stays out of the message.
    let refuse = || Error::invalid_argument("auth.auth is not the base64 of user:password");
    let bytes = STANDARD.decode(text.trim()).map_err(|_| refuse())?;
    let text = String::from_utf8(bytes).map_err(|_| refuse())?;
    let (username, password) = text.split_once(':').ok_or_else(refuse)?;
    let password = Secret::new(password.trim_matches('\0'));
    Ok(Credential::Password { username: username.to_owned(), password })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn password(username: &str, password: &str) -> Credential {
        Credential::Password { username: username.into(), password: Secret::new(password) }
    }

    #[test]
    fn each_kind_of_credential_is_understood() {
        let auth = |change: fn(&mut AuthConfig)| {
            let mut auth = AuthConfig::default();
            change(&mut auth);
            credential(&auth, "registry.example").unwrap()
        };
        assert_eq!(auth(|_| ()), Credential::Anonymous);
        assert_eq!(auth(|auth| (auth.username, auth.password) = ("u".into(), "p".into())), password("u", "p"));
        assert_eq!(auth(|auth| auth.auth = STANDARD.encode("u:p:q\0")), password("u", "p:q"));
        assert_eq!(auth(|auth| auth.identity_token = "t".into()), Credential::Refresh(Secret::new("t")));
        assert_eq!(auth(|auth| auth.registry_token = "t".into()), Credential::Header(Secret::new("Bearer t")));
    }

    #[test]
    fn credentials_go_to_their_server_only() {
        for (address, given) in [
            ("", true),
            ("https://registry.example", true),
            ("http://registry.example/v2/", true),
            ("registry.example", true),
            ("https://registry.example:5000", false),
            ("https://other.example", false),
        ] {
            let auth = AuthConfig { username: "u".into(), server_address: address.into(), ..AuthConfig::default() };
            let found = credential(&auth, "registry.example").unwrap();
            assert_eq!(found != Credential::Anonymous, given, "{address}");
        }
        let hub = AuthConfig {
            username: "u".into(),
            server_address: "https://index.docker.io/v1/".into(),
            ..AuthConfig::default()
        };
        assert_ne!(credential(&hub, "registry-1.docker.io").unwrap(), Credential::Anonymous);
    }

    #[test]
    fn a_malformed_auth_is_refused_without_telling_it() {
        for text in ["!!", &STANDARD.encode("no colon")] {
            let auth = AuthConfig { auth: text.into(), ..AuthConfig::default() };
            let error = credential(&auth, "h").unwrap_err();
            assert!(!error.message().contains(text), "{error}");
        }
    }
}
