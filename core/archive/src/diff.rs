use std::{io::Write, os::fd::OwnedFd, path::Path};

use rustix::fs::{Mode, OFlags};

use crate::{Error, Result, Writer};

/// Writing what was found.
mod emit;
/// Finding what differs.
mod walk;

/// Directories below each other.
const DEPTH_LIMIT: usize = 1024;

/// How to write a difference.
#[derive(Clone, Debug, Default)]
pub struct DiffOptions {
    /// Seconds since the epoch that no time in the layer exceeds (`SOURCE_DATE_EPOCH`).
    pub source_date_epoch: Option<i64>,
}

/// Writes to `out`, as an uncompressed OCI layer, what makes the tree `lower` (none: an empty one) into the
/// tree `upper`. The same trees give the same bytes.
///
/// Files count as unchanged when kind, owner, mode, attributes, size and modification time are the same; content
/// is compared when the times have no part of a second. Sockets are left out.
///
/// # Errors
/// [`Error::Changed`] when the trees change meanwhile, [`Error::Io`] for what reading and writing say.
pub fn write_diff<W: Write>(lower: Option<&Path>, upper: &Path, out: W, options: &DiffOptions) -> Result<W> {
    let lower = lower.map(open_root).transpose()?;
    let upper = open_root(upper)?;
    let changes = walk::changes(lower.as_ref(), &upper)?;
    let mut emitter = emit::Emitter::new(&upper, Writer::new(out), options);
    for change in &changes {
        emitter.emit(change)?;
    }
    emitter.finish()
}

fn open_root(path: &Path) -> Result<OwnedFd> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| Error::io(format_args!("open {}", path.display()), error))
}

#[cfg(test)]
mod tests;
