/// Store to archive.
mod export;
/// Archive to store.
mod import;
/// What an archive of either kind says of itself.
mod layout;
/// A tar as a stream of bytes.
mod tar_stream;

pub(crate) use export::export;
pub(crate) use import::import;
