//! Any body of the Messages wire, cut anywhere: the same events and the same answer, or the same error.

#![no_main]

use formwork_protocols::{Completion, Message, ModelEvent, ModelRequest, ProviderError, Role};
use formwork_transport::{Endpoint, ProviderKind, decode::Answer};
use libfuzzer_sys::fuzz_target;

type Told = (Vec<ModelEvent>, Result<Completion, ProviderError>);

fn read<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Told {
    let name = "fuzz".parse().expect("a name");
    let endpoint = Endpoint::new(name, ProviderKind::Anthropic, "http://127.0.0.1:1");
    let model = "m".parse().expect("a name");
    let request = ModelRequest::new(model, vec![Message::text(Role::User, "Go.")]);
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

fuzz_target!(|input: &[u8]| {
    let Some((&first, body)) = input.split_first() else { return };
    let whole = read([body]);
    assert_eq!(read(body.chunks(usize::from(first) + 1)), whole);
});
