use crate::sparse::Segment;

/// Extended attributes: names and values.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// What kind of file an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file, whose data follow.
    File,
    /// Another name, given here, for a file that was there before.
    HardLink(Vec<u8>),
    /// A symbolic link with its text.
    Symlink(Vec<u8>),
    /// A character device by major and minor number.
    CharDevice(u32, u32),
    /// A block device by major and minor number.
    BlockDevice(u32, u32),
    /// A directory.
    Directory,
    /// A named pipe.
    Fifo,
}

/// A point in time, before or after the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds since the epoch, rounded down.
    pub seconds: i64,
    /// Nanoseconds since that second, below 10⁹.
    pub nanos: u32,
}

/// One file of an archive, without its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The kind.
    pub kind: Kind,
    /// The name as it is in the archive: not normalised, not to be trusted.
    pub path: Vec<u8>,
    /// Permission bits with set-id and sticky bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length of the file in bytes, holes included.
    pub size: u64,
    /// When it was modified.
    pub mtime: Timestamp,
    /// When it was read, if the archive says.
    pub atime: Option<Timestamp>,
    /// Extended attributes by name.
    pub xattrs: Xattrs,
    /// Where its data belong, when the file has holes.
    pub sparse: Option<Vec<Segment>>,
}
