//! `formwork tasks` and `formwork spend`: what tasks left behind, and where the money went.

use formwork_protocols::{Ending, OutcomeCode, Usage, Usd, store::CheckRow, text};
use formwork_services::operations::{
    spend::{Line, Report, ReportParams, Spend},
    tasks::{Get, GetParams, List, ListParams, Listed, TaskDetail},
};

use crate::{
    args::{Global, Spend as SpendArgs, Tasks},
    fault::Fault,
    settings::Need,
    terminal::Terminal,
    view::visible,
};

/// How many lines of an output are shown with its check, and how many of a claim.
const SHOWN_LINES: usize = 12;

pub(super) fn tasks(
    global: &Global,
    terminal: &Terminal,
    args: Tasks,
) -> Result<OutcomeCode, Fault> {
    super::reading(global, Need::Look, async |formwork, caller, _| {
        match args {
            Tasks::List { run } => {
                let run = super::runs::named_or_last(&formwork, &caller, run).await?;
                let listed = formwork.call::<List>(&caller, ListParams { run }).await?;
                terminal.result(&listed, || list(&listed))?;
            }
            Tasks::Get { run, task } => {
                let detail = formwork.call::<Get>(&caller, GetParams { run, task }).await?;
                terminal.result(&detail, || show(&detail))?;
            }
        }
        Ok(OutcomeCode::Completed)
    })
}

pub(super) fn spend(
    global: &Global,
    terminal: &Terminal,
    args: SpendArgs,
) -> Result<OutcomeCode, Fault> {
    super::reading(global, Need::Look, async |formwork, caller, _| {
        let params = ReportParams { run: args.run, all: args.all };
        let report = formwork.call::<Spend>(&caller, params).await?;
        terminal.result(&report, || told(&report))?;
        Ok(OutcomeCode::Completed)
    })
}

fn list(listed: &Listed) -> String {
    let width = listed.tasks.iter().map(|task| task.path.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for summary in &listed.tasks {
        let task = &summary.task;
        let how = match &task.ending {
            Some(Ending::Completed) => task.state.to_string(),
            None => summary.waits.clone().unwrap_or_else(|| task.state.to_string()),
            Some(ending) => ending.to_string(),
        };
        let checks = match (summary.checks, summary.failed_checks) {
            (0, _) => "no checks".to_owned(),
            (all, 0) => super::counted(all, "check"),
            (all, failed) => format!("{failed} of {} failed", super::counted(all, "check")),
        };
        out.push_str(&format!(
            "{:<width$}  {:<8}  {}, {checks}, ${}  {how}\n",
            visible(&summary.path),
            visible(&task.body),
            super::counted(task.attempts.into(), "attempt"),
            summary.total,
            how = visible(&how),
        ));
    }
    out
}

/// Shows a task with all that proves it.
fn show(detail: &TaskDetail) -> String {
    let task = &detail.task;
    let mut out = format!("task {}\n", detail.path);
    let mut fact = |name: &str, value: String| {
        out.push_str(&format!("  {name:<9} {}\n", super::folded(&value, 12)));
    };
    fact("id", task.task.to_string());
    let how = match &task.ending {
        Some(Ending::Completed) | None => task.state.to_string(),
        Some(ending) => format!("{}: {ending}", task.state),
    };
    fact("state", how);
    detail.waits.iter().for_each(|waits| fact("blocked", waits.clone()));
    fact("does", task.body.clone());
    if let Some(spec) = &detail.spec {
        if !spec.description.is_empty() {
            fact("for", spec.description.clone());
        }
        if !spec.depends_on.is_empty() {
            let names: Vec<&str> = spec.depends_on.iter().map(|name| name.as_str()).collect();
            fact("after", names.join(", "));
        }
    }
    fact("spent", spent(task.cost, &task.usage));
    if !detail.children.is_empty() {
        fact("with all", spent(detail.total, &detail.total_usage));
        fact("children", detail.children.join(", "));
    }
    if !detail.attempts.is_empty() {
        out.push_str("\nattempts\n");
    }
    for attempt in &detail.attempts {
        let how = attempt.reason.as_deref().unwrap_or("goes on");
        let took = attempt.ended.map(|ended| format!(" in {}", ended.since(attempt.started)));
        out.push_str(&format!(
            "  {}{}: {}\n",
            attempt.number,
            took.unwrap_or_default(),
            super::folded(how, 4)
        ));
    }
    if let Some(claim) = &detail.claim {
        out.push_str("\nclaim\n");
        out.push_str(&indented(&claim.summary));
        if let Some(output) = &claim.output {
            out.push_str(&format!("  output: {output}\n"));
        }
    }
    if !detail.checks.is_empty() {
        out.push_str("\nchecks\n");
    }
    for check in &detail.checks {
        out.push_str(&evidence(check));
    }
    if !detail.tools.is_empty() {
        out.push_str("\ntools\n");
    }
    for used in &detail.tools {
        let mut line =
            format!("  {}: {}", super::cell(&used.tool), super::counted(used.calls, "call"));
        for (count, what) in [(used.refused, "refused"), (used.failed, "failed")] {
            if count > 0 {
                line.push_str(&format!(", {count} {what}"));
            }
        }
        out.push_str(&line);
        out.push('\n');
    }
    if !detail.files.is_empty() {
        out.push_str("\nfiles\n");
    }
    for file in &detail.files {
        out.push_str(&format!("  {} +{} -{}\n", visible(&file.path), file.added, file.removed));
    }
    out
}

/// Shows a check with what it decided on.
fn evidence(check: &CheckRow) -> String {
    let verdict = &check.verdict;
    let evidence = &verdict.evidence;
    let mark = if verdict.passed { "✓" } else { "✗" };
    let mut out = format!(
        "  {mark} {} check {:?}: {}\n",
        check.phase.as_str(),
        verdict.check,
        super::folded(&verdict.reason, 6)
    );
    let mut fact = |name: &str, value: String| {
        out.push_str(&format!("      {name:<8} {}\n", super::folded(&value, 15)));
    };
    if !evidence.argv.is_empty() {
        fact("command", evidence.argv.join(" "));
    }
    let code = evidence.exit_code.map(|code| format!("exit code {code} after "));
    fact("took", code.unwrap_or_default() + &evidence.elapsed.to_string());
    if let Some(counts) = &evidence.counts {
        fact("tests", counts.to_string());
    }
    if let Some(output) = &evidence.output {
        fact("output", format!("formwork blob {output}"));
    }
    if let Some(task) = &evidence.task {
        fact("tasks", format!("below {task}"));
    }
    if let Some(session) = &evidence.session {
        fact("session", session.to_string());
    }
    for issue in &verdict.issues {
        fact("issue", issue.to_string());
    }
    for step in &verdict.steps {
        let mark = if step.passed { "✓" } else { "✗" };
        fact(step.what.as_str(), format!("{mark} {}", step.reason));
        if let Some(output) = &step.evidence.output {
            fact("", format!("formwork blob {output}"));
        }
    }
    if !verdict.passed && !evidence.excerpt.is_empty() {
        for line in indented(&evidence.excerpt).lines() {
            out.push_str(&format!("      {line}\n"));
        }
    }
    out
}

/// Indents the last lines of a text.
fn indented(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let left = lines.len().saturating_sub(SHOWN_LINES);
    let mut out = String::new();
    if left > 0 {
        out.push_str(&format!("  ({} before)\n", super::counted(left as u64, "line")));
    }
    for line in lines.into_iter().skip(left) {
        out.push_str(&format!("  {}\n", visible(text::head(line, 400))));
    }
    out
}

fn spent(cost: Usd, usage: &Usage) -> String {
    format!("${cost}, {} tokens", usage.total())
}

/// Tells where the money went.
fn told(report: &Report) -> String {
    let runs = super::counted(report.runs, "run");
    if report.total.calls == 0 {
        return format!("{runs}, no model was called\n");
    }
    let mut out = format!(
        "{runs}, {}, {}\n",
        calls(&report.total),
        spent(report.total.cost, &report.total.usage)
    );
    for (what, lines) in
        [("task", &report.by_task), ("agent", &report.by_agent), ("model", &report.by_model)]
    {
        out.push_str(&format!("\nby {what}\n"));
        for line in lines {
            let used = spent(line.cost, &line.usage);
            out.push_str(&format!("  {:<28} {used} in {}\n", super::cell(&line.name), calls(line)));
        }
    }
    out.push_str("\nby tool: what the answers cost that made its calls\n");
    for line in &report.by_tool {
        let (name, calls) = (super::cell(&line.name), super::counted(line.calls, "call"));
        let mut told = format!("  {name:<28} ${} in {calls}", line.cost);
        for (count, what) in [(line.refused, "refused"), (line.failed, "failed")] {
            if count > 0 {
                told.push_str(&format!(", {count} {what}"));
            }
        }
        out.push_str(&told);
        out.push('\n');
    }
    out.push_str("\nby class\n");
    for line in report.by_class.iter().filter(|line| line.tokens > 0) {
        out.push_str(&format!("  {:<28} ${}, {} tokens\n", line.class, line.cost, line.tokens));
    }
    if report.unclassed > Usd::ZERO {
        out.push_str(&format!(
            "  {:<28} ${}, at prices that are not known any more\n",
            "in none", report.unclassed
        ));
    }
    if report.cache_missed > 0 {
        out.push_str(&format!(
            "\n{} cached tokens were read anew, for ${} more than from the cache\n",
            report.cache_missed, report.cache_missed_cost
        ));
    }
    if report.unanswered > Usd::ZERO {
        out.push_str(&format!(
            "\nat most ${} more went to calls and tries that brought no answer\n",
            report.unanswered
        ));
    }
    out
}

fn calls(line: &Line) -> String {
    super::counted(line.calls, "call")
}
