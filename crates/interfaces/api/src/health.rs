//! Whether it is there: for whoever starts it, restarts it or sends others to it. It says nothing else, and asks for no token.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde_json::json;

use crate::{api::Inner, calls, door};

/// How long the log may take to answer.
const WITHIN: Duration = Duration::from_secs(2);

/// It runs.
pub(crate) async fn health() -> Response {
    calls::json(&json!({ "status": "ok" }))
}

/// It can do something: its log answers, and it is not about to end.
pub(crate) async fn ready(State(inner): State<Arc<Inner>>) -> Response {
    if inner.ends.is_cancelled() {
        return door::leaving().into_response();
    }
    let store = inner.formwork.store();
    match tokio::time::timeout(WITHIN, store.head()).await {
        Ok(Ok(_)) => calls::json(&json!({ "status": "ready" })),
        // Why is for those who may ask.
        Ok(Err(_)) | Err(_) => door::silent().into_response(),
    }
}
