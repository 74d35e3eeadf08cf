//! Any bytes, cut anywhere, give the same events as in one piece.

#![no_main]

use formwork_transport::sse::{Decoder, Error};
use libfuzzer_sys::fuzz_target;

/// Small, so that the fuzzer finds the way to an event that is too long.
const LIMIT: usize = 512;

type Told = (Vec<(String, String, String)>, Option<Error>);

fn read<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Told {
    let mut decoder = Decoder::new(LIMIT);
    let mut events = Vec::new();
    for chunk in chunks {
        decoder.push(chunk);
        loop {
            match decoder.next() {
                Ok(Some(event)) => {
                    events.push((
                        event.name.into_owned(),
                        event.data.into_owned(),
                        event.id.to_owned(),
                    ));
                }
                Ok(None) => break,
                Err(error) => return (events, Some(error)),
            }
        }
    }
    (events, None)
}

fuzz_target!(|input: &[u8]| {
    let Some((&first, stream)) = input.split_first() else { return };
    let whole = read([stream]);
    assert_eq!(read(stream.chunks(1)), whole);
    // The first byte says how the stream is cut.
    assert_eq!(read(stream.chunks(usize::from(first) + 1)), whole);
});
