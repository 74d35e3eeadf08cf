use proptest::prelude::*;

use super::{Decoder, Error};

/// Pushes `chunks` and returns every event as its name, data and id.
fn events<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<(String, String, String)> {
    let mut decoder = Decoder::new(1 << 20);
    let mut events = Vec::new();
    for chunk in chunks {
        decoder.push(chunk);
        while let Some(event) = decoder.next().unwrap() {
            events.push((event.name.into(), event.data.into(), event.id.to_owned()));
        }
    }
    events
}

fn data(stream: &[u8]) -> Vec<String> {
    events([stream]).into_iter().map(|(_, data, _)| data).collect()
}

#[test]
fn every_line_ending_ends_a_line() {
    for end in ["\n", "\r", "\r\n"] {
        let stream = format!("data: one{end}data: two{end}{end}data: three{end}{end}");

        assert_eq!(data(stream.as_bytes()), ["one\ntwo", "three"], "{end:?}");
        assert_eq!(
            events(stream.as_bytes().chunks(1)),
            events([stream.as_bytes()]),
            "{end:?} byte by byte"
        );
    }
}

#[test]
fn a_byte_order_mark_is_left_out_once() {
    assert_eq!(data(b"\xEF\xBB\xBFdata: x\n\n"), ["x"]);
    assert_eq!(data(b"\xEF\xBB\xBF\xEF\xBB\xBFdata: x\n\n"), [] as [&str; 0]);
    assert_eq!(events(b"\xEF\xBB\xBFdata: x\n\n".chunks(1)).len(), 1);
    assert_eq!(data(b"data: \xEF\xBB\xBF\n\n"), ["\u{feff}"]);
}

#[test]
fn comments_and_unknown_fields_are_no_events() {
    assert_eq!(data(b": ping\n\n:\n\nfoo: bar\n\nevent: ping\n\ndata: x\n\n"), ["x"]);
}

#[test]
fn an_event_type_does_not_outlive_its_event() {
    let found = events([&b"event: a\n\ndata: x\n\nevent: b\ndata: y\n\ndata: z\n\n"[..]]);

    let names: Vec<_> = found.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["message", "b", "message"]);
}

#[test]
fn only_one_space_after_the_colon_is_left_out() {
    assert_eq!(data(b"data:x\n\ndata:  y \n\ndata\n\ndata:\n\n"), ["x", " y ", "", ""]);
}

#[test]
fn an_id_lasts_until_the_next_and_never_holds_a_nul() {
    let found = events([&b"id: 1\ndata: a\n\ndata: b\n\nid: \0\ndata: c\n\nid\ndata: d\n\n"[..]]);

    let ids: Vec<_> = found.iter().map(|(.., id)| id.as_str()).collect();
    assert_eq!(ids, ["1", "1", "1", ""]);
}

#[test]
fn a_reconnection_time_is_digits_alone() {
    let mut decoder = Decoder::new(100);
    decoder.push(b"retry: 250\n\nretry: 1x\n\nretry: -1\n\n");
    assert_eq!(decoder.next(), Ok(None));

    assert_eq!(decoder.retry_ms(), Some(250));
}

#[test]
fn what_follows_the_last_empty_line_is_no_event() {
    assert_eq!(data(b"data: whole\n\ndata: cut"), ["whole"]);
    assert_eq!(data(b"data: whole\n\ndata: cut\n"), ["whole"]);
}

#[test]
fn a_character_cut_in_two_is_whole_again() {
    let stream = "data: \u{1f980}\u{e9}\n\n".as_bytes();
    for cut in 0..=stream.len() {
        let (first, last) = stream.split_at(cut);

        assert_eq!(events([first, last])[0].1, "\u{1f980}\u{e9}");
    }
}

#[test]
fn bytes_that_are_not_utf_8_are_replaced_and_the_stream_goes_on() {
    assert_eq!(data(b"data: a\xFFb\n\ndata: c\n\n"), ["a\u{fffd}b", "c"]);
}

#[test]
fn a_line_ending_cut_in_two_is_one_line_ending() {
    assert_eq!(events([&b"data: a\r"[..], b"\n", b"\r", b"\n", b"data: b\r\n\r\n"]).len(), 2);
    // The empty line is known at its carriage return, so the event is not held back.
    assert_eq!(events([&b"data: a\r\n\r"[..]]).len(), 1);
}

#[test]
fn an_event_past_the_limit_is_refused_however_it_is_cut() {
    let stream = format!("data: {}\n\n", "x".repeat(100));
    let tries = |limit: usize, size: usize| {
        let mut decoder = Decoder::new(limit);
        stream.as_bytes().chunks(size).try_fold(0, |found, chunk| {
            decoder.push(chunk);
            Ok(found + usize::from(decoder.next()?.is_some()))
        })
    };

    for size in [1, 7, 1000] {
        assert_eq!(tries(108, size), Ok(1));
        assert_eq!(tries(90, size), Err(Error::TooLong { limit: 90 }));
    }
}

proptest! {
    #[test]
    fn no_bytes_panic_and_no_cut_changes_the_events(
        stream in prop::collection::vec(
            prop_oneof![
                Just(b'\n'), Just(b'\r'), Just(b':'), Just(b' '), Just(0xEF), Just(0xBB), Just(0xBF),
                Just(b'd'), Just(b'a'), Just(b't'), any::<u8>(),
            ],
            0..200,
        ),
        lines in prop::collection::vec("(data|event|id|retry)?:?[ a-c]{0,3}(\r|\n|\r\n)", 0..20),
        sizes in prop::collection::vec(1_usize..9, 1..20),
        limit in 1_usize..400,
    ) {
        let stream = [lines.concat().as_bytes(), &stream].concat();
        let read = |sizes: &[usize]| {
            let mut decoder = Decoder::new(limit);
            let (mut rest, mut sizes, mut found) = (stream.as_slice(), sizes.iter().cycle(), Vec::new());
            while !rest.is_empty() {
                let size = sizes.next().map_or(rest.len(), |size| (*size).min(rest.len()));
                let (chunk, after) = rest.split_at(size);
                rest = after;
                decoder.push(chunk);
                loop {
                    match decoder.next() {
                        Ok(Some(event)) => found.push(format!("{event:?}")),
                        Ok(None) => break,
                        Err(error) => {
                            found.push(error.to_string());
                            return found;
                        }
                    }
                }
            }
            found
        };

        prop_assert_eq!(read(&sizes), read(&[usize::MAX]));
    }
}
