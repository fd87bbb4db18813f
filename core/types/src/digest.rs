use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256, Sha384, Sha512};

use crate::{Error, Result};

/// The hash functions that OCI registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// The one in use everywhere.
    Sha256,
    /// Permitted by the OCI image specification.
    Sha384,
    /// Permitted by the OCI image specification.
    Sha512,
}

impl Algorithm {
    /// The name before the colon.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    /// Length of the hexadecimal part.
    pub fn hex_len(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha384 => 96,
            Self::Sha512 => 128,
        }
    }

    /// Starts a digest.
    pub fn digester(self) -> Digester {
        match self {
            Self::Sha256 => Digester::Sha256(Sha256::new()),
            Self::Sha384 => Digester::Sha384(Sha384::new()),
            Self::Sha512 => Digester::Sha512(Sha512::new()),
        }
    }
}

/// A content digest such as `sha256:e3b0…`; valid by construction, so its parts are safe as path components.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

impl Digest {
    /// Checks and takes a digest's text.
    ///
    /// # Errors
    /// InvalidArgument for an unknown algorithm, a wrong length or anything but lower-case hexadecimal.
    pub fn parse(text: &str) -> Result<Self> {
        let refuse = |why: &str| Error::invalid_argument(format!("invalid digest {text:?}: {why}"));
        let (name, hex) = text.split_once(':').ok_or_else(|| refuse("no algorithm"))?;
        let algorithm = match name {
            "sha256" => Algorithm::Sha256,
            "sha384" => Algorithm::Sha384,
            "sha512" => Algorithm::Sha512,
            _ => return Err(refuse("unsupported algorithm")),
        };
        if hex.len() != algorithm.hex_len() {
            return Err(refuse("wrong length"));
        }
        if !hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(refuse("not lower-case hexadecimal"));
        }
        Ok(Self(text.to_owned()))
    }

    /// The SHA-256 digest of `data`.
    pub fn of(data: &[u8]) -> Self {
        let mut digester = Algorithm::Sha256.digester();
        digester.update(data);
        digester.finish()
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The algorithm.
    pub fn algorithm(&self) -> Algorithm {
        match self.0.split_once(':') {
            Some(("sha512", _)) => Algorithm::Sha512,
            Some(("sha384", _)) => Algorithm::Sha384,
            _ => Algorithm::Sha256,
        }
    }

    /// The part after the colon.
    pub fn hex(&self) -> &str {
        self.0.split_once(':').map_or("", |(_, hex)| hex)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Digest {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Digest {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        Self::parse(&text)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

/// A digest being computed.
#[derive(Clone)]
pub enum Digester {
    /// SHA-256 so far.
    Sha256(Sha256),
    /// SHA-384 so far.
    Sha384(Sha384),
    /// SHA-512 so far.
    Sha512(Sha512),
}

impl Digester {
    /// Adds data.
    pub fn update(&mut self, data: &[u8]) {
        match self {
            Self::Sha256(hash) => hash.update(data),
            Self::Sha384(hash) => hash.update(data),
            Self::Sha512(hash) => hash.update(data),
        }
    }

    /// The digest of all that was added.
    pub fn finish(self) -> Digest {
        let text = |name: &str, sum: &[u8]| {
            let mut text = String::with_capacity(name.len() + 1 + sum.len() * 2);
            text.push_str(name);
            text.push(':');
            for byte in sum {
                for nibble in [byte >> 4, byte & 15] {
                    text.push(char::from(b"0123456789abcdef"[usize::from(nibble)]));
                }
            }
            Digest(text)
        };
        match self {
            Self::Sha256(hash) => text("sha256", &hash.finalize()),
            Self::Sha384(hash) => text("sha384", &hash.finalize()),
            Self::Sha512(hash) => text("sha512", &hash.finalize()),
        }
    }
}

impl fmt::Debug for Digester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digester")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_digest_is_the_known_one() {
        let digest = Digest::of(b"");
        assert_eq!(digest.as_str(), "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(Digest::parse(digest.as_str()).unwrap(), digest);
    }

    #[test]
    fn nothing_that_could_be_a_path_parses() {
        let upper = format!("sha256:{}", "A".repeat(64));
        let short = format!("sha256:{}", "a".repeat(63));
        let dots = format!("sha256:{}", "../".repeat(21) + "a");
        for text in ["", "sha256", "sha256:", "md5:d41d8cd98f00b204e9800998ecf8427e", &upper, &short, &dots] {
            assert!(Digest::parse(text).is_err(), "{text}");
        }
    }
}
