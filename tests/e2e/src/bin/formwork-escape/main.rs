//! Tries to get out, by every way in, and says what stopped it.
//!
//! Each attempt is a run of the real program in a repository of its own, with a model that does what a hostile
//! one would. Around it lie what must not be reached: a secret file, listeners, a process. An attempt has failed
//! as it should where none of these was touched, nothing of the secret is anywhere in what the program says, sends
//! or records, and the log holds the refusal with its reason.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

mod attempts; // What is tried.
mod model; // The words of a hostile model.
mod place; // Where it is tried, and what must not be reached from there.
mod record; // What the program says, sends and records.
mod trial; // One attempt, carried out and judged.

use std::{process::ExitCode, sync::Arc};

use anyhow::{Result, ensure};
use clap::Parser;
use serde_json::json;
use tokio::task::JoinSet;

use place::Place;
use trial::{Outcome, Verdict};

#[derive(Debug, Parser)]
#[command(about = "Tries to get out, by every way in, and says what stopped it")]
struct Arguments {
    /// Tries only what holds this text in its name or its way in
    filter: Option<String>,
    /// Prints one JSON document in place of the table
    #[arg(long)]
    json: bool,
    /// How many are tried at once; as many as there are processors where it is left out
    #[arg(long, value_name = "J")]
    jobs: Option<usize>,
    /// Fails where something cannot be tried on this machine
    #[arg(long)]
    strict: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let protections = runtime.block_on(async { Place::new().await?.protections().await })?;
    let outcomes = runtime.block_on(all(arguments, &Arc::from(protections.as_str())))?;
    ensure!(!outcomes.is_empty(), "no attempt is named so");
    let count =
        |which: fn(&Verdict) -> bool| outcomes.iter().filter(|it| which(&it.verdict)).count();
    let refused = count(|it| matches!(it, Verdict::Refused { .. }));
    let escaped = count(|it| matches!(it, Verdict::Escaped(_)));
    let untried = count(|it| matches!(it, Verdict::Untried(_)));
    if arguments.json {
        let rows: Vec<_> = outcomes.iter().map(Outcome::to_json).collect();
        println!("{:#}", json!({ "machine": protections, "attempts": rows }));
    } else {
        println!("this machine: {protections}\n");
        print(&outcomes);
        println!(
            "escape: {} tried, {refused} refused and recorded, {escaped} escaped, {untried} not to be tried here",
            outcomes.len() - untried
        );
    }
    Ok(escaped == 0 && (untried == 0 || !arguments.strict))
}

/// Carries out the attempts, some at once, and returns what came of them in their own order.
async fn all(arguments: &Arguments, protections: &Arc<str>) -> Result<Vec<Outcome>> {
    let wanted = |attempt: &trial::Attempt| {
        let text = arguments.filter.as_deref().unwrap_or_default();
        attempt.name.contains(text) || attempt.way.contains(text)
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.unwrap_or(processors).max(1);
    let mut left = attempts::all().into_iter().filter(wanted).enumerate();
    let (mut running, mut outcomes) = (JoinSet::new(), Vec::new());
    loop {
        while running.len() < jobs
            && let Some((number, attempt)) = left.next()
        {
            let protections = Arc::clone(protections);
            running.spawn(async move { (number, attempt.outcome(&protections).await) });
        }
        match running.join_next().await {
            None => break,
            Some(ended) => outcomes.push(ended?),
        }
    }
    outcomes.sort_by_key(|(number, _)| *number);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}

/// Prints a table whose columns are as wide as what is in them.
fn print(outcomes: &[Outcome]) {
    let head = ["attempt", "way in", "refused by", "recorded"].map(str::to_owned);
    let rows: Vec<[String; 4]> =
        std::iter::once(head).chain(outcomes.iter().map(Outcome::cells)).collect();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|it| it.chars().count()).max()
    };
    let widths: Vec<usize> = (0..3).map(|column| width(column).unwrap_or_default()).collect();
    for [attempt, way, by, recorded] in &rows {
        let [one, two, three] = [0, 1, 2].map(|at| widths.get(at).copied().unwrap_or_default());
        println!("{attempt:<one$} | {way:<two$} | {by:<three$} | {recorded}");
    }
    for outcome in outcomes {
        if let Verdict::Escaped(what) = &outcome.verdict {
            println!("\nescaped: {}: {what}", outcome.named());
        }
    }
}
