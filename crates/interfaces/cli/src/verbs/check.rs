//! `formwork check`: keys and personal data, found before they are committed or sent.

use std::path::Path;

use formwork_protocols::OutcomeCode;
use formwork_services::operations::check::{
    Check as Operation, CheckParams, Checked, Rules, RulesParams,
};

use crate::{
    args::{Check, Global},
    fault::Fault,
    settings::{Need, Settings},
    terminal::Terminal,
    view::visible,
};

pub(super) fn check(
    global: &Global,
    terminal: &Terminal,
    args: Check,
) -> Result<OutcomeCode, Fault> {
    // Whoever waits for a scan must not take one that could not run for a clean one.
    checked(global, terminal, args).map_err(|fault| match fault.code {
        OutcomeCode::Usage => fault,
        _ => Fault { code: OutcomeCode::Refused, ..fault },
    })
}

fn checked(global: &Global, terminal: &Terminal, args: Check) -> Result<OutcomeCode, Fault> {
    let Check { staged, all: _, rules, paths } = args;
    super::reading(global, Need::Look, async |formwork, caller, settings| {
        if rules {
            let ruled = formwork.call::<Rules>(&caller, RulesParams {}).await?;
            terminal.result(&ruled, || {
                let lines = ruled.rules.iter();
                lines.map(|rule| format!("{:<28} {}\n", rule.id, rule.description)).collect()
            })?;
            return Ok(OutcomeCode::Completed);
        }
        let paths = paths.iter().map(|path| below(&settings, path)).collect::<Result<_, _>>()?;
        let found = formwork.call::<Operation>(&caller, CheckParams { staged, paths }).await?;
        terminal.result(&found, || told(&found))?;
        Ok(match found.is_clean() {
            true => OutcomeCode::Completed,
            false => OutcomeCode::Refused,
        })
    })
}

/// Names a path that was written from the present folder from the root of the workspace.
pub(super) fn below(settings: &Settings, path: &Path) -> Result<String, Fault> {
    let place = std::path::absolute(path).map_err(|_| outside(settings, path))?;
    // The links on the way count, or a linked home would lie outside of itself. The last part is looked at by
    // whoever opens it.
    let real = match (place.parent().map(Path::canonicalize), place.file_name()) {
        (Some(Ok(folder)), Some(name)) => folder.join(name),
        _ => place.canonicalize().unwrap_or(place),
    };
    let root = settings.workspace.canonicalize().unwrap_or_else(|_| settings.workspace.clone());
    let below = real.strip_prefix(&root).map_err(|_| outside(settings, path))?;
    Ok(match below.as_os_str().is_empty() {
        true => ".".to_owned(),
        false => below.to_str().ok_or_else(|| outside(settings, path))?.to_owned(),
    })
}

fn outside(settings: &Settings, path: &Path) -> Fault {
    Fault::usage(format!(
        "{} is not below the workspace {}",
        path.display(),
        settings.workspace.display()
    ))
    .hint("name another workspace with -C")
}

fn told(found: &Checked) -> String {
    let mut text = String::new();
    for it in &found.findings {
        let place = match it.line {
            0 => visible(&it.path),
            line => format!("{}:{line}:{}", visible(&it.path), it.column),
        };
        let no_rule = it.no_rule.as_deref().map(visible);
        let no_rule = no_rule
            .map(|name| format!("; its `formwork:allow {name}` names no rule, and allows nothing"))
            .unwrap_or_default();
        text.push_str(&format!("{place}: {} ({}){no_rule}\n", it.description, it.rule));
    }
    for it in &found.unscanned {
        let (path, reason) = (visible(&it.path), visible(&it.reason));
        text.push_str(&format!("{path}: not looked at: {reason}\n"));
    }
    let files = super::counted(found.files, "file");
    let all = found.findings.len() as u64 + found.more;
    let allowed = match found.allowed {
        0 => String::new(),
        allowed => format!(", {allowed} allowed by a pragma"),
    };
    match found.is_clean() {
        true => text.push_str(&format!("nothing found in {files}{allowed}\n")),
        false => {
            let unscanned = match found.unscanned.len() {
                0 => String::new(),
                failed => format!(", {failed} of them not looked at"),
            };
            text.push_str(&format!(
                "{} in {files}{unscanned}{allowed}\n",
                super::counted(all, "finding")
            ));
            if all > 0 {
                text.push_str(
                    "take them out, and make keys void that were ever shared; `formwork:allow RULE` on a line allows \
                     what is no secret\n",
                );
            }
        }
    }
    text
}
