//! What the daemon tells a starting shim, what it answers, and the file that keeps the answer.
//!
//! Three generations: a shim prints the bare address of its socket (task service 2), a JSON object, or a
//! `containerd.runtime.bootstrap.v1.BootstrapResult`. All are kept in `bootstrap.json` as JSON.

use std::path::{Path, PathBuf};

use core_types::{Error, Result, ResultExt};
use serde::{Deserialize, Serialize};

use crate::{Any, wire};

/// Name of the file in the bundle.
const FILE: &str = "bootstrap.json";
/// Where older shims left their address.
const ADDRESS_FILE: &str = "address";
/// The newest task service that this daemon speaks.
pub(crate) const NEWEST: u32 = 3;
/// The oldest task service that this daemon speaks, and that of shims that only print an address.
pub(crate) const OLDEST: u32 = 2;

/// How to reach a shim.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Endpoint {
    /// Version of its task service, 2 or 3.
    pub version: u32,
    /// Its socket, `unix:///run/containerd/s/…`.
    pub address: String,
    /// `ttrpc` or `grpc`.
    pub protocol: String,
}

impl Endpoint {
    /// Parses what a shim printed on `start`.
    ///
    /// # Errors
    /// Unimplemented for a newer version than ours, InvalidArgument for anything not understood.
    pub fn parse(answer: &[u8]) -> Result<Self> {
        let endpoint = match Self::from_message(answer) {
            Some(endpoint) => endpoint,
            None => Self::from_text(answer)?,
        };
        if endpoint.version > NEWEST {
            return Err(Error::unimplemented(format!(
                "the shim speaks task service version {}, this daemon up to {NEWEST}",
                endpoint.version
            )));
        }
        if !matches!(endpoint.protocol.as_str(), "ttrpc" | "grpc") {
            return Err(Error::invalid_argument(format!("the shim speaks unknown protocol {:?}", endpoint.protocol)));
        }
        Ok(endpoint)
    }

    fn from_message(answer: &[u8]) -> Option<Self> {
        let mut endpoint = Self { version: 0, address: String::new(), protocol: String::new() };
        for (field, value) in wire::fields(answer).ok()? {
            match field {
                1 => endpoint.version = u32::try_from(value.number()).ok()?,
                2 => endpoint.address = value.text().ok()?,
                3 => endpoint.protocol = value.text().ok()?.to_lowercase(),
                _ => {}
            }
        }
        (endpoint.version >= OLDEST && !endpoint.address.is_empty()).then_some(endpoint)
    }

    fn from_text(answer: &[u8]) -> Result<Self> {
        let unusable = || {
            let shown: String = String::from_utf8_lossy(answer).chars().take(200).collect();
            Error::invalid_argument(format!("the shim answered neither an address nor bootstrap parameters: {shown:?}"))
        };
        let text = std::str::from_utf8(answer).map_err(|_| unusable())?.trim();
        if text.starts_with('{') {
            let mut endpoint: Self = serde_json::from_str(text).map_err(|_| unusable())?;
            endpoint.protocol = endpoint.protocol.to_lowercase();
            return if endpoint.version < OLDEST || endpoint.address.is_empty() {
                Err(unusable())
            } else {
                Ok(endpoint)
            };
        }
        if text.is_empty() || text.contains(char::is_whitespace) || text.contains(char::is_control) {
            return Err(unusable());
        }
        Ok(Self { version: OLDEST, address: text.to_owned(), protocol: "ttrpc".to_owned() })
    }

    /// From `<protocol>+<address>`, the form in which sandbox controllers name a shim.
    ///
    /// # Errors
    /// InvalidArgument when there is no protocol in front.
    pub fn from_url(url: &str, version: u32) -> Result<Self> {
        let (protocol, address) = url.split_once('+').ok_or_else(|| {
            Error::invalid_argument(format!("task address {url:?} must be <protocol>+<address>, as ttrpc+unix:///path"))
        })?;
        Ok(Self { version, address: address.to_owned(), protocol: protocol.to_owned() })
    }

    /// The path of the socket.
    ///
    /// # Errors
    /// Unimplemented for sockets of another kind (vsock, abstract names).
    pub fn socket(&self) -> Result<PathBuf> {
        let path = self.address.strip_prefix("unix://").unwrap_or(&self.address);
        if !path.starts_with('/') {
            return Err(Error::unimplemented(format!("shim address {:?} is no path of a socket", self.address)));
        }
        Ok(PathBuf::from(path))
    }

    /// Reads the answer kept in `bundle`, or the address an older shim left.
    ///
    /// # Errors
    /// NotFound when there is neither: no shim ever answered.
    pub(crate) fn load(bundle: &Path) -> Result<Self> {
        match std::fs::read(bundle.join(FILE)) {
            Ok(data) => Self::parse(&data).doing(format_args!("read {}", bundle.join(FILE).display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let path = bundle.join(ADDRESS_FILE);
                let address = std::fs::read(&path).doing(format_args!("read {}", path.display()))?;
                if address.is_empty() {
                    return Err(Error::not_found(format!("{} is empty: no shim answered", path.display())));
                }
                Self::parse(&address)
            }
            Err(error) => Err(Error::io(format_args!("read {}", bundle.join(FILE).display()), error)),
        }
    }

    /// Keeps the answer in `bundle`, so that the shim is found after a restart.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn store(&self, bundle: &Path) -> Result<()> {
        let data = serde_json::to_vec(self).map_err(|error| Error::internal(error.to_string()))?;
        crate::bundle::write_file(&bundle.join(FILE), &data, 0o644)
    }
}

/// What a shim is told when it starts.
#[derive(Clone, Debug)]
pub(crate) struct Params<'a> {
    /// Container id.
    pub(crate) id: &'a str,
    /// Namespace.
    pub(crate) namespace: &'a str,
    /// More logs.
    pub(crate) debug: bool,
    /// Version of the daemon.
    pub(crate) version: &'a str,
    /// Its ttrpc socket.
    pub(crate) ttrpc: &'a str,
    /// Its gRPC socket.
    pub(crate) grpc: &'a str,
    /// Its executable.
    pub(crate) executable: &'a str,
    /// Where shims make their sockets.
    pub(crate) socket_dir: &'a str,
    /// Runtime options.
    pub(crate) options: Option<&'a Any>,
}

impl Params<'_> {
    /// As `containerd.runtime.bootstrap.v1.BootstrapParams`.
    pub(crate) fn message(&self) -> Vec<u8> {
        // LogLevel is an enum with negative values: -4 is debug, as ten bytes on the wire.
        let level = if self.debug { (-4i64) as u64 } else { 0 };
        let mut writer = wire::Writer::default()
            .bytes(1, self.id.as_bytes())
            .bytes(2, self.namespace.as_bytes())
            .number(3, level)
            .bytes(4, self.version.as_bytes())
            .bytes(5, self.ttrpc.as_bytes())
            .bytes(6, self.grpc.as_bytes())
            .bytes(7, self.executable.as_bytes());
        if let Some(options) = self.options {
            let extension = wire::Writer::default().message(1, &any(options)).finish();
            writer = writer.message(8, &extension);
        }
        writer.bytes(9, self.socket_dir.as_bytes()).finish()
    }
}

/// Encodes a `google.protobuf.Any`.
pub(crate) fn any(any: &Any) -> Vec<u8> {
    wire::Writer::default().bytes(1, any.type_url.as_bytes()).bytes(2, &any.value).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_answers_are_understood() {
        let v2 = Endpoint::parse(b"unix:///run/containerd/s/abc\n").unwrap();
        assert_eq!(
            (v2.version, v2.protocol.as_str(), v2.address.as_str()),
            (2, "ttrpc", "unix:///run/containerd/s/abc")
        );
        assert_eq!(v2.socket().unwrap(), Path::new("/run/containerd/s/abc"));
        let json = Endpoint::parse(br#"{"version":3,"address":"unix:///s/x","protocol":"TTRPC"}"#).unwrap();
        assert_eq!((json.version, json.protocol.as_str()), (3, "ttrpc"));
        let message = wire::Writer::default().number(1, 3).bytes(2, b"unix:///s/y").bytes(3, b"grpc").finish();
        let message = Endpoint::parse(&message).unwrap();
        assert_eq!((message.version, message.protocol.as_str()), (3, "grpc"));
    }

    #[test]
    fn other_answers_are_refused_with_their_text() {
        let error = Endpoint::parse(b"panic: no such thing").unwrap_err();
        assert!(error.message().contains("panic: no such thing"), "{error}");
        assert!(Endpoint::parse(b"").is_err());
        assert!(Endpoint::parse(br#"{"version":1}"#).is_err());
        let newer = Endpoint::parse(br#"{"version":4,"address":"unix:///x","protocol":"ttrpc"}"#).unwrap_err();
        assert_eq!(newer.kind(), core_types::ErrorKind::Unimplemented);
    }

    #[test]
    fn an_old_address_file_is_read() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Endpoint::load(dir.path()).unwrap_err().is_not_found());
        std::fs::write(dir.path().join("address"), "unix:///s/z").unwrap();
        let endpoint = Endpoint::load(dir.path()).unwrap();
        assert_eq!(endpoint.version, 2);
        Endpoint { version: 3, ..endpoint }.store(dir.path()).unwrap();
        assert_eq!(Endpoint::load(dir.path()).unwrap().version, 3);
    }

    use proptest::prelude::{any, *};

    /// Anything, and what comes close to an answer.
    fn answers() -> impl Strategy<Value = Vec<u8>> {
        let message = (any::<u64>(), ".{0,40}", "ttrpc|grpc|GRPC|.{0,8}", any::<u64>()).prop_map(
            |(version, address, protocol, other)| {
                let writer = wire::Writer::default().number(1, version % 6).bytes(2, address.as_bytes());
                writer.bytes(3, protocol.as_bytes()).number(9, other).finish()
            },
        );
        let json = (0u32..6, "[ -~]{0,40}", "ttrpc|grpc|GRPC|[a-z]{0,8}").prop_map(|(version, address, protocol)| {
            serde_json::json!({ "version": version, "address": address, "protocol": protocol }).to_string().into_bytes()
        });
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..80),
            "\\PC{0,80}".prop_map(String::into_bytes),
            "unix:///[a-z/]{0,40}\\n?".prop_map(String::into_bytes),
            message,
            json,
        ]
    }

    proptest! {
        #[test]
        fn an_answer_of_any_shape_is_usable_or_refused(answer in answers(), cut in 0usize..80) {
            let answer = &answer[..answer.len().min(cut)];
            if let Ok(endpoint) = Endpoint::parse(answer) {
                prop_assert!((OLDEST..=NEWEST).contains(&endpoint.version));
                prop_assert!(!endpoint.address.is_empty());
                prop_assert!(matches!(endpoint.protocol.as_str(), "ttrpc" | "grpc"));
                let dir = tempfile::tempdir().unwrap();
                endpoint.store(dir.path()).unwrap();
                prop_assert_eq!(Endpoint::load(dir.path()).unwrap(), endpoint);
            }
        }
    }
}
