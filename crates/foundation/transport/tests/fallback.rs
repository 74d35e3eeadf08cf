//! What becomes of a call whose model gives up.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{sync::Arc, time::Duration};

use formwork_protocols::{
    Attachment, BlobHash, Cancel, Message, ModelEvent, ModelRequest, Part, Price, Provider as _,
    ProviderFault, Role, Span,
    message::{Provenance, Reasoning},
    model::FellBack,
};
use formwork_testkit::http::{Reply, Server};
use formwork_transport::{
    Client, Endpoint, ProviderKind, RetryPolicy, Seams,
    fallback::{Fallback, Link},
};
use futures::StreamExt as _;
use serde_json::Value;

const ANSWER: &str = "data: {\"id\":\"c1\",\"model\":\"m-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi.\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";

/// A dot.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";

fn link(server: &Server, name: &str, input: &str) -> Link {
    let url = format!("{}/{name}/v1", server.url());
    let mut endpoint = Endpoint::new(name.parse().unwrap(), ProviderKind::OpenAiCompatible, url);
    endpoint.retry = RetryPolicy { tries: 2, base: Span::ZERO, cap: Span::from_secs(60) };
    Link {
        model: format!("{name}/m-{name}").parse().unwrap(),
        price: Price { input: input.parse().unwrap(), ..Price::LOCAL },
        max_output_tokens: Some(100),
        images: None,
        provider: Arc::new(Client::new(endpoint, Seams::default()).unwrap()),
    }
}

fn chain(server: &Server) -> Fallback {
    Fallback::new(
        link(server, "one", "1"),
        vec![link(server, "two", "7"), link(server, "three", "3")],
    )
}

fn chat(name: &str) -> String {
    format!("/{name}/v1/chat/completions")
}

fn request() -> ModelRequest {
    let mut request =
        ModelRequest::new("m-one".parse().unwrap(), vec![Message::text(Role::User, "hi")]);
    request.max_output_tokens = Some(4_000);
    request
}

fn paths(server: &Server) -> Vec<String> {
    server.requests().iter().map(|request| request.path().to_owned()).collect()
}

#[tokio::test]
async fn a_model_that_has_spent_its_tries_is_followed_by_the_next_of_the_chain() {
    let server = Server::start().await.unwrap();
    server.reply_always(&chat("one"), Reply::json(503, "{}"));
    server.reply(&chat("two"), Reply::json(404, r#"{"error":{"message":"no such model"}}"#));
    server.reply(&chat("three"), Reply::sse(ANSWER));

    let events: Vec<_> = chain(&server).stream(request(), Cancel::new()).collect().await;

    assert_eq!(paths(&server), [chat("one"), chat("one"), chat("two"), chat("three")]);
    let fell: Vec<_> = events
        .iter()
        .filter_map(|event| match event.as_ref().unwrap() {
            ModelEvent::FellBack(fell) => {
                let FellBack { from, to, price, error } = &**fell;
                Some((from.to_string(), to.to_string(), price.input.to_string(), error.fault))
            }
            _ => None,
        })
        .collect();
    assert_eq!(
        fell,
        [
            ("one/m-one".into(), "two/m-two".into(), "7".into(), ProviderFault::Overloaded),
            ("two/m-two".into(), "three/m-three".into(), "3".into(), ProviderFault::ModelNotFound),
        ]
    );
    let Some(Ok(ModelEvent::Done(done))) = events.last() else { panic!("{events:?}") };
    assert_eq!(done.message.to_text(), "Hi.");
    assert_eq!((done.served_by.provider.as_str(), done.served_by.model.as_str()), ("three", "m-1"));
    assert_eq!(done.tries, 4);
    let sent: Value = serde_json::from_slice(&server.requests()[3].body).unwrap();
    assert_eq!((&sent["model"], &sent["max_tokens"]), (&"m-three".into(), &100.into()));
}

#[tokio::test]
async fn what_no_other_model_could_mend_is_not_asked_of_another() {
    for (status, body, fault) in [
        (400, r#"{"error":{"message":"bad field"}}"#, ProviderFault::Invalid),
        (401, "{}", ProviderFault::Auth),
        (
            400,
            r#"{"error":{"code":"context_length_exceeded","message":"too long"}}"#,
            ProviderFault::ContextOverflow,
        ),
    ] {
        let server = Server::start().await.unwrap();
        server.reply(&chat("one"), Reply::json(status, body));

        let error = chain(&server).complete(request(), Cancel::new()).await.unwrap_err();

        assert_eq!((error.fault, paths(&server)), (fault, vec![chat("one")]));
    }
}

#[tokio::test]
async fn a_cancelled_call_asks_no_other_model() {
    let server = Server::start().await.unwrap();
    let cancel = Cancel::new();
    cancel.cancel();

    let error = chain(&server).complete(request(), cancel).await.unwrap_err();

    assert_eq!((error.fault, paths(&server).len()), (ProviderFault::Cancelled, 0));
}

#[tokio::test]
async fn the_last_models_error_is_that_of_the_chain() {
    let server = Server::start().await.unwrap();
    for name in ["one", "two", "three"] {
        server.reply_always(&chat(name), Reply::json(529, "{}"));
    }

    let error = chain(&server).complete(request(), Cancel::new()).await.unwrap_err();

    assert_eq!((error.provider.as_str(), error.tries), ("three", 2));
    assert_eq!(server.requests().len(), 6);
}

#[tokio::test]
async fn reasoning_of_one_model_is_not_shown_to_another() {
    let server = Server::start().await.unwrap();
    let anthropic = |name: &str| {
        let url = format!("{}/{name}/v1", server.url());
        let mut endpoint = Endpoint::new(name.parse().unwrap(), ProviderKind::Anthropic, url);
        endpoint.retry = RetryPolicy::NONE;
        let provider = Arc::new(Client::new(endpoint, Seams::default()).unwrap());
        Link { provider, ..link(&server, name, "1") }
    };
    let mut request = request();
    let thought = Reasoning {
        text: "a thought of one".to_owned(),
        signature: Some("sealed".to_owned()),
        redacted: false,
        provenance: Provenance {
            provider: "one".parse().unwrap(),
            model: "m-one".parse().unwrap(),
        },
    };
    let parts = vec![Part::Reasoning(thought), Part::Text { text: "Hm.".to_owned() }];
    request.messages.push(Message { role: Role::Assistant, parts });
    request.messages.push(Message::text(Role::User, "go on"));

    let chain = Fallback::new(anthropic("one"), vec![anthropic("two")]);
    let error = chain.complete(request, Cancel::new()).await.unwrap_err();

    assert_eq!(error.status, Some(599)); // Nothing is scripted.
    let bodies: Vec<_> =
        server.requests().iter().map(|it| String::from_utf8_lossy(&it.body).into_owned()).collect();
    let shown: Vec<_> = bodies.iter().map(|body| body.contains("a thought of one")).collect();
    assert_eq!(shown, [true, false]);
}

#[tokio::test]
async fn a_model_that_takes_no_images_is_told_of_them_in_words_by_its_chain() {
    let server = Server::start().await.unwrap();
    server.reply_always(&chat("one"), Reply::json(529, "{}"));
    let png = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, PNG).unwrap();
    let picture = Attachment {
        blob: BlobHash::of(&png),
        media_type: "image/png".to_owned(),
        bytes: png.len() as u64,
        pixels: Some((1, 1)),
        name: "dot.png".to_owned(),
        content: Some(png.into()),
    };
    let mut request = request();
    request.messages.push(Message { role: Role::User, parts: vec![Part::Attached(picture)] });

    let blind = Link { images: Some(false), ..link(&server, "two", "1") };
    let chain = Fallback::new(link(&server, "one", "1"), vec![blind]);
    let error = chain.complete(request, Cancel::new()).await.unwrap_err();

    assert_eq!(error.status, Some(599)); // Nothing is scripted.
    let bodies: Vec<_> =
        server.requests().iter().map(|it| String::from_utf8_lossy(&it.body).into_owned()).collect();
    let (first, last) = (bodies.first().unwrap(), bodies.last().unwrap());
    assert!(first.contains(PNG) && !last.contains(PNG), "{bodies:#?}");
    assert!(last.contains("[dot.png is not shown to you: this model takes no images]"), "{last}");
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_call_counts_from_its_first_model() {
    let server = Server::start().await.unwrap();
    let wait = Reply::json(429, "{}").header("retry-after", "30");
    server.reply_always(&chat("one"), wait);
    server.reply(&chat("two"), Reply::sse(ANSWER));

    let done = chain(&server).complete(request(), Cancel::new()).await.unwrap();

    assert!(done.elapsed >= Duration::from_secs(30), "{done:?}");
    assert!(done.first_token >= Some(Duration::from_secs(30)), "{done:?}");
}

/// Returns whom a call passed over or gave up on, with how often each was tried.
async fn given_up(chain: &Fallback) -> Vec<(String, u32)> {
    let events: Vec<_> = chain.stream(request(), Cancel::new()).collect().await;
    let fell = events.iter().filter_map(|event| match event {
        Ok(ModelEvent::FellBack(fell)) => Some((fell.from.to_string(), fell.error.tries)),
        _ => None,
    });
    fell.collect()
}

#[tokio::test]
async fn a_model_that_is_not_there_is_not_asked_again_and_each_call_says_so() {
    let server = Server::start().await.unwrap();
    let missing = r#"{"error":{"message":"no such model"}}"#;
    server.reply_always(&chat("one"), Reply::json(404, missing));
    server.reply_always(&chat("two"), Reply::sse(ANSWER));
    let chain = chain(&server);

    let first = given_up(&chain).await;
    let second = chain.clone().stream(request(), Cancel::new()).next().await.unwrap().unwrap();
    let third = given_up(&chain).await;

    assert_eq!(first, [("one/m-one".to_owned(), 1)]);
    let ModelEvent::FellBack(fell) = second else { panic!("{second:?}") };
    let FellBack { to, price, error, .. } = *fell;
    assert_eq!((to.to_string().as_str(), price.input), ("two/m-two", "7".parse().unwrap()));
    assert_eq!((error.message.as_str(), error.tries), ("not asked again: no such model", 0));
    assert_eq!(third, [("one/m-one".to_owned(), 0)]);
    assert_eq!(paths(&server), [chat("one"), chat("two"), chat("two")]);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_has_spent_its_tries_is_asked_again_after_a_while() {
    let server = Server::start().await.unwrap();
    server.reply(&chat("one"), Reply::json(503, "{}"));
    server.reply(&chat("one"), Reply::json(503, "{}"));
    server.reply_always(&chat("one"), Reply::sse(ANSWER));
    server.reply_always(&chat("two"), Reply::sse(ANSWER));
    let chain = chain(&server);

    let spent = given_up(&chain).await;
    let soon = given_up(&chain).await;
    tokio::time::advance(Duration::from_secs(301)).await;
    let later = given_up(&chain).await;

    assert_eq!(spent, [("one/m-one".to_owned(), 2)]);
    assert_eq!(soon, [("one/m-one".to_owned(), 0)]);
    assert_eq!(later, []);
    assert_eq!(paths(&server).last(), Some(&chat("one")));
}

#[tokio::test]
async fn where_everybody_gave_up_everybody_is_asked_again() {
    let server = Server::start().await.unwrap();
    for name in ["one", "two", "three"] {
        server.reply(&chat(name), Reply::json(402, "{}"));
        server.reply(&chat(name), Reply::json(402, "{}"));
    }
    let chain = chain(&server);

    for asked in [3, 6] {
        let error = chain.complete(request(), Cancel::new()).await.unwrap_err();

        assert_eq!((error.fault, server.requests().len()), (ProviderFault::Quota, asked));
    }
}
