//! `run_tests`: the project's own tests, counted and not guessed.

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use formwork_protocols::{
    Cancel, Replay, Scrub, Span, Tool, ToolClass, ToolError, ToolErrorKind, ToolName, ToolOutput,
    ToolSpec,
    check::{CheckKind, CheckSpec, CommandCheck, Parser},
    message::ToolDefinition,
    text,
    tool::CallContext,
};
use formwork_sandbox::{Protection, Sandbox};
use formwork_tool::builtin;
use formwork_verify::{Baseline, Ground, Verifier};
use serde_json::{Value, json};

/// The name of the tool.
pub(crate) const RUN_TESTS: &str = "run_tests";

/// Describes the tool.
pub(crate) fn spec() -> ToolSpec {
    ToolSpec {
        definition: ToolDefinition {
            name: ToolName::parse(RUN_TESTS).expect("the name follows the rule"),
            description: "Run the project's tests: counts, what failed, and the output.".to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "only": { "type": "string", "minLength": 1, "description": "A part of the names of the tests to run; all where absent." },
                },
                "additionalProperties": false,
            }),
        },
        class: ToolClass::Exec,
        replay: Replay::Once,
        tags: vec!["process".to_owned()],
    }
}

/// The tool.
pub(crate) struct RunTests {
    pub(crate) spec: ToolSpec,
    /// How the project is tested, as its manifest said when the session began.
    pub(crate) tests: Option<CommandCheck>,
    pub(crate) root: PathBuf,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) protection: Protection,
    pub(crate) scrub: Arc<dyn Scrub>,
    pub(crate) timeout: Span,
}

impl RunTests {
    /// Returns the command of the project's tests, with what narrows it to some of them.
    fn argv(&self, arguments: &Value) -> Result<CommandCheck, ToolError> {
        let Some(mut check) = self.tests.clone() else {
            let told = "no manifest at the root of the workspace says how its tests are run";
            return Err(ToolError::new(ToolErrorKind::Failed, told));
        };
        let Some(only) = arguments.get("only").and_then(Value::as_str) else { return Ok(check) };
        if only.starts_with('-') {
            let told = "only is a part of the names of tests, and no option";
            return Err(ToolError::new(ToolErrorKind::InvalidArguments, told));
        }
        let narrowed: &[&str] = match check.parse {
            Some(Parser::Pytest) => &["-k"],
            Some(Parser::GoTest) => &["-run"],
            Some(Parser::Jest) => &["--", "-t"],
            Some(Parser::CargoTest) => &[],
            _ => {
                let told = "the tests of this project cannot be narrowed: leave only out";
                return Err(ToolError::new(ToolErrorKind::InvalidArguments, told));
            }
        };
        check.argv.extend(narrowed.iter().map(|word| (*word).to_owned()));
        check.argv.push(only.to_owned());
        Ok(check)
    }
}

#[async_trait]
impl Tool for RunTests {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn command(&self, arguments: &Value) -> Option<Vec<String>> {
        self.argv(arguments).ok().map(|check| check.argv)
    }

    async fn call(
        &self,
        _: &CallContext,
        arguments: Value,
        cancel: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        let check = self.argv(&arguments)?;
        let (told, parser) = (check.argv.join(" "), check.parse);
        let spec = CheckSpec::new(RUN_TESTS, CheckKind::Command(check), self.timeout);
        let (sandbox, scrub) = (Arc::clone(&self.sandbox), Arc::clone(&self.scrub));
        let verifier = Verifier::new(sandbox, &self.root, self.protection.clone(), scrub);
        let began = Baseline::default();
        let ground = Ground { baseline: &began, changes: &() };
        let checked = verifier.check(&spec, ground, cancel).await.map_err(|_| {
            ToolError::new(ToolErrorKind::Cancelled, "cancelled; everything it started was ended")
        })?;
        let verdict = checked.verdict;
        let state = if verdict.passed { "passed" } else { "failed" };
        let mut told_all = format!("{state}: {}\ncommand: {told}\n", verdict.reason);
        if let Some(counts) = verdict.evidence.counts {
            let (run, failed, skipped) = (counts.run, counts.failed, counts.skipped);
            told_all.push_str(&format!("tests: {run} run, {failed} failed, {skipped} skipped\n"));
        }
        let whole = checked.output.map(|blob| String::from_utf8_lossy(blob.bytes()).into_owned());
        let whole = whole.unwrap_or_default();
        let (names, more) = failed(parser, &whole);
        for name in names {
            told_all.push_str(&format!("failed: {name}\n"));
        }
        if more > 0 {
            told_all.push_str(&format!("and {more} more failed\n"));
        }
        if !verdict.passed && !verdict.evidence.excerpt.trim().is_empty() {
            told_all
                .push_str(&format!("\nwhat failed:\n{}\n", verdict.evidence.excerpt.trim_end()));
        }
        if !whole.trim().is_empty() {
            told_all.push_str(&format!("\nthe whole output:\n{whole}"));
        }
        let outside = builtin::outside(&checked.reached);
        Ok(ToolOutput { outside, ..ToolOutput::text(told_all) })
    }
}

/// How many names of failed tests are told; the output has all.
const MAX_NAMES: usize = 50;

/// The most bytes of one of them.
const MAX_NAME_BYTES: usize = 200;

/// Returns the names of the tests that failed, as far as an output tells them line by line, and how many more there are.
fn failed(parser: Option<Parser>, output: &str) -> (Vec<String>, usize) {
    let name = |line: &str| -> Option<String> {
        let line = line.trim_end();
        let name = match parser? {
            Parser::CargoTest => line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?,
            Parser::Pytest => {
                let name = line.strip_prefix("FAILED ")?;
                name.split_once(" - ").map_or(name, |(name, _)| name)
            }
            Parser::GoTest => line.trim_start().strip_prefix("--- FAIL: ")?.split(" (").next()?,
            Parser::Jest => {
                let line = line.trim_start();
                line.strip_prefix("\u{25cf} ").or_else(|| line.strip_prefix("\u{d7} "))?
            }
            _ => return None,
        };
        Some(text::head(name.trim(), MAX_NAME_BYTES).to_owned())
    };
    let mut names: Vec<String> = Vec::new();
    let mut more = 0;
    for found in output.lines().filter_map(name).filter(|name| !name.is_empty()) {
        if names.contains(&found) {
            continue;
        }
        match names.len() {
            ..MAX_NAMES => names.push(found),
            _ => more += 1,
        }
    }
    (names, more)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(parser: Parser, output: &str) -> String {
        failed(Some(parser), output).0.join(" | ")
    }

    #[test]
    fn failed_tests_are_named_as_their_runner_names_them() {
        let cargo = "test a::b ... FAILED\ntest c ... ok\ntest a::b ... FAILED\n";
        let pytest = "FAILED tests/t.py::test_x[a - b] - assert 1 == 2\nPASSED y\n";
        let go = "--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/deep (0.00s)\n";
        let jest = "  \u{25cf} sum \u{203a} adds\n\n    expect(received)\n";

        assert_eq!(names(Parser::CargoTest, cargo), "a::b");
        assert_eq!(names(Parser::Pytest, pytest), "tests/t.py::test_x[a");
        assert_eq!(names(Parser::GoTest, go), "TestA | TestA/deep");
        assert_eq!(names(Parser::Jest, jest), "sum \u{203a} adds");
        assert_eq!(failed(None, cargo), (Vec::new(), 0));
    }

    #[test]
    fn of_many_failed_tests_the_first_are_named_and_the_others_counted() {
        let output: String = (0..60).map(|at| format!("test t{at} ... FAILED\n")).collect();

        let (names, more) = failed(Some(Parser::CargoTest), &output);

        assert_eq!((names.len(), more), (50, 10));
    }
}
