//! Keys of records: one letter for the kind, then namespace and names with zero bytes between.
//!
//! Keys of one kind and namespace lie together and in order of name. LMDB takes keys of at most 511 bytes, so a
//! longer name is cut and its digest put behind a byte that no UTF-8 text has; records therefore repeat their name.

use core_leases::{Resource, ResourceKind};
use core_types::{Digest, Error, Namespace, Result};

/// A record's key; also a node of the graph that collection walks.
pub(crate) type Key = Vec<u8>;

/// The kinds of record; the letter is what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
    Meta = b'!',
    Blob = b'b',
    Container = b'c',
    Ingest = b'g',
    Image = b'i',
    Lease = b'l',
    Namespace = b'n',
    LeaseResource = b'r',
    Snapshot = b's',
    Sandbox = b'x',
}

impl Kind {
    /// The kind of a key.
    pub(crate) fn of(key: &[u8]) -> Option<Self> {
        const ALL: [Kind; 10] = [
            Kind::Meta,
            Kind::Blob,
            Kind::Container,
            Kind::Ingest,
            Kind::Image,
            Kind::Lease,
            Kind::Namespace,
            Kind::LeaseResource,
            Kind::Snapshot,
            Kind::Sandbox,
        ];
        let first = *key.first()?;
        ALL.into_iter().find(|kind| *kind as u8 == first)
    }
}

/// The longest last part of a key, and the longest of those before it.
const LAST: usize = 280;
const MIDDLE: usize = 150;
/// A byte that UTF-8 never has, and 64 hexadecimal digits.
const FOLDED: usize = 65;

fn push(key: &mut Key, part: &str, most: usize) {
    if part.len() <= most {
        key.extend_from_slice(part.as_bytes());
    } else {
        key.extend_from_slice(&part.as_bytes()[..most - FOLDED]);
        key.push(0xff);
        key.extend_from_slice(Digest::of(part.as_bytes()).hex().as_bytes());
    }
}

/// What all keys below `parts` begin with.
pub(crate) fn prefix(kind: Kind, parts: &[&str]) -> Key {
    let mut key = vec![kind as u8];
    for part in parts {
        push(&mut key, part, MIDDLE);
        key.push(0);
    }
    key
}

fn full(kind: Kind, before: &[&str], last: &str) -> Key {
    let mut key = prefix(kind, before);
    push(&mut key, last, LAST);
    key
}

pub(crate) fn meta(name: &str) -> Key {
    full(Kind::Meta, &[], name)
}

pub(crate) fn namespace(name: &str) -> Key {
    full(Kind::Namespace, &[], name)
}

/// Containers, images, ingests, leases and sandboxes.
pub(crate) fn named(kind: Kind, namespace: &str, name: &str) -> Key {
    full(kind, &[namespace], name)
}

pub(crate) fn blob(namespace: &str, digest: &str) -> Key {
    full(Kind::Blob, &[namespace], digest)
}

pub(crate) fn snapshot(namespace: &str, snapshotter: &str, key: &str) -> Key {
    full(Kind::Snapshot, &[namespace, snapshotter], key)
}

/// A lease's hold on a resource.
pub(crate) fn lease_resource(namespace: &str, lease: &str, resource: &Resource) -> Key {
    full(Kind::LeaseResource, &[namespace, lease], &format!("{}\u{1}{}", resource.kind, resource.id))
}

/// The record that a resource stands for.
pub(crate) fn of_resource(namespace: &str, resource: &Resource) -> Result<Key> {
    Ok(match resource.parse()? {
        ResourceKind::Content => blob(namespace, &resource.id),
        ResourceKind::Ingest => named(Kind::Ingest, namespace, &resource.id),
        ResourceKind::Snapshot(snapshotter) => snapshot(namespace, snapshotter, &resource.id),
        ResourceKind::Image => named(Kind::Image, namespace, &resource.id),
    })
}

/// The part of a key at `index`: 0 is the namespace, 1 a snapshotter.
pub(crate) fn part(key: &[u8], index: usize) -> Result<&str> {
    key.get(1..)
        .and_then(|rest| rest.split(|&byte| byte == 0).nth(index))
        .and_then(|part| std::str::from_utf8(part).ok())
        .ok_or_else(|| Error::data_loss("a metadata key is damaged"))
}

/// The namespace of a key.
pub(crate) fn namespace_of(key: &[u8]) -> Result<Namespace> {
    Namespace::new(part(key, 0)?)
}

/// Refuses names that cannot be part of a key.
pub(crate) fn check(what: &str, name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::invalid_argument(format!("{what} must not be empty")));
    }
    if name.bytes().any(|byte| byte == 0 || byte == 1) {
        return Err(Error::invalid_argument(format!("{what} {name:?} has a control character")));
    }
    if name.len() > 4096 {
        return Err(Error::invalid_argument(format!("{what} is longer than 4096 bytes")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_fits_lmdb_and_stays_apart() {
        let long = "n".repeat(3000);
        let other = format!("{long}m");
        let namespace = "a".repeat(76);
        let keys = [
            lease_resource(&namespace, &long, &Resource::image(&long)),
            lease_resource(&namespace, &long, &Resource::image(&other)),
            snapshot(&namespace, &long, &long),
            named(Kind::Image, &namespace, &long),
            named(Kind::Image, &namespace, &other),
        ];
        for (at, key) in keys.iter().enumerate() {
            assert!(key.len() <= 511, "{}", key.len());
            assert!(!keys[at + 1..].contains(key));
            assert_eq!(part(key, 0).unwrap(), namespace);
        }
        assert_eq!(part(&snapshot("ns", "overlayfs", "k"), 1).unwrap(), "overlayfs");
    }

    #[test]
    fn a_name_with_a_zero_byte_is_refused() {
        assert!(check("name", "a\0b").is_err());
        assert!(check("name", "").is_err());
        check("name", "sha256:äöü").unwrap();
    }
}
