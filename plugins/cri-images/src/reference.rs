use core_remotes::{Reference, normalize};
use core_types::{Digest, Result};

/// The full reference of a name, as the image store has it. Of a name with tag and digest the digest counts: the tag
/// may long be another image.
///
/// # Errors
/// InvalidArgument for a malformed name.
pub(crate) fn full(name: &str) -> Result<Reference> {
    let reference = normalize(name)?;
    match reference.digest()? {
        Some(digest) if reference.tag().is_some() => Reference::parse(&format!("{}@{digest}", reference.locator())),
        _ => Ok(reference),
    }
}

/// The names of a pulled image besides its id: by tag, where it was pulled by tag, and by digest.
pub(crate) fn names(reference: &Reference, target: &Digest) -> Vec<String> {
    let by_digest = reference.with_digest(target);
    let by_digest = format!("{}@{}", by_digest.locator(), target);
    match reference.tag() {
        Some(_) => vec![reference.to_string(), by_digest],
        None => vec![by_digest],
    }
}

/// Names split into those with a tag and those with a digest. Ids are neither.
pub(crate) fn split<'a>(references: impl IntoIterator<Item = &'a str>) -> (Vec<String>, Vec<String>) {
    let (mut tags, mut digests) = (Vec::new(), Vec::new());
    for reference in references {
        if Digest::parse(reference).is_ok() {
            continue;
        }
        let Ok(parsed) = normalize(reference) else { continue };
        if parsed.digest().is_ok_and(|digest| digest.is_some()) {
            digests.push(parsed.to_string());
        } else if parsed.tag().is_some() {
            tags.push(parsed.to_string());
        }
    }
    (tags, digests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_counts_where_there_is_a_tag_too() {
        let digest = Digest::of(b"x");
        for (name, expected) in [
            ("busybox".to_owned(), "docker.io/library/busybox:latest".to_owned()),
            (format!("a.b/c@{digest}"), format!("a.b/c@{digest}")),
            (format!("a.b/c:1@{digest}"), format!("a.b/c@{digest}")),
        ] {
            assert_eq!(full(&name).unwrap().to_string(), expected);
        }
        assert!(full("UPPER").is_err());
    }

    #[test]
    fn a_pulled_image_is_named_by_tag_and_digest() {
        let digest = Digest::of(b"x");
        let by_digest = format!("a.b/c@{digest}");
        assert_eq!(names(&full("a.b/c:1").unwrap(), &digest), ["a.b/c:1".to_owned(), by_digest.clone()]);
        assert_eq!(names(&full(&by_digest).unwrap(), &digest), [by_digest]);
    }

    #[test]
    fn names_are_told_apart() {
        let digest = Digest::of(b"x");
        let by_digest = format!("a.b/c@{digest}");
        let id = digest.to_string();
        let (tags, digests) = split(["a.b/c:1", &by_digest, &id, "import-2024@nonsense"]);
        assert_eq!(tags, ["a.b/c:1"]);
        assert_eq!(digests, [by_digest]);
    }
}
