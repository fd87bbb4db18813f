/// A name that begins so deletes the file of the lower layers that the rest names (OCI image spec, layer.md).
pub(crate) const PREFIX: &[u8] = b".wh.";
/// Hides all of a directory that lower layers have.
pub(crate) const OPAQUE: &[u8] = b".wh..wh..opq";
/// What AUFS used for itself; no file of the layer.
const META: &[u8] = b".wh..wh.";

/// What a file name says about whiteouts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Marker<'name> {
    /// An ordinary name.
    None,
    /// The named file is deleted.
    Delete(&'name [u8]),
    /// The directory is opaque.
    Opaque,
    /// To be left out.
    Ignore,
    /// Deletes what cannot be deleted.
    Invalid,
}

/// Tells what `name`, a single path component, means.
pub(crate) fn marker(name: &[u8]) -> Marker<'_> {
    let Some(deleted) = name.strip_prefix(PREFIX) else { return Marker::None };
    match deleted {
        _ if name == OPAQUE => Marker::Opaque,
        _ if name.starts_with(META) => Marker::Ignore,
        b"" | b"." | b".." => Marker::Invalid,
        _ => Marker::Delete(deleted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        assert_eq!(marker(b"file"), Marker::None);
        assert_eq!(marker(b".wh"), Marker::None);
        assert_eq!(marker(b".wh.file"), Marker::Delete(b"file"));
        assert_eq!(marker(b".wh..wh..opq"), Marker::Opaque);
        assert_eq!(marker(b".wh..wh.aufs"), Marker::Ignore);
        for bad in [&b".wh."[..], b".wh..", b".wh..."] {
            assert_eq!(marker(bad), Marker::Invalid);
        }
    }
}
