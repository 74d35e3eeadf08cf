//! Capabilities over HTTP: the same as everywhere, and refused as everywhere.

use formwork_protocols::{Principal, Scope};
use formwork_services::capability::{CAPABILITIES, Caller, Effect};
use formwork_testkit::postgres::Postgres;
use serde_json::{Value, json};

use crate::world::World;

/// Without what a moment later is another: how long something took, and when.
fn steady(mut value: Value) -> Value {
    fn forget(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|name, _| !matches!(name.as_str(), "elapsed" | "at" | "took"));
                fields.values_mut().for_each(forget);
            }
            Value::Array(items) => items.iter_mut().for_each(forget),
            _ => {}
        }
    }
    forget(&mut value);
    value
}

/// Asks for everything that changes nothing, here and over the socket.
async fn answers_the_same(world: World) {
    let ada = Caller::owner(Principal::parse("user:ada").unwrap());
    let mut done = 0;
    for capability in CAPABILITIES.iter().filter(|it| it.effect == Effect::Read) {
        let here = world.formwork.invoke(&ada, capability.name, json!({})).await;
        let there = world.call(capability.name, json!({})).await;

        match here {
            Ok(value) => {
                assert_eq!(there.status, 200, "{}: {there:?}", capability.name);
                assert_eq!(steady(there.json()), steady(value), "{}", capability.name);
                done += 1;
            }
            Err(error) => {
                let problem = there.json();
                assert!(there.status >= 400, "{}: {there:?}", capability.name);
                assert_eq!(problem["errors"], json!(error.told()), "{}", capability.name);
                assert_eq!(problem["hint"], json!(error.hint()), "{}", capability.name);
                assert_eq!(problem["code"], json!(error.code()), "{}", capability.name);
            }
        }
    }
    assert!(done >= 10, "{done}");
    world.end().await;
}

#[tokio::test]
async fn behaviour_37_a_capability_answers_the_same_over_http_and_in_rust() {
    answers_the_same(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_37_a_capability_answers_the_same_over_http_and_in_rust() {
    let Some(postgres) = Postgres::shared() else { return };
    let database = postgres.database().unwrap();
    answers_the_same(World::with(Default::default(), Some(database.url())).await).await;
}

#[tokio::test]
async fn behaviour_37_no_token_a_missing_scope_and_an_unknown_parameter_are_refused() {
    let world = World::new().await;
    let reader = world.token("user:bob", &[Scope::Read]).await;
    for capability in CAPABILITIES {
        let name = capability.name;
        let nobody = world
            .send(
                format!("POST /v1/{name} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                    .as_bytes(),
            )
            .await;
        let wrong = format!("formwork_{}_{}", "0".repeat(32), "0".repeat(64));
        let stranger = world.call_as(&wrong, name, json!({})).await;
        let unknown = world.call(name, json!({ "no_such_parameter": 1 })).await;
        let bob = world.call_as(&reader, name, json!({ "no_such_parameter": 1 })).await;

        assert_eq!(nobody.problem(), (401, "a token is needed".to_owned()), "{name}");
        assert_eq!(nobody.headers["www-authenticate"], "Bearer realm=\"formwork\"");
        assert_eq!(stranger.problem().0, 401, "{name}");
        assert!(stranger.headers["www-authenticate"].contains("invalid_token"));
        assert_eq!(unknown.problem().0, 422, "{name}");
        assert!(unknown.problem().1.contains("no_such_parameter"), "{name}: {unknown:?}");
        if capability.scope == Scope::Read {
            assert_eq!(bob.problem().0, 422, "{name}");
        } else {
            // Nothing is said of what would be asked for.
            let told = format!("user:bob lacks the scope {} that {name} needs", capability.scope);
            assert_eq!(bob.problem(), (403, told));
        }
    }
    world.end().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_request_has_a_status_of_its_own() {
    let world = World::new().await;
    let run = "0198f6a2-7c1e-7000-8000-5f3c9d1b2a4e";

    let asked = [
        (
            world.call("runs.nonsense", json!({})).await,
            404,
            "there is no capability \"runs.nonsense\"",
        ),
        (world.call("runs.get", json!({ "run": run })).await, 404, "there is no run"),
        (world.call("runs.get", json!({ "run": "x" })).await, 422, "UUID"),
        (world.call("runs.get", json!({})).await, 422, "missing field `run`"),
        (world.call("runs.get", json!([run])).await, 400, "the body is no JSON object"),
        (world.call("runs.get?run=x", json!({})).await, 400, "parameters stand in the body"),
        (world.call("%ff", json!({})).await, 400, "Invalid UTF-8"),
        (world.get("/v1/runs.list", "").await, 405, "this path is not asked so"),
        (world.get("/v2/runs.list", "").await, 404, "there is nothing at this path"),
        (world.get("/", "").await, 404, "there is nothing at this path"),
    ];

    for (answer, status, told) in asked {
        let problem = answer.problem();
        assert!(problem.0 == status && problem.1.contains(told), "{answer:?}");
        assert_eq!(answer.headers["cache-control"], "no-store");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
    }
    world.end().await;
}

#[tokio::test]
async fn faults_of_documents_are_told_each_with_its_place() {
    let world = World::new().await;
    let work =
        json!({ "workflow": { "source": "w.toml", "text": "format_version = 1\nname = 3\n" } });

    let answer = world.call("runs.start", json!({ "work": work })).await;

    assert_eq!(answer.problem().0, 422, "{answer:?}");
    let places = &answer.json()["diagnostics"];
    assert!(places.as_array().unwrap().iter().any(|it| it["line"] == 2 && it["key"] == "name"));
    world.end().await;
}

#[tokio::test]
async fn a_token_is_told_by_the_call_that_made_it_and_is_taken_from_then_on() {
    let world = World::new().await;
    let add = json!({ "to": "service:ci", "scopes": ["read"] });

    let added = world.call("credentials.add", add).await;
    let token = added.json()["token"].as_str().unwrap().to_owned();
    let id = added.json()["credential"]["id"].clone();
    let taken = world.call_as(&token, "runs.list", json!({})).await;
    let beyond = world.call_as(&token, "credentials.list", json!({})).await;
    world.call("credentials.revoke", json!({ "id": id })).await;
    let gone = world.call_as(&token, "runs.list", json!({})).await;
    let events = world.call("events.list", json!({})).await;

    assert_eq!((taken.status, beyond.status), (200, 403));
    assert_eq!(gone.problem().0, 401);
    assert!(gone.problem().1.contains("was revoked"), "{gone:?}");
    let secret = token.rsplit('_').next().unwrap();
    assert!(!events.body.contains(secret) && !gone.body.contains(secret));
    world.end().await;
}

#[tokio::test]
async fn what_there_is_is_told_to_whoever_has_a_token_and_that_it_is_there_to_anybody() {
    let world = World::new().await;

    let document = world.get("/v1/openapi.json", "").await;
    let bare =
        |path: &str| format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    let nobody = world.send(bare("/v1/openapi.json").as_bytes()).await;
    let health = world.send(bare("/health").as_bytes()).await;
    let ready = world.send(bare("/ready").as_bytes()).await;

    assert_eq!(document.json()["openapi"], "3.1.0");
    let paths = document.json()["paths"].as_object().unwrap().len();
    assert_eq!(paths, CAPABILITIES.len() + 5);
    assert_eq!(nobody.status, 401);
    assert_eq!(
        (health.json(), ready.json()),
        (json!({ "status": "ok" }), json!({ "status": "ready" }))
    );
    world.end().await;
}
