//! What is stored, and how it becomes bytes.

use std::time::SystemTime;

use core_content::Info;
use core_images::Image;
use core_leases::{Lease, Resource};
use core_sandbox::{Runtime, Sandbox};
use core_snapshots::Kind;
use core_types::{Descriptor, Digest, Error, Labels, Platform, Result};

use crate::{
    codec::{Decoder, Encoder},
    container::Container,
};

/// Layout of the records that this version writes; the first byte of each.
const LAYOUT: u64 = 1;

/// A kind of record.
pub(crate) trait Record: Sized {
    /// Appends the fields.
    fn encode(&self, to: &mut Encoder);
    /// Reads the fields.
    fn decode(from: &mut Decoder<'_>) -> Result<Self>;

    /// The whole record.
    fn to_bytes(&self) -> Vec<u8> {
        let mut encoder = Encoder::default();
        encoder.number(LAYOUT);
        self.encode(&mut encoder);
        encoder.finish()
    }

    /// Reads a whole record.
    fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mut decoder = Decoder::new(bytes);
        match decoder.number()? {
            LAYOUT => Self::decode(&mut decoder),
            other => {
                Err(Error::data_loss(format!("a metadata record has layout {other}, this version reads {LAYOUT}")))
            }
        }
    }
}

impl Record for u64 {
    fn encode(&self, to: &mut Encoder) {
        to.number(*self);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self> {
        from.number()
    }
}

/// A namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamespaceRecord {
    pub(crate) name: String,
    pub(crate) labels: Labels,
}

impl Record for NamespaceRecord {
    fn encode(&self, to: &mut Encoder) {
        to.text(&self.name).labels(&self.labels);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self> {
        Ok(Self { name: from.text()?, labels: from.labels()? })
    }
}

fn digest(from: &mut Decoder<'_>) -> Result<Digest> {
    let text = from.text()?;
    Digest::parse(&text).map_err(|_| Error::data_loss(format!("a metadata record holds no digest: {text:?}")))
}

impl Record for Info {
    fn encode(&self, to: &mut Encoder) {
        to.text(self.digest.as_str())
            .number(self.size)
            .time(self.created_at)
            .time(self.updated_at)
            .labels(&self.labels);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self> {
        Ok(Self {
            digest: digest(from)?,
            size: from.number()?,
            created_at: from.time()?,
            updated_at: from.time()?,
            labels: from.labels()?,
        })
    }
}

/// A namespace's name for an ingest of the backend.
#[derive(Clone, Debug)]
pub(crate) struct Ingest {
    pub(crate) reference: String,
    /// Name in the backend.
    pub(crate) backend: String,
    /// When it is garbage; none while a lease holds it.
    pub(crate) expires_at: Option<SystemTime>,
    /// The blob of the backend that it stands for, while nothing was written.
    pub(crate) expected: Option<Digest>,
}

impl Record for Ingest {
    fn encode(&self, to: &mut Encoder) {
        to.text(&self.reference).text(&self.backend);
        to.number(u64::from(self.expires_at.is_some())).time(self.expires_at.unwrap_or(SystemTime::UNIX_EPOCH));
        to.text(self.expected.as_ref().map_or("", Digest::as_str));
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self> {
        let (reference, backend) = (from.text()?, from.text()?);
        let (expires, at) = (from.number()?, from.time()?);
        let expected = from.text()?;
        let expected = if expected.is_empty() { None } else { Some(Digest::parse(&expected)?) };
        Ok(Self { reference, backend, expires_at: (expires == 1).then_some(at), expected })
    }
}

fn encode_descriptor(value: &Descriptor, to: &mut Encoder) {
    to.text(&value.media_type).text(value.digest.as_str()).number(value.size).labels(&value.annotations);
    to.number(value.urls.len() as u64);
    for url in &value.urls {
        to.text(url);
    }
    to.text(value.artifact_type.as_deref().unwrap_or_default());
    let Some(platform) = &value.platform else {
        to.number(0);
        return;
    };
    to.number(1).text(&platform.os).text(&platform.architecture).text(&platform.variant).text(&platform.os_version);
    to.number(platform.os_features.len() as u64);
    for feature in &platform.os_features {
        to.text(feature);
    }
}

fn decode_descriptor(from: &mut Decoder<'_>) -> Result<Descriptor> {
    let mut value = Descriptor::new(from.text()?, digest(from)?, from.number()?);
    value.annotations = from.labels()?;
    let count = from.number()?;
    value.urls = (0..count).map(|_| from.text()).collect::<Result<_>>()?;
    value.artifact_type = Some(from.text()?).filter(|text| !text.is_empty());
    if from.number()? == 1 {
        let mut platform = Platform { os: from.text()?, architecture: from.text()?, ..Platform::default() };
        platform.variant = from.text()?;
        platform.os_version = from.text()?;
        let count = from.number()?;
        platform.os_features = (0..count).map(|_| from.text()).collect::<Result<_>>()?;
        value.platform = Some(platform);
    }
    Ok(value)
}

impl Record for Image {
    fn encode(&self, to: &mut Encoder) {
        to.text(&self.name).labels(&self.labels).time(self.created_at).time(self.updated_at);
        encode_descriptor(&self.target, to);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self> {
        Ok(Self {
            name: from.text()?,
            labels: from.labels()?,
            created_at: from.time()?,
            updated_at: from.time()?,
            target: decode_descriptor(from)?,
        })
    }
}

/// A namespace's name for a snapshot of the backend.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Name in the backend.
    pub(crate) backend: String,
    pub(crate) parent: String,
    /// How many snapshots stand on it.
    pub(crate) children: u64,
    pub(crate) labels: Labels,
    pub(crate) created_at: SystemTime,
    pub(crate) updated_at: SystemTime,
}

impl Record for Snapshot {
    fn encode(&self, to: &mut Encoder) {
        let kind = match self.kind {
            Kind::View => 1,
            Kind::Active => 2,
            Kind::Committed => 3,
        };
        to.text(&self.name).number(kind).text(&self.backend).text(&self.parent).number(self.children);
        to.labels(&self.labels).time(self.created_at).time(self.updated_at);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self> {
        Ok(Self {
            name: from.text()?,
            kind: match from.number()? {
                1 => Kind::View,
                2 => Kind::Active,
                _ => Kind::Committed,
            },
            backend: from.text()?,
            parent: from.text()?,
            children: from.number()?,
            labels: from.labels()?,
            created_at: from.time()?,
            updated_at: from.time()?,
        })
    }
}

impl Record for Lease {
    fn encode(&self, to: &mut Encoder) {
        to.text(&self.id).time(self.created_at).labels(&self.labels);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self> {
        Ok(Self { id: from.text()?, created_at: from.time()?, labels: from.labels()? })
    }
}

impl Record for Resource {
    fn encode(&self, to: &mut Encoder) {
        to.text(&self.kind).text(&self.id);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self> {
        Ok(Self { kind: from.text()?, id: from.text()? })
    }
}

fn encode_runtime(value: &Runtime, to: &mut Encoder) {
    to.text(&value.name).any(value.options.as_ref());
}

fn decode_runtime(from: &mut Decoder<'_>) -> Result<Runtime> {
    Ok(Runtime { name: from.text()?, options: from.any()? })
}

impl Record for Container {
    fn encode(&self, to: &mut Encoder) {
        to.text(&self.id).labels(&self.labels).text(&self.image).text(&self.snapshotter).text(&self.snapshot_key);
        to.text(&self.sandbox_id).time(self.created_at).time(self.updated_at);
        encode_runtime(&self.runtime, to);
        to.any(self.spec.as_ref()).extensions(&self.extensions);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self> {
        Ok(Self {
            id: from.text()?,
            labels: from.labels()?,
            image: from.text()?,
            snapshotter: from.text()?,
            snapshot_key: from.text()?,
            sandbox_id: from.text()?,
            created_at: from.time()?,
            updated_at: from.time()?,
            runtime: decode_runtime(from)?,
            spec: from.any()?,
            extensions: from.extensions()?,
        })
    }
}

impl Record for Sandbox {
    fn encode(&self, to: &mut Encoder) {
        to.text(&self.id).labels(&self.labels).text(&self.sandboxer).time(self.created_at).time(self.updated_at);
        encode_runtime(&self.runtime, to);
        to.any(self.spec.as_ref()).extensions(&self.extensions);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self> {
        Ok(Self {
            id: from.text()?,
            labels: from.labels()?,
            sandboxer: from.text()?,
            created_at: from.time()?,
            updated_at: from.time()?,
            runtime: decode_runtime(from)?,
            spec: from.any()?,
            extensions: from.extensions()?,
        })
    }
}
