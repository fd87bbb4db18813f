//! Platforms and which of several fits best.
//!
//! Names are those of the OCI image index; how they are written, normalised and compared follows
//! containerd/platforms: `linux/amd64`, `arm64/v8`, `windows(10.0.17763)/amd64`.

use std::{cmp::Ordering, fmt, sync::OnceLock};

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Operating system and processor that an image is for (OCI image index, `platform`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Platform {
    /// Processor, in Go's words (`amd64`, `arm64`).
    #[serde(default)]
    pub architecture: String,
    /// Operating system (`linux`).
    #[serde(default)]
    pub os: String,
    /// Version of the operating system.
    #[serde(default, rename = "os.version", skip_serializing_if = "String::is_empty")]
    pub os_version: String,
    /// Features of the operating system.
    #[serde(default, rename = "os.features", skip_serializing_if = "Vec::is_empty")]
    pub os_features: Vec<String>,
    /// Variant of the processor (`v8`).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub variant: String,
}

impl Platform {
    /// A platform of system and processor.
    pub fn new(os: &str, architecture: &str, variant: &str) -> Self {
        Self { os: os.into(), architecture: architecture.into(), variant: variant.into(), ..Self::default() }
    }

    /// What this program runs on.
    pub fn host() -> Self {
        static HOST: OnceLock<Platform> = OnceLock::new();
        HOST.get_or_init(|| {
            let (architecture, variant) = match std::env::consts::ARCH {
                "x86_64" => ("amd64", ""),
                "aarch64" => ("arm64", ""),
                "x86" => ("386", ""),
                "powerpc64" => ("ppc64le", ""),
                "arm" => ("arm", "v7"),
                other => (other, ""),
            };
            Self::new(std::env::consts::OS, architecture, variant)
        })
        .clone()
    }

    /// Reads `os`, `architecture`, `os/architecture` or `os/architecture/variant`; what is left out is the host's.
    ///
    /// # Errors
    /// InvalidArgument for anything else.
    pub fn parse(text: &str) -> Result<Self> {
        let refuse = |why: &str| Error::invalid_argument(format!("invalid platform {text:?}: {why}"));
        let parts: Vec<&str> = text.split('/').collect();
        if parts.iter().any(|part| part.is_empty()) {
            return Err(refuse("a part is empty"));
        }
        let (first, os_version) = match parts[0].split_once('(') {
            Some((os, rest)) => (os, rest.strip_suffix(')').ok_or_else(|| refuse("parenthesis is not closed"))?),
            None => (parts[0], ""),
        };
        let legal = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
        if !legal(first) || !parts[1..].iter().all(|part| legal(part)) {
            return Err(refuse("only letters, digits, '.', '_' and '-' may be used"));
        }
        let mut platform = match parts.as_slice() {
            [_] => Self::parse_one(first).ok_or_else(|| refuse("unknown operating system or architecture"))?,
            [_, architecture] => Self::new(first, architecture, ""),
            [_, architecture, variant] => Self::new(first, architecture, variant),
            _ => return Err(refuse("too many parts")),
        };
        platform.os_version = os_version.to_owned();
        Ok(platform.normalize())
    }

    fn parse_one(word: &str) -> Option<Self> {
        let host = Self::host();
        let lower = word.to_lowercase();
        if matches!(lower.as_str(), "linux" | "windows" | "darwin" | "macos" | "freebsd" | "openbsd" | "netbsd") {
            return Some(Self::new(&lower, &host.architecture, &host.variant));
        }
        let platform = Self::new(&host.os, &lower, "").normalize();
        let known = ["amd64", "386", "arm", "arm64", "ppc64le", "ppc64", "s390x", "riscv64", "loong64", "mips64le"];
        known.contains(&platform.architecture.as_str()).then_some(platform)
    }

    /// The same platform in the usual words (`x86_64` is `amd64`, `arm64/v8` is `arm64`).
    #[must_use]
    pub fn normalize(&self) -> Self {
        let os = match self.os.to_lowercase().as_str() {
            "macos" => "darwin".to_owned(),
            other => other.to_owned(),
        };
        let variant = self.variant.to_lowercase();
        let (architecture, variant) = match (self.architecture.to_lowercase().as_str(), variant.as_str()) {
            ("i386" | "i486" | "i586" | "i686" | "x86", _) => ("386".to_owned(), String::new()),
            ("x86_64" | "x86-64" | "amd64", "v1") => ("amd64".to_owned(), String::new()),
            ("x86_64" | "x86-64" | "amd64", v) => ("amd64".to_owned(), v.to_owned()),
            ("aarch64" | "arm64", "8" | "v8" | "v8.0") => ("arm64".to_owned(), String::new()),
            ("aarch64" | "arm64", v) => ("arm64".to_owned(), v.to_owned()),
            ("armhf", _) => ("arm".to_owned(), "v7".to_owned()),
            ("armel", _) => ("arm".to_owned(), "v6".to_owned()),
            ("arm", "" | "7") => ("arm".to_owned(), "v7".to_owned()),
            ("arm", v @ ("5" | "6" | "8")) => ("arm".to_owned(), format!("v{v}")),
            (other, v) => (other.to_owned(), v.to_owned()),
        };
        Self { os, architecture, variant, os_version: self.os_version.clone(), os_features: self.os_features.clone() }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.os)?;
        if !self.os_version.is_empty() {
            write!(f, "({})", self.os_version)?;
        }
        write!(f, "/{}", self.architecture)?;
        if !self.variant.is_empty() {
            write!(f, "/{}", self.variant)?;
        }
        Ok(())
    }
}

/// Which platforms are wanted, the best first.
#[derive(Clone, Debug)]
pub struct Matcher {
    /// Accepted platforms in order of preference; none accepts all.
    wanted: Option<Vec<Platform>>,
}

impl Matcher {
    /// Everything.
    pub fn all() -> Self {
        Self { wanted: None }
    }

    /// `platform`, or an older variant of its processor that runs on it.
    pub fn only(platform: &Platform) -> Self {
        let platform = platform.normalize();
        let mut wanted = vec![platform.clone()];
        let older = |variants: &[&str], architecture: &str| -> Vec<Platform> {
            variants
                .iter()
                .map(|v| Platform { architecture: architecture.into(), variant: (*v).into(), ..platform.clone() })
                .collect()
        };
        match (platform.architecture.as_str(), platform.variant.as_str()) {
            ("amd64", variant) => {
                let level: u32 = variant.strip_prefix('v').and_then(|v| v.parse().ok()).unwrap_or(1);
                for v in (2..level.min(8)).rev() {
                    wanted.extend(older(&[&format!("v{v}")], "amd64"));
                }
                if level > 1 {
                    wanted.extend(older(&[""], "amd64"));
                }
                wanted.extend(older(&[""], "386"));
            }
            ("arm64", variant) => {
                if !variant.is_empty() {
                    wanted.extend(older(&[""], "arm64"));
                }
                wanted.extend(older(&["v8", "v7", "v6", "v5"], "arm"));
            }
            ("arm", variant) => {
                let level: u32 = variant.strip_prefix('v').and_then(|v| v.parse().ok()).unwrap_or(7);
                for v in (5..level.min(9)).rev() {
                    wanted.extend(older(&[&format!("v{v}")], "arm"));
                }
            }
            _ => {}
        }
        Self { wanted: Some(wanted) }
    }

    /// Exactly these, in this order.
    pub fn any_of(platforms: &[Platform]) -> Self {
        Self { wanted: Some(platforms.iter().map(Platform::normalize).collect()) }
    }

    /// Whether `platform` is accepted.
    pub fn matches(&self, platform: &Platform) -> bool {
        self.rank(platform).is_some()
    }

    /// Orders the better fit first; what is not accepted comes last.
    pub fn compare(&self, a: &Platform, b: &Platform) -> Ordering {
        let rank = |platform: &Platform| self.rank(platform).unwrap_or(usize::MAX);
        rank(a).cmp(&rank(b))
    }

    fn rank(&self, platform: &Platform) -> Option<usize> {
        let Some(wanted) = &self.wanted else { return Some(0) };
        let platform = platform.normalize();
        wanted.iter().position(|want| {
            want.os == platform.os
                && want.architecture == platform.architecture
                && want.variant == platform.variant
                && (want.os_version.is_empty() || want.os_version == platform.os_version)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_the_usual_forms() {
        for (text, shown) in [
            ("linux/amd64", "linux/amd64"),
            ("linux/x86_64", "linux/amd64"),
            ("linux/arm64/v8", "linux/arm64"),
            ("linux/arm", "linux/arm/v7"),
            ("linux/armhf", "linux/arm/v7"),
            ("macOS/aarch64", "darwin/arm64"),
            ("windows(10.0.17763)/amd64", "windows(10.0.17763)/amd64"),
        ] {
            assert_eq!(Platform::parse(text).unwrap().to_string(), shown, "{text}");
        }
        assert_eq!(Platform::parse("s390x").unwrap().architecture, "s390x");
        for text in ["", "/", "linux/", "a/b/c/d", "no-such", "linux/am d64", "windows(1/amd64"] {
            assert!(Platform::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_exact_fit_is_better_than_an_older_processor() {
        let matcher = Matcher::only(&Platform::parse("linux/arm64").unwrap());
        let v8 = Platform::new("linux", "arm64", "v8");
        let v7 = Platform::new("linux", "arm", "v7");
        assert!(matcher.matches(&v8) && matcher.matches(&v7));
        assert_eq!(matcher.compare(&v8, &v7), Ordering::Less);
        assert!(!matcher.matches(&Platform::new("linux", "amd64", "")));
        assert!(!matcher.matches(&Platform::new("windows", "arm64", "")));
        assert!(Matcher::only(&Platform::new("linux", "amd64", "v3")).matches(&Platform::new("linux", "amd64", "v2")));
        assert!(!Matcher::only(&Platform::new("linux", "amd64", "")).matches(&Platform::new("linux", "amd64", "v3")));
    }
}
