//! Header blocks: names and values, compressed by one zlib stream for each direction of a connection.

use bytes::{Buf, BufMut, Bytes};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::frame::Malformed;

/// The dictionary of the specification, known to both sides.
const DICTIONARY: &[u8] = include_bytes!("dictionary.bin");

/// The largest block after decompression, in bytes.
const MAX_BLOCK: usize = 64 << 10;

/// Most headers in one block.
const MAX_HEADERS: u32 = 100;

/// Names (in lower case) and values.
pub(crate) type Headers = Vec<(String, String)>;

/// The first value of `name`.
pub(crate) fn value<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.split('\0').next().unwrap_or(v))
}

pub(crate) struct Decoder(Decompress);

impl Decoder {
    pub(crate) fn new() -> Self {
        Decoder(Decompress::new(true))
    }

    pub(crate) fn decode(&mut self, block: &[u8]) -> Result<Headers, Malformed> {
        read(&self.inflate(block)?)
    }

    fn inflate(&mut self, mut block: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut plain = Vec::with_capacity(4096);
        loop {
            let (before_in, before_out) = (self.0.total_in(), plain.len());
            let result = self.0.decompress_vec(block, &mut plain, FlushDecompress::Sync);
            block = block.get((self.0.total_in() - before_in) as usize..).unwrap_or_default();
            match result {
                Ok(Status::StreamEnd) => return Ok(plain),
                Ok(_) => {}
                Err(e) if e.needs_dictionary().is_some() => {
                    self.0.set_dictionary(DICTIONARY).map_err(|_| Malformed("wrong header dictionary"))?;
                    continue;
                }
                Err(_) => return Err(Malformed("header block does not decompress")),
            }
            if plain.len() > MAX_BLOCK {
                return Err(Malformed("header block too large"));
            }
            if plain.len() < plain.capacity() {
                if block.is_empty() {
                    return Ok(plain);
                }
                if plain.len() == before_out && self.0.total_in() == before_in {
                    return Err(Malformed("header block does not decompress"));
                }
            } else {
                plain.reserve(4096);
            }
        }
    }
}

fn read(mut plain: &[u8]) -> Result<Headers, Malformed> {
    fn text(plain: &mut &[u8]) -> Result<String, Malformed> {
        let length = plain.try_get_u32().map_err(|_| Malformed("header block too short"))? as usize;
        let (text, rest) = plain.split_at_checked(length).ok_or(Malformed("header block too short"))?;
        *plain = rest;
        String::from_utf8(text.to_vec()).map_err(|_| Malformed("header is not UTF-8"))
    }
    let count = plain.try_get_u32().map_err(|_| Malformed("header block too short"))?;
    if count > MAX_HEADERS {
        return Err(Malformed("too many headers"));
    }
    (0..count).map(|_| Ok((text(&mut plain)?.to_ascii_lowercase(), text(&mut plain)?))).collect()
}

pub(crate) struct Encoder(Option<Compress>);

impl Encoder {
    pub(crate) fn new() -> Self {
        let mut zlib = Compress::new(Compression::default(), true);
        Encoder(zlib.set_dictionary(DICTIONARY).is_ok().then_some(zlib))
    }

    pub(crate) fn encode(&mut self, headers: &[(&str, &str)]) -> Result<Bytes, Malformed> {
        let mut plain = Vec::new();
        plain.put_u32(headers.len() as u32);
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            plain.put_u32(text.len() as u32);
            plain.put_slice(text.as_bytes());
        }
        let zlib = self.0.as_mut().ok_or(Malformed("no header dictionary"))?;
        let mut block = Vec::with_capacity(plain.len() + 64);
        let start = zlib.total_in();
        loop {
            let done = (zlib.total_in() - start) as usize;
            let input = plain.get(done..).unwrap_or_default();
            zlib.compress_vec(input, &mut block, FlushCompress::Sync).map_err(|_| Malformed("compress headers"))?;
            if block.len() < block.capacity() {
                return Ok(block.into());
            }
            block.reserve(256);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_share_their_compression() {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
        let mut sizes = vec![];
        for _ in 0..3 {
            let block = encoder.encode(&[("streamtype", "stdin"), ("port", "80")]).unwrap();
            sizes.push(block.len());
            let headers = decoder.decode(&block).unwrap();
            assert_eq!(value(&headers, "streamtype"), Some("stdin"));
            assert_eq!(value(&headers, "port"), Some("80"));
        }
        assert!(sizes[1] < sizes[0]);
    }

    #[test]
    fn a_bomb_is_refused() {
        let big = "a".repeat(10 << 20);
        let block = Encoder::new().encode(&[("x", &big)]).unwrap();
        assert!(block.len() < 64 << 10);
        assert_eq!(Decoder::new().decode(&block), Err(Malformed("header block too large")));
    }

    proptest! {
        #[test]
        fn any_block_is_read_or_refused(raw in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Decoder::new().decode(&raw);
            let _ = read(&raw);
        }

        #[test]
        fn any_headers_come_back(pairs in proptest::collection::vec(("[a-z-]{1,20}", ".{0,300}"), 0..20)) {
            let refs: Vec<_> = pairs.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            let block = Encoder::new().encode(&refs).unwrap();
            prop_assert_eq!(Decoder::new().decode(&block).unwrap(), pairs);
        }
    }
}
