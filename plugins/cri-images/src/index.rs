use std::collections::{BTreeMap, HashMap};

use core_types::{Descriptor, Digest, Error, Platform, Result};

use crate::reference;

/// Kinds of digests that ids can be.
const ALGORITHMS: [&str; 2] = ["sha256", "sha512"];

/// An image: everything that has one configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its id, the digest of its configuration: `sha256:…`.
    pub id: String,
    /// All its names in the image store, the id among them.
    pub references: Vec<String>,
    /// Its names with a tag, full references.
    pub repo_tags: Vec<String>,
    /// Its names with a digest, full references.
    pub repo_digests: Vec<String>,
    /// Whether kubelet is to leave it alone.
    pub pinned: bool,
    /// The snapshot with all its layers; empty for an image without layers.
    pub chain_id: String,
    /// Bytes of its manifests, configuration and compressed layers.
    pub size: u64,
    /// `User` of its configuration: name or uid, maybe with a colon and a group.
    pub user: String,
    /// What it runs on.
    pub platform: Platform,
    /// Its index or manifest.
    pub target: Descriptor,
    /// Its configuration.
    pub config: Descriptor,
}

impl Image {
    /// The name to call it by: with a tag if it has one, else with a digest, else its id.
    pub fn reference(&self) -> String {
        let name = self.repo_tags.first().or_else(|| self.repo_digests.first()).or_else(|| self.references.first());
        name.unwrap_or(&self.id).clone()
    }
}

/// What one record of the image store stands for.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Descriptor,
    pub(crate) target: Descriptor,
    pub(crate) chain_id: String,
    pub(crate) size: u64,
    pub(crate) user: String,
    pub(crate) platform: Platform,
    pub(crate) pinned: bool,
}

/// Images by id and by name.
#[derive(Default)]
pub(crate) struct Index {
    /// Ids by name.
    ids: HashMap<String, String>,
    /// What the names of each id stand for.
    images: BTreeMap<String, BTreeMap<String, Loaded>>,
}

impl Index {
    /// Takes note of what a name stands for; none when it is gone.
    pub(crate) fn set(&mut self, name: &str, loaded: Option<Loaded>) {
        if let Some(old) = self.ids.remove(name)
            && let Some(names) = self.images.get_mut(&old)
        {
            names.remove(name);
            if names.is_empty() {
                self.images.remove(&old);
            }
        }
        if let Some(loaded) = loaded {
            let id = loaded.config.digest.to_string();
            self.ids.insert(name.to_owned(), id.clone());
            self.images.entry(id).or_default().insert(name.to_owned(), loaded);
        }
    }

    /// All names.
    pub(crate) fn names(&self) -> Vec<String> {
        self.ids.keys().cloned().collect()
    }

    /// All images, in the order of their ids.
    pub(crate) fn list(&self) -> Vec<Image> {
        self.images.iter().filter_map(|(id, names)| image(id, names)).collect()
    }

    /// The image of a full reference.
    pub(crate) fn named(&self, name: &str) -> Option<Image> {
        let id = self.ids.get(name)?;
        image(id, self.images.get(id)?)
    }

    /// The image of an id, which can be cut short, and of its kind be left out.
    ///
    /// # Errors
    /// InvalidArgument when several ids begin so.
    pub(crate) fn identified(&self, id: &str) -> Result<Option<Image>> {
        let prefixes: Vec<String> = match id.split_once(':') {
            Some((_, hex)) if is_hex(hex) => vec![id.to_owned()],
            None if is_hex(id) => ALGORITHMS.iter().map(|algorithm| format!("{algorithm}:{id}")).collect(),
            _ => return Ok(None),
        };
        let mut found = prefixes.iter().flat_map(|prefix| {
            self.images.range(prefix.clone()..).take_while(move |(id, _)| id.starts_with(prefix.as_str()))
        });
        match (found.next(), found.next()) {
            (Some((id, names)), None) => Ok(image(id, names)),
            (None, _) => Ok(None),
            (Some(_), Some(_)) => {
                Err(Error::invalid_argument(format!("image id {id:?} is ambiguous: several ids begin with it")))
            }
        }
    }

    /// The image that a client means: an id, a name as Docker users write it, or the beginning of an id.
    ///
    /// # Errors
    /// InvalidArgument when several ids begin so.
    pub(crate) fn resolve(&self, text: &str) -> Result<Option<Image>> {
        if Digest::parse(text).is_ok() {
            return self.identified(text);
        }
        let named = reference::full(text).ok().and_then(|name| self.named(&name.to_string()));
        if named.is_some() { Ok(named) } else { self.identified(text) }
    }
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The image of these names; none without a name.
fn image(id: &str, names: &BTreeMap<String, Loaded>) -> Option<Image> {
    // The name by the id goes last: other names say more.
    let first = names.iter().find(|(name, _)| *name != id).or_else(|| names.iter().next())?.1;
    let (repo_tags, repo_digests) = reference::split(names.keys().map(String::as_str));
    Some(Image {
        id: id.to_owned(),
        references: names.keys().cloned().collect(),
        repo_tags,
        repo_digests,
        pinned: names.values().any(|loaded| loaded.pinned),
        chain_id: first.chain_id.clone(),
        size: first.size,
        user: first.user.clone(),
        platform: first.platform.clone(),
        target: first.target.clone(),
        config: first.config.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(config: &Digest) -> Loaded {
        Loaded {
            config: Descriptor::new("config", config.clone(), 1),
            target: Descriptor::new("manifest", Digest::of(b"target"), 1),
            chain_id: "sha256:chain".into(),
            size: 7,
            user: String::new(),
            platform: Platform::host(),
            pinned: false,
        }
    }

    #[test]
    fn an_image_has_the_names_that_stand_for_it() {
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        let mut index = Index::default();
        let by_digest = format!("r.io/x@{}", Digest::of(b"target"));
        for name in ["r.io/x:1", &by_digest, &a.to_string()] {
            index.set(name, Some(loaded(&a)));
        }
        let image = index.resolve("r.io/x:1").unwrap().unwrap();
        assert_eq!(
            (image.repo_tags.as_slice(), image.repo_digests.as_slice()),
            (&["r.io/x:1".to_owned()][..], &[by_digest.clone()][..])
        );
        assert_eq!((image.references.len(), image.reference().as_str()), (3, "r.io/x:1"));
        index.set("r.io/x:1", Some(loaded(&b)));
        assert_eq!(index.resolve("r.io/x:1").unwrap().unwrap().id, b.to_string());
        assert!(index.resolve(&a.to_string()).unwrap().unwrap().repo_tags.is_empty());
        index.set(&by_digest, None);
        index.set(&a.to_string(), None);
        assert_eq!(index.resolve(&a.to_string()).unwrap(), None);
        assert_eq!(index.list().len(), 1);
    }

    #[test]
    fn pins_go_with_the_names_that_have_them() {
        let a = Digest::of(b"a");
        let mut index = Index::default();
        index.set("r.io/x:1", Some(Loaded { pinned: true, ..loaded(&a) }));
        index.set("r.io/x:2", Some(loaded(&a)));
        assert!(index.list()[0].pinned);
        index.set("r.io/x:1", None);
        assert!(!index.list()[0].pinned);
    }

    #[test]
    fn ids_may_be_cut_short_while_they_are_unique() {
        let digest = |hex: &str| Digest::parse(&format!("sha256:{hex:0<64}")).unwrap();
        let mut index = Index::default();
        for hex in ["abc1", "abc2", "d"] {
            let id = digest(hex);
            index.set(&id.to_string(), Some(loaded(&id)));
        }
        let found = |text: &str| index.resolve(text).map(|image| image.map(|image| image.id));
        assert_eq!(found("abc1").unwrap(), Some(digest("abc1").to_string()));
        assert_eq!(found("sha256:abc2").unwrap(), Some(digest("abc2").to_string()));
        assert_eq!(found("d").unwrap(), Some(digest("d").to_string()));
        assert_eq!(found("abc").unwrap_err().kind(), core_types::ErrorKind::InvalidArgument);
        for text in ["", "sha256:", "abc3", "sha512:abc1", "no such image", "abcg"] {
            assert_eq!(found(text).unwrap(), None, "{text}");
        }
    }

    #[test]
    fn names_are_looked_up_as_docker_writes_them() {
        let a = Digest::of(b"a");
        let mut index = Index::default();
        index.set("docker.io/library/busybox:latest", Some(loaded(&a)));
        for text in ["busybox", "busybox:latest", "docker.io/busybox", "docker.io/library/busybox:latest"] {
            assert!(index.resolve(text).unwrap().is_some(), "{text}");
        }
        assert!(index.resolve("busybox:1").unwrap().is_none());
    }
}
