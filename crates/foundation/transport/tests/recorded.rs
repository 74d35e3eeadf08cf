//! Traffic that was recorded, replayed without its server.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{path::Path, time::Duration};

use formwork_protocols::{
    Cancel, Message, ModelEvent, ModelRequest, Provider, ProviderError, ProviderFault, Role, Span,
    message::ToolDefinition,
};
use formwork_testkit::http::{Reply, Server};
use formwork_transport::{Client, Endpoint, Error, ProviderKind, Recorded, RetryPolicy, Seams};
use futures::StreamExt as _;
use tempfile::TempDir;

const CHAT: &str = "/v1/chat/completions";
const KEY: &str = "sk-test-0123456789";

fn endpoint(kind: ProviderKind, base_url: String) -> Endpoint {
    let mut endpoint = Endpoint::new("cloud".parse().unwrap(), kind, base_url);
    endpoint.retry = RetryPolicy { tries: 2, base: Span::ZERO, cap: Span::from_secs(60) };
    endpoint
}

fn recorder(server: &Server, folder: &TempDir) -> Client {
    let mut endpoint = endpoint(ProviderKind::OpenAiCompatible, server.url());
    endpoint = endpoint.with_api_key(KEY.into());
    endpoint.record = Some(folder.path().to_owned());
    Client::new(endpoint, Seams::default()).unwrap()
}

fn replay(folder: &Path) -> Result<Recorded, Error> {
    let folder = folder.display().to_string();
    Recorded::read(endpoint(ProviderKind::Recorded, folder), Seams::default())
}

fn request(text: &str) -> ModelRequest {
    let mut request =
        ModelRequest::new("m".parse().unwrap(), vec![Message::text(Role::User, text)]);
    request.tools.push(ToolDefinition {
        name: "fs.read".parse().unwrap(),
        description: "Read a file.".to_owned(),
        parameters: serde_json::json!({ "type": "object" }),
    });
    request
}

/// What a call tells, without times and addresses.
async fn told(provider: &dyn Provider, text: &str) -> Vec<Result<ModelEvent, ProviderError>> {
    let events: Vec<_> = provider.stream(request(text), Cancel::new()).collect().await;
    let plain = |error: ProviderError| ProviderError { endpoint: String::new(), ..error };
    let events = events.into_iter().map(|event| match event {
        Err(error) => Err(plain(error)),
        Ok(ModelEvent::Started { mut served_by }) => {
            served_by.endpoint.clear();
            Ok(ModelEvent::Started { served_by })
        }
        Ok(ModelEvent::Retrying { attempt, error, .. }) => Ok(ModelEvent::Retrying {
            attempt,
            wait: Duration::ZERO,
            error: Box::new(plain(*error)),
        }),
        Ok(ModelEvent::Done(mut done)) => {
            done.served_by.endpoint.clear();
            (done.first_token, done.elapsed) = (None, Duration::ZERO);
            Ok(ModelEvent::Done(done))
        }
        other => other,
    });
    events.collect()
}

fn event(delta: &str, finish: &str) -> String {
    format!(
        "data: {{\"id\":\"c1\",\"model\":\"m-1\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}],\"usage\":{{\"prompt_tokens\":5,\"completion_tokens\":2}}}}\n\n"
    )
}

/// A text with the key in it, then a call.
fn answer() -> String {
    event(&format!("{{\"content\":\"Schön, {KEY}.\"}}"), "null")
        + &event(
            "{\"tool_calls\":[{\"index\":0,\"id\":\"t1\",\"function\":{\"name\":\"fs_read\",\"arguments\":\"{}\"}}]}",
            "\"tool_calls\"",
        )
        + "data: [DONE]\n\n"
}

fn files(folder: &TempDir) -> Vec<(String, String)> {
    let mut files: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[tokio::test]
async fn a_recorded_call_is_told_again_without_its_server() {
    let server = Server::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let busy = Reply::json(503, &format!("{{\"error\":{{\"message\":\"busy, {KEY}\"}}}}"));
    server.reply(CHAT, busy.header("x-request-id", "r1").header("set-cookie", KEY));
    let answer = answer();
    // One cut lies within a character, and one within the key.
    let (head, rest) = answer.as_bytes().split_at(answer.find('ö').unwrap() + 1);
    let (middle, tail) = rest.split_at(8);
    server.reply(CHAT, Reply::event_stream().chunk(head).chunk(middle).chunk(tail));
    let live = told(&recorder(&server, &folder), "hi").await;
    drop(server);

    let recorded = replay(folder.path()).unwrap();
    let again = told(&recorded, "hi").await;

    // The key is what it says it is in the record, and nowhere else.
    let hidden = format!("{live:?}").replace(KEY, "[api key]");
    assert_eq!(format!("{again:?}").replace(" ", ""), hidden.replace(" ", ""));
    assert!(matches!(&again[0], Ok(ModelEvent::Retrying { error, .. })
        if error.status == Some(503) && error.request_id.as_deref() == Some("r1")));
    let Some(Ok(ModelEvent::Done(done))) = again.last() else { panic!("{again:?}") };
    assert_eq!((done.message.tool_calls().count(), done.tries), (1, 2));
    let files = files(&folder);
    assert_eq!(files.len(), 2);
    for (name, text) in &files {
        assert!(!text.contains(KEY) && !text.contains("authorization"), "{name}: {text}");
        assert!(!text.contains("set-cookie"), "{name}: {text}");
    }
}

#[tokio::test]
async fn answers_to_the_same_request_come_in_their_order_and_the_last_again() {
    let server = Server::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let says = |text: &str| {
        let event = event(&format!("{{\"content\":\"{text}\"}}"), "\"stop\"");
        Reply::sse(format!("{event}data: [DONE]\n\n"))
    };
    server.reply(CHAT, says("one"));
    server.reply(CHAT, says("two"));
    let client = recorder(&server, &folder);
    for _ in 0..2 {
        client.complete(request("hi"), Cancel::new()).await.unwrap();
    }
    drop(server);

    let recorded = replay(folder.path()).unwrap();
    let mut heard = Vec::new();
    for _ in 0..3 {
        let answer = recorded.complete(request("hi"), Cancel::new()).await.unwrap();
        assert!(answer.served_by.endpoint.starts_with("recorded:"), "{answer:?}");
        heard.push(answer.message.to_text());
    }

    assert_eq!(heard, ["one", "two", "two"]);
}

#[tokio::test]
async fn an_answer_that_was_cut_is_cut_again() {
    let server = Server::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let half = event("{\"content\":\"Half\"}", "null");
    server.reply_always(CHAT, Reply::event_stream().chunk(half).reset());
    let live = told(&recorder(&server, &folder), "hi").await;
    drop(server);

    let again = told(&replay(folder.path()).unwrap(), "hi").await;

    assert_eq!(again, live);
    assert!(matches!(again.last(), Some(Err(error)) if error.fault == ProviderFault::Transport));
}

#[tokio::test]
async fn a_request_that_was_not_recorded_is_told_with_what_is_nearest() {
    let server = Server::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    server.reply(CHAT, Reply::sse(answer()));
    recorder(&server, &folder)
        .complete(request("Mend the first test"), Cancel::new())
        .await
        .unwrap();

    let asked = request("Mend the last test");
    let error = replay(folder.path()).unwrap().complete(asked, Cancel::new()).await.unwrap_err();

    let name = &files(&folder)[0].0;
    assert_eq!(error.fault, ProviderFault::Invalid);
    assert_eq!(
        error.message,
        format!(
            "this request was not recorded; the nearest is {name}, which differs in messages[0].content: \
             recorded \"Mend the first test\", asked \"Mend the last test\""
        )
    );
}

#[tokio::test]
async fn a_folder_without_recordings_of_the_provider_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();

    let error = replay(folder.path()).unwrap_err();

    assert_eq!(
        error.to_string(),
        format!(
            "provider cloud: {path} cannot be replayed: there is no recording of this provider; there is nothing"
        )
    );
}
