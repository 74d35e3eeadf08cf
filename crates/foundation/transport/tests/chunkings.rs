//! The same bytes give the same events and the same answer, however a network cuts them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};

use formwork_protocols::{
    Completion, Message, ModelEvent, ModelRequest, ProviderError, Rng as _, Role, SeededRng,
};
use formwork_transport::{Endpoint, ProviderKind, decode::Answer, sse::Decoder};

/// How many random cuts each captured stream is read with.
const CHUNKINGS: u64 = 1_000;

fn streams() -> Vec<(PathBuf, Vec<u8>)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/wire");
    let mut streams = Vec::new();
    for server in std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()) {
        if server.is_dir() {
            for file in std::fs::read_dir(server).unwrap().map(|entry| entry.unwrap().path()) {
                if file.extension().is_some_and(|kind| kind == "sse" || kind == "ndjson") {
                    streams.push((file.clone(), std::fs::read(file).unwrap()));
                }
            }
        }
    }
    streams
}

/// Returns the wire of a captured stream; what is no answer has none.
fn wire(path: &Path) -> Option<ProviderKind> {
    let folder = path.parent().unwrap().file_name().unwrap().to_str().unwrap();
    let kind = path.file_name().unwrap().to_str().unwrap().split('.').next().unwrap();
    Some(match (folder, kind) {
        (_, "pull") => return None,
        ("anthropic", _) | (_, "messages") => ProviderKind::Anthropic,
        ("openai", _) | (_, "responses") => ProviderKind::OpenAiResponses,
        ("google", _) => ProviderKind::Google,
        ("ollama", _) | (_, "ollama") => ProviderKind::Ollama,
        _ => ProviderKind::OpenAiCompatible,
    })
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
    let events = streams().into_iter().filter(|(path, _)| path.extension().unwrap() == "sse");
    let streams: Vec<_> = events.collect();
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

type Told = (Vec<ModelEvent>, Result<Completion, ProviderError>);

/// Reads an answer, and returns every event of it and what became of it.
fn answer<'a>(kind: ProviderKind, chunks: impl Iterator<Item = &'a [u8]>) -> Told {
    let endpoint = Endpoint::new("there".parse().unwrap(), kind, "http://127.0.0.1:1");
    let request = ModelRequest::new("m".parse().unwrap(), vec![Message::text(Role::User, "Go.")]);
    let mut answer = Answer::new(&endpoint, request);
    let mut events = Vec::new();
    for chunk in chunks {
        let pushed = answer.push(chunk);
        events.extend(std::iter::from_fn(|| answer.next_event()));
        if let Err(error) = pushed {
            return (events, Err(error));
        }
    }
    (events, answer.finish())
}

fn has_the_same_answer_under_any_chunking(kind: ProviderKind, least: usize) {
    let streams: Vec<_> =
        streams().into_iter().filter(|(path, _)| wire(path) == Some(kind)).collect();
    assert!(streams.len() >= least, "only {} streams were found", streams.len());

    let mut events = 0;
    for (path, bytes) in streams {
        let whole = answer(kind, std::iter::once(bytes.as_slice()));
        events += whole.0.len();
        for seed in 0..CHUNKINGS {
            let rng = SeededRng::new(seed);
            let cut = answer(kind, cut(&bytes, &rng));
            assert!(cut == whole, "{} seed {seed}: {cut:?}, not {whole:?}", path.display());
        }
    }
    assert!(events > least, "only {events} events were read");
}

#[test]
fn a_chat_is_the_same_events_and_answer_under_a_thousand_random_chunkings() {
    has_the_same_answer_under_any_chunking(ProviderKind::OpenAiCompatible, 20);
}

#[test]
fn a_response_is_the_same_events_and_answer_under_a_thousand_random_chunkings() {
    has_the_same_answer_under_any_chunking(ProviderKind::OpenAiResponses, 14);
}

#[test]
fn a_message_is_the_same_events_and_answer_under_a_thousand_random_chunkings() {
    has_the_same_answer_under_any_chunking(ProviderKind::Anthropic, 12);
}

#[test]
fn generated_content_is_the_same_events_and_answer_under_a_thousand_random_chunkings() {
    has_the_same_answer_under_any_chunking(ProviderKind::Google, 7);
}

#[test]
fn lines_of_ollama_are_the_same_events_and_answer_under_a_thousand_random_chunkings() {
    has_the_same_answer_under_any_chunking(ProviderKind::Ollama, 5);
}
