//! Answers read from bytes without a network, for the tests of every wire.

use formwork_protocols::{
    Message, ModelEvent, ModelRequest, Part, ProviderName, Rng as _, Role, SeededRng,
    message::{Arguments, Provenance, Reasoning, ToolCall, ToolDefinition, ToolResult},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    draft::{Draft, Finished},
    endpoint::{Endpoint, ProviderKind},
    fault::Fault,
    frames::Frames,
    tool_names::ToolNames,
    wire::{self, Heard},
};

/// What became of an answer.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub(crate) events: Vec<ModelEvent>,
    pub(crate) finished: Result<Finished, Fault>,
    pub(crate) undecodable: u32,
    pub(crate) model: Option<String>,
}

impl Replayed {
    /// Returns the answer, which must be one.
    pub(crate) fn finished(&self) -> &Finished {
        self.finished.as_ref().unwrap()
    }

    /// Returns all that a chunking must not change, as text.
    pub(crate) fn told(&self) -> String {
        format!("{self:?}")
    }
}

pub(crate) fn endpoint(kind: ProviderKind) -> Endpoint {
    Endpoint::new(ProviderName::parse("there").unwrap(), kind, "http://127.0.0.1:1")
}

pub(crate) fn request() -> ModelRequest {
    ModelRequest::new("m-1".parse().unwrap(), vec![Message::text(Role::User, "Go.")])
}

/// Reads a stream that comes in `chunks`.
pub(crate) fn stream<'a>(
    kind: ProviderKind,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Replayed {
    let mut reader = wire::reader(&endpoint(kind));
    let mut draft = Draft::new(&request(), ToolNames::default());
    let mut frames = match kind {
        ProviderKind::Ollama => Frames::lines(1 << 20),
        _ => Frames::events(1 << 20),
    };
    let mut undecodable = 0;
    let mut fault = None;
    // The end of the body may end a frame too.
    'stream: for chunk in chunks.into_iter().map(Some).chain([None]) {
        match chunk {
            Some(bytes) => frames.push(bytes),
            None => frames.finish(),
        }
        while let Some(event) = frames.next().unwrap() {
            match reader.event(&event.name, &event.data, &mut draft) {
                Ok(Heard::End) => break 'stream,
                Ok(Heard::Undecodable) => undecodable += 1,
                Ok(_) => {}
                Err(found) => {
                    fault = Some(found);
                    break 'stream;
                }
            }
        }
    }
    replayed(draft, fault, undecodable)
}

/// Reads an answer that comes whole.
pub(crate) fn whole(kind: ProviderKind, body: &str) -> Replayed {
    let mut draft = Draft::new(&request(), ToolNames::default());
    let fault = wire::reader(&endpoint(kind)).whole(body, &mut draft).err();
    replayed(draft, fault, 0)
}

fn replayed(mut draft: Draft, fault: Option<Fault>, undecodable: u32) -> Replayed {
    let author = Provenance { provider: "there".parse().unwrap(), model: "m-1".parse().unwrap() };
    let finished = fault.map_or_else(|| draft.finish(&request(), &author), Err);
    let events = std::iter::from_fn(|| draft.pop_event()).collect();
    Replayed { events, finished, undecodable, model: draft.model }
}

/// Returns the body of a captured response.
pub(crate) fn body(response: &str) -> &str {
    response.split_once("\r\n\r\n").unwrap().1
}

/// Checks that `bytes` is read the same however it is cut.
pub(crate) fn same_under_any_chunking(
    kind: ProviderKind,
    bytes: &[u8],
    seed: u64,
) -> Result<(), TestCaseError> {
    let rng = SeededRng::new(seed);
    let mut rest = bytes;
    let cut = std::iter::from_fn(|| {
        let most = if rng.next_u64().is_multiple_of(8) { 1_500 } else { 40 };
        let size = usize::try_from(rng.next_u64() % most + 1).unwrap().min(rest.len());
        let (chunk, after) = rest.split_at(size);
        rest = after;
        (!chunk.is_empty()).then_some(chunk)
    });
    let chunks: Vec<&[u8]> = cut.collect();

    prop_assert_eq!(stream(kind, chunks).told(), stream(kind, [bytes]).told());
    Ok(())
}

/// Returns a request with a part of every kind, whose history comes from this provider and from another.
pub(crate) fn rich_request() -> ModelRequest {
    let reasoning = |text: &str, signature: &str, provider: &str, redacted| {
        Part::Reasoning(Reasoning {
            text: text.to_owned(),
            signature: Some(signature.to_owned()),
            redacted,
            provenance: Provenance {
                provider: provider.parse().unwrap(),
                model: "m-1".parse().unwrap(),
            },
        })
    };
    let call = |id: &str, name: &str, arguments| {
        Part::ToolCall(ToolCall { id: id.to_owned(), name: name.to_owned(), arguments })
    };
    let result = |id: &str, name: &str, content: &str, is_error| {
        Part::ToolResult(ToolResult {
            call_id: id.to_owned(),
            name: name.to_owned(),
            content: content.to_owned(),
            is_error,
            attached: Vec::new(),
        })
    };
    let said = |role, parts| Message { role, parts };
    let path = Arguments::Json(json!({ "path": "README.md" }));
    let malformed = Arguments::Malformed { text: "{\"path\":".to_owned(), error: "cut".to_owned() };
    let messages = vec![
        Message::text(Role::System, "You are terse."),
        Message::text(Role::System, "The root is /src."),
        said(
            Role::User,
            vec![
                Part::Text { text: "What is this?".to_owned() },
                Part::Image { media_type: "image/png".to_owned(), data: "iVBORw0KGgo=".to_owned() },
                Part::Document {
                    media_type: "application/pdf".to_owned(),
                    data: "JVBERi0x".to_owned(),
                    name: Some("spec.pdf".to_owned()),
                },
            ],
        ),
        said(
            Role::Assistant,
            vec![
                reasoning("Foreign.", "sealed elsewhere", "elsewhere", false),
                Part::Text { text: "I will look.".to_owned() },
                call("call:1/é", "fs.read", path.clone()),
                call("call_2", "no such/tool", malformed),
            ],
        ),
        said(
            Role::Tool,
            vec![
                result("call:1/é", "fs.read", "# Title", false),
                result("call_2", "no such/tool", "there is no such tool", true),
            ],
        ),
        said(
            Role::Assistant,
            vec![
                reasoning(
                    "Read it again.",
                    "{\"type\":\"reasoning\",\"id\":\"rs_1\"}",
                    "there",
                    false,
                ),
                call("call_2", "fs.read", path),
            ],
        ),
        said(Role::Tool, vec![result("call_2", "fs.read", "", false)]),
        Message::text(Role::User, "Now tell me."),
    ];
    let mut request = ModelRequest::new("m-1".parse().unwrap(), messages);
    request.tools = vec![ToolDefinition {
        name: "fs.read".parse().unwrap(),
        description: "Read a file.".to_owned(),
        parameters: json!({
            "type": "object",
            "properties": { "path": { "type": "string" } },
            "required": ["path"],
            "additionalProperties": false,
        }),
    }];
    request.max_output_tokens = Some(1_000);
    request
}

/// Returns the body that is sent for a request.
pub(crate) fn sent(kind: ProviderKind, request: &ModelRequest) -> String {
    let endpoint = endpoint(kind);
    let base = endpoint.url().unwrap();
    let outgoing = wire::outgoing(&endpoint, &base, request).unwrap();
    String::from_utf8(outgoing.body.to_vec()).unwrap()
}

/// Returns the path and the body that are sent for a request, to be snapshot.
pub(crate) fn sent_json(kind: ProviderKind, request: &ModelRequest) -> Value {
    let endpoint = endpoint(kind);
    let url = wire::outgoing(&endpoint, &endpoint.url().unwrap(), request).unwrap().url;
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    let body: Value = serde_json::from_str(&sent(kind, request)).unwrap();
    json!({ "path": format!("{}{query}", url.path()), "body": body })
}

/// Makes conversations of up to `turns` turns with results, texts and repeated ids.
pub(crate) fn conversations(turns: usize) -> impl Strategy<Value = Vec<Message>> {
    let turn = (0_usize..4, "[a-z ]{1,12}", any::<bool>()).prop_map(|(calls, text, asks)| {
        let ids: Vec<String> = (0..calls).map(|at| format!("call_{at}")).collect();
        let said = ids.iter().map(|id| {
            let arguments = Arguments::Json(json!({}));
            Part::ToolCall(ToolCall { id: id.clone(), name: "fs.read".to_owned(), arguments })
        });
        let mut parts = vec![Part::Text { text: format!("a{text}") }];
        parts.extend(said);
        let mut turn = vec![Message { role: Role::Assistant, parts }];
        if calls > 0 {
            let parts = ids.iter().map(|id| {
                Part::ToolResult(ToolResult {
                    call_id: id.clone(),
                    name: "fs.read".to_owned(),
                    content: text.clone(),
                    is_error: false,
                    attached: Vec::new(),
                })
            });
            turn.push(Message { role: Role::Tool, parts: parts.collect() });
        }
        if asks || calls == 0 {
            turn.push(Message::text(Role::User, format!("u{text}")));
        }
        turn
    });
    prop::collection::vec(turn, 1..turns).prop_map(|turns| {
        let start = [Message::text(Role::System, "Rules."), Message::text(Role::User, "Go.")];
        start.into_iter().chain(turns.into_iter().flatten()).collect()
    })
}
