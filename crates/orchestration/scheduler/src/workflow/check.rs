//! Checks as they are written, and as they are run.

use formwork_protocols::{
    Span,
    check::{CheckKind, CheckSpec, CommandCheck, Expect, UnchangedCheck},
    document::{Diagnostic, Document},
};
use globset::Glob;

use super::document::CheckDocument;

/// How long a check may take unless it says otherwise: a cold build and a long suite fit.
pub(super) const TIMEOUT: Span = Span::from_secs(600);

/// Turns a check into what is run, or says what is wrong with it.
pub(super) fn check(
    document: &Document,
    place: &str,
    written: &CheckDocument,
    faults: &mut Vec<Diagnostic>,
) -> Option<CheckSpec> {
    let kinds = [
        ("command", written.command.is_some()),
        ("unchanged", written.unchanged.is_some()),
        ("diff", written.diff.is_some()),
    ];
    let given: Vec<&str> =
        kinds.iter().filter(|(_, given)| *given).map(|(kind, _)| *kind).collect();
    if given.len() != 1 {
        let found = if given.is_empty() { "none".to_owned() } else { given.join(" and ") };
        let message =
            format!("a check is exactly one of command, unchanged and diff; found {found}");
        faults.push(document.diagnostic(place, message));
        return None;
    }
    if written.command.is_none() {
        for (key, given) in
            [("parse", written.parse.is_some()), ("expect", written.expect != Expect::Pass)]
        {
            if given {
                let message = format!("{key} belongs to a check by command");
                faults.push(document.diagnostic(&format!("{place}/{key}"), message));
            }
        }
    }
    let (kind, called) = match written {
        CheckDocument { command: Some(argv), .. } => {
            if !argv_is_sound(document, &format!("{place}/command"), argv, faults) {
                return None;
            }
            let command =
                CommandCheck { argv: argv.clone(), parse: written.parse, expect: written.expect };
            (CheckKind::Command(command), argv.join(" "))
        }
        CheckDocument { unchanged: Some(paths), .. } => {
            if paths.is_empty() {
                let message = "unchanged names no path";
                faults.push(document.diagnostic(&format!("{place}/unchanged"), message));
            }
            globs(document, &format!("{place}/unchanged"), paths, faults);
            let called = format!("unchanged {}", paths.join(" "));
            (CheckKind::Unchanged(UnchangedCheck { paths: paths.clone() }), called)
        }
        CheckDocument { diff: Some(diff), .. } => {
            (CheckKind::Diff(diff.clone()), "diff".to_owned())
        }
        CheckDocument { .. } => return None,
    };
    let timeout = written.timeout.unwrap_or(TIMEOUT);
    Some(CheckSpec { name: written.name.clone().unwrap_or(called), kind, timeout })
}

/// Says whether an argument vector names a program.
pub(super) fn argv_is_sound(
    document: &Document,
    place: &str,
    argv: &[String],
    faults: &mut Vec<Diagnostic>,
) -> bool {
    let message = match argv.first() {
        None => "a command names a program, found an empty list",
        Some(program) if program.trim().is_empty() => {
            "a command names a program, found an empty text"
        }
        Some(_) if argv.iter().any(|word| word.contains('\0')) => "an argument cannot hold a NUL",
        Some(_) => return true,
    };
    faults.push(document.diagnostic(place, message));
    false
}

/// Says which globs do not parse.
pub(super) fn globs(
    document: &Document,
    place: &str,
    globs: &[String],
    faults: &mut Vec<Diagnostic>,
) {
    for (at, glob) in globs.iter().enumerate() {
        let message = match Glob::new(glob) {
            Err(error) => format!("{glob:?} is not a glob: {}", error.kind()),
            Ok(_) if glob.starts_with('/') || glob.split('/').any(|name| name == "..") => {
                format!("{glob:?} leads out of the workspace: globs begin at its root")
            }
            Ok(_) => continue,
        };
        faults.push(document.diagnostic(&format!("{place}/{at}"), message));
    }
}
