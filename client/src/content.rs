use bytes::{Bytes, BytesMut};
use containerd_api::services::content::v1::{
    AbortRequest, DeleteContentRequest, Info, InfoRequest, ListContentRequest, ListStatusesRequest, ReadContentRequest,
    Status, UpdateRequest, WriteAction, WriteContentRequest, WriteContentResponse,
};
use core_types::{Digest, Labels};
use tokio::{io::AsyncReadExt as _, sync::mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::{Client, Error, Result, convert};

/// Bytes sent in one message.
const CHUNK: usize = 1 << 20;

/// Blobs and ingests of a namespace.
#[derive(Clone, Debug)]
pub struct Content {
    client: Client,
}

impl Client {
    /// The content store.
    pub fn content(&self) -> Content {
        Content { client: self.clone() }
    }
}

impl Content {
    /// What is known of a blob.
    ///
    /// # Errors
    /// NotFound when it is not there.
    pub async fn info(&self, digest: &Digest) -> Result<Info> {
        let request = InfoRequest { digest: digest.to_string() };
        let answer = self.client.content_service().info(request).await?.into_inner();
        answer.info.ok_or(Error::Incomplete("blob"))
    }

    /// Blobs that any of the filters accepts, all when there is none.
    ///
    /// # Errors
    /// InvalidArgument for a malformed filter.
    pub async fn list(&self, filters: &[String]) -> Result<Vec<Info>> {
        let request = ListContentRequest { filters: filters.to_vec() };
        let mut pages = self.client.content_service().list(request).await?.into_inner();
        let mut found = Vec::new();
        while let Some(page) = pages.message().await? {
            found.extend(page.info);
        }
        Ok(found)
    }

    /// Sets labels; an empty value removes one.
    ///
    /// # Errors
    /// NotFound when the blob is not there.
    pub async fn set_labels(&self, digest: &Digest, labels: &Labels) -> Result<Info> {
        if labels.is_empty() {
            return self.info(digest).await;
        }
        let paths: Vec<String> = labels.keys().map(|key| format!("labels.{key}")).collect();
        let kept = labels.iter().filter(|(_, value)| !value.is_empty());
        let info = Info {
            digest: digest.to_string(),
            labels: kept.map(|(key, value)| (key.clone(), value.clone())).collect(),
            ..Info::default()
        };
        let request = UpdateRequest { info: Some(info), update_mask: convert::mask(&paths) };
        let answer = self.client.content_service().update(request).await?.into_inner();
        answer.info.ok_or(Error::Incomplete("blob"))
    }

    /// Forgets a blob.
    ///
    /// # Errors
    /// NotFound when it is not there.
    pub async fn delete(&self, digest: &Digest) -> Result<()> {
        let request = DeleteContentRequest { digest: digest.to_string() };
        self.client.content_service().delete(request).await?;
        Ok(())
    }

    /// Reads a blob piece by piece and gives each to `take`.
    ///
    /// # Errors
    /// NotFound when it is not there, and what `take` says.
    pub async fn read<F, R>(&self, digest: &Digest, mut take: F) -> Result<()>
    where
        F: FnMut(Bytes) -> R,
        R: Future<Output = Result<()>>,
    {
        let request = ReadContentRequest { digest: digest.to_string(), offset: 0, size: 0 };
        let mut pieces = self.client.content_service().read(request).await?.into_inner();
        while let Some(piece) = pieces.message().await? {
            take(piece.data).await?;
        }
        Ok(())
    }

    /// Reads a whole blob of at most `limit` bytes.
    ///
    /// # Errors
    /// NotFound when it is not there, InvalidArgument when it is longer.
    pub async fn read_all(&self, digest: &Digest, limit: usize) -> Result<Bytes> {
        let request = ReadContentRequest { digest: digest.to_string(), offset: 0, size: 0 };
        let mut pieces = self.client.content_service().read(request).await?.into_inner();
        let mut whole = BytesMut::new();
        while let Some(piece) = pieces.message().await? {
            if whole.len() + piece.data.len() > limit {
                return Err(Error::invalid(format!("blob {digest} is longer than {limit} bytes")));
            }
            whole.extend_from_slice(&piece.data);
        }
        Ok(whole.freeze())
    }

    /// Ingests that any of the filters accepts, all when there is none.
    ///
    /// # Errors
    /// InvalidArgument for a malformed filter.
    pub async fn ingests(&self, filters: &[String]) -> Result<Vec<Status>> {
        let request = ListStatusesRequest { filters: filters.to_vec() };
        Ok(self.client.content_service().list_statuses(request).await?.into_inner().statuses)
    }

    /// Throws an ingest away.
    ///
    /// # Errors
    /// NotFound when it is not there.
    pub async fn abort(&self, reference: &str) -> Result<()> {
        self.client.content_service().abort(AbortRequest { r#ref: reference.to_owned() }).await?;
        Ok(())
    }

    /// Opens or resumes an ingest.
    ///
    /// # Errors
    /// Unavailable while another writer has it, AlreadyExists when the expected blob is there.
    pub async fn writer(&self, reference: &str, total: u64, expected: Option<&Digest>) -> Result<ContentWriter> {
        let (requests, receiver) = mpsc::channel(1);
        let first = WriteContentRequest {
            action: WriteAction::Stat.into(),
            r#ref: reference.to_owned(),
            total: i64::try_from(total).unwrap_or(i64::MAX),
            expected: expected.map(ToString::to_string).unwrap_or_default(),
            ..WriteContentRequest::default()
        };
        // The channel has room for one, so this does not wait.
        let _ = requests.send(first.clone()).await;
        let answers = self.client.content_service().write(ReceiverStream::new(receiver)).await?.into_inner();
        let mut writer = ContentWriter { requests, answers, template: first, offset: 0 };
        let status = writer.answer().await?;
        writer.offset = status.offset;
        Ok(writer)
    }

    /// Writes a blob from a reader; one that is there already is fine.
    ///
    /// # Errors
    /// FailedPrecondition for another size or digest than expected.
    pub async fn ingest<R>(
        &self,
        reference: &str,
        mut from: R,
        total: u64,
        expected: Option<&Digest>,
        labels: Labels,
    ) -> Result<Digest>
    where
        R: tokio::io::AsyncRead + Unpin,
    {
        let mut writer = match (self.writer(reference, total, expected).await, expected) {
            (Err(error), Some(expected)) if error.is_already_exists() => return Ok(expected.clone()),
            (writer, _) => writer?,
        };
        if writer.offset() > 0 {
            writer.restart().await?;
        }
        let mut buffer = BytesMut::with_capacity(CHUNK);
        loop {
            buffer.reserve(CHUNK);
            let read = from.read_buf(&mut buffer).await.map_err(|error| Error::io("read blob to ingest", error))?;
            if read == 0 || buffer.len() >= CHUNK / 2 {
                if !buffer.is_empty() {
                    writer.write(buffer.split().freeze()).await?;
                }
                if read == 0 {
                    break;
                }
            }
        }
        writer.commit(total, expected, labels).await
    }
}

/// Writes one ingest. Dropped before [`commit`](Self::commit), it leaves the ingest to be resumed.
#[derive(Debug)]
pub struct ContentWriter {
    requests: mpsc::Sender<WriteContentRequest>,
    answers: Streaming<WriteContentResponse>,
    template: WriteContentRequest,
    offset: i64,
}

impl ContentWriter {
    /// Bytes written so far, by earlier writers too.
    pub fn offset(&self) -> u64 {
        u64::try_from(self.offset).unwrap_or(0)
    }

    /// Appends data.
    ///
    /// # Errors
    /// ResourceExhausted when the daemon's disk is full.
    pub async fn write(&mut self, data: Bytes) -> Result<()> {
        for piece in data.chunks(CHUNK) {
            let request = WriteContentRequest {
                action: WriteAction::Write.into(),
                offset: self.offset,
                data: data.slice_ref(piece),
                ..self.template.clone()
            };
            self.offset = self.exchange(request).await?.offset;
        }
        Ok(())
    }

    /// Throws away what was written, to begin anew.
    ///
    /// # Errors
    /// What the daemon says.
    pub async fn restart(&mut self) -> Result<()> {
        let request = WriteContentRequest { action: WriteAction::Write.into(), offset: 0, ..self.template.clone() };
        self.offset = self.exchange(request).await?.offset;
        Ok(())
    }

    /// Makes the ingest a blob. Size 0 and no digest mean "whatever it is".
    ///
    /// # Errors
    /// FailedPrecondition for another size or digest; AlreadyExists when the blob is there.
    pub async fn commit(mut self, size: u64, expected: Option<&Digest>, labels: Labels) -> Result<Digest> {
        let request = WriteContentRequest {
            action: WriteAction::Commit.into(),
            total: i64::try_from(size).unwrap_or(i64::MAX),
            expected: expected.map(ToString::to_string).unwrap_or_default(),
            offset: self.offset,
            labels,
            ..self.template.clone()
        };
        let answer = self.exchange(request).await?;
        Ok(Digest::parse(&answer.digest)?)
    }

    async fn exchange(&mut self, request: WriteContentRequest) -> Result<WriteContentResponse> {
        if self.requests.send(request).await.is_err() {
            // The stream ended; its status says why.
            return self.answer().await;
        }
        self.answer().await
    }

    async fn answer(&mut self) -> Result<WriteContentResponse> {
        self.answers.message().await?.ok_or(Error::Incomplete("write status"))
    }
}
