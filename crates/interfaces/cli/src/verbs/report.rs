//! What is told at the end of a run of a kind that has more to say than its outcome.

use formwork_protocols::{RunId, check::Issue};
use formwork_services::{
    Formwork,
    capability::Caller,
    operations::{
        goals::{self, Goal, Node},
        loops::{self, Loop},
        reviews::{Get, GetParams, Review, Word},
        runs,
        workflows::PlannedTask,
    },
};
use serde_json::{Value, json};

use crate::{fault::Fault, view::visible};

/// How many lines of what is no verdict are shown.
const SAID_LINES: usize = 20;

/// What a run leaves to tell.
pub(super) enum Report {
    /// What a reviewer says.
    Review(Box<Review>),
    /// The rounds of a loop.
    Loop(Box<Loop>),
    /// The plan of a goal of which nothing was done.
    Goal(Box<Goal>),
}

/// Returns what there is to tell of a run, by its kind.
pub(super) async fn of(
    formwork: &Formwork,
    caller: &Caller,
    run: RunId,
) -> Result<Option<Report>, Fault> {
    match runs::kind(formwork, run).await? {
        runs::Kind::Review => {
            let review = formwork.call::<Get>(caller, GetParams { run }).await?;
            Ok(Some(Report::Review(Box::new(review))))
        }
        runs::Kind::Loop => {
            let rounds = formwork.call::<loops::Get>(caller, loops::GetParams { run }).await?;
            Ok(Some(Report::Loop(Box::new(rounds))))
        }
        runs::Kind::Goal => {
            let goal = formwork.call::<goals::Get>(caller, goals::GetParams { run }).await?;
            Ok(goal.plan_only.then(|| Report::Goal(Box::new(goal))))
        }
        runs::Kind::Other => Ok(None),
    }
}

impl Report {
    /// Returns the key below which it stands in a document.
    pub(super) const fn key(&self) -> &'static str {
        match self {
            Self::Review(_) => "review",
            Self::Loop(_) => "loop",
            Self::Goal(_) => "goal",
        }
    }

    pub(super) fn json(&self) -> Value {
        match self {
            Self::Review(review) => json!(review),
            Self::Loop(rounds) => json!(rounds),
            Self::Goal(goal) => json!(goal),
        }
    }

    /// Tells it to a person.
    pub(super) fn told(&self) -> String {
        match self {
            Self::Review(review) => reviewed(review),
            Self::Loop(rounds) => in_rounds(rounds),
            Self::Goal(goal) => planned(goal),
        }
    }
}

/// Tells a plan whole: what each task is to do, by whom, behind what, held by what, and for how much.
fn planned(goal: &Goal) -> String {
    let Some(plan) = &goal.plan else { return String::new() };
    let worst = match &goal.worst_case {
        Some(usd) => format!("at most ${usd}"),
        None => "without a bound".to_owned(),
    };
    let mut text = format!(
        "the plan: {}, up to {} at once, {worst}\n",
        super::counted(plan.nodes.len() as u64, "task"),
        goal.width
    );
    for (node, task) in plan.nodes.iter().zip(&goal.tasks) {
        node_told(&mut text, node, task, goal);
    }
    if let Some(suite) = &goal.suite {
        let suite = visible(&suite.join(" "));
        text.push_str(&format!("before each is merged, and at the end: {suite}\n"));
    }
    for why in &goal.unbounded {
        text.push_str(&format!("no bound: {}\n", visible(why)));
    }
    text.push_str(&format!("do it with `formwork goal --plan {}`\n", goal.run));
    text
}

fn node_told(text: &mut String, node: &Node, task: &PlannedTask, goal: &Goal) {
    let after = match node.depends_on.as_slice() {
        [] => String::new(),
        names => {
            let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
            format!(" after {}", names.join(", "))
        }
    };
    let role = node.role.map_or_else(String::new, |role| format!(" ({})", role.as_str()));
    let does = visible(&task.does);
    text.push_str(&format!("{}. {}: {does}{role}{after}\n", task.turn, node.name));
    for line in node.prompt.trim_end().lines() {
        text.push_str(&format!("   | {}\n", visible(line)));
    }
    for argv in &node.checks {
        text.push_str(&format!("   check {}\n", visible(&argv.join(" "))));
    }
    if let Some(globs) = &node.write_paths {
        text.push_str(&format!("   writes {}\n", visible(&globs.join(" "))));
    }
    for agent in &task.agents {
        text.push_str(&format!("   {} thinks with {}\n", agent.agent, agent.model));
    }
    let share = match (&node.usd, &goal.left) {
        (Some(usd), _) => format!("may use ${usd}"),
        (None, Some(left)) => format!("may use what is left of ${left}"),
        (None, None) => "may use what is left of what the run may use".to_owned(),
    };
    let worst = task.worst_case.map_or_else(String::new, |usd| format!(", at most ${usd}"));
    text.push_str(&format!("   {share}{worst}, in {}\n", super::counted(task.attempts, "attempt")));
}

fn in_rounds(found: &Loop) -> String {
    let mut text = String::new();
    if let Some(before) = &found.before {
        text.push_str(&format!("{}\n", visible(&before.reason)));
    }
    for round in &found.rounds {
        let failed = round.checks.iter().find(|said| !said.passed);
        let how = match (failed, round.checks.is_empty()) {
            (Some(said), _) => format!("{}: {}", said.check, said.reason),
            (None, true) => "came to no end".to_owned(),
            (None, false) => {
                let names: Vec<&str> = round.checks.iter().map(|it| it.check.as_str()).collect();
                format!("passed {}", names.join(", "))
            }
        };
        text.push_str(&format!("round {}: {}\n", round.number, visible(&how)));
    }
    let Some(best) = found.best.filter(|_| !found.passed) else { return text };
    let last = found.rounds.last().map_or(0, |round| round.number);
    match found.taken_back.as_slice() {
        [] if best == last => {}
        [] => text.push_str(&format!(
            "round {best} was the best; `formwork undo {} --to @{}` takes back what came after it\n",
            found.run,
            found.rounds.iter().find(|round| round.number == best).map_or(0, |round| round.at.0)
        )),
        paths => text.push_str(&format!(
            "kept as after round {best}, the best; taken back: {}\n",
            visible(&paths.join(", "))
        )),
    }
    text.push_str(&super::trashed(&found.trashed));
    text
}

fn reviewed(review: &Review) -> String {
    let mut text = String::new();
    for issue in &review.findings {
        finding(&mut text, issue);
    }
    let seen = &review.seen;
    if !seen.dropped.is_empty() {
        text.push_str(&format!(
            "dropped {}, pointing at nothing in the diff:\n",
            super::counted(seen.dropped.len() as u64, "finding")
        ));
        for issue in &seen.dropped {
            finding(&mut text, issue);
        }
    }
    for unseen in &seen.unseen {
        text.push_str(&format!("not seen: {}\n", visible(unseen)));
    }
    for opaque in &seen.opaque {
        text.push_str(&format!("told of without its content: {}\n", visible(opaque)));
    }
    if review.verdict == Word::Malformed {
        text.push_str("it said:\n");
        let lines = review.said.lines();
        text.extend(lines.take(SAID_LINES).map(|line| format!("  | {}\n", visible(line))));
    }
    let mut facts = vec![
        super::counted(seen.files, "file"),
        format!("{} changed", super::counted(seen.lines, "line")),
    ];
    if seen.parts > 1 {
        facts.push(format!("in {} parts", seen.parts));
    }
    if seen.looks > 1 {
        facts.push(format!("looked at {} times, as it moved", seen.looks));
    }
    let word = review.verdict.as_str();
    text.push_str(&format!("{word}: {} ({})\n", visible(&review.reason), facts.join(", ")));
    text
}

/// Tells of a finding: where, how bad, what; and the line that it quotes.
fn finding(text: &mut String, issue: &Issue) {
    let place = match (&issue.file, issue.line) {
        (Some(file), Some(line)) => format!("{}:{line}: ", visible(file)),
        (Some(file), None) => format!("{}: ", visible(file)),
        (None, _) => String::new(),
    };
    text.push_str(&format!("{place}{}: {}\n", issue.severity.as_str(), visible(&issue.message)));
    if let Some(quote) = issue.quote.as_ref().and_then(|quote| quote.lines().next()) {
        text.push_str(&format!("    {}\n", visible(quote)));
    }
}
