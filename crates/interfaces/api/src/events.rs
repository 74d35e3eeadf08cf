//! The log: page by page, or as a stream that goes on where it was cut.
//!
//! A stream reads pages from its cursor until there is nothing more, and then passes on what is told as it happens. Nothing is kept for one
//! that reads slowly: what it was not told of it reads from the log, so that it neither holds anybody up nor grows.

use std::{convert::Infallible, fmt::Write as _, str::FromStr, sync::Arc, time::Duration};

use axum::{
    Extension,
    body::Body,
    extract::{Path, Request, State, rejection::PathRejection},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use formwork_auth::Admitted;
use formwork_protocols::{Cancel, CredentialId, Event, Live, Position, RunId};
use formwork_services::{
    Error, Formwork,
    capability::Caller,
    operations::events::{List, ListParams},
};
use futures::{StreamExt as _, stream, stream::BoxStream};
use serde_json::json;
use tokio::time::{Interval, MissedTickBehavior};
use url::form_urlencoded;

use crate::{Problem, api::Inner, calls, seats::Seat};

/// By what a browser says what it has seen last.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// How many events a stream reads at once: what it holds in memory at the most.
const PAGE: usize = 128;

/// The log of all runs, by filter.
pub(crate) async fn all(
    State(inner): State<Arc<Inner>>,
    Extension(caller): Extension<Caller>,
    Extension(admitted): Extension<Admitted>,
    request: Request,
) -> Response {
    let answered = match asked(None, &request) {
        Ok(asked) => answer(&inner, caller, admitted, asked).await,
        Err(problem) => Err(problem),
    };
    answered.unwrap_or_else(|problem| problem.into_response())
}

/// The log of one run.
pub(crate) async fn of_run(
    State(inner): State<Arc<Inner>>,
    run: Result<Path<String>, PathRejection>,
    Extension(caller): Extension<Caller>,
    Extension(admitted): Extension<Admitted>,
    request: Request,
) -> Response {
    let read = |run: String| {
        let run = run.parse::<RunId>();
        run.map_err(|error| Problem::new(StatusCode::BAD_REQUEST, error.to_string()))
    };
    let run = calls::named(run).and_then(read);
    let answered = match run.and_then(|run| asked(Some(run), &request)) {
        Ok(asked) => answer(&inner, caller, admitted, asked).await,
        Err(problem) => Err(problem),
    };
    answered.unwrap_or_else(|problem| problem.into_response())
}

async fn answer(
    inner: &Arc<Inner>,
    caller: Caller,
    admitted: Admitted,
    Asked { mut params, is_from_now, is_page }: Asked,
) -> Result<Response, Problem> {
    if is_page {
        if is_from_now {
            params.after = inner.formwork.store().head().await.map_err(Error::from)?;
        }
        let page = inner.formwork.call::<List>(&caller, params).await?;
        return Ok(calls::json(&json!(page)));
    }
    if params.limit.is_some() {
        return Err(bad("limit", "it is of a page, and a stream has no end"));
    }
    let seat = calls::seat(&inner.streams, &admitted, "stream")?;
    // Before it reads, so that nothing is missed between the two.
    let watch = inner.formwork.store().watch();
    if is_from_now {
        params.after = inner.formwork.store().head().await.map_err(Error::from)?;
    }
    params.limit = Some(PAGE);
    let mut heartbeat = tokio::time::interval(inner.limits.heartbeat);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    heartbeat.reset();
    let mut tail = Tail {
        formwork: inner.formwork.clone(),
        ends: inner.ends.clone(),
        credential: admitted.credential,
        admit_within: inner.limits.admit_within,
        caller,
        params,
        watch,
        heartbeat,
        is_behind: true,
        _seat: seat,
    };
    // What is wrong with the request is told as such, and not by a stream that ends.
    let mut first = hello(tail.params.after);
    tail.page(&mut first).await?;
    let rest = stream::unfold(tail, async |mut tail| tail.next().await.map(|text| (text, tail)));
    let whole = stream::once(async { first }).chain(rest).boxed();
    let whole = whole.map(|text| Ok::<_, Infallible>(Bytes::from(text)));
    let mut response = Response::new(Body::from_stream(whole));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    // A proxy that waited for more would hold back what has happened.
    let at_once = HeaderValue::from_static("no");
    response.headers_mut().insert(HeaderName::from_static("x-accel-buffering"), at_once);
    Ok(response)
}

/// Begins a stream: how soon to come back, and where to go on also where nothing has happened until then.
fn hello(after: Position) -> String {
    format!("retry: 1000\nid: {after}\n\n")
}

/// A reader of the log.
struct Tail {
    formwork: Formwork,
    ends: Cancel,
    credential: CredentialId,
    admit_within: Duration,
    caller: Caller,
    params: ListParams,
    watch: BoxStream<'static, Live>,
    heartbeat: Interval,
    /// Whether the log may have what was not told here.
    is_behind: bool,
    _seat: Seat,
}

impl Tail {
    /// Returns what is sent next; nothing at the end of the stream.
    async fn next(&mut self) -> Option<String> {
        let mut text = String::new();
        loop {
            if self.is_behind {
                // Whoever comes back is told why, or goes on.
                self.page(&mut text).await.ok()?;
                if !text.is_empty() {
                    return Some(text);
                }
                continue;
            }
            tokio::select! {
                biased;
                () = self.ends.cancelled() => return None,
                _ = self.heartbeat.tick() => {
                    if self.is_over().await {
                        return None;
                    }
                    // Should nobody have told of something, it is found by this.
                    self.is_behind = true;
                    return Some(":\n\n".to_owned());
                }
                told = self.watch.next() => match told? {
                    Live::Event(event) if event.position <= self.params.after => {}
                    Live::Event(event) => {
                        self.params.after = event.position;
                        if self.wants(&event) {
                            write(&mut text, &event);
                            return Some(text);
                        }
                    }
                    Live::Lagged(_) => self.is_behind = true,
                    Live::Delta(_) => {}
                },
            }
        }
    }

    /// Tells whether its credential is: what began with one ends with it. A log that does not answer says nothing of that.
    async fn is_over(&mut self) -> bool {
        let is_live = self.formwork.guard().is_live(self.credential);
        let told = tokio::time::timeout(self.admit_within, is_live).await;
        matches!(told, Ok(Ok(false)))
    }

    /// Reads a page from the cursor.
    async fn page(&mut self, text: &mut String) -> Result<(), Error> {
        let page = self.formwork.call::<List>(&self.caller, self.params.clone()).await?;
        for event in &page.events {
            write(text, event);
        }
        self.params.after = page.next.max(self.params.after);
        self.is_behind = page.more;
        Ok(())
    }

    fn wants(&self, event: &Event) -> bool {
        let ListParams { run, task, kinds, .. } = &self.params;
        run.is_none_or(|run| run == event.run)
            && task.is_none_or(|task| Some(task) == event.task)
            && (kinds.is_empty()
                || kinds.iter().any(|it| event.body.kind().starts_with(it.as_str())))
    }
}

/// Writes an event. JSON has no line breaks of its own, so it is one line of data, whatever it holds.
fn write(text: &mut String, event: &Event) {
    let data = json!(event);
    // A text takes whatever is written into it.
    let _ = write!(text, "id: {}\ndata: {data}\n\n", event.position);
}

/// What is asked for.
struct Asked {
    params: ListParams,
    /// Whether it begins with what happens from now on.
    is_from_now: bool,
    /// Whether it is a document and no stream.
    is_page: bool,
}

fn asked(run: Option<RunId>, request: &Request) -> Result<Asked, Problem> {
    let mut params = ListParams { run, ..ListParams::default() };
    let (mut after, mut task, mut limit, mut of_run) = (None, None, None, None);
    for (name, value) in
        form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes())
    {
        let value = value.into_owned();
        let twice = match &*name {
            "after" => after.replace(value).is_some(),
            "kind" => {
                params.kinds.push(value);
                false
            }
            "task" => task.replace(value).is_some(),
            "limit" => limit.replace(value).is_some(),
            "run" if run.is_none() => of_run.replace(value).is_some(),
            _ => {
                let known = "after, kind, task, run and limit";
                return Err(
                    bad(&name, "there is no such parameter").hint(format!("there is {known}"))
                );
            }
        };
        if twice {
            return Err(bad(&name, "it is there twice"));
        }
    }
    if params.kinds.len() > MOST_KINDS {
        return Err(bad("kind", "there are too many of them"));
    }
    // What a reader has seen counts before where it wanted to begin.
    let mut seen = request.headers().get_all(LAST_EVENT_ID).iter();
    if let Some(seen) = seen.next() {
        after = Some(String::from_utf8_lossy(seen.as_bytes()).into_owned());
    }
    let is_from_now = after.as_deref() == Some("now");
    if !is_from_now {
        params.after = Position(read("after", after)?.unwrap_or_default());
    }
    params.task = read("task", task)?;
    params.limit = read("limit", limit)?;
    params.run = params.run.or(read("run", of_run)?);
    Ok(Asked { params, is_from_now, is_page: is_json(request.headers()) })
}

/// The most kinds of one request.
const MOST_KINDS: usize = 64;

fn read<T: FromStr>(name: &str, text: Option<String>) -> Result<Option<T>, Problem> {
    let read = |text: String| text.parse().map_err(|_| bad(name, &format!("{text:?} is none")));
    text.map(read).transpose()
}

fn bad(name: &str, why: &str) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, format!("the parameter {name:?} does not fit: {why}"))
}

/// Tells whether a document is asked for and not a stream.
fn is_json(headers: &HeaderMap) -> bool {
    let accepts = |kind: &str| {
        let all = headers.get_all(header::ACCEPT).iter().filter_map(|it| it.to_str().ok());
        all.flat_map(|it| it.split(','))
            .filter_map(|it| it.split(';').next())
            .any(|it| it.trim().eq_ignore_ascii_case(kind))
    };
    accepts("application/json") && !accepts("text/event-stream")
}
