//! Who comes in: for whom a request is, who asks with which token, and what no answer is without.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use formwork_services::capability::Caller;

use crate::{Hosts, Problem, Refused, api::Inner};

/// Refuses what is for somebody else, or is sent by a page of somebody else.
pub(crate) async fn is_ours(
    State(hosts): State<Arc<Hosts>>,
    request: Request,
    next: Next,
) -> Response {
    let refused = match hosts.check(request.uri(), request.headers()) {
        Ok(()) => return next.run(request).await,
        Err(refused) => refused,
    };
    let (status, hint) = match &refused {
        Refused::Hosts { .. } => (StatusCode::BAD_REQUEST, "send one, as HTTP/1.1 wants it"),
        Refused::Host { .. } => (
            StatusCode::MISDIRECTED_REQUEST,
            "ask by an address or by localhost, or have the server started with --host NAME",
        ),
        Refused::Origin { .. } => {
            (StatusCode::FORBIDDEN, "ask from a program, or from a page of this server")
        }
    };
    Problem::new(status, refused.to_string()).hint(hint).into_response()
}

/// Has a browser neither keep an answer nor take it for something else.
pub(crate) async fn says_no_more(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let own = |name| (name, HeaderValue::from_static("no-store"));
    let (name, value) = own(header::CACHE_CONTROL);
    headers.entry(name).or_insert(value);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Lets in whoever has a token, and says with the request who it is.
pub(crate) async fn admit(
    State(inner): State<Arc<Inner>>,
    mut request: Request,
    next: Next,
) -> Response {
    if inner.ends.is_cancelled() {
        return leaving().into_response();
    }
    let Some(token) = token(request.headers()) else {
        return unknown("a token is needed", "Bearer realm=\"formwork\"").into_response();
    };
    // Whoever waits for a log that does not answer is told so, and waits in nobody's way.
    let admitted = inner.formwork.guard().admit(token);
    match tokio::time::timeout(inner.limits.admit_within, admitted).await {
        Ok(Ok(admitted)) => {
            let caller = Caller::new(admitted.principal.clone(), admitted.scopes.iter().copied());
            request.extensions_mut().insert(caller);
            request.extensions_mut().insert(admitted);
            next.run(request).await
        }
        Ok(Err(formwork_auth::Error::Refused(refusal))) => {
            let wants = "Bearer realm=\"formwork\", error=\"invalid_token\"";
            unknown(&refusal.to_string(), wants).into_response()
        }
        // Where the log is, and what ails it, is for those who are known.
        Ok(Err(_)) | Err(_) => silent().into_response(),
    }
}

/// Returns the token of a request: it stands in one header, and nowhere that is written down on the way.
fn token(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(one), None) = (all.next(), all.next()) else { return None };
    let (scheme, token) = one.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn unknown(told: &str, wants: &'static str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, told)
        .hint("send `Authorization: Bearer TOKEN`; `formwork auth add` gives one, and a server without credentials says where its own is")
        .header(header::WWW_AUTHENTICATE, HeaderValue::from_static(wants))
}

/// Says that nothing can be told now, to whoever asks.
pub(crate) fn silent() -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the log does not answer").again_in(5)
}

/// Says that nothing more is begun.
pub(crate) fn leaving() -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "this server is about to end")
        .hint("ask again once it is back, or ask another that shares its log")
        .again_in(5)
}
