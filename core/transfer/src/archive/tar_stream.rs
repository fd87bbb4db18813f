use std::{
    collections::VecDeque,
    io::{self, Read},
};

use bytes::{Bytes, BytesMut};
use core_archive::Decoder;
use core_streaming::ByteSource;
use core_types::{Error, Result};
use tar::{EntryType, Header};
use tokio::sync::mpsc;

/// The longest long name or PAX header, in bytes.
const MAX_EXTENSION: u64 = 1024 * 1024;
/// The most entries of an archive of images.
const MAX_ENTRIES: usize = 100_000;
const BLOCK: usize = 512;

/// One entry's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its name as it stands in the archive, never to be used as a path.
    pub(crate) name: String,
    pub(crate) kind: EntryType,
    pub(crate) size: u64,
    /// Where a symbolic link points.
    pub(crate) link: String,
}

/// Reads a tar from a source of bytes, maybe compressed. Names stay names: nothing is written anywhere.
pub(crate) struct TarStream {
    source: Box<dyn ByteSource>,
    buffer: BytesMut,
    /// Bytes left of the current entry, and of its padding.
    left: u64,
    padding: u64,
    entries: usize,
}

/// Attributes of the next entry that its own header has no room for.
#[derive(Default)]
struct Extension {
    name: Option<String>,
    link: Option<String>,
    size: Option<u64>,
}

impl TarStream {
    /// Looks at the first bytes and decompresses what is compressed.
    pub(crate) async fn open(mut source: Box<dyn ByteSource>) -> Result<Self> {
        let mut start = BytesMut::new();
        while start.len() < 6 {
            match source.next().await? {
                Some(piece) => start.extend_from_slice(&piece),
                None => break,
            }
        }
        let compressed = start.starts_with(&[0x1f, 0x8b]) || start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]);
        if compressed {
            source = decompress(start.split().freeze(), source);
        }
        Ok(Self { source, buffer: start, left: 0, padding: 0, entries: 0 })
    }

    /// The next entry of the archive; what was not read of the one before is skipped.
    pub(crate) async fn next(&mut self) -> Result<Option<Entry>> {
        while self.data().await?.is_some() {}
        let mut extension = Extension::default();
        loop {
            let Some(block) = self.block().await? else { return Ok(None) };
            if block.iter().all(|byte| *byte == 0) {
                return Ok(None);
            }
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return Err(Error::invalid_argument(format!("the archive has more than {MAX_ENTRIES} entries")));
            }
            let mut header = Header::new_old();
            header.as_mut_bytes().copy_from_slice(&block);
            let sum: u32 = block
                .iter()
                .enumerate()
                .map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) })
                .sum();
            if header.cksum().map_err(malformed)? != sum {
                return Err(Error::invalid_argument("this is no tar archive, or it is damaged: wrong header checksum"));
            }
            let size = header.entry_size().map_err(malformed)?;
            self.left = size;
            self.padding = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
            let kind = header.entry_type();
            match kind {
                EntryType::GNULongName => extension.name = Some(self.text().await?),
                EntryType::GNULongLink => extension.link = Some(self.text().await?),
                EntryType::XHeader => self.pax(&mut extension).await?,
                EntryType::XGlobalHeader => drop(self.whole(MAX_EXTENSION).await?),
                _ => {
                    if let Some(size) = extension.size {
                        self.left = size;
                        self.padding = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
                    }
                    let own = String::from_utf8_lossy(&header.path_bytes()).into_owned();
                    let link = header.link_name_bytes().map(|link| String::from_utf8_lossy(&link).into_owned());
                    return Ok(Some(Entry {
                        name: extension.name.unwrap_or(own),
                        kind,
                        size: self.left,
                        link: extension.link.or(link).unwrap_or_default(),
                    }));
                }
            }
        }
    }

    /// The next piece of the entry's content.
    pub(crate) async fn data(&mut self) -> Result<Option<Bytes>> {
        if self.left == 0 {
            self.skip_padding().await?;
            return Ok(None);
        }
        if self.buffer.is_empty() && !self.fill().await? {
            return Err(truncated());
        }
        let count = self.buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.left -= count as u64;
        Ok(Some(self.buffer.split_to(count).freeze()))
    }

    /// All of the entry's content, at most `limit` bytes.
    pub(crate) async fn whole(&mut self, limit: u64) -> Result<Vec<u8>> {
        if self.left > limit {
            return Err(Error::invalid_argument(format!("an entry of the archive is longer than {limit} bytes")));
        }
        let mut all = Vec::new();
        while let Some(piece) = self.data().await? {
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }

    async fn skip_padding(&mut self) -> Result<()> {
        while self.padding > 0 {
            if self.buffer.is_empty() && !self.fill().await? {
                return Err(truncated());
            }
            let count = self.buffer.len().min(usize::try_from(self.padding).unwrap_or(BLOCK));
            self.padding -= count as u64;
            let _ = self.buffer.split_to(count);
        }
        Ok(())
    }

    async fn text(&mut self) -> Result<String> {
        let bytes = self.whole(MAX_EXTENSION).await?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    async fn pax(&mut self, extension: &mut Extension) -> Result<()> {
        let bytes = self.whole(MAX_EXTENSION).await?;
        let records = tar::PaxExtensions::new(&bytes);
        for record in records {
            let record = record.map_err(malformed)?;
            let value = String::from_utf8_lossy(record.value_bytes()).into_owned();
            match record.key_bytes() {
                b"path" => extension.name = Some(value),
                b"linkpath" => extension.link = Some(value),
                b"size" => extension.size = Some(value.parse().map_err(|_| Error::invalid_argument("malformed tar"))?),
                _ => {}
            }
        }
        Ok(())
    }

    async fn block(&mut self) -> Result<Option<Bytes>> {
        while self.buffer.len() < BLOCK {
            if !self.fill().await? {
                return if self.buffer.is_empty() { Ok(None) } else { Err(truncated()) };
            }
        }
        Ok(Some(self.buffer.split_to(BLOCK).freeze()))
    }

    async fn fill(&mut self) -> Result<bool> {
        match self.source.next().await? {
            Some(piece) => {
                self.buffer.extend_from_slice(&piece);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Reads the source to its end, so that who sends it is not cut off.
    pub(crate) async fn drain(&mut self) -> Result<()> {
        self.buffer.clear();
        while self.fill().await? {
            self.buffer.clear();
        }
        Ok(())
    }
}

fn malformed(error: io::Error) -> Error {
    Error::invalid_argument(format!("malformed tar archive: {error}"))
}

fn truncated() -> Error {
    Error::invalid_argument("the archive ends too early")
}

/// Decompressed bytes, from a blocking thread that ends with the receiver.
struct Decompressed {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    _feeding: Feeding,
}

struct Feeding(tokio::task::JoinHandle<()>);

impl Drop for Feeding {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[async_trait::async_trait]
impl ByteSource for Decompressed {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        self.receiver.recv().await.transpose().map_err(|error| Error::invalid_argument(error.to_string()))
    }
}

/// What the blocking thread reads.
struct Inlet {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    ready: VecDeque<u8>,
}

impl Read for Inlet {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.ready.is_empty() {
            match self.receiver.blocking_recv() {
                Some(piece) => self.ready.extend(piece?),
                None => return Ok(0),
            }
        }
        self.ready.read(buffer)
    }
}

fn decompress(start: Bytes, mut source: Box<dyn ByteSource>) -> Box<dyn ByteSource> {
    let (to_decoder, from_source) = mpsc::channel(8);
    let (to_reader, from_decoder) = mpsc::channel(8);
    let feeding = tokio::spawn(async move {
        let mut next = Ok(Some(start));
        loop {
            let piece = match next {
                Ok(Some(piece)) => Ok(piece),
                Ok(None) => break,
                Err(error) => Err(io::Error::other(error)),
            };
            let failed = piece.is_err();
            if to_decoder.send(piece).await.is_err() || failed {
                break;
            }
            next = source.next().await;
        }
    });
    tokio::task::spawn_blocking(move || {
        let inlet = Inlet { receiver: from_source, ready: VecDeque::new() };
        let failed = (|| -> io::Result<()> {
            let mut decoder = Decoder::new(inlet).map_err(|error| io::Error::other(error.to_string()))?;
            loop {
                let mut piece = vec![0; 64 * 1024];
                let count = decoder.read(&mut piece)?;
                piece.truncate(count);
                if count == 0 || to_reader.blocking_send(Ok(Bytes::from(piece))).is_err() {
                    return Ok(());
                }
            }
        })();
        if let Err(error) = failed {
            let _ = to_reader.blocking_send(Err(error));
        }
    });
    Box::new(Decompressed { receiver: from_decoder, _feeding: Feeding(feeding) })
}
