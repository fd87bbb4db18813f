use std::{
    io::{self, BufWriter, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use core_archive::{DiffOptions, write_diff};
use core_content::{Store, Writer, WriterOptions};
use core_mount::{Mount, with_readonly_temp_mount};
use core_types::{Algorithm, Descriptor, Digest, Digester, Error, Result, labels, media_types};
use tokio::sync::mpsc;

use crate::{CompareOptions, walking::blocking};

/// Bytes that go to the store at once.
const PIECE: usize = 256 << 10;
/// Pieces on the way.
const DEPTH: usize = 4;

/// Writes the layer that makes `lower` into `upper` to `content`.
pub(crate) async fn compare(
    content: Arc<dyn Store>,
    lower: Vec<Mount>,
    upper: Vec<Mount>,
    options: CompareOptions,
) -> Result<Descriptor> {
    let (media_type, compression) = compression(&options.media_type)?;
    let own = options.reference.is_empty();
    let reference = if own { unique_reference() } else { options.reference };
    let writer = content.writer(WriterOptions { reference: reference.clone(), ..WriterOptions::default() }).await;
    let mut writer = writer.map_err(|error| error.context("open a writer for the layer"))?;
    let diff = DiffOptions { source_date_epoch: options.source_date_epoch };
    let written = write(&mut *writer, lower, upper, diff, compression).await;
    let diff_id = match written {
        Ok(diff_id) => diff_id,
        Err(error) => {
            drop(writer);
            abandon(&*content, &reference, own).await;
            return Err(error);
        }
    };
    let digest = writer.digest();
    let mut wanted = options.labels;
    wanted.insert(labels::UNCOMPRESSED.to_owned(), diff_id.to_string());
    match writer.commit(0, Some(&digest), wanted).await {
        Err(error) if !error.is_already_exists() => {
            drop(writer);
            abandon(&*content, &reference, own).await;
            return Err(error.context("commit the layer"));
        }
        _ => {}
    }
    let size = labelled(&*content, &digest, &diff_id).await?;
    Ok(Descriptor::new(media_type, digest, size))
}

/// Throws the ingest away when its name was made here, so that nobody else would.
async fn abandon(content: &dyn Store, reference: &str, own: bool) {
    if own && let Err(error) = content.abort(reference).await {
        tracing::warn!(reference, %error, "ingest of a failed layer stays");
    }
}

/// The blob's size; one that was there before gets the label.
async fn labelled(content: &dyn Store, digest: &Digest, diff_id: &Digest) -> Result<u64> {
    let mut info = content.info(digest).await?;
    let size = info.size;
    if !info.labels.contains_key(labels::UNCOMPRESSED) {
        info.labels.insert(labels::UNCOMPRESSED.to_owned(), diff_id.to_string());
        content.update(info, &[format!("labels.{}", labels::UNCOMPRESSED)]).await?;
    }
    Ok(size)
}

async fn write(
    writer: &mut dyn Writer,
    lower: Vec<Mount>,
    upper: Vec<Mount>,
    options: DiffOptions,
    compression: Compression,
) -> Result<Digest> {
    if writer.status().offset > 0 {
        writer.truncate(0).await?;
    }
    let (send, mut receive) = mpsc::channel(DEPTH);
    let walk = tokio::spawn(blocking(move || {
        with_readonly_temp_mount(&lower, |lower| {
            with_readonly_temp_mount(&upper, |upper| archive(lower, upper, send, &options, compression))
        })
    }));
    let mut stored = Ok(());
    while let Some(piece) = receive.recv().await {
        stored = writer.write(piece).await;
        if stored.is_err() {
            break;
        }
    }
    // The walk ends at its next piece when nobody listens.
    drop(receive);
    let walked = walk.await.map_err(|error| Error::internal(format!("differ: {error}")))?;
    stored.map_err(|error| error.context("write the layer"))?;
    walked
}

/// How a new layer is compressed.
#[derive(Clone, Copy)]
enum Compression {
    None,
    Gzip,
    Zstd,
}

fn compression(media_type: &str) -> Result<(&str, Compression)> {
    Ok(match media_type {
        "" => (media_types::OCI_LAYER_GZIP, Compression::Gzip),
        media_types::OCI_LAYER_GZIP => (media_type, Compression::Gzip),
        media_types::OCI_LAYER => (media_type, Compression::None),
        media_types::OCI_LAYER_ZSTD => (media_type, Compression::Zstd),
        other => return Err(Error::unimplemented(format!("unsupported diff media type: {other:?}"))),
    })
}

/// Writes the archive through hash and compression into the channel. Its digest before compression.
fn archive(
    lower: &Path,
    upper: &Path,
    send: mpsc::Sender<Bytes>,
    options: &DiffOptions,
    compression: Compression,
) -> Result<Digest> {
    let out = BufWriter::with_capacity(PIECE, Pieces(send));
    let finished = |error: io::Error| Error::io("compress the layer", error);
    let (mut out, digester) = match compression {
        Compression::None => write_diff(Some(lower), upper, Hashed::new(out), options)?.into_parts(),
        Compression::Gzip => {
            let encoder = flate2::write::GzEncoder::new(out, flate2::Compression::default());
            let (encoder, digester) = write_diff(Some(lower), upper, Hashed::new(encoder), options)?.into_parts();
            (encoder.finish().map_err(finished)?, digester)
        }
        Compression::Zstd => {
            let encoder = zstd::stream::write::Encoder::new(out, 0).map_err(finished)?;
            let (encoder, digester) = write_diff(Some(lower), upper, Hashed::new(encoder), options)?.into_parts();
            (encoder.finish().map_err(finished)?, digester)
        }
    };
    out.flush().map_err(finished)?;
    Ok(digester.finish())
}

/// Hashes what goes through.
struct Hashed<W> {
    out: W,
    digester: Digester,
}

impl<W> Hashed<W> {
    fn new(out: W) -> Self {
        Self { out, digester: Algorithm::Sha256.digester() }
    }

    fn into_parts(self) -> (W, Digester) {
        (self.out, self.digester)
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let written = self.out.write(data)?;
        self.digester.update(&data[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Sends what is written to the task that has the content writer.
struct Pieces(mpsc::Sender<Bytes>);

impl Write for Pieces {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Bytes::copy_from_slice(data));
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A name for an ingest that nobody else has.
fn unique_reference() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    format!("diff-{now}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}
