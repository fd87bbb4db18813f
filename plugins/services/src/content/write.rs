use std::sync::Arc;

use containerd_api::services::content::v1::{WriteAction, WriteContentRequest, WriteContentResponse};
use core_content::{IngestStatus, Store, Writer, WriterOptions};
use core_types::Digest;
use futures::{StreamExt, stream};
use tonic::{Code, Status, Streaming};

use crate::{
    BoxStream, convert,
    status::{required, status},
};

/// One session. It lives in the stream of answers: when the client goes away it is dropped, and with it the
/// writer, which leaves an ingest that can be resumed.
struct Session {
    store: Arc<dyn Store>,
    requests: Streaming<WriteContentRequest>,
    open: Option<Open>,
    done: bool,
}

struct Open {
    writer: Box<dyn Writer>,
    reference: String,
    total: u64,
    expected: Option<Digest>,
}

/// Answers each request of the session.
pub(super) fn stream(
    store: Arc<dyn Store>,
    requests: Streaming<WriteContentRequest>,
) -> BoxStream<WriteContentResponse> {
    let session = Session { store, requests, open: None, done: false };
    stream::try_unfold(session, |mut session| async move {
        match session.next().await {
            Ok(answer) => Ok(answer.map(|answer| (answer, session))),
            Err(status) => {
                if status.code() != Code::AlreadyExists {
                    tracing::debug!(code = ?status.code(), error = status.message(), "content write failed");
                }
                Err(status)
            }
        }
    })
    .boxed()
}

impl Session {
    async fn next(&mut self) -> Result<Option<WriteContentResponse>, Status> {
        if self.done {
            return Ok(None);
        }
        let Some(request) = self.requests.message().await? else {
            return match self.open {
                Some(_) => Ok(None),
                None => Err(Status::invalid_argument("no request: the first message must have a reference")),
            };
        };
        let total = u64::try_from(request.total).map_err(|_| Status::invalid_argument("total must not be negative"))?;
        let expected = convert::optional_digest(&request.expected)?;
        if self.open.is_none() {
            self.open = Some(Open::new(&*self.store, &request.r#ref, total, expected.clone()).await?);
        }
        if let Some(expected) = expected {
            self.expect(expected).await?;
        }
        let open = required(self.open.as_mut(), "reference")?;
        if total > 0 {
            open.total = total;
        }
        let action = WriteAction::try_from(request.action)
            .map_err(|_| Status::invalid_argument(format!("unknown action {}", request.action)))?;
        let answer = open.perform(action, request).await?;
        self.done = action == WriteAction::Commit;
        Ok(Some(answer))
    }

    /// Takes note of the digest expected; when the blob is there already, the ingest is thrown away.
    async fn expect(&mut self, expected: Digest) -> Result<(), Status> {
        let Some(open) = self.open.as_mut() else { return Ok(()) };
        if open.expected.as_ref() == Some(&expected) {
            return Ok(());
        }
        if self.store.info(&expected).await.is_err() {
            open.expected = Some(expected);
            return Ok(());
        }
        if let Some(open) = self.open.take() {
            drop(open.writer);
            if let Err(error) = self.store.abort(&open.reference).await {
                tracing::warn!(reference = open.reference, %error, "failed to abort an ingest that is not needed");
            }
        }
        Err(Status::already_exists(format!("blob with expected digest {expected} exists")))
    }
}

impl Open {
    async fn new(store: &dyn Store, reference: &str, total: u64, expected: Option<Digest>) -> Result<Self, Status> {
        if reference.is_empty() {
            return Err(Status::invalid_argument("first message must have a reference"));
        }
        let options = WriterOptions { reference: reference.to_owned(), total, expected: expected.clone() };
        let writer = store.writer(options).await.map_err(status)?;
        Ok(Self { writer, reference: reference.to_owned(), total, expected })
    }

    async fn perform(
        &mut self,
        action: WriteAction,
        request: WriteContentRequest,
    ) -> Result<WriteContentResponse, Status> {
        if action == WriteAction::Stat {
            let stands = self.writer.status();
            return Ok(self.answer(action, &stands, self.writer.digest()));
        }
        self.seek(request.offset).await?;
        if !request.data.is_empty() {
            self.writer.write(request.data).await.map_err(status)?;
        }
        let stands = self.writer.status();
        let digest = if action == WriteAction::Commit {
            let expected = self.expected.as_ref();
            self.writer.commit(self.total, expected, request.labels).await.map_err(status)?
        } else {
            self.writer.digest()
        };
        Ok(self.answer(action, &stands, digest))
    }

    /// Checks that the client means to write where the ingest stands; offset 0 starts over.
    async fn seek(&mut self, offset: i64) -> Result<(), Status> {
        let stands = self.writer.status().offset;
        let offset = u64::try_from(offset).map_err(|_| Status::invalid_argument("offset must not be negative"))?;
        match offset {
            0 if stands > 0 => self.writer.truncate(0).await.map_err(status),
            0 => Ok(()),
            _ if offset == stands => Ok(()),
            _ => Err(Status::out_of_range(format!("write @{offset} must occur at current offset {stands}"))),
        }
    }

    fn answer(&self, action: WriteAction, stands: &IngestStatus, digest: Digest) -> WriteContentResponse {
        WriteContentResponse {
            action: action.into(),
            started_at: convert::timestamp(stands.started_at),
            updated_at: convert::timestamp(stands.updated_at),
            offset: convert::length(stands.offset),
            total: convert::length(self.total),
            digest: digest.to_string(),
        }
    }
}
