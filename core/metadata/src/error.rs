//! LMDB's errors as the API's.

use core_types::Error;

/// What an error of LMDB is to a client.
pub(crate) fn from_heed(error: heed::Error) -> Error {
    use heed::MdbError;
    match error {
        heed::Error::Io(error) => Error::io("metadata database", error),
        heed::Error::Mdb(MdbError::MapFull) => Error::resource_exhausted("metadata database: the map is full")
            .with_source(heed::Error::Mdb(MdbError::MapFull)),
        heed::Error::Mdb(MdbError::ReadersFull) => {
            Error::resource_exhausted("metadata database: too many readers at once; try again")
        }
        heed::Error::Mdb(error @ (MdbError::Corrupted | MdbError::PageNotFound | MdbError::Invalid)) => {
            Error::data_loss(format!("metadata database: {error}; restore it, or move it away to begin anew"))
        }
        heed::Error::EnvAlreadyOpened => {
            Error::failed_precondition("metadata database: it is open already in this process")
        }
        error => Error::internal(format!("metadata database: {error}")),
    }
}
