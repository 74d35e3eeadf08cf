//! What sources send: the request as it came is given to who knows its signature.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::post,
};
use formwork_protocols::{Clock as _, SystemClock};
use formwork_services::sources::{Arrival, Receiver, Refusal};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde_json::json;
use tokio::time::timeout;

use crate::Problem;

/// How long a body may take: whoever sends one has it by then.
const BODY_WITHIN: Duration = Duration::from_secs(30);

/// Returns the route `POST /incoming/events/{slug}`, for [`Api::open`](crate::Api::open): a source shows who it is by its signature.
///
/// It answers 202 once what was sent is recorded, with the event's place in the log and whether it had been sent before.
pub fn incoming(receiver: Arc<Receiver>) -> Router {
    Router::new().route("/incoming/events/{slug}", post(receive)).with_state(receiver)
}

async fn receive(
    State(receiver): State<Arc<Receiver>>,
    Path(slug): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let at = SystemClock.now();
    let limit = receiver.limit(&slug);
    let body = match timeout(BODY_WITHIN, Limited::new(body, limit).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            return refused(&receiver.overflowed(&slug, at).await);
        }
        // Whoever sends has broken off, so that this is for nobody.
        Ok(Err(_)) => {
            return Problem::new(StatusCode::BAD_REQUEST, "the body broke off").into_response();
        }
        Err(_) => {
            let told = "the body did not come in time";
            return Problem::new(StatusCode::REQUEST_TIMEOUT, told).into_response();
        }
    };
    let headers: Vec<(&str, &[u8])> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let arrival = Arrival { slug: &slug, headers: &headers, body: &body, at };
    match receiver.receive(arrival).await {
        Ok(done) => {
            let told = json!({ "event": done.event, "duplicate": done.duplicate });
            let kind = [(header::CONTENT_TYPE, "application/json")];
            (StatusCode::ACCEPTED, kind, told.to_string()).into_response()
        }
        Err(refusal) => refused(&refusal),
    }
}

fn refused(refusal: &Refusal) -> Response {
    let status =
        StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let problem = Problem::new(status, refusal.to_string());
    match refusal {
        Refusal::Away { .. } => problem.again_in(5),
        _ => problem,
    }
    .into_response()
}
