//! The names of the tests that failed, where an output tells them.

use std::collections::BTreeSet;

use formwork_protocols::check::Parser;
use serde::Deserialize;

/// How many names are kept, and how many bytes of each: more is compared by number alone.
const MAX_NAMES: usize = 1_000;
const NAME_BYTES: usize = 256;

/// Lists the tests that failed, each once, in the order of their names. Names say nothing of how many there were.
pub(super) fn failing(parser: Parser, text: &str) -> Vec<String> {
    let mut found: BTreeSet<String> = BTreeSet::new();
    let mut add = |name: &str| {
        let name = name.trim();
        if !name.is_empty() && found.len() < MAX_NAMES {
            found.insert(formwork_protocols::text::head(name, NAME_BYTES).to_owned());
        }
    };
    for line in text.lines() {
        let trimmed = line.trim();
        let name = match parser {
            Parser::CargoTest => cargo_test(line),
            Parser::Nextest => nextest(trimmed),
            Parser::Pytest => pytest(line),
            Parser::Unittest => {
                line.strip_prefix("FAIL: ").or_else(|| line.strip_prefix("ERROR: "))
            }
            Parser::Jest => jest(trimmed),
            Parser::Tap => tap(trimmed),
            Parser::GoTest => go(trimmed),
            _ => None,
        };
        if let Some(name) = name {
            add(name);
        } else if parser == Parser::GoTest
            && let Some(name) = go_json(trimmed)
        {
            add(&name);
        }
    }
    found.into_iter().collect()
}

/// `test NAME ... FAILED`, or `---- NAME stdout ----` where only failures are told.
fn cargo_test(line: &str) -> Option<&str> {
    let whole = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"));
    let name = whole.map(|name| name.split(" - should panic").next().unwrap_or(name));
    name.or_else(|| line.strip_prefix("---- ")?.strip_suffix(" stdout ----"))
}

/// `FAIL [   0.004s] (1/4) CRATE NAME`
fn nextest(line: &str) -> Option<&str> {
    let words = ["FAIL [", "TIMEOUT [", "SIGABRT [", "SIGSEGV ["];
    let rest = words.iter().find_map(|word| line.strip_prefix(word))?;
    let (_, rest) = rest.split_once(']')?;
    let rest = rest.trim_start();
    match rest.strip_prefix('(') {
        Some(counted) => counted.split_once(')').map(|(_, name)| name),
        None => Some(rest),
    }
}

/// `FAILED PATH::NAME - why`, in the summary.
fn pytest(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("FAILED ").or_else(|| line.strip_prefix("ERROR "))?;
    let name = rest.split(" - ").next()?;
    name.contains("::").then_some(name)
}

/// `● SUITE › NAME` of jest, `FAIL  FILE > SUITE > NAME` of vitest.
fn jest(line: &str) -> Option<&str> {
    let of_jest = line.strip_prefix("● ").filter(|name| !name.contains("Test suite failed to run"));
    let of_vitest = || line.strip_prefix("FAIL ").filter(|name| name.contains(" > "));
    of_jest.or_else(of_vitest)
}

/// `not ok 3 - NAME`
fn tap(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("not ok")?.trim_start();
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
    let name = rest.strip_prefix("- ").unwrap_or(rest);
    let is_directive = super::tap::is_directive(name);
    (!is_directive).then_some(name)
}

/// `--- FAIL: NAME (0.00s)`
fn go(line: &str) -> Option<&str> {
    line.strip_prefix("--- FAIL: ")?.split(" (").next()
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Line<'a> {
    action: &'a str,
    #[serde(default)]
    package: Option<String>,
    #[serde(default)]
    test: Option<String>,
}

fn go_json(line: &str) -> Option<String> {
    let line: Line<'_> = serde_json::from_str(line.strip_prefix('{').and(Some(line))?).ok()?;
    let test = line.test.filter(|_| line.action == "fail")?;
    Some(match line.package {
        Some(package) => format!("{package} {test}"),
        None => test,
    })
}
