use std::time::{Duration, SystemTime};

use containerd_api::services::leases::v1::{CreateRequest, DeleteRequest, Lease as Message, ListRequest};
use core_types::{Labels, labels};

use crate::{Client, Error, Result, convert};

/// How long a lease holds when nobody gives it back.
const DEFAULT_EXPIRY: Duration = Duration::from_secs(24 * 3600);

/// Holds what is made under it from garbage collection.
#[derive(Clone, Debug)]
pub struct Lease {
    client: Client,
    id: String,
    labels: Labels,
    created_at: SystemTime,
}

impl Client {
    /// Makes a lease; without an id the daemon chooses one. `expiry` zero means never.
    ///
    /// # Errors
    /// AlreadyExists for an id in use.
    pub async fn create_lease(&self, id: Option<&str>, mut labels: Labels, expiry: Duration) -> Result<Lease> {
        if !expiry.is_zero() {
            labels.insert(labels::GC_EXPIRE.to_owned(), rfc3339(SystemTime::now() + expiry));
        }
        let request = CreateRequest { id: id.unwrap_or_default().to_owned(), labels };
        let answer = self.leases_service().create(request).await?.into_inner();
        Ok(self.lease_from(answer.lease.ok_or(Error::Incomplete("lease"))?))
    }

    /// Leases that any of the filters accepts, all when there is none.
    ///
    /// # Errors
    /// InvalidArgument for a malformed filter.
    pub async fn leases(&self, filters: &[String]) -> Result<Vec<Lease>> {
        let request = ListRequest { filters: filters.to_vec() };
        let answer = self.leases_service().list(request).await?.into_inner();
        Ok(answer.leases.into_iter().map(|lease| self.lease_from(lease)).collect())
    }

    /// Gives a lease back; with `wait`, what nothing else holds is gone from disk on return.
    ///
    /// # Errors
    /// NotFound when it is not there.
    pub async fn delete_lease(&self, id: &str, wait: bool) -> Result<()> {
        self.leases_service().delete(DeleteRequest { id: id.to_owned(), sync: wait }).await?;
        Ok(())
    }

    /// Runs `work` with a client under a lease of its own, which is given back afterwards. A client that is
    /// under a lease already is used as it is.
    ///
    /// # Errors
    /// What `work` says, or that the lease could not be made.
    pub async fn with_lease<F, R, T>(&self, work: F) -> Result<T>
    where
        F: FnOnce(Self) -> R,
        R: Future<Output = Result<T>>,
    {
        if self.lease().is_some() {
            return work(self.clone()).await;
        }
        let lease = self.create_lease(None, Labels::new(), DEFAULT_EXPIRY).await?;
        let result = work(self.under_lease(lease.id())?).await;
        if let Err(error) = self.delete_lease(lease.id(), false).await {
            tracing::warn!(lease = lease.id(), %error, "lease not given back; it expires in a day");
        }
        result
    }

    fn lease_from(&self, message: Message) -> Lease {
        Lease {
            client: self.clone(),
            created_at: convert::timestamp_to_system(message.created_at.as_ref()),
            id: message.id,
            labels: message.labels,
        }
    }
}

impl Lease {
    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its labels.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// When it was made.
    pub fn created_at(&self) -> SystemTime {
        self.created_at
    }

    /// Gives it back.
    ///
    /// # Errors
    /// NotFound when it is gone already.
    pub async fn delete(self) -> Result<()> {
        self.client.delete_lease(&self.id, false).await
    }
}

/// A time as RFC 3339 in UTC, to the second.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    prost_types::Timestamp { seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: 0 }.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339() {
        assert_eq!(rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)), "2023-11-14T22:13:20Z");
    }
}
