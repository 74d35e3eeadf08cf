//! What is put together, and the router of it.

use std::{fmt, sync::Arc, time::Duration};

use axum::{
    Router,
    http::StatusCode,
    middleware::{from_fn, from_fn_with_state},
    response::IntoResponse as _,
    routing::{get, post},
};
use formwork_protocols::Cancel;
use formwork_services::Formwork;
use tokio_util::task::TaskTracker;

use crate::{Hosts, Problem, calls, door, events, health, openapi, seats::Seats};

/// What one who asks may use up. Everything has a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of a body: a workflow and its files in words are some ten thousand.
    pub body: usize,
    /// How long a body may take to come.
    pub body_within: Duration,
    /// How long the log may take to tell who asks.
    pub admit_within: Duration,
    /// How many calls are carried out at once, and how many of them by one credential.
    pub calls: (usize, usize),
    /// How many streams are open at once, and how many of them of one credential.
    pub streams: (usize, usize),
    /// How often a stream says that it is there.
    pub heartbeat: Duration,
    /// How many connections are open at once; further ones wait to be taken.
    pub connections: usize,
    /// How long the head of a request may take to come, and how long a connection stays open without one.
    pub head_within: Duration,
    /// How long calls are waited for that are under way at the end.
    pub leave: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 2 << 20,
            body_within: Duration::from_secs(30),
            admit_within: Duration::from_secs(10),
            calls: (64, 16),
            streams: (256, 32),
            heartbeat: Duration::from_secs(15),
            connections: 512,
            head_within: Duration::from_secs(15),
            leave: Duration::from_secs(10),
        }
    }
}

/// The HTTP interface of a [`Formwork`], to be mounted or served. Clones share it.
#[derive(Clone)]
pub struct Api {
    pub(crate) inner: Arc<Inner>,
    hosts: Hosts,
    behind_token: Router,
    open: Router,
}

pub(crate) struct Inner {
    pub(crate) formwork: Formwork,
    pub(crate) limits: Limits,
    pub(crate) calls: Seats,
    pub(crate) streams: Seats,
    /// Raised when nothing more is begun.
    pub(crate) ends: Cancel,
    /// What is being carried out for those who asked, whether or not they still wait.
    pub(crate) work: TaskTracker,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl Api {
    /// Begins with the usual limits, answering to addresses and to `localhost`.
    pub fn new(formwork: Formwork) -> Self {
        Self::with_limits(formwork, Limits::default())
    }

    /// Begins with limits of one's own.
    pub fn with_limits(formwork: Formwork, limits: Limits) -> Self {
        let inner = Inner {
            formwork,
            limits,
            calls: Seats::new(limits.calls.0, limits.calls.1),
            streams: Seats::new(limits.streams.0, limits.streams.1),
            ends: Cancel::new(),
            work: TaskTracker::new(),
        };
        Self {
            inner: Arc::new(inner),
            hosts: Hosts::default(),
            behind_token: Router::new(),
            open: Router::new(),
        }
    }

    /// Says under which names it is asked for, beside addresses and `localhost`: what a proxy passes on as `Host`.
    #[must_use]
    pub fn hosts(mut self, hosts: Hosts) -> Self {
        self.hosts = hosts;
        self
    }

    /// Adds routes that need a token, as `/mcp` and `/workers` do. Their requests carry who asks as an extension:
    /// [`Caller`](formwork_services::capability::Caller), and [`Admitted`](formwork_auth::Admitted) with the credential.
    #[must_use]
    pub fn behind_token(mut self, routes: Router) -> Self {
        self.behind_token = self.behind_token.merge(routes);
        self
    }

    /// Adds routes that know by themselves who asks, as webhooks do by a signature of their body. Nothing but the name of the server
    /// and the origin of a page is looked at before them, and their bodies are theirs to bound.
    #[must_use]
    pub fn open(mut self, routes: Router) -> Self {
        self.open = self.open.merge(routes);
        self
    }

    /// Returns what is raised when nothing more is begun, so that what else is served ends with it.
    pub fn ends(&self) -> Cancel {
        self.inner.ends.child()
    }

    /// Returns the routes, to be served or mounted in a server of one's own.
    pub fn router(&self) -> Router {
        let inner = &self.inner;
        let own = Router::new()
            .route("/v1/openapi.json", get(openapi::get))
            .route("/v1/events", get(events::all))
            .route("/v1/runs/{run}/events", get(events::of_run))
            .route("/v1/{capability}", post(calls::call))
            .with_state(Arc::clone(inner));
        let behind_token = own
            .merge(self.behind_token.clone())
            .route_layer(from_fn_with_state(Arc::clone(inner), door::admit));
        let health = Router::new()
            .route("/health", get(health::health))
            .route("/ready", get(health::ready))
            .with_state(Arc::clone(inner));
        behind_token
            .merge(health)
            .merge(self.open.clone())
            .fallback(async || {
                Problem::new(StatusCode::NOT_FOUND, "there is nothing at this path")
                    .hint("a capability is asked for by POST /v1/NAME; GET /v1/openapi.json lists them")
                    .into_response()
            })
            .method_not_allowed_fallback(async || {
                Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this path is not asked so")
                    .hint("a capability is asked for by POST, everything else by GET")
                    .into_response()
            })
            .layer(from_fn_with_state(Arc::new(self.hosts.clone()), door::is_ours))
            .layer(from_fn(door::says_no_more))
    }

    /// Ends: streams end, and nothing more is begun. Waits for what is being carried out, for as long as the limits say; what takes
    /// longer is told so and broken off, as by a kill. Runs go on until [`Formwork::close`].
    pub async fn close(&self) {
        self.inner.ends.cancel();
        self.inner.work.close();
        // What does not end in time ends with whoever owns the runtime; the log is whole at any moment.
        let _ = tokio::time::timeout(self.inner.limits.leave, self.inner.work.wait()).await;
    }
}
