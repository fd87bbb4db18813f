use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;

use super::*;

const HEAD: &str = "1970-01-12T13:46:40.000000042Z stdout";

fn log(limit: Option<usize>, chunks: &[&[u8]]) -> Vec<u8> {
    let now = UNIX_EPOCH + Duration::new(1_000_000, 42);
    let (mut lines, mut out) = (Lines::new(Stream::Stdout, limit), Vec::new());
    for chunk in chunks {
        lines.feed(chunk, now, &mut out);
    }
    lines.finish(now, &mut out);
    assert!(!lines.has_begun());
    out
}

/// Tag and content of each line.
fn parts(limit: usize, chunks: &[&[u8]]) -> Vec<String> {
    let out = String::from_utf8(log(Some(limit), chunks)).unwrap();
    out.lines().map(|line| line.strip_prefix(HEAD).unwrap()[1..].to_owned()).collect()
}

#[test]
fn a_line_has_time_stream_tag_and_content() {
    assert_eq!(log(None, &[b"hello\n"]), format!("{HEAD} F hello\n").as_bytes());
    assert_eq!(log(None, &[b"\n"]), format!("{HEAD} F \n").as_bytes());
    assert_eq!(log(None, &[b"a\0b\r\n"]), format!("{HEAD} F a\0b\n").as_bytes());
    assert_eq!(log(None, &[]), b"");
}

#[test]
fn what_does_not_end_is_partial() {
    assert_eq!(parts(10, &[b"hel", b"lo"]), ["P hello"]);
    assert_eq!(parts(10, &[b"one\ntwo"]), ["F one", "P two"]);
    assert_eq!(log(Some(10), &[b"one\r"]), format!("{HEAD} P one\r\n").as_bytes());
}

#[test]
fn a_long_line_is_split_and_its_last_part_is_full() {
    assert_eq!(parts(4, &[b"abcdefghij\n"]), ["P abcd", "P efgh", "F ij"]);
    assert_eq!(parts(4, &[b"abcdefgh\n"]), ["P abcd", "F efgh"]);
    assert_eq!(parts(4, &[b"abcd\n"]), ["F abcd"]);
    assert_eq!(parts(4, &[b"abcd", b"\r", b"\n"]), ["F abcd"]);
    assert_eq!(parts(4, &[b"abcdefgh"]), ["P abcd", "P efgh"]);
}

#[test]
fn a_line_without_a_limit_stays_whole() {
    let long = vec![b'x'; 1 << 20];
    let out = log(None, &[&long, b"\n"]);
    assert_eq!(out.len(), HEAD.len() + 3 + long.len() + 1);
}

proptest! {
    #[test]
    fn chunks_do_not_matter(
        bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'a'), any::<u8>()], 0..200),
        cuts in proptest::collection::vec(0_usize..200, 0..20),
        limit in 1_usize..20,
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).chain([0, bytes.len()]).collect();
        cuts.sort_unstable();
        let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        prop_assert_eq!(log(Some(limit), &chunks), log(Some(limit), &[&bytes]));
    }

    #[test]
    fn the_content_comes_back(bytes in proptest::collection::vec(any::<u8>(), 0..200), limit in 1_usize..20) {
        let out = log(Some(limit), &[&bytes]);
        let mut content = Vec::new();
        for line in out.split_inclusive(|byte| *byte == b'\n') {
            let line = &line[HEAD.len() + 1..];
            let (tag, part) = (line[0], &line[2..line.len() - 1]);
            prop_assert!(part.len() <= limit);
            content.extend_from_slice(part);
            if tag == b'F' {
                content.push(b'\n');
            }
        }
        let mut expected = Vec::new();
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            match line.strip_suffix(b"\r\n") {
                Some(line) => { expected.extend_from_slice(line); expected.push(b'\n'); }
                None => expected.extend_from_slice(line),
            }
        }
        prop_assert_eq!(content, expected);
    }
}
