//! Frames of SPDY/3.1 as bytes (<https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/>).

use bytes::{BufMut, Bytes, BytesMut};

/// The largest frame that is taken, in bytes; larger ones end the connection.
pub(crate) const MAX_FRAME: usize = 1 << 20;

/// The flag that ends a direction of a stream.
pub(crate) const FIN: u8 = 1;

/// A frame that cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// The eight bytes before each payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// `Some(type)` for a control frame.
    control: Option<u16>,
    /// The stream of a data frame.
    stream: u32,
    flags: u8,
    /// Length of the payload in bytes, at most [`MAX_FRAME`].
    pub(crate) length: usize,
}

impl Head {
    pub(crate) fn parse(raw: [u8; 8]) -> Result<Self, Malformed> {
        let [a, b, c, d, flags, x, y, z] = raw;
        let length = u32::from_be_bytes([0, x, y, z]) as usize;
        if length > MAX_FRAME {
            return Err(Malformed("frame too large"));
        }
        if a & 0x80 == 0 {
            return Ok(Head { control: None, stream: u32::from_be_bytes([a, b, c, d]), flags, length });
        }
        if u16::from_be_bytes([a & 0x7f, b]) != 3 {
            return Err(Malformed("not SPDY version 3"));
        }
        Ok(Head { control: Some(u16::from_be_bytes([c, d])), stream: 0, flags, length })
    }
}

/// A frame; header blocks are still compressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    Data {
        stream: u32,
        fin: bool,
        data: Bytes,
    },
    SynStream {
        stream: u32,
        fin: bool,
        block: Bytes,
    },
    SynReply {
        stream: u32,
        fin: bool,
        block: Bytes,
    },
    Reset {
        stream: u32,
        status: u32,
    },
    Settings,
    Ping(u32),
    GoAway {
        last: u32,
        status: u32,
    },
    Headers {
        stream: u32,
        fin: bool,
        block: Bytes,
    },
    WindowUpdate {
        stream: u32,
        delta: u32,
    },
    /// A type that is to be ignored.
    Unknown,
}

fn word(payload: &[u8], at: usize) -> Result<u32, Malformed> {
    let bytes = payload.get(at..at + 4).and_then(|b| b.try_into().ok()).ok_or(Malformed("frame too short"))?;
    Ok(u32::from_be_bytes(bytes))
}

fn rest(payload: &Bytes, from: usize) -> Result<Bytes, Malformed> {
    if payload.len() < from {
        return Err(Malformed("frame too short"));
    }
    Ok(payload.slice(from..))
}

impl Frame {
    pub(crate) fn parse(head: Head, payload: Bytes) -> Result<Self, Malformed> {
        let fin = head.flags & FIN != 0;
        let id = |at| word(&payload, at).map(|w| w & 0x7fff_ffff);
        Ok(match head.control {
            None => Frame::Data { stream: head.stream, fin, data: payload },
            Some(1) => Frame::SynStream { stream: id(0)?, fin, block: rest(&payload, 10)? },
            Some(2) => Frame::SynReply { stream: id(0)?, fin, block: rest(&payload, 4)? },
            Some(3) => Frame::Reset { stream: id(0)?, status: word(&payload, 4)? },
            Some(4) => Frame::Settings,
            Some(6) => Frame::Ping(word(&payload, 0)?),
            Some(7) => Frame::GoAway { last: id(0)?, status: word(&payload, 4)? },
            Some(8) => Frame::Headers { stream: id(0)?, fin, block: rest(&payload, 4)? },
            Some(9) => Frame::WindowUpdate { stream: id(0)?, delta: id(4)? },
            Some(_) => Frame::Unknown,
        })
    }

    pub(crate) fn write(&self, out: &mut BytesMut) {
        let control = |out: &mut BytesMut, kind: u16, fin: bool, length: usize| {
            out.put_u16(0x8003);
            out.put_u16(kind);
            out.put_u32((u32::from(fin) << 24) | (length as u32 & 0x00ff_ffff));
        };
        match self {
            Frame::Data { stream, fin, data } => {
                out.put_u32(*stream);
                out.put_u32((u32::from(*fin) << 24) | (data.len() as u32 & 0x00ff_ffff));
                out.put_slice(data);
            }
            Frame::SynStream { stream, fin, block } => {
                control(out, 1, *fin, block.len() + 10);
                out.put_u32(*stream);
                out.put_u32(0);
                out.put_u16(0);
                out.put_slice(block);
            }
            Frame::SynReply { stream, fin, block } | Frame::Headers { stream, fin, block } => {
                let kind = if matches!(self, Frame::SynReply { .. }) { 2 } else { 8 };
                control(out, kind, *fin, block.len() + 4);
                out.put_u32(*stream);
                out.put_slice(block);
            }
            Frame::Reset { stream: a, status: b }
            | Frame::GoAway { last: a, status: b }
            | Frame::WindowUpdate { stream: a, delta: b } => {
                let kind = match self {
                    Frame::Reset { .. } => 3,
                    Frame::GoAway { .. } => 7,
                    _ => 9,
                };
                control(out, kind, false, 8);
                out.put_u32(*a);
                out.put_u32(*b);
            }
            Frame::Ping(id) => {
                control(out, 6, false, 4);
                out.put_u32(*id);
            }
            Frame::Settings => {
                control(out, 4, false, 4);
                out.put_u32(0);
            }
            Frame::Unknown => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(raw: &[u8]) -> Result<Frame, Malformed> {
        let head = Head::parse(raw[..8].try_into().unwrap())?;
        Frame::parse(head, Bytes::copy_from_slice(&raw[8..]))
    }

    #[test]
    fn frames_come_back_as_written() {
        let block = Bytes::from_static(b"block");
        for frame in [
            Frame::Data { stream: 3, fin: true, data: block.clone() },
            Frame::SynStream { stream: 1, fin: false, block: block.clone() },
            Frame::SynReply { stream: 1, fin: true, block: block.clone() },
            Frame::Reset { stream: 1, status: 5 },
            Frame::Settings,
            Frame::Ping(7),
            Frame::GoAway { last: 9, status: 0 },
            Frame::Headers { stream: 1, fin: false, block },
            Frame::WindowUpdate { stream: 1, delta: 70000 },
        ] {
            let mut out = BytesMut::new();
            frame.write(&mut out);
            assert_eq!(parse(&out).unwrap(), frame);
        }
    }

    #[test]
    fn bytes_of_a_ping_are_those_of_the_specification() {
        let mut out = BytesMut::new();
        Frame::Ping(1).write(&mut out);
        assert_eq!(&out[..], [0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1]);
    }

    #[test]
    fn too_large_and_foreign_versions_are_refused() {
        assert!(Head::parse([0, 0, 0, 1, 0, 0xff, 0xff, 0xff]).is_err());
        assert!(Head::parse([0x80, 2, 0, 1, 0, 0, 0, 4]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(raw in proptest::collection::vec(any::<u8>(), 8..200)) {
            let _ = parse(&raw);
        }

        #[test]
        fn any_control_frame_is_read_or_refused(kind in 0u16..12, raw in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut out = BytesMut::new();
            out.put_u16(0x8003);
            out.put_u16(kind);
            out.put_u32(raw.len() as u32);
            out.put_slice(&raw);
            let _ = parse(&out);
        }
    }
}
