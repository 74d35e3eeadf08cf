//! The trees that are measured: fan-out ten, where the later five of ten siblings wait for the earlier.

use anyhow::{Context as _, Result};
use formwork_protocols::{
    Body, Span, TaskName, TaskSpec,
    check::{CheckKind, CheckSpec, DiffCheck},
    spec::{OnFailure, Retries},
};
use formwork_scheduler::workflow::{Known, Plan};
use serde_json::Map;

/// The name of the function that does nothing.
pub(crate) const NOTHING: &str = "noop";

const FAN_OUT: usize = 10;

/// Makes a root task with `leaves` leaves below it, each with an exit check and two retries.
pub(crate) fn spec(leaves: usize) -> Result<TaskSpec> {
    let mut level: Vec<TaskSpec> = Vec::new();
    for place in 0..leaves {
        level.push(TaskSpec {
            postchecks: vec![CheckSpec::new(
                "tests",
                CheckKind::Diff(DiffCheck::default()),
                Span::from_secs(1),
            )],
            retries: Retries { max: 2, ..Retries::default() },
            ..task(place, Body::Native { function: NOTHING.to_owned() })?
        });
    }
    while level.len() > 1 {
        let mut above = Vec::with_capacity(level.len().div_ceil(FAN_OUT));
        let mut rest = level.into_iter().peekable();
        while rest.peek().is_some() {
            let tasks = rest.by_ref().take(FAN_OUT).collect();
            let on_failure = OnFailure::ContinueIndependent;
            above.push(task(above.len(), Body::Subtasks { tasks, on_failure })?);
        }
        level = above;
    }
    level.pop().context("a tree needs a leaf")
}

fn task(place: usize, body: Body) -> Result<TaskSpec> {
    let before = waits_for(place % FAN_OUT).map(|before| TaskName::parse(name(before)));
    let name = TaskName::parse(name(place % FAN_OUT))?;
    let depends_on = before.transpose()?.into_iter().collect();
    Ok(TaskSpec { depends_on, ..TaskSpec::new(name, body) })
}

fn name(place: usize) -> String {
    format!("t{place}")
}

/// Returns the sibling that the one at `place` of ten waits for.
pub(crate) const fn waits_for(place: usize) -> Option<usize> {
    place.checked_sub(FAN_OUT / 2)
}

/// Makes a workflow of so many leaves, a power of ten, which do nothing and are not checked.
pub(crate) fn plan(leaves: usize) -> Result<Plan> {
    let mut text =
        String::from("format_version = 1\nname = \"bench\"\ndescription = \"\"\ntasks = [");
    subtasks(&mut text, leaves);
    text.push_str("]\n");
    let known = Known { natives: [NOTHING.to_owned()].into(), ..Known::default() };
    Plan::parse("bench.toml", &text, &known, &Map::new())
        .map_err(|faults| anyhow::anyhow!("the workflow of {leaves} tasks is faulty: {faults}"))
}

/// Writes as tersely as it goes: a document has a largest size, and a hundred thousand tasks come near it.
fn subtasks(text: &mut String, leaves: usize) {
    for place in 0..FAN_OUT {
        text.push_str(&format!("{{name=\"{}\"", name(place)));
        if let Some(before) = waits_for(place) {
            text.push_str(&format!(",depends_on=[\"{}\"]", name(before)));
        }
        if leaves > FAN_OUT {
            text.push_str(",subtasks=[");
            subtasks(text, leaves / FAN_OUT);
            text.push_str("]},");
        } else {
            text.push_str(&format!(",native=\"{NOTHING}\"}},"));
        }
    }
}
