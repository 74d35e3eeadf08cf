//! The log as a stream: all of it, once, in order, wherever it was cut.

use std::time::Duration;

use formwork_api::Limits;
use formwork_protocols::{Append, EventBody, NewEvent, Principal, RunId, Timestamp};
use formwork_testkit::postgres::Postgres;
use serde_json::json;

use crate::world::{Came, World};

fn run(number: u32) -> RunId {
    format!("00000000-0000-7000-8000-{number:012x}").parse().unwrap()
}

/// Records so many events of a run, and returns their places.
async fn record(world: &World, run: RunId, kind: &str, count: u64) -> Vec<u64> {
    record_long(world, run, kind, (count, 0)).await
}

/// The same, each with so many bytes more.
async fn record_long(
    world: &World,
    run: RunId,
    kind: &str,
    (count, bytes): (u64, usize),
) -> Vec<u64> {
    let event = |number: u64| NewEvent {
        task: None,
        principal: Principal::system("test"),
        at: Timestamp::from_micros(1),
        body: EventBody::Unknown {
            kind: kind.to_owned(),
            data: json!({
                "number": number,
                "text": "a\nb\r\n\ndata: {}\n\n",
                "more": "x".repeat(bytes),
            }),
        },
        idempotency_key: None,
    };
    let events = (0..count).map(event).collect();
    let append = Append { run, token: None, events, blobs: Vec::new() };
    let recorded = world.formwork.store().append(append).await.unwrap();
    recorded.iter().map(|place| place.position.0).collect()
}

/// Cuts a stream again and again, and goes on where it was.
async fn goes_on_where_it_was_cut(world: World) {
    let mut wanted = record(&world, run(1), "test.before", 300).await;
    let mut came = Vec::new();
    let mut seen = wanted[0] - 1;

    for part in 0..6 {
        let mut stream =
            world.stream("/v1/events?kind=test.", &format!("last-event-id: {seen}\r\n")).await;
        if part % 2 == 0 {
            wanted.extend(record(&world, run(1), "test.while", 40).await);
            record(&world, run(1), "other.kind", 3).await;
        }
        for _ in 0..70 {
            let (id, event) = stream.event().await;
            assert_eq!(event["position"], id);
            came.push(id);
            seen = id;
        }
    }

    assert_eq!(came, wanted);
    world.end().await;
}

#[tokio::test]
async fn a_stream_goes_on_where_it_was_cut_and_leaves_nothing_out() {
    goes_on_where_it_was_cut(World::new().await).await;
}

#[tokio::test]
async fn pg_a_stream_goes_on_where_it_was_cut_and_leaves_nothing_out() {
    let Some(postgres) = Postgres::shared() else { return };
    let database = postgres.database().unwrap();
    goes_on_where_it_was_cut(World::with(Default::default(), Some(database.url())).await).await;
}

#[tokio::test]
async fn what_happens_is_told_as_it_happens_also_by_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("formwork.db").display());
    let world = World::with(Limits::default(), Some(&url)).await;
    let other = World::with(Limits::default(), Some(&url)).await;
    let mut stream = world.stream("/v1/events?after=now&kind=test.here&kind=test.there", "").await;
    assert!(matches!(stream.next().await, Came::Cursor(_)));

    record(&world, run(2), "test.elsewhere", 1).await;
    let here = record(&world, run(1), "test.here", 1).await;
    let first = stream.event().await;
    let there = record(&other, run(1), "test.there", 2).await;
    let rest = [stream.event().await, stream.event().await];

    assert_eq!((first.0, &first.1["kind"]), (here[0], &json!("test.here")));
    assert_eq!(
        rest.map(|(id, event)| (id, event["kind"].clone())),
        [(there[0], json!("test.there")), (there[1], json!("test.there")),]
    );
    // What another process has just recorded is read at once, and told here a moment later: it comes once.
    for _ in 0..8 {
        let mut wanted = record(&other, run(3), "test.twice", 3).await;
        let from = wanted[0] - 1;
        let mut stream = world.stream(&format!("/v1/events?kind=test.&after={from}"), "").await;
        let mut came = Vec::new();
        for _ in 0..3 {
            came.push(stream.event().await.0);
        }
        wanted.extend(record(&other, run(3), "test.twice", 1).await);
        came.push(stream.event().await.0);
        assert_eq!(came, wanted);
    }
    other.end().await;
    world.end().await;
}

/// One that reads nothing holds up nobody, and finds everything once it reads.
#[tokio::test]
async fn a_slow_reader_holds_nobody_up_and_misses_nothing() {
    let world = World::new().await;
    let mut slow = world.stream("/v1/events?kind=test.&after=now", "").await;

    // More than what is kept for those who watch, and than what the sockets hold.
    let mut wanted = Vec::new();
    for _ in 0..20 {
        wanted.extend(record_long(&world, run(1), "test.much", (500, 4_000)).await);
    }
    let mut came = Vec::new();
    while came.len() < wanted.len() {
        came.push(slow.event().await.0);
    }

    assert_eq!(came, wanted);
    world.end().await;
}

#[tokio::test]
async fn a_page_is_a_document_where_json_is_wanted() {
    let world = World::new().await;
    let places = record(&world, run(1), "test.page", 5).await;
    let get = async |path: &str| world.get(path, "accept: application/json\r\n").await;

    let first =
        get(&format!("/v1/runs/{}/events?limit=2&after={}", run(1), places[0])).await.json();
    let filtered = get("/v1/events?kind=test.page&kind=other.&limit=10").await.json();
    let same =
        world.call("events.list", json!({ "kinds": ["test.page", "other."], "limit": 10 })).await;

    assert_eq!((&first["next"], &first["more"]), (&json!(places[2]), &json!(true)));
    assert_eq!(filtered["events"].as_array().unwrap().len(), 5);
    assert_eq!(filtered, same.json());
    world.end().await;
}

#[tokio::test]
async fn what_is_asked_wrongly_is_told_and_no_stream_is_begun() {
    let world = World::new().await;
    let none = "0198f6a2-7c1e-7000-8000-5f3c9d1b2a4e";
    let get = async |path: &str, lines: &str| world.get(path, lines).await.problem();

    let told = [
        get("/v1/events?kinds=x", "").await,
        get("/v1/events?after=x", "").await,
        get("/v1/events?after=1&after=2", "").await,
        get("/v1/events?limit=3", "").await,
        get("/v1/events", "last-event-id: x\r\n").await,
        get("/v1/runs/x/events", "").await,
        get(&format!("/v1/runs/{none}/events?run={none}"), "").await,
        get(&format!("/v1/runs/{none}/events"), "").await,
    ];

    assert_eq!(
        told.each_ref().map(|it| it.0),
        [400, 400, 400, 400, 400, 400, 400, 404],
        "{told:?}"
    );
    world.end().await;
}

#[tokio::test]
async fn a_stream_says_that_it_is_there_and_ends_with_its_credential_and_its_server() {
    let limits = Limits { heartbeat: Duration::from_millis(20), ..Limits::default() };
    let world = World::limited(limits).await;
    let mut stream = world.stream("/v1/events?after=now&kind=test.", "").await;

    let came = [stream.next().await, stream.next().await, stream.next().await];
    let ada = Principal::parse("user:ada").unwrap();
    world.formwork.guard().revoke(&ada, world.ada_id).await.unwrap();
    let last = loop {
        match stream.next().await {
            Came::Heartbeat => {}
            came => break came,
        }
    };

    assert!(matches!(came[0], Came::Cursor(_)), "{came:?}");
    assert_eq!((&came[1], &came[2], &last), (&Came::Heartbeat, &Came::Heartbeat, &Came::End));
    world.end().await;

    let world = World::new().await;
    let mut stream = world.stream("/v1/events?after=now", "").await;
    assert!(matches!(stream.next().await, Came::Cursor(_)));
    world.cancel.cancel();
    assert_eq!(stream.next().await, Came::End);
    world.end().await;
}

#[tokio::test]
async fn one_credential_has_so_many_streams_and_no_more() {
    let world = World::limited(Limits { streams: (2, 1), ..Limits::default() }).await;
    let held = world.stream("/v1/events", "").await;

    let second = world.get("/v1/events", "").await;
    let page = world.get("/v1/events", "accept: application/json\r\n").await;

    assert_eq!(second.problem().0, 429);
    assert_eq!(second.headers["retry-after"], "1");
    assert_eq!(page.status, 200);
    drop(held);
    world.end().await;
}
