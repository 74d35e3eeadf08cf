//! How many events a second this machine records durably, and how a run reads back.
//!
//! `cargo run --release -p formwork-trace --example append_rate -- [URL] [EVENTS]`; without a URL it
//! makes a SQLite file in the temporary folder and removes it again.

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::time::{Duration, Instant};

use formwork_protocols::{
    Append, Clock as _, EventBody, EventStore as _, NewEvent, Position, Principal, RunId,
    SystemClock, SystemRng, TaskId, store::Selection,
};
use formwork_trace::{Options, Trace};
use serde_json::json;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn event(task: TaskId, n: usize) -> NewEvent {
    let data = json!({ "n": n, "text": "as long as most events are: ".repeat(9) });
    NewEvent {
        task: Some(task),
        principal: Principal::system("example"),
        at: SystemClock.now(),
        body: EventBody::Unknown { kind: "example.note".to_owned(), data },
        idempotency_key: None,
    }
}

/// Appends one event at a time and returns how long each acknowledgement took.
async fn produce(trace: &Trace, events: usize) -> Result<Vec<Duration>> {
    let run = RunId::generate(&SystemClock, &SystemRng);
    let task = TaskId::generate(&SystemClock, &SystemRng);
    let mut waits = Vec::with_capacity(events);
    for n in 0..events {
        let began = Instant::now();
        let append = Append { run, token: None, events: vec![event(task, n)], blobs: vec![] };
        trace.append(append).await?;
        waits.push(began.elapsed());
    }
    Ok(waits)
}

async fn measure(url: &str, events: usize) -> Result<()> {
    let trace = Trace::open(url, Options::default()).await?;
    for producers in [1, 10, 100] {
        let began = Instant::now();
        let each = (events * producers / 100).max(producers * 20) / producers;
        let all = (0..producers).map(|_| produce(&trace, each));
        let mut waits: Vec<_> =
            futures::future::try_join_all(all).await?.into_iter().flatten().collect();
        let rate = waits.len() as f64 / began.elapsed().as_secs_f64();
        waits.sort_unstable();
        let at = |percent: usize| waits.get(waits.len() * percent / 100).copied();
        println!(
            "{producers:>4} producers: {rate:>8.0} events/s, acknowledged in {:?} (p50), {:?} (p99)",
            at(50).unwrap_or_default(),
            at(99).unwrap_or_default(),
        );
    }

    let began = Instant::now();
    let mut after = Position(0);
    let mut read = 0;
    loop {
        let page = trace.read(after, &Selection::default(), 1_000).await?;
        let Some(last) = page.last() else { break };
        (after, read) = (last.position, read + page.len());
    }
    println!("replay: {:.0} events/s", read as f64 / began.elapsed().as_secs_f64());

    let began = Instant::now();
    let audits = trace.audit_all().await?;
    let sound = audits.iter().filter(|audit| audit.faults.is_empty()).count();
    println!(
        "audit: {:.0} events/s, {sound} of {} runs sound",
        read as f64 / began.elapsed().as_secs_f64(),
        audits.len()
    );
    trace.close().await;

    let began = Instant::now();
    let trace = Trace::open(url, Options::default()).await?;
    println!("open with {read} events: {:?}", began.elapsed());
    trace.close().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = tempfile::tempdir()?;
    let url = arguments
        .next()
        .unwrap_or_else(|| format!("sqlite://{}/store.db", folder.path().display()));
    let events = arguments.next().map_or(Ok(20_000), |count| count.parse())?;
    measure(&url, events).await
}
