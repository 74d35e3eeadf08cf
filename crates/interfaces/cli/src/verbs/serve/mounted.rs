//! What is served beside capabilities: tools for clients of MCP, the place where workers come, and what sources send.

use std::sync::Arc;

use axum::{
    Extension, Router,
    body::{Body, to_bytes},
    extract::{Request, WebSocketUpgrade},
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::{any, get},
};
use formwork_api::{Api, Problem, incoming};
use formwork_mcp::{LARGEST, Mounted};
use formwork_protocols::{Cancel, SystemClock};
use formwork_services::{Builder, Error, Formwork, capability::Caller, sources::Receiver};
use formwork_worker::{Guest, Hub, Times};

use crate::terminal::{complain, harmless};

/// Gives a Formwork that is still to be built a place where workers come.
pub(super) fn with_hub(builder: Builder) -> (Builder, Hub) {
    let hub = Hub::new(Times::default(), Arc::new(SystemClock));
    (builder.workers(hub.clone()), hub)
}

/// What has to be ended by itself once nothing more is served.
pub(super) struct Beside {
    mcp: Mounted,
    receiver: Arc<Receiver>,
}

impl Beside {
    /// Waits for calls that write, and records how much was refused.
    pub(super) async fn close(&self) {
        self.mcp.close().await;
        self.receiver.close().await;
    }
}

/// Adds the routes of these three.
///
/// # Errors
/// The files of the sources cannot be read.
pub(super) fn add(api: Api, formwork: &Formwork, hub: Hub) -> Result<(Api, Beside), Error> {
    let receiver = Arc::new(Receiver::open(formwork)?);
    for left in receiver.left_out() {
        complain(&harmless(&format!("source {} receives nothing: {}\n", left.name, left.why)));
    }
    let mcp = Mounted::new(formwork);
    let (asked, ends) = (mcp.clone(), api.ends());
    let routes = Router::new()
        .route("/mcp", any(move |request: Request| answered(asked.clone(), request)))
        .route(
            "/workers",
            get(move |who: Extension<Caller>, request: WebSocketUpgrade| {
                let (hub, ends) = (hub.clone(), ends.clone());
                async move { welcomed(&hub, &who, request, ends) }
            }),
        );
    let api = api.behind_token(routes).open(incoming(Arc::clone(&receiver)));
    Ok((api, Beside { mcp, receiver }))
}

async fn answered(mcp: Mounted, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, LARGEST).await else {
        let told = format!("a message has no more than {LARGEST} bytes");
        return Problem::new(StatusCode::PAYLOAD_TOO_LARGE, told).into_response();
    };
    mcp.answer(Request::from_parts(parts, body)).await.map(Body::from)
}

fn welcomed(hub: &Hub, who: &Caller, request: WebSocketUpgrade, ends: Cancel) -> Response {
    let scopes = who.scopes().iter().map(|scope| scope.as_str());
    hub.accept(request, Guest::new(who.principal().clone(), scopes), ends)
}
