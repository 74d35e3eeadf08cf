//! The same bytes give the same events, however a network cuts them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::PathBuf;

use formwork_protocols::{Rng as _, SeededRng};
use formwork_transport::sse::Decoder;

/// How many random cuts each captured stream is read with.
const CHUNKINGS: u64 = 1_000;

fn streams() -> Vec<(PathBuf, Vec<u8>)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/wire");
    let mut streams = Vec::new();
    for server in std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()) {
        if server.is_dir() {
            for file in std::fs::read_dir(server).unwrap().map(|entry| entry.unwrap().path()) {
                if file.extension().is_some_and(|kind| kind == "sse") {
                    streams.push((file.clone(), std::fs::read(file).unwrap()));
                }
            }
        }
    }
    streams
}

fn read<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Vec<(String, String)> {
    let mut decoder = Decoder::new(1 << 20);
    let mut events = Vec::new();
    for chunk in chunks {
        decoder.push(chunk);
        while let Some(event) = decoder.next().unwrap() {
            events.push((event.name.into_owned(), event.data.into_owned()));
        }
    }
    events
}

/// Cuts `bytes` at random: mostly into a few bytes, now and then into a whole packet.
fn cut<'a>(bytes: &'a [u8], rng: &SeededRng) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let most = if rng.next_u64().is_multiple_of(8) { 1_500 } else { 40 };
        let size = usize::try_from(rng.next_u64() % most + 1).unwrap().min(rest.len());
        let (chunk, after) = rest.split_at(size);
        rest = after;
        Some(chunk)
    })
}

#[test]
fn a_captured_stream_has_the_same_events_under_a_thousand_random_chunkings() {
    let streams = streams();
    assert!(streams.len() > 40, "only {} streams were found", streams.len());

    for (path, bytes) in streams {
        let whole = read(std::iter::once(bytes.as_slice()));
        assert!(!whole.is_empty(), "{}", path.display());
        for seed in 0..CHUNKINGS {
            let rng = SeededRng::new(seed);
            assert_eq!(read(cut(&bytes, &rng)), whole, "{} seed {seed}", path.display());
        }
    }
}
