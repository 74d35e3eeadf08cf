//! One event against many subscriptions: which of them it is for.

use std::{
    collections::{BTreeSet, HashMap},
    hint::black_box,
    sync::Arc,
    time::Instant,
};

use anyhow::{Result, ensure};
use formwork_dispatch::{Matcher, Occurrence, Subscription};
use formwork_protocols::{
    BlobHash, Event, EventBody, Position, Principal, RunId, Timestamp, WorkflowName,
};
use serde_json::json;

use crate::{
    figure::{Figure, Limit, Report, Target},
    noise::Noise,
};

/// How many events are matched in one repetition.
const EVENTS: usize = 200;

/// Runs the bench.
pub(crate) fn run(is_quick: bool, report: &mut Report) -> Result<()> {
    let repetitions = if is_quick { 3 } else { 15 };
    let workflow = WorkflowName::parse("flow")?;
    let events = events()?;
    for (count, share) in [(10, 0), (1_000, 1), (10_000, 0), (10_000, 1), (10_000, 100)] {
        let noise = Noise::begin();
        let subscriptions = subscriptions(count, share)?;
        let matcher = Matcher::new(subscriptions.iter().cloned());
        let index = Bare::of(&subscriptions);
        let seen: Vec<_> = events.iter().map(|event| Occurrence::new(event, &workflow)).collect();
        let (mut ours, mut naive, mut bare) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..repetitions {
            let (by_index, found) =
                timed(|| seen.iter().map(|it| matcher.matching(it).len()).sum());
            let (by_asking, asked) = timed(|| {
                let all = |it| subscriptions.iter().filter(|each| each.filter.matches(it)).count();
                seen.iter().map(all).sum()
            });
            let (by_hash, _) = timed(|| events.iter().map(|event| index.candidates(event)).sum());
            ensure!(found == asked, "the index finds {found}, asking finds {asked}");
            ours.push(by_index);
            naive.push(by_asking);
            bare.push(by_hash);
        }
        let name = format!("dispatch/{count}/{}", f64::from(share) / 1_000.0);
        let is_large = count == 10_000 && share < 100;
        let against_naive = Figure::new(format!("{name}/asked"), "us/event", naive.clone())
            .against("by the index", ours.clone());
        let target = Target::ratio(Limit::AtLeast(20.0), Limit::AtLeast(50.0));
        report.add(if is_large { against_naive.aims(target) } else { against_naive });
        let against_bare = Figure::new(format!("{name}/index"), "us/event", ours)
            .against("bare hashes and candidates", bare);
        let target = Target::ratio(Limit::AtMost(3.0), Limit::AtMost(1.5));
        report.add(if is_large { against_bare.aims(target) } else { against_bare });
        report.noise(&name, &noise);
    }
    Ok(())
}

/// Returns how long something takes for each event, and what it came to.
fn timed(work: impl FnOnce() -> usize) -> (f64, usize) {
    let began = Instant::now();
    let found = black_box(work());
    (began.elapsed().as_secs_f64() * 1e6 / EVENTS as f64, found)
}

/// Makes subscriptions, of which `share` in a thousand are for the events that come: by kind, by principal and by run in turn.
fn subscriptions(count: u32, share: u32) -> Result<Vec<Arc<Subscription>>> {
    (0..count)
        .map(|number| {
            let is_hit = number % 1_000 < share;
            let other = if is_hit { 0 } else { number + 1 };
            let filter = match number % 4 {
                0 => format!("kinds = [\"*\"]\nrun = \"{}\"", run_id(other)?),
                1 => format!("kinds = [\"tool.*\"]\nprincipals = [\"agent:a{other}\"]"),
                2 if is_hit => "kinds = [\"tool.completed\"]".to_owned(),
                2 => "kinds = [\"run.finished\", \"run.paused\"]".to_owned(),
                _ if is_hit => "kinds = [\"tool.*\"]".to_owned(),
                _ => "kinds = [\"inbox.*\"]".to_owned(),
            };
            let text = format!(
                "format_version = 1\nname = \"s{number}\"\n[filter]\n{filter}\n[[actions]]\ncommand = [\"true\"]\n"
            );
            Ok(Arc::new(Subscription::parse("s.toml", &text, &BTreeSet::new())?))
        })
        .collect()
}

fn run_id(number: u32) -> Result<RunId> {
    Ok(format!("00000000-0000-7000-8000-{number:012x}").parse()?)
}

fn events() -> Result<Vec<Event>> {
    (0..EVENTS)
        .map(|number| {
            Ok(Event {
                position: Position(number as u64 + 1),
                run: run_id(0)?,
                seq: number as u64 + 1,
                task: None,
                principal: Principal::parse("agent:a0")?,
                at: Timestamp::from_micros(0),
                body: EventBody::Unknown {
                    kind: "tool.completed".to_owned(),
                    data: json!({ "call": number }),
                },
                idempotency_key: None,
                hash: BlobHash::of(b""),
            })
        })
        .collect()
}

/// The least that finds candidates: a table for each of run, principal, kind and family, and no look at what they ask besides.
struct Bare {
    runs: HashMap<RunId, Vec<u32>>,
    names: HashMap<String, Vec<u32>>,
}

impl Bare {
    fn of(subscriptions: &[Arc<Subscription>]) -> Self {
        let (mut runs, mut names) = (HashMap::new(), HashMap::new());
        for (at, subscription) in (0..).zip(subscriptions) {
            let filter = &subscription.filter;
            if let Some(run) = filter.run {
                runs.entry(run).or_insert_with(Vec::new).push(at);
                continue;
            }
            let by = if filter.principals.is_empty() { &filter.kinds } else { &filter.principals };
            for name in by {
                let name = name.as_str().trim_end_matches('*').to_owned();
                names.entry(name).or_insert_with(Vec::new).push(at);
            }
        }
        Self { runs, names }
    }

    fn candidates(&self, event: &Event) -> usize {
        let kind = event.body.kind();
        let family = kind.find('.').map_or(kind, |dot| &kind[..=dot]);
        let named = [event.principal.as_str(), kind, family].map(|name| self.names.get(name));
        let found = named.into_iter().chain([self.runs.get(&event.run)]).flatten().flatten();
        black_box(found.copied().collect::<Vec<u32>>()).len()
    }
}
