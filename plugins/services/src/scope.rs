//! Where a request belongs, told by its metadata.

use core_types::{Namespace, Scope};
use tonic::{Request, Status, metadata::MetadataMap};

use crate::status::status;

/// Names the namespace.
pub const NAMESPACE: &str = "containerd-namespace";
/// Names the lease that holds what the request makes.
pub const LEASE: &str = "containerd-lease";

/// The namespace of a request.
///
/// # Errors
/// FailedPrecondition when the request names none, InvalidArgument when it is no identifier.
pub fn namespace(metadata: &MetadataMap) -> Result<Namespace, Status> {
    let name = text(metadata, NAMESPACE)?
        .ok_or_else(|| Status::failed_precondition("namespace is required (metadata containerd-namespace)"))?;
    Namespace::new(name).map_err(|error| status(error.context("namespace validation")))
}

/// Namespace and lease of a request.
///
/// # Errors
/// As [`namespace`].
pub fn scope<T>(request: &Request<T>) -> Result<Scope, Status> {
    let scope = Scope::new(namespace(request.metadata())?);
    Ok(match text(request.metadata(), LEASE)? {
        Some(lease) => scope.leased(lease),
        None => scope,
    })
}

fn text<'a>(metadata: &'a MetadataMap, key: &str) -> Result<Option<&'a str>, Status> {
    let Some(value) = metadata.get(key) else { return Ok(None) };
    let value = value.to_str().map_err(|_| Status::invalid_argument(format!("metadata {key} is not ASCII")))?;
    Ok((!value.is_empty()).then_some(value))
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn namespace_and_lease_come_from_the_metadata() {
        let mut request = Request::new(());
        assert_eq!(scope(&request).unwrap_err().code(), Code::FailedPrecondition);
        request.metadata_mut().insert(NAMESPACE, "k8s.io".parse().unwrap());
        assert_eq!(scope(&request).unwrap(), Scope::new(Namespace::new("k8s.io").unwrap()));
        request.metadata_mut().insert(LEASE, "l1".parse().unwrap());
        assert_eq!(scope(&request).unwrap().lease.as_deref(), Some("l1"));
        request.metadata_mut().insert(NAMESPACE, "../x".parse().unwrap());
        assert_eq!(scope(&request).unwrap_err().code(), Code::InvalidArgument);
    }
}
