use proptest::prelude::*;

use super::*;
use crate::{
    Segment,
    testing::{Layer, entry},
};

/// Reads all of an archive; the entries and all of the data.
fn read(bytes: &[u8]) -> Result<(Vec<Entry>, Vec<u8>)> {
    let mut archive = Archive::new(bytes);
    let (mut entries, mut data) = (Vec::new(), Vec::new());
    while let Some(entry) = archive.next_entry()? {
        entries.push(entry);
        loop {
            let piece = archive.data()?;
            if piece.is_empty() {
                break;
            }
            data.extend_from_slice(piece);
            let length = piece.len();
            archive.consume(length);
        }
    }
    archive.drain()?;
    Ok((entries, data))
}

/// A header block with the right checksum.
fn header(name: &str, flag: u8, size: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..107].copy_from_slice(b"0000644");
    block[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    block[156] = flag;
    block[257..265].copy_from_slice(b"ustar\x0000");
    seal(&mut block);
    block
}

fn seal(block: &mut [u8; BLOCK]) {
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

fn padded(data: &[u8]) -> Vec<u8> {
    let mut out = data.to_vec();
    out.resize(data.len().next_multiple_of(BLOCK), 0);
    out
}

fn pax(records: &[(&str, &str)]) -> Vec<u8> {
    let mut body = String::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        let length = (rest..).find(|length| rest + length.to_string().len() == *length).unwrap();
        body += &format!("{length} {key}={value}\n");
    }
    [&header("pax", b'x', body.len() as u64)[..], &padded(body.as_bytes())].concat()
}

#[test]
fn an_archive_without_end_marks_is_whole() {
    let bytes = [&header("f", b'0', 3)[..], &padded(b"abc")].concat();
    assert_eq!(read(&bytes).unwrap().1, b"abc");
    assert_eq!(read(&bytes[..BLOCK + 3]).unwrap().1, b"abc");
    assert!(read(b"").unwrap().0.is_empty());
}

#[test]
fn cut_archives_are_truncated() {
    let bytes = [&pax(&[("path", "long")])[..], &header("f", b'0', 600), &padded(&[7; 600])].concat();
    for length in [100, 512, 700, 1024, 1100, 1536, 1600, 2100] {
        let error = read(&bytes[..length]).unwrap_err();
        assert!(matches!(error, Error::Truncated(_)), "{length}: {error}");
    }
}

#[test]
fn a_wrong_checksum_is_invalid() {
    let mut block = header("f", b'0', 0);
    block[0] ^= 1;
    assert!(matches!(read(&block), Err(Error::Invalid(_))));
    assert!(matches!(read(&[b'x'; BLOCK]), Err(Error::Invalid(_))));
}

#[test]
fn claimed_sizes_are_not_believed() {
    let huge = header("pax", b'x', 1 << 30);
    assert!(matches!(read(&huge), Err(Error::Invalid(_))));
    let long = [header("x", b'L', 1 << 20), header("x", b'L', 1 << 20)].concat();
    assert!(matches!(read(&long), Err(Error::Truncated(_))));
    let endless: Vec<u8> = (0..100).flat_map(|_| pax(&[("comment", "x")])).collect();
    assert!(matches!(read(&endless), Err(Error::Invalid(_))));
}

#[test]
fn records_override_headers() {
    let records = [("path", "a/b"), ("size", "3"), ("uid", "3000000"), ("gid", "4294967294"), ("mtime", "-1.5")];
    let bytes = [&pax(&records)[..], &header("x", b'0', 0), &padded(b"abc")].concat();
    let (entries, data) = read(&bytes).unwrap();
    let entry = &entries[0];
    assert_eq!((&entry.path[..], entry.uid, entry.gid, entry.size), (&b"a/b"[..], 3_000_000, 4_294_967_294, 3));
    assert_eq!(entry.mtime, Timestamp { seconds: -2, nanos: 500_000_000 });
    assert_eq!(data, b"abc");
    assert!(read(&[&pax(&[("uid", "4294967296")])[..], &header("x", b'0', 0)].concat()).is_err());
}

#[test]
fn sparse_maps_that_lie_are_refused() {
    let one = |map: &str| {
        let head = pax(&[("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.realsize", "100")]);
        let body = padded(map.as_bytes());
        read(&[&head[..], &header("f", b'0', body.len() as u64 + 4), &body, &padded(b"data")].concat())
    };
    let (entries, data) = one("1\n10\n4\n").unwrap();
    assert_eq!(entries[0].sparse.as_deref(), Some(&[Segment { offset: 10, length: 4 }][..]));
    assert_eq!((entries[0].size, &data[..]), (100, &b"data"[..]));
    let lies = [
        "100000000\n",
        "1\n98\n4\n",
        "1\n10\n5\n",
        "2\n10\n2\n11\n2\n",
        "1\n18446744073709551615\n4\n",
        "x\n",
        "\n",
        "99999999999999999999999\n",
        "1\n10\n",
    ];
    for map in lies {
        assert!(matches!(one(map), Err(Error::Invalid(_))), "{map:?}");
    }
    for (key, value) in [("GNU.sparse.map", "1,2,3"), ("GNU.sparse.map", "a,b"), ("GNU.sparse.numbytes", "4")] {
        let bytes =
            [&pax(&[("GNU.sparse.size", "100"), (key, value)])[..], &header("f", b'0', 4), &padded(b"data")].concat();
        assert!(matches!(read(&bytes), Err(Error::Invalid(_))), "{key} {value}");
    }
}

#[test]
fn an_endless_old_sparse_map_is_refused() {
    let mut head = header("f", b'S', 0);
    head[257..265].copy_from_slice(b"ustar  \0");
    head[386..482].fill(b'0');
    head[482] = 1;
    seal(&mut head);
    let mut extension = [b'0'; BLOCK];
    extension[504] = 1;
    let bytes: Vec<u8> = head.into_iter().chain((0..20_000).flat_map(|_| extension)).collect();
    let error = read(&bytes).unwrap_err();
    assert!(error.to_string().contains("segments"), "{error}");
}

#[test]
fn unknown_types_are_named() {
    let error = read(&header("strange", b'Z', 0)).unwrap_err();
    assert!(matches!(&error, Error::Unsupported(text) if text.contains("strange")), "{error}");
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
        let _ = read(&bytes);
    }

    #[test]
    fn no_change_of_a_header_makes_the_reader_panic(
        changes in proptest::collection::vec((0..BLOCK, any::<u8>()), 1..12),
        flag in prop::sample::select(b"\x0001234567xgLKSV".to_vec()),
        tail in proptest::collection::vec(any::<u8>(), 0..3000),
        gnu in any::<bool>(),
    ) {
        let mut block = header("name", flag, 700);
        for (at, byte) in changes {
            block[at] = byte;
        }
        block[156] = flag;
        if gnu {
            block[257..265].copy_from_slice(b"ustar  \0");
        }
        seal(&mut block);
        let _ = read(&[&block[..], &tail].concat());
    }

    #[test]
    fn no_records_make_the_reader_panic(
        keys in proptest::collection::vec(
            (prop::sample::select(vec![
                "path", "size", "uid", "mtime", "GNU.sparse.major", "GNU.sparse.realsize", "GNU.sparse.map",
                "GNU.sparse.offset", "GNU.sparse.numbytes", "GNU.sparse.size", "SCHILY.xattr.user.a",
            ]), "[0-9,.\\-]{0,24}"),
            0..6,
        ),
        tail in proptest::collection::vec(prop::sample::select(b"0123456789\n".to_vec()), 0..1600),
    ) {
        let records: Vec<_> = keys.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let _ = read(&[&pax(&records)[..], &header("f", b'0', tail.len() as u64), &padded(&tail)].concat());
    }

    #[test]
    fn what_is_written_is_read(
        path in "[a-z/.é]{1,300}", uid in any::<u32>(), seconds in -1i64 << 40..1 << 40, nanos in 0..1_000_000_000u32,
        value in proptest::collection::vec(any::<u8>(), 0..300), data in proptest::collection::vec(any::<u8>(), 0..2000),
    ) {
        let entry = Entry {
            uid,
            size: data.len() as u64,
            mtime: Timestamp { seconds, nanos },
            xattrs: vec![(b"user.x".to_vec(), value)],
            ..entry(&path, Kind::File)
        };
        let bytes = Layer::new().add(&entry, &data).done();
        let (entries, found) = read(&bytes).unwrap();
        prop_assert_eq!(&entries[..], &[entry][..]);
        prop_assert_eq!(found, data);
    }
}
