//! What a client of MCP is told, over streams and over HTTP.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod client; // A client that says what it likes.

use std::collections::BTreeMap;

use formwork_mcp::Mounted;
use formwork_protocols::{Principal, document};
use formwork_services::{
    Builder, Formwork,
    capability::{Caller, Scope},
    config::Config,
};
use formwork_testkit::http::{Gate, Reply, Server};
use http::Request;
use rmcp::{ServiceExt as _, model::CallToolRequestParams};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, with_client};

async fn place(config: &str) -> (TempDir, Formwork) {
    let folder = tempfile::tempdir().unwrap();
    let config = format!("format_version = 1\ndatabase_url = \"sqlite::memory:\"\n{config}");
    let config = document::parse::<Config>("config.toml", &config).unwrap().value;
    let formwork = Builder::new(folder.path()).config(config).build().await.unwrap();
    (folder, formwork)
}

/// Begins to tell of its models, and goes on once the test opens `gate`.
fn held(gate: &Gate) -> Reply {
    let begun = Reply::new(200).header("content-type", "application/json").chunk("{\"data\":");
    begun.pause(gate).chunk("[]}")
}

fn caller(scopes: impl IntoIterator<Item = Scope>) -> Caller {
    Caller::new(Principal::parse("user:ada").unwrap(), scopes)
}

#[tokio::test]
async fn behaviour_37_a_capability_answers_a_client_of_mcp_as_it_answers_in_rust() {
    let (_folder, formwork) = place("").await;
    let owner = caller(Scope::ALL);
    let asked = [
        ("runs.list", json!({})),
        ("workflows.list", json!({})),
        ("agents.list", json!({})),
        ("tools.get", json!({ "name": "fs.read" })),
        ("events.list", json!({ "kinds": ["run."], "limit": 3 })),
        ("sources.list", json!({})),
    ];

    with_client(&formwork, owner.clone(), async |client: &mut Client| {
        client.greet().await;
        for (name, params) in asked {
            let wanted = formwork.invoke(&owner, name, params.clone()).await.unwrap();
            let answer = client.call(&name.replace('.', "_"), params).await;
            let result = &answer["result"];
            assert_eq!(result["structuredContent"], wanted, "{answer:#}");
            let text = result["content"][0]["text"].as_str().unwrap();
            assert_eq!(serde_json::from_str::<Value>(text).unwrap(), wanted);
            assert_eq!(result["isError"], false);
        }
    })
    .await;
    formwork.close().await;
}

#[tokio::test]
async fn behaviour_37_what_does_not_fit_is_refused_over_mcp_in_the_words_of_every_interface() {
    let (_folder, formwork) = place("").await;
    let reader = caller([Scope::Read]);

    let told = with_client(&formwork, reader, async |client: &mut Client| {
        client.greet().await;
        let mut told: BTreeMap<&str, Value> = BTreeMap::new();
        for (what, tool, arguments) in [
            ("no such tool", "runs_lst", json!({})),
            ("a book for a name", &"x".repeat(100_000), json!({})),
            ("an unknown parameter", "runs_list", json!({ "limt": 3 })),
            ("another type", "runs_list", json!({ "limit": "three" })),
            ("a missing scope", "runs_abort", json!({ "nothing": "of it is read" })),
            ("something that is not there", "sources_get", json!({ "name": "forge" })),
        ] {
            let answer = client.call(tool, arguments).await;
            let error = answer.get("error").map(|error| json!([error["code"], error["message"]]));
            let text = || answer["result"]["content"][0]["text"].clone();
            assert!(error.is_some() || answer["result"]["isError"] == true, "{answer:#}");
            told.insert(what, error.unwrap_or_else(text));
        }
        told
    })
    .await;

    insta::assert_json_snapshot!(told);
    formwork.close().await;
}

#[tokio::test]
async fn behaviour_37_what_is_no_message_of_mcp_or_too_long_leaves_the_next_one_answered() {
    let (_folder, formwork) = place("").await;

    with_client(&formwork, caller(Scope::ALL), async |client: &mut Client| {
        client.greet().await;
        client.say("{\"jsonrpc\": \"2.0\", ").await;
        client.say("\u{0}\u{1b}[2J").await;
        client.say_bytes(b"\xff\xfe{}\n").await;
        client.say(&"[".repeat(100_000)).await;
        let arguments = json!({ "limit": "y".repeat(5 * 1024 * 1024) });
        let huge = json!({ "name": "runs_list", "arguments": arguments });
        client.say(&Client::request(7, "tools/call", &huge)).await;
        client.say("[]").await;
        client.say(&Client::request(8, "ping", &json!({}))).await;

        let mut answers = Vec::new();
        while answers.last().is_none_or(|answer: &Value| answer["id"] != 8) {
            answers.push(client.hear().await.unwrap());
        }

        let codes: Vec<&Value> = answers.iter().map(|answer| &answer["error"]["code"]).collect();
        let told = [-32700, -32700, -32700, -32700, -32600, -32600].map(Value::from);
        assert_eq!(codes[..6], told.iter().collect::<Vec<_>>()[..], "{answers:#?}");
        assert_eq!(answers.last().unwrap()["result"], json!({}));
    })
    .await;
    formwork.close().await;
}

#[tokio::test]
async fn behaviour_37_a_call_that_reads_ends_once_its_client_of_mcp_takes_it_back() {
    let (server, gate) = (Server::start().await.unwrap(), Gate::default());
    server.reply_always("/v1/models", held(&gate));
    let config = format!(
        "[providers.local]\nkind = \"openai-compatible\"\nbase_url = \"{}/v1\"\n",
        server.url()
    );
    let (_folder, formwork) = place(&config).await;

    with_client(&formwork, caller(Scope::ALL), async |client: &mut Client| {
        client.greet().await;
        let probe = json!({ "name": "models_probe", "arguments": { "target": "local" } });
        client.say(&Client::request(5, "tools/call", &probe)).await;
        server.wait_for_requests(1).await;

        let taken_back = json!({ "requestId": 5, "reason": "enough" });
        client.say(&Client::notification("notifications/cancelled", &taken_back)).await;
        let after = client.call("runs_list", json!({})).await;
        gate.open();
        // By the time that a second one is answered, the first would have been.
        let again = client.call("models_probe", json!({ "target": "local" })).await;

        assert_eq!(after["result"]["isError"], false, "{after:#}");
        assert_eq!(again["result"]["isError"], false, "{again:#}");
        assert!(!client.answered.contains(&json!(5)), "{:?}", client.answered);
    })
    .await;
    formwork.close().await;
}

#[tokio::test]
async fn a_client_that_goes_before_it_has_greeted_or_in_the_middle_of_a_word_ends_well() {
    let (_folder, formwork) = place("").await;

    for said in ["", "{\"jsonrpc\"", "no word of it\n"] {
        with_client(&formwork, caller(Scope::ALL), async |client: &mut Client| {
            client.say_bytes(said.as_bytes()).await;
        })
        .await;
    }
    formwork.close().await;
}

#[tokio::test]
async fn what_is_asked_twice_by_one_id_is_answered_once_and_the_second_is_refused() {
    let (server, gate) = (Server::start().await.unwrap(), Gate::default());
    server.reply_always("/v1/models", held(&gate));
    let url = server.url();
    let config =
        format!("[providers.local]\nkind = \"openai-compatible\"\nbase_url = \"{url}/v1\"\n");
    let (_folder, formwork) = place(&config).await;

    with_client(&formwork, caller(Scope::ALL), async |client: &mut Client| {
        let probe = json!({ "name": "models_probe", "arguments": { "target": "local" } });
        client.say(&Client::request(5, "tools/call", &probe)).await;
        client.say(&Client::request(5, "ping", &json!({}))).await;
        let refused = client.hear().await.unwrap();
        gate.open();
        let answered = client.hear().await.unwrap();

        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(5), &json!(-32600)));
        assert_eq!(answered["id"], 5);
        assert!(answered["result"].is_object(), "{answered:#}");
    })
    .await;
    formwork.close().await;
}

#[tokio::test]
async fn behaviour_37_the_client_of_the_official_sdk_lists_and_calls_what_is_offered() {
    let (_folder, formwork) = place("").await;
    let owner = caller(Scope::ALL);
    let wanted = formwork.invoke(&owner, "agents.list", json!({})).await.unwrap();
    let (theirs, ours) = tokio::io::duplex(64 * 1024);
    let streams = tokio::io::split(ours);
    let served = formwork_mcp::serve(&formwork, owner, streams, CancellationToken::new());

    let acts = async {
        let client = ().serve(tokio::io::split(theirs)).await.unwrap();
        let tools = client.list_all_tools().await.unwrap();
        let called = client.call_tool(CallToolRequestParams::new("agents_list")).await.unwrap();
        let mut wrong = CallToolRequestParams::new("runs_list");
        wrong.arguments = json!({ "limt": 3 }).as_object().cloned();
        let wrong = client.call_tool(wrong).await.unwrap();
        let missing = client.call_tool(CallToolRequestParams::new("no_such")).await;
        client.cancel().await.unwrap();
        (tools, called, wrong, missing)
    };
    let (served, (tools, called, wrong, missing)) = tokio::join!(served, acts);

    served.unwrap();
    let capabilities = formwork_services::capability::CAPABILITIES.iter();
    let offered = capabilities.filter(|it| !it.name.starts_with("credentials."));
    assert_eq!(tools.len(), offered.count());
    assert!(tools.iter().all(|tool| tool.output_schema.is_some() && tool.annotations.is_some()));
    assert_eq!((called.structured_content, called.is_error), (Some(wanted), Some(false)));
    assert_eq!(wrong.is_error, Some(true));
    assert!(missing.is_err());
    formwork.close().await;
}

#[tokio::test]
async fn behaviour_37_over_http_each_request_of_mcp_is_of_the_caller_that_was_found_out() {
    let (_folder, formwork) = place("").await;
    let mounted = Mounted::new(&formwork);
    let ask =
        async |who: Option<Caller>, body: String, headers: &[(&'static str, &'static str)]| {
            let mut request = Request::post("/mcp");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let mut request = request.body(body).unwrap();
            if let Some(who) = who {
                request.extensions_mut().insert(who);
            }
            let (parts, body) = mounted.answer(request).await.into_parts();
            (parts.status.as_u16(), String::from_utf8(body).unwrap())
        };
    let usual = [
        ("content-type", "application/json; charset=utf-8"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2025-06-18"),
    ];
    let reader = || Some(caller([Scope::Read]));
    let list = || Client::request(1, "tools/list", &json!({}));
    let call = || Client::request(2, "tools/call", &json!({ "name": "runs_list" }));

    let read = ask(reader(), list(), &usual).await;
    let owner = ask(Some(caller(Scope::ALL)), list(), &usual).await;
    let called = ask(reader(), call(), &usual).await;
    let nobody = ask(None, call(), &usual).await;
    let heard = Client::notification("notifications/initialized", &json!({}));
    let heard = ask(reader(), heard, &usual).await;
    let form = ask(reader(), call(), &[("content-type", "text/plain"), usual[1]]).await;
    let other = ask(reader(), call(), &[usual[0], ("accept", "text/html")]).await;
    let unknown = [usual[0], usual[1], ("mcp-protocol-version", "2030-01-01")];
    let unknown = ask(reader(), call(), &unknown).await;
    let broken = ask(reader(), "{".to_owned(), &usual).await;
    let huge = ask(reader(), " ".repeat(formwork_mcp::LARGEST + 1), &usual).await;
    mounted.close().await;

    assert_eq!((read.0, owner.0, called.0), (200, 200, 200), "{read:?} {called:?}");
    assert!(read.1.contains("runs_list") && !read.1.contains("runs_abort"), "{read:?}");
    assert!(owner.1.contains("runs_abort"));
    assert!(called.1.contains("structuredContent"), "{called:?}");
    assert_eq!(nobody, (401, String::new()));
    assert_eq!(heard, (202, String::new()));
    assert_eq!((form.0, other.0, unknown.0, broken.0, huge.0), (415, 406, 400, 400, 413));
    assert!(unknown.1.contains("-32022") && broken.1.contains("-32700"), "{unknown:?} {broken:?}");
    formwork.close().await;
}
