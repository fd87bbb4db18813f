//! Which records are in use.

use std::{
    collections::{HashMap, HashSet},
    time::SystemTime,
};

use core_content::Info;
use core_images::Image;
use core_leases::{Lease, Resource};
use core_sandbox::Sandbox;
use core_types::{Labels, Result, labels};

use crate::{
    container::Container,
    key::{self, Key, Kind},
    leases::{expiry, resources},
    record::{Ingest, Snapshot},
    roots::Held,
    store::View,
};

/// Prefixes of labels by which an object ties itself to the life of another one.
const BACK_CONTAINER: &str = "containerd.io/gc.bref.container";
const BACK_CONTENT: &str = "containerd.io/gc.bref.content";
const BACK_IMAGE: &str = "containerd.io/gc.bref.image";
const BACK_SNAPSHOT: &str = "containerd.io/gc.bref.snapshot.";

/// What was found to be in use, and the way there.
#[derive(Default)]
pub(super) struct Marker {
    /// In use; false when only the object itself (and parents) is, not what its labels refer to.
    marked: HashMap<Key, bool>,
    /// Objects that live for as long as another one does.
    back: HashMap<Key, Vec<Key>>,
    /// To be followed, and whether fully.
    stack: Vec<(Key, bool)>,
}

/// The value's key when `label` is `prefix`, alone or with a name after a dot or slash.
fn is_reference(label: &str, prefix: &str) -> bool {
    label.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '/']))
}

fn snapshot_reference(namespace: &str, label: &str, prefix: &str, value: &str) -> Option<Key> {
    let rest = label.strip_prefix(prefix)?;
    let snapshotter = rest.split_once('/').map_or(rest, |(name, _)| name);
    Some(key::snapshot(namespace, snapshotter, value))
}

fn references(namespace: &str, labels: &Labels, mut each: impl FnMut(Key)) {
    for (label, value) in labels.range("containerd.io/gc.ref.".to_owned()..) {
        if !label.starts_with("containerd.io/gc.ref.") {
            break;
        }
        if let Some(node) = snapshot_reference(namespace, label, labels::GC_REF_SNAPSHOT, value) {
            each(node);
        } else if is_reference(label, labels::GC_REF_CONTENT) {
            each(key::blob(namespace, value));
        } else if is_reference(label, labels::GC_REF_IMAGE) {
            each(key::named(Kind::Image, namespace, value));
        }
    }
}

fn back_references(namespace: &str, labels: &Labels, mut each: impl FnMut(Key)) {
    for (label, value) in labels.range("containerd.io/gc.bref.".to_owned()..) {
        if !label.starts_with("containerd.io/gc.bref.") {
            break;
        }
        if let Some(node) = snapshot_reference(namespace, label, BACK_SNAPSHOT, value) {
            each(node);
        } else if is_reference(label, BACK_CONTENT) {
            each(key::blob(namespace, value));
        } else if is_reference(label, BACK_IMAGE) {
            each(key::named(Kind::Image, namespace, value));
        } else if is_reference(label, BACK_CONTAINER) {
            each(key::named(Kind::Container, namespace, value));
        }
    }
}

/// Whether labels make their object a root: `gc.root`, or `gc.expire` with a time to come.
fn is_root(labels: &Labels, now: SystemTime) -> bool {
    let rooted = labels.range(labels::GC_ROOT.to_owned()..).next();
    rooted.is_some_and(|(label, _)| label.starts_with(labels::GC_ROOT)) || expiry(labels).is_some_and(|at| at > now)
}

impl Marker {
    /// Whether a record is in use.
    pub(super) fn is_marked(&self, key: &Key) -> bool {
        self.marked.contains_key(key)
    }

    /// Marks from all roots; answers the records that are not in use.
    pub(super) fn mark_all(&mut self, view: &View<'_>, held: Held) -> Result<Vec<Key>> {
        let now = SystemTime::now();
        let mut all = Vec::new();
        self.leases(view, &held, now, &mut all)?;
        self.objects(view, now, &mut all)?;
        self.containers(view)?;
        self.follow(held.nodes, view)?;
        all.retain(|key| !self.is_marked(key));
        Ok(all)
    }

    /// Marks from more roots, in a view that may be newer.
    pub(super) fn follow(&mut self, more: Vec<Key>, view: &View<'_>) -> Result<()> {
        self.stack.extend(more.into_iter().map(|key| (key, true)));
        while let Some((key, fully)) = self.stack.pop() {
            self.step(key, fully, view)?;
        }
        Ok(())
    }

    /// As [`follow`](Self::follow) for records that were written: even one that is marked may refer to something new.
    pub(super) fn follow_news(&mut self, news: Vec<Key>, view: &View<'_>) -> Result<()> {
        for key in &news {
            self.marked.remove(key);
        }
        self.follow(news, view)
    }

    fn push(&mut self, key: Key, fully: bool) {
        self.stack.push((key, fully));
    }

    fn leases(&mut self, view: &View<'_>, held: &Held, now: SystemTime, all: &mut Vec<Key>) -> Result<()> {
        let empty = HashSet::new();
        view.scan(&[Kind::Lease as u8], |key, lease: Lease| {
            all.push(key.to_vec());
            if expiry(&lease.labels).is_some_and(|at| at < now) && !held.in_use.contains(key) {
                return Ok(());
            }
            self.push(key.to_vec(), true);
            let fully = !lease.labels.contains_key(labels::GC_FLAT);
            for node in held.seen.get(key).unwrap_or(&empty) {
                self.push(node.clone(), fully);
            }
            Ok(())
        })
    }

    fn objects(&mut self, view: &View<'_>, now: SystemTime, all: &mut Vec<Key>) -> Result<()> {
        view.scan(&[Kind::Image as u8], |key, image: Image| {
            all.push(key.to_vec());
            if expiry(&image.labels).is_some_and(|at| at < now) {
                self.ties(key, &image.labels)
            } else {
                self.push(key.to_vec(), true);
                Ok(())
            }
        })?;
        view.scan(&[Kind::Ingest as u8], |key, ingest: Ingest| {
            all.push(key.to_vec());
            if ingest.expires_at.is_some_and(|at| at > now) {
                self.push(key.to_vec(), true);
            }
            Ok(())
        })?;
        view.scan(&[Kind::Blob as u8], |key, info: Info| {
            all.push(key.to_vec());
            if is_root(&info.labels, now) {
                self.push(key.to_vec(), true);
            }
            self.ties(key, &info.labels)
        })?;
        view.scan(&[Kind::Snapshot as u8], |key, snapshot: Snapshot| {
            all.push(key.to_vec());
            if is_root(&snapshot.labels, now) {
                self.push(key.to_vec(), true);
            }
            self.ties(key, &snapshot.labels)
        })
    }

    fn containers(&mut self, view: &View<'_>) -> Result<()> {
        view.scan(&[Kind::Container as u8], |key, container: Container| {
            self.push(key.to_vec(), true);
            self.ties(key, &container.labels)
        })?;
        view.keys(&[Kind::Sandbox as u8], |key| self.stack.push((key.to_vec(), true)))
    }

    /// Takes note of what an object ties itself to.
    fn ties(&mut self, key: &[u8], labels: &Labels) -> Result<()> {
        let back = &mut self.back;
        back_references(key::part(key, 0)?, labels, |to| back.entry(to).or_default().push(key.to_vec()));
        Ok(())
    }

    fn step(&mut self, key: Key, fully: bool, view: &View<'_>) -> Result<()> {
        match self.marked.get(&key) {
            Some(true) => return Ok(()),
            Some(false) if !fully => return Ok(()),
            _ => {}
        }
        self.refer(&key, fully, view)?;
        if let Some(tied) = self.back.get(&key) {
            self.stack.extend(tied.iter().map(|node| (node.clone(), true)));
        }
        self.marked.insert(key, fully);
        Ok(())
    }

    /// Pushes what a record refers to.
    fn refer(&mut self, key: &Key, fully: bool, view: &View<'_>) -> Result<()> {
        let Some(kind) = Kind::of(key) else { return Ok(()) };
        if matches!(kind, Kind::Meta | Kind::Namespace) {
            return Ok(());
        }
        let namespace = key::part(key, 0)?;
        let labels = match kind {
            Kind::Blob => view.get::<Info>(key)?.map(|info| info.labels),
            Kind::Snapshot => match view.get::<Snapshot>(key)? {
                None => None,
                Some(snapshot) => {
                    if !snapshot.parent.is_empty() {
                        self.push(key::snapshot(namespace, key::part(key, 1)?, &snapshot.parent), fully);
                    }
                    Some(snapshot.labels)
                }
            },
            Kind::Image => view.get::<Image>(key)?.map(|image| {
                self.push(key::blob(namespace, image.target.digest.as_str()), fully);
                image.labels
            }),
            Kind::Container => view.get::<Container>(key)?.map(|container| {
                if !container.snapshotter.is_empty() {
                    self.push(key::snapshot(namespace, &container.snapshotter, &container.snapshot_key), true);
                }
                container.labels
            }),
            Kind::Sandbox => view.get::<Sandbox>(key)?.map(|sandbox| sandbox.labels),
            Kind::Ingest => {
                let ingest: Option<Ingest> = view.get(key)?;
                if let Some(expected) = ingest.and_then(|ingest| ingest.expected) {
                    self.push(key::blob(namespace, expected.as_str()), true);
                }
                None
            }
            Kind::Lease => {
                if let Some(lease) = view.get::<Lease>(key)? {
                    let fully = !lease.labels.contains_key(labels::GC_FLAT);
                    for resource in resources(view, namespace, &lease.id)? {
                        self.push(key::of_resource(namespace, &resource)?, fully);
                    }
                }
                None
            }
            Kind::LeaseResource => {
                if let Some(resource) = view.get::<Resource>(key)? {
                    self.push(key::of_resource(namespace, &resource)?, true);
                }
                None
            }
            Kind::Meta | Kind::Namespace => None,
        };
        if let (Some(labels), true) = (labels, fully) {
            references(namespace, &labels, |node| self.stack.push((node, true)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_refer_as_they_are_written() {
        let labels: Labels = [
            ("containerd.io/gc.ref.content", "sha256:a"),
            ("containerd.io/gc.ref.content.l.0", "sha256:b"),
            ("containerd.io/gc.ref.content/m", "sha256:c"),
            ("containerd.io/gc.ref.contents", "sha256:no"),
            ("containerd.io/gc.ref.snapshot.overlayfs", "s"),
            ("containerd.io/gc.ref.snapshot.overlayfs/n", "t"),
            ("containerd.io/gc.ref.image", "i"),
            ("other", "x"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        let mut found = Vec::new();
        references("ns", &labels, |node| found.push(node));
        let mut expected = [
            key::blob("ns", "sha256:a"),
            key::blob("ns", "sha256:b"),
            key::blob("ns", "sha256:c"),
            key::snapshot("ns", "overlayfs", "s"),
            key::snapshot("ns", "overlayfs", "t"),
            key::named(Kind::Image, "ns", "i"),
        ];
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn expiry_roots_until_it_is_over() {
        let at = |time: &str| Labels::from([(labels::GC_EXPIRE.to_owned(), time.to_owned())]);
        let now = SystemTime::now();
        assert!(is_root(&at("2999-01-01T00:00:00Z"), now));
        assert!(!is_root(&at("1999-01-01T00:00:00Z"), now));
        assert!(!is_root(&at("soon"), now));
        assert!(is_root(&Labels::from([("containerd.io/gc.root".to_owned(), "now".to_owned())]), now));
    }
}
