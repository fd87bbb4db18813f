use proptest::prelude::*;

use super::*;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn both_connections_get_their_bytes_in_order(
        messages in prop::collection::vec((any::<bool>(), 1usize..20_000, any::<u8>()), 1..12),
    ) {
        runtime().block_on(async move {
            let (near, far) = tokio::io::duplex(777);
            let mut tasks = JoinSet::new();
            let (read, write) = tokio::io::split(near);
            let (mut plugin, mut service) = split(read, write, &mut tasks);
            let (read, write) = tokio::io::split(far);
            let (mut far_plugin, mut far_service) = split(read, write, &mut tasks);
            let mut expected = [Vec::new(), Vec::new()];
            for (to_plugin, length, byte) in &messages {
                expected[usize::from(*to_plugin)].extend(std::iter::repeat_n(*byte, *length));
            }
            let sending = async {
                for (to_plugin, length, byte) in &messages {
                    let message = vec![*byte; *length];
                    let channel = if *to_plugin { &mut plugin } else { &mut service };
                    channel.write.write_all(&message).await.unwrap();
                }
            };
            let mut got = [vec![0; expected[0].len()], vec![0; expected[1].len()]];
            let [of_service, of_plugin] = &mut got;
            let (_, one, two) =
                tokio::join!(sending, far_service.read.read_exact(of_service), far_plugin.read.read_exact(of_plugin));
            one.unwrap();
            two.unwrap();
            assert_eq!(got, expected);
        });
    }

    #[test]
    fn frames_are_cut_where_peers_read_them(length in 1usize..50_000) {
        let frames = encode(7, &vec![9; length]);
        let first = u32::from_be_bytes(frames[4..8].try_into().unwrap()) as usize;
        prop_assert_eq!(first, length.min(4096));
        prop_assert_eq!(frames.len(), if length > 4096 { length + 16 } else { length + 8 });
    }

    #[test]
    fn nothing_a_peer_sends_breaks_it(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        runtime().block_on(async move {
            let (near, mut far) = tokio::io::duplex(1024);
            let mut tasks = JoinSet::new();
            let (read, write) = tokio::io::split(near);
            let (mut plugin, _service) = split(read, write, &mut tasks);
            far.write_all(&bytes).await.unwrap();
            drop(far);
            let mut rest = Vec::new();
            plugin.read.read_to_end(&mut rest).await.unwrap();
            assert!(rest.len() <= bytes.len());
        });
    }
}

#[test]
fn a_frame_that_is_too_large_ends_the_connection_and_unknown_ids_are_read_over() {
    runtime().block_on(async {
        let (near, mut far) = tokio::io::duplex(1024);
        let mut tasks = JoinSet::new();
        let (read, write) = tokio::io::split(near);
        let (mut plugin, mut service) = split(read, write, &mut tasks);
        far.write_all(&encode(9, b"nobody's")).await.unwrap();
        far.write_all(&encode(PLUGIN, b"mine")).await.unwrap();
        far.write_all(&[0, 0, 0, 2, 0xff, 0, 0, 0]).await.unwrap();
        let (mut got, mut none) = (Vec::new(), Vec::new());
        plugin.read.read_to_end(&mut got).await.unwrap();
        service.read.read_to_end(&mut none).await.unwrap();
        assert_eq!((got.as_slice(), none.len()), (&b"mine"[..], 0));
    });
}
