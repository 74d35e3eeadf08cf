//! What others could make of it: each is refused, bounded or closed, and the next request is answered.

use std::time::Duration;

use formwork_api::Limits;
use formwork_protocols::Scope;
use formwork_testkit::postgres::Postgres;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::world::World;

/// A request with this head, as ada.
fn request(world: &World, lines: &str, body: &str) -> Vec<u8> {
    let ada = &world.ada;
    format!(
        "POST /v1/runs.list HTTP/1.1\r\nauthorization: Bearer {ada}\r\nconnection: close\r\n{lines}\r\n{body}"
    )
    .into_bytes()
}

const HOST: &str = "host: localhost\r\n";
const JSON: &str = "host: localhost\r\ncontent-type: application/json\r\n";

#[tokio::test]
async fn a_name_that_was_made_to_mean_this_server_and_a_page_of_somebody_else_are_refused() {
    let world = World::new().await;
    let port = world.address.port();
    let sent = async |lines: &str| world.send(&request(&world, lines, "")).await;

    let told = [
        sent("host: rebound.example\r\n").await,
        sent("host: localhost\r\nhost: localhost\r\n").await,
        sent("").await,
        sent("host: localhost\r\norigin: https://evil.example\r\n").await,
        sent("host: localhost\r\norigin: null\r\n").await,
        // Before it is asked who asks, also where nobody has to be known.
        world
            .send(b"GET /health HTTP/1.1\r\nhost: rebound.example\r\nconnection: close\r\n\r\n")
            .await,
    ];
    let taken = [
        sent(&format!("host: localhost:{port}\r\norigin: http://localhost:{port}\r\n")).await,
        sent("host: formwork.example\r\n").await,
    ];
    let asks_whether =
        b"OPTIONS /v1/runs.list HTTP/1.1\r\nhost: localhost\r\norigin: http://localhost\r\n\
        access-control-request-method: POST\r\nconnection: close\r\n\r\n";
    let preflight = world.send(asks_whether).await;

    assert_eq!(told.each_ref().map(|it| it.status), [421, 400, 400, 403, 403, 421], "{told:?}");
    assert_eq!(taken.each_ref().map(|it| it.status), [200, 200], "{taken:?}");
    assert!(preflight.status >= 400, "{preflight:?}");
    let answers = told.iter().chain(&taken).chain([&preflight]);
    assert!(
        answers.flat_map(|it| it.headers.keys()).all(|name| !name.starts_with("access-control"))
    );
    world.end().await;
}

#[tokio::test]
async fn a_token_is_taken_from_its_header_and_from_nowhere_else() {
    let world = World::new().await;
    let ada = &world.ada;
    let sent = async |path: &str, lines: &str| {
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{lines}\r\n");
        world.send(head.as_bytes()).await.status
    };

    let refused = [
        sent("/v1/runs.list", &format!("authorization: Basic {ada}\r\n")).await,
        sent("/v1/runs.list", &format!("authorization: {ada}\r\n")).await,
        sent("/v1/runs.list", &format!("authorization: Bearer {ada} {ada}\r\n")).await,
        sent("/v1/runs.list", &format!("authorization: Bearer {}\r\n", ada.to_uppercase())).await,
        sent(
            "/v1/runs.list",
            &format!("authorization: Bearer {ada}\r\nauthorization: Bearer {ada}\r\n"),
        )
        .await,
        sent(&format!("/v1/runs.list?access_token={ada}"), "").await,
        sent("/v1/runs.list", &format!("cookie: token={ada}\r\n")).await,
        sent("/v1/runs.list", "authorization: Bearer \r\n").await,
        sent("/v1/runs.list", &format!("authorization: Bearer {}\r\n", "a".repeat(20_000))).await,
    ];
    let taken = sent("/v1/runs.list", &format!("authorization: bearer {ada}\r\n")).await;

    assert_eq!((refused, taken), ([401; 9], 200));
    world.end().await;
}

#[tokio::test]
async fn a_body_that_is_too_much_too_deep_or_no_json_is_refused() {
    let world = World::limited(Limits { body: 4_096, ..Limits::default() }).await;
    let sent = async |lines: &str, body: &str| world.send(&request(&world, lines, body)).await;
    let sized = |length: usize| format!("{JSON}content-length: {length}\r\n");
    let deep = format!("{{\"kinds\":{}{}}}", "[".repeat(1_000), "]".repeat(1_000));
    let large = "x".repeat(8_192);
    let chunked = format!("{JSON}transfer-encoding: chunked\r\n");
    let mut no_text = request(&world, &sized(8), "");
    no_text.extend(b"{\"a\":\"\xff\xfe");

    let told = [
        sent(&sized(1 << 40), "").await,
        sent(&chunked, &format!("2000\r\n{large}\r\n0\r\n\r\n")).await,
        sent(&sized(deep.len()), &deep).await,
        sent(&sized(1), "{").await,
        world.send(&no_text).await,
        sent(&format!("{HOST}content-length: 2\r\n"), "{}").await,
        sent(&format!("{HOST}content-type: text/plain\r\ncontent-length: 2\r\n"), "{}").await,
    ];
    let taken = [
        sent(HOST, "").await,
        sent(
            &format!(
                "{HOST}content-type: Application/JSON; charset=utf-8\r\ncontent-length: 2\r\n"
            ),
            "{}",
        )
        .await,
        sent(&chunked, "2\r\n{}\r\n0\r\n\r\n").await,
    ];

    let statuses = told.each_ref().map(|it| it.problem().0);
    assert_eq!(statuses, [413, 413, 400, 400, 400, 415, 415], "{told:?}");
    assert_eq!(taken.each_ref().map(|it| it.status), [200; 3], "{taken:?}");
    world.end().await;
}

/// Where a proxy and a server read a request's end differently, what one takes for a body is a request to the other.
#[tokio::test]
async fn a_request_whose_end_could_be_read_in_two_ways_is_not_answered_twice() {
    let world = World::new().await;
    let second = format!(
        "POST /v1/credentials.list HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n",
        world.ada
    );
    let of = |lines: &str, body: &str| request(&world, lines, body);

    let sent = [
        of(
            &format!("{JSON}content-length: 2\r\ncontent-length: 100\r\n"),
            &format!("{{}}{second}"),
        ),
        of(&format!("{JSON}content-length: 2, 100\r\n"), &format!("{{}}{second}")),
        of(&format!("{JSON}content-length: +2\r\n"), &format!("{{}}{second}")),
        of(
            &format!("{JSON}transfer-encoding: xchunked\r\n"),
            &format!("2\r\n{{}}\r\n0\r\n\r\n{second}"),
        ),
        of(
            &format!("{JSON}transfer-encoding : chunked\r\n"),
            &format!("2\r\n{{}}\r\n0\r\n\r\n{second}"),
        ),
        of(
            &format!("{JSON}transfer-encoding: chunked\r\ncontent-length: 4\r\n"),
            &format!("2\r\n{{}}\r\n0\r\n\r\n{second}"),
        ),
        of("host: localhost\r\nx: a\r\n b\r\n", &second),
        of("host: localhost\r\nx\0: a\r\n", &second),
    ];

    for bytes in sent {
        let answer = world.send(&bytes).await;
        let both = answer.body.matches("HTTP/1.1 ").count();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert_eq!(both, 0, "{text}\n{answer:?}");
        assert!(!answer.body.contains("credentials"), "{text}\n{answer:?}");
    }
    world.end().await;
}

#[tokio::test]
async fn a_head_that_has_no_end_is_not_waited_for() {
    let limits = Limits { head_within: Duration::from_millis(100), ..Limits::default() };
    let world = World::limited(limits).await;
    let mut slow = TcpStream::connect(world.address).await.unwrap();
    slow.write_all(b"POST /v1/runs.list HTTP/1.1\r\nhost: local").await.unwrap();
    let mut idle = TcpStream::connect(world.address).await.unwrap();
    let many = (0..1_000).map(|n| format!("x-{n}: a\r\n")).collect::<String>();
    let long = format!("{HOST}x: {}\r\n", "a".repeat(100_000));

    let mut said = Vec::new();
    // Each is closed by the server, or this would not come to an end.
    let _ = slow.read_to_end(&mut said).await;
    let _ = idle.read_to_end(&mut said).await;
    let told = [
        world.send(&request(&world, &format!("{HOST}{many}"), "")).await.status,
        world.send(&request(&world, &long, "")).await.status,
    ];

    assert!(!String::from_utf8_lossy(&said).contains("200 OK"));
    assert_eq!(told, [431, 431]);
    assert_eq!(world.call("runs.list", json!({})).await.status, 200);
    world.end().await;
}

#[tokio::test]
async fn a_body_that_never_comes_is_given_up() {
    let limits = Limits { body_within: Duration::from_millis(50), ..Limits::default() };
    let world = World::limited(limits).await;

    let answer = world.send(&request(&world, &format!("{JSON}content-length: 20\r\n"), "{")).await;

    assert_eq!(answer.problem().0, 408);
    world.end().await;
}

#[tokio::test]
async fn who_opens_connections_and_says_nothing_is_let_go_for_others() {
    let limits =
        Limits { connections: 4, head_within: Duration::from_millis(100), ..Limits::default() };
    let world = World::limited(limits).await;
    let mut idle = Vec::new();
    for _ in 0..40 {
        idle.push(TcpStream::connect(world.address).await.unwrap());
    }

    let answer = world.call("runs.list", json!({})).await;

    assert_eq!(answer.status, 200, "{answer:?}");
    drop(idle);
    world.end().await;
}

#[tokio::test]
async fn nothing_of_a_path_leads_anywhere_else() {
    let world = World::new().await;
    let get = async |path: &str| world.get(path, "").await.status;

    for path in [
        "/v1/../health",
        "/v1/%2e%2e/health",
        "//v1/openapi.json",
        "/v1/runs/..%2f..%2fetc%2fpasswd/events",
        "/v1/runs/%00/events",
        "/v1/runs/%ff/events",
        "/v1/%ff",
        "/V1/openapi.json",
        "/v1/openapi.json/",
    ] {
        let status = get(path).await;
        assert!((400..500).contains(&status), "{path}: {status}");
    }
    world.end().await;
}

#[tokio::test]
async fn whoever_has_one_scope_has_no_other_by_any_way() {
    let world = World::new().await;
    let runner = world.token("user:bob", &[Scope::Run]).await;
    let stream = format!(
        "GET /v1/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {runner}\r\nconnection: close\r\n\r\n"
    );

    let read = world.call_as(&runner, "events.list", json!({})).await;
    let streamed = world.send(stream.as_bytes()).await;
    let page = stream.replace("connection", "accept: application/json\r\nconnection");
    let paged = world.send(page.as_bytes()).await;

    let told = "user:bob lacks the scope read that events.list needs".to_owned();
    for answer in [read, streamed, paged] {
        assert_eq!(answer.problem(), (403, told.clone()));
    }
    world.end().await;
}

#[tokio::test]
async fn pg_a_log_that_does_not_answer_lets_nobody_in_and_says_nothing_of_where_it_is() {
    let Some(postgres) = Postgres::of_ones_own() else { return };
    let database = postgres.database().unwrap();
    let admit_within = Duration::from_millis(300);
    let world =
        World::with(Limits { admit_within, ..Limits::default() }, Some(database.url())).await;
    let ready = b"GET /ready HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    assert_eq!(world.call("runs.list", json!({})).await.status, 200);

    postgres.stop().unwrap();
    // Many at once: none waits for all before it.
    let asked =
        futures::future::join_all((0..20).map(|_| world.call("runs.list", json!({})))).await;
    let whether = world.send(ready).await;
    postgres.start().unwrap();
    // As soon as it is there again, so is who was known.
    while world.call("runs.list", json!({})).await.status != 200 {}

    for answer in asked.iter().chain([&whether]) {
        assert_eq!(answer.problem(), (503, "the log does not answer".to_owned()));
        assert!(!answer.body.contains("postgres"), "{answer:?}");
        assert_eq!(answer.headers["retry-after"], "5");
    }
    world.end().await;
}
