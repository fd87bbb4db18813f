use rustix::{
    fs::{AtFlags, FileType, Mode, XattrFlags},
    io::Errno,
};

use super::{
    Layer, Whiteouts,
    place::{Directory, open_child},
    remove,
};
use crate::{Error, Result};

impl Layer {
    /// Hides or removes what lower layers have under `name`. What this layer has there stays, whether it came
    /// before or comes after.
    pub(super) fn delete(&mut self, directory: &Directory, name: &[u8]) -> Result<()> {
        let doing = |error: Errno| Error::io("delete what it names", error);
        if self.whiteouts != Whiteouts::Delete {
            return match rustix::fs::mknodat(directory, name, FileType::CharacterDevice, Mode::empty(), 0) {
                Ok(()) => Ok(()),
                Err(Errno::EXIST) => match open_child(directory, name) {
                    Ok(own) => self.make_opaque(&own),
                    // A file of this layer hides what is below anyhow.
                    Err(Errno::NOTDIR | Errno::LOOP) => Ok(()),
                    Err(error) => Err(doing(error)),
                },
                Err(error) => Err(Error::io("make a whiteout of the overlay", error)),
            };
        }
        if self.ledger.has_written(directory.path(), name) {
            return match open_child(directory, name) {
                Ok(own) => self.purge(&own).map_err(doing),
                Err(_) => Ok(()),
            };
        }
        if remove::remove(directory, name).map_err(doing)? {
            self.gone(&directory.join(name));
        }
        Ok(())
    }

    /// Hides or removes all of a directory that lower layers have.
    pub(super) fn make_opaque(&mut self, directory: &Directory) -> Result<()> {
        match self.whiteouts {
            Whiteouts::Delete => self.purge(directory).map_err(|error| Error::io("empty the opaque directory", error)),
            Whiteouts::Overlay { user_xattr } => {
                let name = if user_xattr { c"user.overlay.opaque" } else { c"trusted.overlay.opaque" };
                rustix::fs::fsetxattr(directory, name, b"y", XattrFlags::empty())
                    .map_err(|error| Error::io("mark the directory opaque", error))
            }
        }
    }

    /// Removes what is not of this layer, however deep.
    fn purge(&mut self, directory: &Directory) -> Result<(), Errno> {
        for (name, _) in remove::children(directory)? {
            if !self.ledger.has_written(directory.path(), &name) {
                remove::remove(directory, &name)?;
                self.gone(&directory.join(&name));
            } else if is_directory(directory, &name)? {
                self.purge(&open_child(directory, &name)?)?;
            }
        }
        Ok(())
    }

    /// Takes note that a path is no more what it was.
    pub(super) fn gone(&mut self, path: &[u8]) {
        self.places.forget();
        self.ledger.removed(path);
    }
}

pub(super) fn is_directory(directory: &Directory, name: &[u8]) -> Result<bool, Errno> {
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}
