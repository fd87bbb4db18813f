/// A mount, not yet performed (containerd `types.Mount`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mount {
    /// `overlay`, `bind`, `tmpfs` …
    pub kind: String,
    /// What is mounted.
    pub source: String,
    /// A path below the mount point of the whole list; empty for the mount point itself.
    pub target: String,
    /// Options as `mount(8)` takes them.
    pub options: Vec<String>,
}
