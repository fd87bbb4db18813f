use std::{fmt, str::FromStr};

use core_types::{Digest, Error, Result};

/// The longest reference, in bytes.
const MAX_LENGTH: usize = 2048;
/// The longest repository name with its host, in bytes (distribution specification).
const MAX_NAME: usize = 255;

/// A full reference as containerd reads it: `host[:port]/path[:tag][@digest]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    host: String,
    repository: String,
    object: String,
}

impl Reference {
    /// Reads a full reference. The host is required; names as Docker users write them go through
    /// [`normalize`] first.
    ///
    /// # Errors
    /// InvalidArgument for what is not one.
    pub fn parse(text: &str) -> Result<Self> {
        let refuse = |why: &str| Error::invalid_argument(format!("invalid reference {text:?}: {why}"));
        if text.len() > MAX_LENGTH {
            return Err(Error::invalid_argument("invalid reference: too long"));
        }
        if text.contains("://") {
            return Err(refuse("a scheme is not part of a reference"));
        }
        if text.chars().any(|c| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#' | '\\' | '%')) {
            return Err(refuse("unexpected character"));
        }
        let (host, rest) = text.split_once('/').unwrap_or((text, ""));
        if host.is_empty() {
            return Err(refuse("no host"));
        }
        if host.contains('@') {
            return Err(refuse("user names are not part of a reference"));
        }
        let (path, object) = match rest.find([':', '@']) {
            Some(at) => (&rest[..at], rest[at..].strip_prefix(':').unwrap_or(&rest[at..])),
            None => (rest, ""),
        };
        let components: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        if components.iter().any(|part| matches!(*part, "." | "..")) {
            return Err(refuse("dots as path component"));
        }
        if object.split('@').next().is_some_and(|tag| tag.contains('/')) {
            return Err(refuse("a tag has no slash"));
        }
        Ok(Self { host: host.to_owned(), repository: components.join("/"), object: object.to_owned() })
    }

    /// Host with port, as written; `docker.io` for Docker Hub.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The path between host and tag.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Host and repository.
    pub fn locator(&self) -> String {
        if self.repository.is_empty() { self.host.clone() } else { format!("{}/{}", self.host, self.repository) }
    }

    /// What follows the repository: `tag`, `tag@digest` or `@digest`; empty for none.
    pub fn object(&self) -> &str {
        &self.object
    }

    /// The tag, if there is one.
    pub fn tag(&self) -> Option<&str> {
        self.object.split('@').next().filter(|tag| !tag.is_empty())
    }

    /// The digest, if there is one.
    ///
    /// # Errors
    /// InvalidArgument for a malformed digest.
    pub fn digest(&self) -> Result<Option<Digest>> {
        self.object.split_once('@').map(|(_, digest)| Digest::parse(digest)).transpose()
    }

    /// The same repository with this digest in place of the one it has, keeping the tag.
    #[must_use]
    pub fn with_digest(&self, digest: &Digest) -> Self {
        let object = format!("{}@{digest}", self.tag().unwrap_or_default());
        Self { object, ..self.clone() }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.locator())?;
        if self.object.is_empty() || self.object.starts_with('@') {
            f.write_str(&self.object)
        } else {
            write!(f, ":{}", self.object)
        }
    }
}

impl FromStr for Reference {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

/// Makes a full reference of a name as Docker users write it: `busybox` becomes
/// `docker.io/library/busybox:latest`.
///
/// # Errors
/// InvalidArgument for a name that breaks the grammar of the distribution specification.
pub fn normalize(name: &str) -> Result<Reference> {
    let refuse = |why: &str| Error::invalid_argument(format!("invalid image name {name:?}: {why}"));
    if name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(refuse("it is an image id"));
    }
    let (host, rest) = match name.split_once('/') {
        Some((first, rest))
            if first.contains(['.', ':'])
                || first == "localhost"
                || first.bytes().any(|byte| byte.is_ascii_uppercase()) =>
        {
            (if first == "index.docker.io" { "docker.io" } else { first }, rest)
        }
        _ => ("docker.io", name),
    };
    let (before_digest, digest) = match rest.split_once('@') {
        Some((before, digest)) => (before, Some(Digest::parse(digest)?)),
        None => (rest, None),
    };
    let (path, tag) = match before_digest.split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (before_digest, None),
    };
    let path = if host == "docker.io" && !path.contains('/') { format!("library/{path}") } else { path.to_owned() };
    if !path.split('/').all(is_component) {
        return Err(refuse("a repository is lower-case letters, digits and separators"));
    }
    if host.len() + 1 + path.len() > MAX_NAME {
        return Err(refuse("longer than 255 bytes"));
    }
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return Err(refuse("malformed tag"));
    }
    let tag = if digest.is_none() { Some(tag.unwrap_or("latest")) } else { tag };
    let mut text = format!("{host}/{path}");
    if let Some(tag) = tag {
        text = format!("{text}:{tag}");
    }
    if let Some(digest) = digest {
        text = format!("{text}@{digest}");
    }
    Reference::parse(&text)
}

/// `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`
fn is_component(part: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = part.as_bytes();
    let edges = bytes.first().copied().is_some_and(plain) && bytes.last().copied().is_some_and(plain);
    edges
        && part
            .split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            .all(|separator| matches!(separator, "" | "." | "_" | "__") || separator.bytes().all(|byte| byte == b'-'))
}

/// `[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}`
fn is_tag(tag: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= 128
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|byte| word(byte) || matches!(byte, b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_what_docker_makes_of_them() {
        let digest = Digest::of(b"");
        for (name, full) in [
            ("busybox", "docker.io/library/busybox:latest"),
            ("busybox:1.36", "docker.io/library/busybox:1.36"),
            ("user/app", "docker.io/user/app:latest"),
            ("index.docker.io/busybox", "docker.io/library/busybox:latest"),
            ("localhost/app", "localhost/app:latest"),
            ("localhost:5000/a/b:v1", "localhost:5000/a/b:v1"),
            ("127.0.0.1:5000/a", "127.0.0.1:5000/a:latest"),
            ("quay.io/a/b__c--d.e", "quay.io/a/b__c--d.e:latest"),
            (&format!("busybox@{digest}"), &format!("docker.io/library/busybox@{digest}")),
            (&format!("busybox:1@{digest}"), &format!("docker.io/library/busybox:1@{digest}")),
        ] {
            assert_eq!(normalize(name).unwrap().to_string(), full, "{name}");
        }
    }

    #[test]
    fn malformed_names_are_refused() {
        let id = "a".repeat(64);
        let long = "a".repeat(300);
        for name in
            ["", "Busybox", "a//b", "a/../b", "-a", "a:", "a/b:c/d", "a@sha256:1", "a b", "http://a/b", &id, &long]
        {
            assert!(normalize(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_full_reference_has_its_parts() {
        let digest = Digest::of(b"x");
        let reference = Reference::parse(&format!("host:5000/a/b:tag@{digest}")).unwrap();
        assert_eq!((reference.host(), reference.repository(), reference.tag()), ("host:5000", "a/b", Some("tag")));
        assert_eq!(reference.digest().unwrap(), Some(digest.clone()));
        assert_eq!(reference.locator(), "host:5000/a/b");
        assert_eq!(Reference::parse(&reference.to_string()).unwrap(), reference);
        for text in ["", "/a", "http://a/b", "user@host/a", "h/../a", "h/a?x", "h/a:b/c"] {
            assert!(Reference::parse(text).is_err(), "{text}");
        }
        assert!(Reference::parse("h/a@sha256:12").unwrap().digest().is_err());
    }
}
