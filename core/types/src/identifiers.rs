//! Names of containers, tasks, namespaces, leases and the like.
//!
//! An identifier is letters and digits in groups joined by one `.`, `_` or `-` each, at most 76 bytes
//! (containerd `pkg/identifiers`). It is safe as a path component.

use crate::{Error, Result};

/// The longest identifier, in bytes.
pub const MAX_LENGTH: usize = 76;

/// Checks an identifier.
///
/// # Errors
/// InvalidArgument that says which rule is broken.
pub fn validate(id: &str) -> Result<()> {
    if id.is_empty() {
        return Err(Error::invalid_argument("identifier must not be empty"));
    }
    if id.len() > MAX_LENGTH {
        return Err(Error::invalid_argument(format!(
            "identifier {id:?} greater than maximum length ({MAX_LENGTH} characters)"
        )));
    }
    let separator = |byte: u8| matches!(byte, b'.' | b'_' | b'-');
    let bytes = id.as_bytes();
    let well_formed = bytes.iter().enumerate().all(|(at, &byte)| {
        byte.is_ascii_alphanumeric()
            || separator(byte)
                && at > 0
                && bytes[at - 1].is_ascii_alphanumeric()
                && bytes.get(at + 1).is_some_and(u8::is_ascii_alphanumeric)
    });
    if !well_formed {
        return Err(Error::invalid_argument(format!(
            "identifier {id:?} must be letters and digits, in groups joined by one of '.', '_' or '-'"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_clients_use() {
        for id in ["default", "k8s.io", "a", "my-app_1.2", &"x".repeat(76)] {
            validate(id).unwrap();
        }
    }

    #[test]
    fn refuses_paths_and_stray_separators() {
        for id in ["", ".", "..", "a/b", "../x", "-a", "a-", "a..b", "a b", "é", &"x".repeat(77)] {
            assert!(validate(id).is_err(), "{id}");
        }
    }
}
