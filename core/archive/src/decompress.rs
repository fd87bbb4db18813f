use std::{
    io::{self, BufReader, Chain, Cursor, Read},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{Error, Result};

/// Bytes read from the compressed stream at once.
const READ: usize = 128 << 10;
/// The window that a zstd frame may ask for, as a power of two: 128 MiB, the limit of the zstd tool.
const ZSTD_WINDOW: u32 = 27;

/// How a layer is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// RFC 1952, any number of members.
    Gzip,
    /// RFC 8878, any number of frames.
    Zstd,
}

impl Compression {
    /// Recognises a compression by the first bytes of a stream; media types are often wrong.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for other compressions.
    pub fn detect(start: &[u8]) -> Result<Self> {
        let skippable = start.get(1..4) == Some(&[0x2a, 0x4d, 0x18]) && start[0] & 0xf0 == 0x50;
        Ok(match start {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            _ if skippable => Self::Zstd,
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => return Err(unsupported("bzip2")),
            [0xfd, b'7', b'z', b'X', b'Z', ..] => return Err(unsupported("xz")),
            _ => Self::None,
        })
    }
}

fn unsupported(name: &str) -> Error {
    Error::Unsupported(format!("layers compressed by {name} are not handled, only gzip, zstd and none"))
}

type Start<R> = BufReader<Chain<Cursor<Vec<u8>>, Watched<R>>>;

/// The uncompressed bytes of a stream, whatever its compression, to the end of its last member or frame.
///
/// Errors are [`io::Error`]s that carry an [`Error`].
pub struct Decoder<R: Read> {
    inner: Inner<R>,
    source_failed: Arc<AtomicBool>,
}

enum Inner<R: Read> {
    Plain(Start<R>),
    Gzip(Box<flate2::bufread::MultiGzDecoder<Start<R>>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, Start<R>>>),
}

impl<R: Read> Decoder<R> {
    /// Recognises the compression of `source` and starts to undo it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] and what reading says.
    pub fn new(mut source: R) -> Result<Self> {
        let mut start = Vec::with_capacity(6);
        source.by_ref().take(6).read_to_end(&mut start).map_err(|error| Error::io("read layer", error))?;
        let compression = Compression::detect(&start)?;
        let source_failed = Arc::new(AtomicBool::new(false));
        let watched = Watched { source, failed: Arc::clone(&source_failed) };
        let whole = BufReader::with_capacity(READ, Cursor::new(start).chain(watched));
        let inner = match compression {
            Compression::None => Inner::Plain(whole),
            Compression::Gzip => Inner::Gzip(Box::new(flate2::bufread::MultiGzDecoder::new(whole))),
            Compression::Zstd => {
                let decoder = zstd::stream::read::Decoder::with_buffer(whole).and_then(|mut decoder| {
                    decoder.window_log_max(ZSTD_WINDOW)?;
                    Ok(decoder)
                });
                Inner::Zstd(Box::new(decoder.map_err(Error::Compression)?))
            }
        };
        Ok(Self { inner, source_failed })
    }

    /// The compression that was recognised.
    pub fn compression(&self) -> Compression {
        match self.inner {
            Inner::Plain(_) => Compression::None,
            Inner::Gzip(_) => Compression::Gzip,
            Inner::Zstd(_) => Compression::Zstd,
        }
    }
}

impl<R: Read> Read for Decoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = match &mut self.inner {
            Inner::Plain(inner) => inner.read(buffer),
            Inner::Gzip(inner) => inner.read(buffer),
            Inner::Zstd(inner) => inner.read(buffer),
        };
        result.map_err(|error| {
            if error.kind() == io::ErrorKind::Interrupted || self.source_failed.load(Ordering::Relaxed) {
                return error;
            }
            let error = if error.kind() == io::ErrorKind::UnexpectedEof {
                Error::Truncated("its compressed stream ends too early".into())
            } else {
                Error::Compression(error)
            };
            io::Error::other(error)
        })
    }
}

/// Remembers whether an error came from the source, not from what is in it.
struct Watched<R> {
    source: R,
    failed: Arc<AtomicBool>,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.source.read(buffer).inspect_err(|error| {
            if error.kind() != io::ErrorKind::Interrupted {
                self.failed.store(true, Ordering::Relaxed);
            }
        })
    }
}

/// Fills `buffer` as far as the stream goes.
pub(crate) fn read_full(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn decode(data: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        Decoder::new(data).map_err(io::Error::other)?.read_to_end(&mut out)?;
        Ok(out)
    }

    fn kind_of(error: io::Error) -> Error {
        error.downcast::<Error>().unwrap()
    }

    #[test]
    fn every_member_and_frame_is_read() {
        assert_eq!(decode(&[gzip(b"one"), gzip(b""), gzip(b"two")].concat()).unwrap(), b"onetwo");
        let frame = |data: &[u8]| zstd::encode_all(data, 3).unwrap();
        let skippable = [0x53, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 9, 9];
        let whole = [skippable.to_vec(), frame(b"one"), skippable.to_vec(), frame(b"two")].concat();
        assert_eq!(decode(&whole).unwrap(), b"onetwo");
        assert_eq!(decode(b"plain").unwrap(), b"plain");
        assert_eq!(decode(b"").unwrap(), b"");
    }

    #[test]
    fn corrupt_and_truncated_streams_are_told_apart() {
        let long: Vec<u8> =
            (0..100_000_u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        for whole in [gzip(&long), zstd::encode_all(&long[..], 3).unwrap()] {
            let cut = decode(&whole[..whole.len() / 2]).unwrap_err();
            assert!(matches!(kind_of(cut), Error::Truncated(_)));
        }
        let mut bad = gzip(&long);
        let end = bad.len() - 6;
        bad[end] ^= 1;
        assert!(matches!(kind_of(decode(&bad).unwrap_err()), Error::Compression(_)));
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0xff, 0xff, 0xff, 0xff];
        assert!(matches!(kind_of(decode(&frame).unwrap_err()), Error::Compression(_) | Error::Truncated(_)));
    }

    #[test]
    fn a_window_beyond_the_limit_is_refused() {
        // A frame of 2 GiB window, then one raw block.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x09, 0x00, 0x00, b'x'];
        assert!(matches!(kind_of(decode(&frame).unwrap_err()), Error::Compression(_)));
    }

    #[test]
    fn an_error_of_the_source_stays_one() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::ConnectionReset.into())
            }
        }
        let start = gzip(b"some data that is long enough");
        let mut decoder = Decoder::new(start[..12].chain(Broken)).unwrap();
        let error = decoder.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn other_compressions_are_named() {
        let error = kind_of(decode(b"\xfd7zXZ\0....").unwrap_err());
        assert!(error.to_string().contains("xz"), "{error}");
    }
}
