//! Capabilities: one rule for all of them.

use std::sync::Arc;

use axum::{
    Extension,
    body::Body,
    extract::{Path, Request, State, rejection::PathRejection},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use formwork_auth::Admitted;
use formwork_services::{
    Error,
    capability::{Caller, Capability, Effect},
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde_json::{Map, Value};
use tokio::task::JoinHandle;

use crate::{
    Problem,
    api::Inner,
    door,
    seats::{Full, Seats},
};

/// Asks for a capability by its name, with its parameters as the body.
pub(crate) async fn call(
    State(inner): State<Arc<Inner>>,
    name: Result<Path<String>, PathRejection>,
    Extension(caller): Extension<Caller>,
    Extension(admitted): Extension<Admitted>,
    request: Request,
) -> Response {
    let done = match named(name) {
        Ok(name) => asked(&inner, &name, caller, admitted, request).await,
        Err(problem) => Err(problem),
    };
    match done {
        Ok(value) => json(&value),
        Err(problem) => problem.into_response(),
    }
}

/// Reads what a path names.
pub(crate) fn named(name: Result<Path<String>, PathRejection>) -> Result<String, Problem> {
    let read =
        |rejection: PathRejection| Problem::new(StatusCode::BAD_REQUEST, rejection.body_text());
    name.map(|Path(name)| name).map_err(read)
}

async fn asked(
    inner: &Arc<Inner>,
    name: &str,
    caller: Caller,
    admitted: Admitted,
    request: Request,
) -> Result<Value, Problem> {
    // All that can be told before its body has come, so that nobody sends one for nothing.
    let capability = Capability::named(name)?;
    capability.may(&caller)?;
    if request.uri().query().is_some_and(|query| !query.is_empty()) {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "parameters stand in the body")
            .hint("send them as a JSON object, and nothing behind a ?"));
    }
    let seat = seat(&inner.calls, &admitted, "call")?;
    let params = params(inner, request).await?;
    let (formwork, effect) = (inner.formwork.clone(), capability.effect);
    // What changes something is carried out to its end, also where whoever asked has gone.
    let mut work = Held {
        work: inner.work.spawn(async move {
            let _seat = seat;
            formwork.invoke(&caller, capability.name, params).await
        }),
        ends_with_whoever_asked: effect == Effect::Read,
    };
    let leave = async {
        inner.ends.cancelled().await;
        tokio::time::sleep(inner.limits.leave).await;
    };
    tokio::select! {
        done = &mut work.work => match done {
            Ok(done) => Ok(done?),
            Err(error) => {
                let reason = if error.is_panic() { "a fault of its own" } else { "it was broken off" };
                let reason = reason.to_owned();
                Err(Error::Panicked { what: "the call", reason }.into())
            }
        },
        () = leave => Err(door::leaving().hint("it was not done when this server ended; the log tells how far it came")),
    }
}

/// Something that is carried out.
struct Held {
    work: JoinHandle<Result<Value, Error>>,
    ends_with_whoever_asked: bool,
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.ends_with_whoever_asked {
            self.work.abort();
        }
    }
}

/// Takes a seat for whoever asks.
pub(crate) fn seat(
    seats: &Seats,
    admitted: &Admitted,
    what: &str,
) -> Result<crate::seats::Seat, Problem> {
    seats.take(admitted.credential).map_err(|full| match full {
        Full::OfOne => Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            format!("this credential has as many {what}s under way as one may have"),
        )
        .hint(format!("wait until a {what} has ended"))
        .again_in(1),
        Full::All => Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("this server has as many {what}s under way as it may have"),
        )
        .again_in(1),
    })
}

/// Reads the parameters of a request: a JSON object; nothing is an empty one.
async fn params(inner: &Inner, request: Request) -> Result<Value, Problem> {
    let is_json = is_json(request.headers());
    let bytes = body(inner, request).await?;
    if bytes.is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    if !is_json {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "parameters are application/json",
        )
        .hint("send `Content-Type: application/json`"));
    }
    let wrong = |told: String| Problem::new(StatusCode::BAD_REQUEST, told);
    let value = serde_json::from_slice(&bytes);
    let value: Value = value.map_err(|error| wrong(format!("the body is no JSON: {error}")))?;
    match value {
        Value::Object(_) => Ok(value),
        _ => Err(wrong("the body is no JSON object".to_owned())
            .hint("parameters are sent by their names, as in {\"limit\": 10}")),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut all = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(one), None) = (all.next(), all.next()) else { return false };
    let kind = one.to_str().ok().and_then(|it| it.split(';').next());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// Reads a body, within the bounds of its size and of its time.
async fn body(inner: &Inner, request: Request) -> Result<bytes::Bytes, Problem> {
    let limits = &inner.limits;
    let too_large = || {
        let told = format!("a body has at most {} bytes", limits.body);
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, told)
    };
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|it| it.to_str().ok()).and_then(|it| it.parse::<u64>().ok());
    if length.is_some_and(|length| length > limits.body as u64) {
        return Err(too_large());
    }
    let whole = Limited::new(request.into_body(), limits.body).collect();
    match tokio::time::timeout(limits.body_within, whole).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => {
            Err(Problem::new(StatusCode::BAD_REQUEST, format!("the body cannot be read: {error}")))
        }
        Err(_) => Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body has not come within {} s", limits.body_within.as_secs()),
        )),
    }
}

/// Answers with a document.
pub(crate) fn json(value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
