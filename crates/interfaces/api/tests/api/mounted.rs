//! Routes of others beside it: some behind its tokens, some that know by themselves who asks.

use axum::{Extension, Router, body::Bytes, http::HeaderMap, routing};
use formwork_auth::Admitted;
use formwork_protocols::Scope;
use formwork_services::capability::Caller;

use crate::world::World;

async fn whoami(
    Extension(caller): Extension<Caller>,
    Extension(by): Extension<Admitted>,
) -> String {
    format!("{} {:?} {}", caller.principal(), caller.scopes(), by.credential)
}

/// As a webhook is: the bytes as they came, and a header that says who signed them.
async fn incoming(headers: HeaderMap, body: Bytes) -> String {
    let signed = headers.get("x-signature").map(|it| it.as_bytes().len());
    format!("{signed:?} {body:?} {}", headers.contains_key("authorization"))
}

async fn world() -> World {
    World::beside(Default::default(), None, |api| {
        let nested = Router::new().route("/deep", routing::get(whoami));
        let behind = Router::new().route("/whoami", routing::get(whoami)).nest("/mcp", nested);
        let open = Router::new().route("/incoming/events/{slug}", routing::post(incoming));
        api.behind_token(behind).open(open)
    })
    .await
}

fn post(host: &str) -> Vec<u8> {
    format!(
        "POST /incoming/events/ci HTTP/1.1\r\nhost: {host}\r\nx-signature: abc\r\nconnection: close\r\n\
         content-length: 4\r\n\r\n\u{0}\u{1}a\""
    )
    .into_bytes()
}

#[tokio::test]
async fn what_is_behind_the_token_knows_who_asks_and_is_asked_by_nobody_else() {
    let world = world().await;

    for path in ["/whoami", "/mcp/deep"] {
        let known = world.get(path, "").await;
        let bare = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let nobody = world.send(bare.as_bytes()).await;

        let all =
            format!("user:ada {:?} {}", std::collections::BTreeSet::from(Scope::ALL), world.ada_id);
        assert_eq!((known.status, known.body), (200, all), "{path}");
        assert_eq!(nobody.problem().0, 401, "{path}");
    }
    world.end().await;
}

#[tokio::test]
async fn what_is_open_has_the_bytes_as_they_came_and_is_asked_by_the_name_of_the_server() {
    let world = world().await;

    let taken = world.send(&post("formwork.example")).await;
    let elsewhere = world.send(&post("rebound.example")).await;

    assert_eq!(taken.status, 200, "{taken:?}");
    assert_eq!(taken.body, "Some(3) b\"\\0\\x01a\\\"\" false");
    assert_eq!(elsewhere.problem().0, 421);
    world.end().await;
}
