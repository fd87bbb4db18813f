use std::time::Duration;

use bytes::Bytes;
use core_content::{Info, Writer, WriterOptions};
use core_types::{Descriptor, Error, ErrorKind, Labels, Result, ResultExt, labels};
use tokio::time::Instant;

use crate::{Event, Request, engine::Engine, request::ingest_reference, tee::Feed};

/// How long to wait for a writer of somebody else.
const MAX_WAIT: Duration = Duration::from_secs(600);
/// How many bytes between two reports.
const REPORT_EVERY: u64 = 1024 * 1024;
/// How much time between two reports of a slow download.
const REPORT_AFTER: Duration = Duration::from_millis(500);

/// How a blob came to be in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// It was there, or was finished from a part that was: what was streamed is not the whole.
    Elsewhere,
    /// Every byte went through the stream.
    Streamed,
}

impl Engine {
    /// Sees to it that the blob is in the store and verified. When it is downloaded from its first byte on, all of it
    /// is copied to `feed`, which then is finished; otherwise `feed` is dropped at once.
    pub(crate) async fn store(&self, request: &Request, descriptor: &Descriptor, feed: Option<Feed>) -> Result<Stored> {
        let _one = self.locks.lock(&format!("blob {} {}", request.scope, descriptor.digest)).await;
        let limit = request.downloads.as_deref().unwrap_or(&self.downloads);
        let _permit = limit.acquire().await.map_err(|_| Error::cancelled("the engine is closed"))?;
        let result = self.store_alone(request, descriptor, feed).await;
        let stored = result.doing(format!("fetch {}", descriptor.digest))?;
        note_origin(request, descriptor).await?;
        Ok(stored)
    }

    async fn store_alone(&self, request: &Request, descriptor: &Descriptor, feed: Option<Feed>) -> Result<Stored> {
        let mut feed = feed;
        for attempt in 0..2 {
            let Some(mut writer) = open_writer(request, descriptor).await? else {
                request.tell(Event::Exists(descriptor.clone()));
                return Ok(Stored::Elsewhere);
            };
            let resumed = writer.status().offset;
            if resumed > descriptor.size && descriptor.size > 0 {
                writer.truncate(0).await?;
                continue;
            }
            let stream = if resumed == 0 { feed.take() } else { None };
            drop(feed.take());
            let fed = stream.is_some();
            match download(request, descriptor, writer.as_mut(), stream).await {
                Ok(()) => {
                    request.tell(Event::Fetched(descriptor.clone()));
                    return Ok(if fed { Stored::Streamed } else { Stored::Elsewhere });
                }
                // What was there from before may have been the fault.
                Err(error) if error.kind() == ErrorKind::FailedPrecondition && resumed > 0 && attempt == 0 => {
                    drop(writer);
                    forget(request, descriptor).await;
                }
                Err(error) => {
                    let full = is_disk_full(&error);
                    if full {
                        // Without room nothing else can be written, not even that the ingest is gone.
                        let _ = writer.truncate(0).await;
                    }
                    drop(writer);
                    if full || error.kind() == ErrorKind::FailedPrecondition {
                        forget(request, descriptor).await;
                    }
                    return Err(error);
                }
            }
        }
        Err(Error::failed_precondition("the content is not what its digest says"))
    }
}

/// Whether there is no room for the rest of a download, in which case its part must not take the room for good.
fn is_disk_full(error: &Error) -> bool {
    use std::error::Error as _;
    let source = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    source.is_some_and(|source| source.kind() == std::io::ErrorKind::StorageFull)
}

/// A part that turned out to be wrong is not to be resumed.
async fn forget(request: &Request, descriptor: &Descriptor) {
    let _ = request.content.abort(&ingest_reference(descriptor)).await;
}

/// Opens the blob's ingest; none when the blob is there. Waits for another writer.
async fn open_writer(request: &Request, descriptor: &Descriptor) -> Result<Option<Box<dyn Writer>>> {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(50);
    loop {
        let options = WriterOptions::for_descriptor(ingest_reference(descriptor), descriptor);
        match request.content.writer(options).await {
            Ok(writer) => return Ok(Some(writer)),
            Err(error) if error.is_already_exists() => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Unavailable && begun.elapsed() < MAX_WAIT => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(2));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Downloads what is missing, and commits.
async fn download(
    request: &Request,
    descriptor: &Descriptor,
    writer: &mut dyn Writer,
    feed: Option<Feed>,
) -> Result<()> {
    let mut feed = feed;
    let mut offset = writer.status().offset;
    if descriptor.size == 0 || offset < descriptor.size {
        // Told before the source is asked: from here on the download is under way.
        request.tell(Event::Progress { descriptor: descriptor.clone(), offset });
        let mut source = request.fetcher.fetch(descriptor, offset).await?;
        let (mut reported, mut reported_at) = (offset, Instant::now());
        while let Some(piece) = source.next().await? {
            offset += piece.len() as u64;
            if descriptor.size > 0 && offset > descriptor.size {
                return Err(Error::failed_precondition(format!("longer than the {} bytes described", descriptor.size)));
            }
            pass_on(&mut feed, &piece).await;
            writer.write(piece).await?;
            if offset - reported >= REPORT_EVERY || reported_at.elapsed() >= REPORT_AFTER {
                (reported, reported_at) = (offset, Instant::now());
                request.tell(Event::Progress { descriptor: descriptor.clone(), offset });
            }
        }
    }
    match writer.commit(descriptor.size, Some(&descriptor.digest), Labels::new()).await {
        Ok(_) => {}
        Err(error) if error.is_already_exists() => {}
        // `feed` is dropped unfinished: the applier must not take wrong bytes for a whole layer.
        Err(error) => return Err(error),
    }
    if let Some(feed) = feed {
        feed.finish().await;
    }
    Ok(())
}

/// A reader that stopped early has its own error to tell; the download goes on for the store.
async fn pass_on(feed: &mut Option<Feed>, piece: &Bytes) {
    if let Some(open) = feed.as_ref()
        && !open.send(piece.clone()).await
    {
        *feed = None;
    }
}

/// Notes the repository on the blob. Too long a list is left as it is.
async fn note_origin(request: &Request, descriptor: &Descriptor) -> Result<()> {
    let Some((registry, repository)) = &request.origin else { return Ok(()) };
    let key = format!("{}.{registry}", labels::DISTRIBUTION_SOURCE);
    let info = request.content.info(&descriptor.digest).await?;
    let mut known: Vec<&str> = info.labels.get(&key).map_or_else(Vec::new, |list| list.split(',').collect());
    known.retain(|entry| !entry.is_empty());
    if known.contains(&repository.as_str()) {
        return Ok(());
    }
    known.push(repository);
    known.sort_unstable();
    let value = known.join(",");
    if labels::validate(&key, &value).is_err() {
        tracing::warn!(digest = %descriptor.digest, "comes from too many repositories to note another");
        return Ok(());
    }
    let field = format!("labels.{key}");
    let info = Info { labels: Labels::from([(key, value)]), ..info };
    request.content.update(info, &[field]).await.map(|_| ())
}
