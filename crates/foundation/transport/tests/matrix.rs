//! Every wire with everything that an answer can be: a cassette for each, read over real sockets.
//!
//! `tests/wire/README.md` says of each folder whether its bytes were captured from a server or written from what its
//! maker publishes; [`Origin`] says the same for each cell, and a test holds the two together.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};

use formwork_protocols::{
    Cancel, Completion, Message, ModelRequest, Part, Price, Provider as _, ProviderError, Role,
    Usage as Counts, Usd,
    message::{Arguments, ToolCall, ToolDefinition, ToolResult},
    model::StopReason,
};
use formwork_testkit::http::{Reply, Server};
use formwork_transport::{
    Client, Endpoint, Prices, ProviderKind, RetryPolicy, Seams, Vendor, structured::OutputSchema,
};
use serde_json::{Value, json};

/// The wires, by a kind of server that speaks each.
const WIRES: [ProviderKind; 5] = [
    ProviderKind::OpenAi,
    ProviderKind::OpenAiResponses,
    ProviderKind::Anthropic,
    ProviderKind::Google,
    ProviderKind::Ollama,
];

/// What an answer can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Feature {
    Text,
    Tools,
    ParallelTools,
    LengthCut,
    Refusal,
    ErrorInStream,
    Usage,
    Caching,
    Structured,
    MultiTurn,
}

use Feature::*;

const FEATURES: [Feature; 10] = [
    Text,
    Tools,
    ParallelTools,
    LengthCut,
    Refusal,
    ErrorInStream,
    Usage,
    Caching,
    Structured,
    MultiTurn,
];

/// Where the bytes of a cassette come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// A real server, byte for byte.
    Captured,
    /// What the maker of the wire publishes of it.
    Published,
    /// There is none: the wire has no such thing.
    Absent(&'static str),
}

use Origin::{Absent, Captured, Published};

/// One cell of the matrix.
type Cell = (Feature, Origin, &'static str);

/// The cells of each wire.
fn cells(wire: ProviderKind) -> [Cell; 10] {
    match wire {
        ProviderKind::OpenAi => [
            (Text, Captured, "llama.cpp/chat.stream.sse"),
            (Tools, Captured, "llama.cpp/chat.tools.stream.sse"),
            (ParallelTools, Captured, "llama.cpp/chat.tools.three.stream.sse"),
            (LengthCut, Captured, "llama.cpp/chat.length.res.http"),
            (Refusal, Published, "openai/chat.refusal.stream.sse"),
            (ErrorInStream, Published, "openrouter/chat.error.stream.sse"),
            (Usage, Captured, "vllm/chat.stream.usage.sse"),
            (Caching, Captured, "llama.cpp/chat.agent.1.stream.sse"),
            (Structured, Captured, "llama.cpp/chat.json_schema.res.http"),
            (MultiTurn, Captured, "llama.cpp/chat.agent.2.stream.sse"),
        ],
        ProviderKind::OpenAiResponses => [
            (Text, Captured, "llama.cpp/responses.stream.sse"),
            (Tools, Captured, "vllm/responses.tools.stream.sse"),
            (ParallelTools, Published, "openai/reasoning.stream.sse"),
            (LengthCut, Published, "openai/incomplete.stream.sse"),
            (Refusal, Published, "openai/refusal.stream.sse"),
            (ErrorInStream, Published, "openai/failed.stream.sse"),
            (Usage, Captured, "vllm/responses.stream.sse"),
            (Caching, Published, "openai/reasoning.stream.sse"),
            (Structured, Published, "openai/structured.stream.sse"),
            (MultiTurn, Captured, "llama.cpp/responses.toolresult.stream.sse"),
        ],
        ProviderKind::Anthropic => [
            (Text, Captured, "llama.cpp/messages.stream.sse"),
            (Tools, Captured, "llama.cpp/messages.tools.stream.sse"),
            (ParallelTools, Published, "anthropic/parallel.stream.sse"),
            (LengthCut, Captured, "llama.cpp/messages.max_tokens.stream.sse"),
            (Refusal, Published, "anthropic/refusal.stream.sse"),
            (ErrorInStream, Published, "anthropic/overloaded.stream.sse"),
            (Usage, Captured, "vllm/messages.stream.sse"),
            (Caching, Published, "anthropic/thinking.stream.sse"),
            (Structured, Published, "anthropic/structured.stream.sse"),
            (MultiTurn, Captured, "llama.cpp/messages.toolresult.stream.sse"),
        ],
        ProviderKind::Google => [
            (Text, Published, "google/text.stream.sse"),
            (Tools, Published, "google/tool.stream.sse"),
            (ParallelTools, Published, "google/tools.stream.sse"),
            (LengthCut, Published, "google/length.stream.sse"),
            (Refusal, Published, "google/safety.stream.sse"),
            (ErrorInStream, Published, "google/error.stream.sse"),
            (Usage, Published, "google/toolresult.stream.sse"),
            (Caching, Published, "google/text.stream.sse"),
            (Structured, Published, "google/structured.stream.sse"),
            (MultiTurn, Published, "google/toolresult.stream.sse"),
        ],
        _ => [
            (Text, Captured, "aimock/ollama.chat.stream.ndjson"),
            (Tools, Captured, "aimock/ollama.tools.stream.ndjson"),
            (ParallelTools, Published, "ollama/thinking.stream.ndjson"),
            (LengthCut, Published, "ollama/length.stream.ndjson"),
            (Refusal, Absent("a model that declines does so in words like any other"), ""),
            (ErrorInStream, Published, "ollama/error.stream.ndjson"),
            (Usage, Published, "ollama/thinking.stream.ndjson"),
            (Caching, Absent("what was kept of the prompt is not counted apart"), ""),
            (Structured, Published, "ollama/structured.stream.ndjson"),
            (MultiTurn, Published, "ollama/toolresult.stream.ndjson"),
        ],
    }
}

fn wire_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/wire")
}

fn schema() -> OutputSchema {
    let schema = json!({
        "type": "object",
        "properties": { "city": { "type": "string" }, "sure": { "type": "boolean" } },
        "required": ["city", "sure"],
        "additionalProperties": false,
    });
    OutputSchema::new("answer", schema).unwrap()
}

/// Returns what is asked for an answer of that kind.
fn request(feature: Feature) -> ModelRequest {
    let mut messages = vec![Message::text(Role::User, "Read it.")];
    if feature == MultiTurn {
        let call = ToolCall {
            id: "call_1".to_owned(),
            name: "read_file".to_owned(),
            arguments: Arguments::Json(json!({ "path": "README.md" })),
        };
        let result = ToolResult {
            call_id: "call_1".to_owned(),
            name: "read_file".to_owned(),
            content: "# What it says".to_owned(),
            is_error: false,
            attached: Vec::new(),
        };
        messages.push(Message { role: Role::Assistant, parts: vec![Part::ToolCall(call)] });
        messages.push(Message { role: Role::Tool, parts: vec![Part::ToolResult(result)] });
    }
    let mut request = ModelRequest::new("m".parse().unwrap(), messages);
    if matches!(feature, Tools | ParallelTools | MultiTurn) {
        request.tools.push(ToolDefinition {
            name: "read_file".parse().unwrap(),
            description: "Read a file.".to_owned(),
            parameters: json!({
                "type": "object", "properties": { "path": { "type": "string" } },
            }),
        });
    }
    if feature == Structured { schema().ask(request) } else { request }
}

const fn chat_path(wire: ProviderKind) -> &'static str {
    match wire {
        ProviderKind::OpenAiResponses => "/v1/responses",
        ProviderKind::Anthropic => "/v1/messages",
        ProviderKind::Google => "/v1beta/models/m:streamGenerateContent",
        ProviderKind::Ollama => "/api/chat",
        _ => "/v1/chat/completions",
    }
}

/// Has a server answer with a cassette, in pieces that fall anywhere, and returns what becomes of it and what was sent.
async fn play(
    wire: ProviderKind,
    file: &Path,
    request: ModelRequest,
) -> (Result<Completion, ProviderError>, String) {
    let bytes = std::fs::read(file).unwrap();
    let reply = match file.extension().and_then(|it| it.to_str()).unwrap() {
        "sse" => Reply::sse_in(&bytes, 7),
        "ndjson" => {
            let head = Reply::new(200).header("content-type", "application/x-ndjson");
            bytes.chunks(7).fold(head, Reply::chunk)
        }
        _ => Reply::captured(&bytes),
    };
    let server = Server::start().await.unwrap();
    server.reply(chat_path(wire), reply);
    let mut endpoint = Endpoint::new("there".parse().unwrap(), wire, server.url());
    endpoint.retry = RetryPolicy::NONE;
    let client = Client::new(endpoint, Seams::default()).unwrap();
    let answer = client.complete(request, Cancel::new()).await;
    let sent = server.requests().first().map(|sent| sent.text());
    (answer, sent.unwrap_or_default())
}

/// Checks that an answer is what its cell says.
fn check(
    wire: ProviderKind,
    feature: Feature,
    answer: Result<Completion, ProviderError>,
    sent: &str,
) {
    let cell = format!("{wire} {feature:?}");
    if feature == ErrorInStream {
        let error = answer.unwrap_err();
        assert!(error.fault.is_retryable(), "{cell}: {error:?}");
        assert_eq!(error.status, Some(200), "{cell}");
        return;
    }
    let answer = answer.unwrap_or_else(|error| panic!("{cell}: {error:?}"));
    let calls: Vec<_> = answer.message.tool_calls().collect();
    let whole = calls.iter().filter(|call| matches!(call.arguments, Arguments::Json(_))).count();
    assert_eq!(answer.undecodable, 0, "{cell}");
    match feature {
        Text => {
            assert_eq!((answer.stop, calls.len()), (StopReason::EndTurn, 0), "{cell}");
            assert!(!answer.message.to_text().trim().is_empty(), "{cell}");
        }
        Tools | ParallelTools => {
            let least = if feature == Tools { 1 } else { 2 };
            assert_eq!((answer.stop, whole), (StopReason::ToolUse, calls.len()), "{cell}");
            assert!(whole >= least, "{cell}: {calls:?}");
            assert!(calls.iter().all(|call| call.name == "read_file" || call.name == "fs_read"));
            let mut ids: Vec<_> = calls.iter().map(|call| &call.id).collect();
            ids.sort();
            ids.dedup();
            assert_eq!(ids.len(), calls.len(), "{cell}");
            assert!(sent.contains("\"read_file\""), "{cell}: {sent}");
        }
        LengthCut => assert_eq!((answer.stop, whole), (StopReason::Length, 0), "{cell}"),
        Refusal => {
            let withheld = [StopReason::Refusal, StopReason::ContentFilter];
            assert!(withheld.contains(&answer.stop), "{cell}: {:?}", answer.stop);
            assert_eq!(whole, 0, "{cell}");
        }
        Usage => {
            assert!(!answer.usage_estimated, "{cell}");
            assert!(answer.usage.total_input() > 0 && answer.usage.output > 0, "{cell}");
        }
        Caching => assert!(answer.usage.cache_read > 0, "{cell}: {:?}", answer.usage),
        Structured => {
            schema().read(&answer).unwrap_or_else(|mismatch| panic!("{cell}: {mismatch}"));
            assert!(sent.contains("\"sure\""), "{cell} asks by the wire's own means: {sent}");
        }
        MultiTurn => {
            assert!(sent.contains("# What it says"), "{cell}: {sent}");
            assert!(!answer.message.parts.is_empty(), "{cell}");
        }
        ErrorInStream => unreachable!("it was checked above"),
    }
}

#[tokio::test]
async fn every_wire_reads_every_kind_of_answer() {
    for wire in WIRES {
        let cells = cells(wire);
        assert_eq!(cells.map(|(feature, ..)| feature), FEATURES, "{wire}");
        for (feature, origin, file) in cells {
            if let Absent(reason) = origin {
                println!("{wire} {feature:?}: none, {reason}");
                continue;
            }
            let (answer, sent) = play(wire, &wire_folder().join(file), request(feature)).await;
            check(wire, feature, answer, &sent);
        }
    }
}

#[test]
fn every_cassette_is_marked_as_captured_or_as_published() {
    let readme = std::fs::read_to_string(wire_folder().join("README.md")).unwrap();
    let marked = |folder: &str| {
        let row = readme.lines().find(|line| line.contains(&format!("`{folder}`")))?;
        Some(if row.contains("| captured") { Captured } else { Published })
    };

    for entry in std::fs::read_dir(wire_folder()).unwrap() {
        let path = entry.unwrap().path();
        let folder = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            assert!(marked(folder).is_some(), "README.md says nothing of {folder}");
        }
    }
    for (_, origin, file) in WIRES.into_iter().flat_map(cells) {
        if !matches!(origin, Absent(_)) {
            assert_eq!(marked(file.split('/').next().unwrap()), Some(origin), "{file}");
        }
    }
}

/// What a provider bills by its own rule, in tokens and in nano-dollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Bill {
    tokens: u64,
    nanos: u128,
}

impl Bill {
    fn add(&mut self, tokens: u64, price: Usd) {
        self.tokens += tokens;
        // A price is for a million tokens; what is left of a nano-dollar is billed as a whole one.
        self.nanos +=
            (u128::from(tokens) * u128::try_from(price.as_nanos()).unwrap()).div_ceil(1_000_000);
    }
}

/// Returns the documents of a body: the events of a stream, its lines, or the body itself.
fn documents(body: &str) -> Vec<Value> {
    let body =
        body.split_once("\r\n\r\n").filter(|_| body.starts_with("HTTP/")).map_or(body, |it| it.1);
    if let Ok(whole) = serde_json::from_str(body) {
        return vec![whole];
    }
    let lines = body.lines().map(|line| line.strip_prefix("data:").unwrap_or(line).trim());
    lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Reads what the provider itself says that an answer used, and bills it by the provider's rule; written apart from
/// the code that it checks. `told` is the total that the server wrote down, where it did.
fn billed(wire: ProviderKind, body: &str, price: &Price) -> Option<(Bill, Option<u64>)> {
    let documents = documents(body);
    let at = |value: &Value, pointer: &str| value.pointer(pointer).and_then(Value::as_u64);
    let last = |pointer: &str| {
        documents
            .iter()
            .rev()
            .find_map(|it| it.pointer(pointer).filter(|it| it.is_object()).cloned())
    };
    let (read, write) =
        (price.cache_read.unwrap_or(price.input), price.cache_write.unwrap_or(price.input));
    let mut bill = Bill::default();
    let mut told = None;
    match wire {
        ProviderKind::OpenAi => {
            // Cached tokens are part of the prompt's, reasoning is part of the completion's.
            let usage = last("/usage")?;
            let cached = at(&usage, "/prompt_tokens_details/cached_tokens").unwrap_or(0);
            bill.add(at(&usage, "/prompt_tokens")? - cached, price.input);
            bill.add(cached, read);
            bill.add(at(&usage, "/completion_tokens")?, price.output);
            told = at(&usage, "/total_tokens");
        }
        ProviderKind::OpenAiResponses => {
            let usage = last("/response/usage").or_else(|| last("/usage"))?;
            let cached = at(&usage, "/input_tokens_details/cached_tokens").unwrap_or(0);
            let written = at(&usage, "/input_tokens_details/cache_write_tokens").unwrap_or(0);
            bill.add(at(&usage, "/input_tokens")? - cached - written, price.input);
            bill.add(cached, read);
            bill.add(written, write);
            bill.add(at(&usage, "/output_tokens")?, price.output);
            told = at(&usage, "/total_tokens");
        }
        ProviderKind::Anthropic => {
            // The three of the input are apart; the last count of each is the one that holds.
            let all = |name: &str| {
                let found = documents.iter().rev().find_map(|it| {
                    at(it, &format!("/usage/{name}"))
                        .or_else(|| at(it, &format!("/message/usage/{name}")))
                });
                found.unwrap_or(0)
            };
            bill.add(all("input_tokens"), price.input);
            bill.add(all("cache_read_input_tokens"), read);
            bill.add(all("cache_creation_input_tokens"), write);
            bill.add(all("output_tokens"), price.output);
        }
        ProviderKind::Google => {
            // Cached content is part of the prompt; thoughts come beside the candidates.
            let usage = last("/usageMetadata")?;
            let cached = at(&usage, "/cachedContentTokenCount").unwrap_or(0);
            let of_tools = at(&usage, "/toolUsePromptTokenCount").unwrap_or(0);
            bill.add(at(&usage, "/promptTokenCount")? - cached + of_tools, price.input);
            bill.add(cached, read);
            bill.add(at(&usage, "/candidatesTokenCount").unwrap_or(0), price.output);
            bill.add(at(&usage, "/thoughtsTokenCount").unwrap_or(0), price.output);
            told = at(&usage, "/totalTokenCount");
        }
        _ => {
            let end = documents.iter().rev().find(|it| it.get("done") == Some(&json!(true)))?;
            bill.add(at(end, "/prompt_eval_count")?, price.input);
            bill.add(at(end, "/eval_count")?, price.output);
        }
    }
    (bill.tokens > 0).then_some((bill, told))
}

/// Tells by a cassette's name which wire it is of; nothing for what is no answer of a model.
fn wire_of(path: &Path) -> Option<ProviderKind> {
    let folder = path.parent()?.file_name()?.to_str()?;
    let name = path.file_name()?.to_str()?;
    if !["sse", "ndjson", "http"].contains(&path.extension()?.to_str()?) {
        return None;
    }
    Some(match (folder, name.split('.').next()?) {
        (_, "chat") => ProviderKind::OpenAi,
        (_, "responses") => ProviderKind::OpenAiResponses,
        (_, "messages") => ProviderKind::Anthropic,
        (_, "models" | "native" | "err" | "pull") => return None,
        ("openai", _) => ProviderKind::OpenAiResponses,
        ("anthropic", _) => ProviderKind::Anthropic,
        ("google", _) => ProviderKind::Google,
        ("ollama", _) | (_, "ollama") => ProviderKind::Ollama,
        _ => return None,
    })
}

/// Returns the price of a model of that wire, from the catalogue that the crate carries.
fn price(wire: ProviderKind, path: &Path) -> Price {
    let prices = Prices::built_in().unwrap();
    let model = match wire {
        ProviderKind::Anthropic => "claude-opus-4-6",
        ProviderKind::Google => "gemini-2.5-pro",
        ProviderKind::Ollama => {
            // A local model that costs something is a fiction, and its counts are held to it all the same.
            return Price {
                input: "0.037".parse().unwrap(),
                output: "0.143".parse().unwrap(),
                ..Price::LOCAL
            };
        }
        _ if path.starts_with(wire_folder().join("openrouter")) => {
            return Price {
                input: "3".parse().unwrap(),
                output: "15".parse().unwrap(),
                cache_read: Some("0.3".parse().unwrap()),
                ..Price::LOCAL
            };
        }
        _ => "gpt-5.1",
    };
    let vendor = Vendor::of(wire, "").unwrap_or(Vendor::OpenAi);
    prices.get(vendor, model).unwrap().price()
}

fn cassettes() -> Vec<(ProviderKind, PathBuf)> {
    let mut found = Vec::new();
    for folder in std::fs::read_dir(wire_folder()).unwrap().map(|entry| entry.unwrap().path()) {
        for file in std::fs::read_dir(&folder).into_iter().flatten().map(|it| it.unwrap().path()) {
            found.extend(wire_of(&file).map(|wire| (wire, file)));
        }
    }
    found.sort_by(|(_, one), (_, other)| one.cmp(other));
    found
}

#[tokio::test]
async fn every_cassette_costs_what_its_provider_says_to_the_token_and_the_nano_dollar() {
    let mut compared = 0;
    for (wire, file) in cassettes() {
        let body = String::from_utf8(std::fs::read(&file).unwrap()).unwrap();
        let price = price(wire, &file);
        let Some((bill, told)) = billed(wire, &body, &price) else { continue };
        // What ended as an error has no bill: its try is counted by who asked.
        let (Ok(answer), _) = play(wire, &file, request(Text)).await else { continue };

        let name = file.display();
        assert!(!answer.usage_estimated, "{name}");
        assert_eq!(answer.usage.total(), bill.tokens, "{name}: {:?}", answer.usage);
        assert_eq!(told.unwrap_or(bill.tokens), bill.tokens, "{name}: the server's own total");
        assert_eq!(
            u128::try_from(price.cost(&answer.usage).as_nanos()).unwrap(),
            bill.nanos,
            "{name}"
        );
        compared += 1;
    }
    println!("{compared} cassettes cost what their providers say");
    assert!(compared >= 60, "only {compared} cassettes tell what they used");
}

#[tokio::test]
async fn a_provider_that_tells_the_cost_itself_tells_the_same() {
    let file = wire_folder().join("openrouter/chat.cost.stream.sse");
    let body = std::fs::read_to_string(&file).unwrap();
    let told = documents(&body).iter().rev().find_map(|it| it.pointer("/usage/cost")?.as_f64());

    let (answer, _) = play(ProviderKind::OpenRouter, &file, request(Text)).await;

    let cost = price(ProviderKind::OpenAi, &file).cost(&answer.unwrap().usage);
    assert_eq!(cost, format!("{:.9}", told.unwrap()).parse().unwrap());
    assert_eq!(cost.to_string(), "0.000717");
}

#[tokio::test]
async fn usage_of_all_cassettes_is_five_classes_that_do_not_overlap() {
    let (answer, _) = play(
        ProviderKind::OpenAi,
        &wire_folder().join("openai/chat.cached.stream.sse"),
        request(Text),
    )
    .await;

    let wanted = Counts { input: 163, cache_read: 1_024, cache_write: 0, output: 9, reasoning: 36 };
    assert_eq!(answer.unwrap().usage, wanted);
}
