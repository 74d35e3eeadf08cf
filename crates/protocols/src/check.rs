//! Checks: what proves that a task may begin or has ended, and the evidence they leave.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    budget::Budget,
    contract::ContractCheck,
    event::BlobHash,
    id::{AgentName, SessionId, TaskId, WorkflowName},
    spec::{GraphHold, OnFailure, TaskSpec},
    time::Span,
};

/// When a check runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Before anything else of the task.
    Entry,
    /// After the body says that it is done.
    Exit,
    /// After its exit checks have passed: what is done then, with the same evidence.
    Success,
    /// Before a further attempt: what is put in order, with the same evidence.
    Retry,
}

impl Phase {
    /// Every phase.
    pub const ALL: [Self; 4] = [Self::Entry, Self::Exit, Self::Success, Self::Retry];

    /// Tells whether what runs in it does something, and not only looks: it is not run again unasked.
    pub const fn has_effects(self) -> bool {
        matches!(self, Self::Success | Self::Retry)
    }

    /// Returns the phase's name, as it is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Entry => "entry",
            Self::Exit => "exit",
            Self::Success => "success",
            Self::Retry => "retry",
        }
    }
}

/// A check, as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckSpec {
    /// What it is called in messages; made from the kind where nobody named it.
    pub name: String,
    /// What it does.
    pub kind: CheckKind,
    /// How long one run of it may take.
    pub timeout: Span,
    /// What is done once where it fails, before it is run once more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<Fix>,
    /// Where it has to fail before its passing counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<PlantedFailure>,
    /// How often it may fail at one task; after that the task is given up, whatever attempts are left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rounds: Option<u32>,
    /// What all its runs at one task may use together, out of the task's own budget.
    #[serde(default, skip_serializing_if = "is_uncapped")]
    pub budget: Budget,
}

impl CheckSpec {
    /// Makes a check that is run as it is: no fix, no control, no caps of its own.
    pub fn new(name: impl Into<String>, kind: CheckKind, timeout: Span) -> Self {
        Self {
            name: name.into(),
            kind,
            timeout,
            fix: None,
            control: None,
            max_rounds: None,
            budget: Budget::default(),
        }
    }
}

fn is_uncapped(budget: &Budget) -> bool {
    *budget == Budget::default()
}

/// What a check does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CheckKind {
    /// Runs a command in the workspace.
    Command(CommandCheck),
    /// The files that match have the content they had when the task began.
    Unchanged(UnchangedCheck),
    /// The task changed no more than this.
    Diff(DiffCheck),
    /// The manifests of the workspace name no dependency that they did not name when the task began.
    NoNewDependencies,
    /// The task made no new file but where these patterns match.
    NewFiles(NewFilesCheck),
    /// Nothing is gone that the files which the task changed exported when it began.
    NoRemovedExports,
    /// What they exported then, and export still, has the signature that it had.
    NoChangedSignatures,
    /// An agent looks at the work, changes nothing, and returns a verdict.
    Agent(AgentCheck),
    /// A function that the embedding program registered under this name decides.
    Native(NativeCheck),
    /// What the body hands over follows this schema.
    Output(OutputCheck),
    /// The work keeps to the requirements of a file.
    Contract(ContractCheck),
    /// A suite of tests passes, and what failed before the task began is told apart from what fails since.
    Suite(SuiteCheck),
    /// What was done in a workspace of the task's own is brought into the run's.
    Merged,
    /// The workspace is in no state that it was in after an earlier attempt at the task, or before the first.
    Progress,
    /// A tree of tasks below the task completes.
    Workflow(Box<WorkflowCheck>),
    /// What the body hands over is a plan whose tasks can be done.
    Graph(Box<GraphHold>),
}

/// A check by a workflow: its tasks are done below the task that is checked, and paid from its budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkflowCheck {
    /// The workflow's name.
    pub workflow: WorkflowName,
    /// Its tasks.
    pub tasks: Vec<TaskSpec>,
    /// What becomes of the others when one fails.
    pub on_failure: OnFailure,
    /// The values of its variables.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub variables: serde_json::Map<String, serde_json::Value>,
    /// The caps of each run of it.
    #[serde(default, skip_serializing_if = "is_uncapped")]
    pub budget: Budget,
}

/// A suite of tests. As an entry check it only finds out what fails before the task begins, and lets the task in
/// whatever that is; as an exit check of the same command it is held against that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SuiteCheck {
    /// The program and its arguments; no shell is involved.
    pub argv: Vec<String>,
    /// How to read its output; by its exit code alone where absent.
    pub parse: Option<Parser>,
    /// Which tests have to pass.
    #[serde(default)]
    pub compare: Compare,
}

/// Which tests of a suite have to pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compare {
    /// All of them.
    #[default]
    All,
    /// Those that did not fail before the task began; the others may go on failing.
    New,
}

/// A check by an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentCheck {
    /// Who looks.
    pub agent: AgentName,
    /// What it is asked, as a template.
    pub prompt: String,
    /// The least severity of an issue that keeps the check from passing.
    pub block: Severity,
    /// Whether an issue counts only where it points at what was changed; others are dropped, and told of.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anchored: bool,
    /// The change that it looks at, in place of what its task has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looks_at: Option<GitChange>,
}

/// A change that git knows, in the worktree that the workspace lies in: what is there and was not committed,
/// files that git does not know yet included, unless something else is said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GitChange {
    /// All since the commit in which this revision and `HEAD` parted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Only what the next commit would bring.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub staged: bool,
    /// Only these files and folders, from the root of the workspace; all where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

/// A check by a function of the embedding program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence names its field")]
pub struct NativeCheck {
    pub function: String,
}

/// Where new files may be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NewFilesCheck {
    /// Globs from the root of the workspace.
    pub within: Vec<String>,
}

/// What is done once where a check fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant names its fields")]
pub enum Fix {
    /// A command, as in `cargo fmt`.
    Command { argv: Vec<String> },
    /// An agent, which may write what the task may, and is shown what the check found.
    Agent { agent: AgentName, prompt: String },
}

/// A failure that is planted, so that a check which cannot fail is found out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PlantedFailure {
    /// The check is first run in a copy of the workspace in which the task's changes to the files that match
    /// are taken back; to all files where no glob is given.
    Revert(Vec<String>),
}

/// A check by a command: its exit code, and what its output proves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandCheck {
    /// The program and its arguments; no shell is involved.
    pub argv: Vec<String>,
    /// How to read its output for counts.
    pub parse: Option<Parser>,
    /// What it has to do for the check to pass.
    pub expect: Expect,
}

/// What a command check has to do for the check to pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// It succeeds; if its output is parsed for tests, at least one ran and none failed.
    #[default]
    Pass,
    /// It fails, and not because it could not run: if its output is parsed, at least one test failed.
    Fail,
}

/// Formats of output that hold counts of tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Parser {
    /// `cargo test` and libtest.
    CargoTest,
    /// `cargo nextest run`.
    Nextest,
    /// `pytest`.
    Pytest,
    /// `python -m unittest`.
    Unittest,
    /// `jest` and `vitest`.
    Jest,
    /// `go test`, plain, `-v` or `-json`.
    GoTest,
    /// JUnit's XML.
    Junit,
    /// The Test Anything Protocol.
    Tap,
    /// A verdict as JSON: `{"passed": true, "run": 3, "failed": 0, "skipped": 0, "issues": []}`.
    Json,
}

impl Parser {
    /// Tells by a command how its output is to be read: a run of no tests must not pass for a success.
    pub fn of(argv: &[String]) -> Option<Self> {
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["cargo", "test", ..] => Some(Self::CargoTest),
            ["cargo", "nextest", "run", ..] => Some(Self::Nextest),
            ["pytest", ..] | [_, "-m", "pytest", ..] => Some(Self::Pytest),
            [_, "-m", "unittest", ..] => Some(Self::Unittest),
            ["go", "test", ..] => Some(Self::GoTest),
            ["jest" | "vitest", ..] | ["npx", "jest" | "vitest", ..] => Some(Self::Jest),
            _ => None,
        }
    }
}

/// The files that match these patterns keep their content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence names its field")]
pub struct UnchangedCheck {
    pub paths: Vec<String>,
}

/// What the body hands over, as its JSON Schema. The runtime judges it itself, without running anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence names its field")]
pub struct OutputCheck {
    pub schema: serde_json::Value,
}

/// How much a task may change.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DiffCheck {
    /// The most lines added and removed together.
    pub max_lines: Option<u64>,
    /// The most files changed.
    pub max_files: Option<u64>,
    /// Whether a task that changed nothing passes.
    pub allow_empty: bool,
}

/// How bad an issue is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// A matter of taste.
    Nit,
    /// Worth mending some time.
    Minor,
    /// Has to be mended before it is done.
    Major,
    /// Breaks what it touches.
    Critical,
}

impl Severity {
    /// Returns its name, as it is written and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nit => "nit",
            Self::Minor => "minor",
            Self::Major => "major",
            Self::Critical => "critical",
        }
    }
}

/// Something that a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Issue {
    /// How bad it is.
    pub severity: Severity,
    /// What it is, and where.
    pub message: String,
    /// The file that it is about, from the root of the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line of that file, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The line itself, as whoever found it quotes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<String>,
}

impl Issue {
    /// Makes an issue that is about no file in particular.
    pub fn new(severity: Severity, message: impl Into<String>) -> Self {
        Self { severity, message: message.into(), file: None, line: None, quote: None }
    }
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.severity.as_str())?;
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{file}:{line}: ")?,
            (Some(file), None) => write!(f, "{file}: ")?,
            (None, _) => {}
        }
        f.write_str(&self.message)
    }
}

/// Tests, counted from the output of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Tests that ran: passed and failed together.
    pub run: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests that were left out.
    pub skipped: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} run, {} failed, {} skipped", self.run, self.failed, self.skipped)
    }
}

/// What a check leaves behind, whatever it decided.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Evidence {
    /// The command, for a command check.
    pub argv: Vec<String>,
    /// Its exit code; absent when it was killed or could not start.
    pub exit_code: Option<i32>,
    /// How long it took.
    pub elapsed: Span,
    /// The tests, counted.
    pub counts: Option<Counts>,
    /// The whole output, by its hash.
    pub output: Option<BlobHash>,
    /// The part of the output that says most: the failures, else its end. A few KiB at most.
    pub excerpt: String,
    /// The conversation in which it was decided, for a check by an agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The task below which it was decided, for a check by a workflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// What an agent has looked at, for a check by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub review: Option<Box<Reviewed>>,
    /// What later rounds of a task are compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<Box<Known>>,
    /// How many lines were added and removed, for a check of how much was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<u64>,
}

impl Evidence {
    /// Returns the tests that failed, as far as the output names them.
    pub fn failing(&self) -> &[String] {
        self.known.as_deref().map_or(&[][..], |known| known.failing.as_slice())
    }
}

/// What is known of one round of a task, for those after it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Known {
    /// The tests that failed, as far as the output names them: 1,000 at the most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failing: Vec<String>,
    /// What the workspace held, by the hash of its snapshot, for a check that compares rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<BlobHash>,
}

/// What an agent has looked at, and what of its findings does not count.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Reviewed {
    /// Whether it says that the work is fine; absent where it gave no verdict that could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approves: Option<bool>,
    /// The commit that `HEAD` named meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// The diff, by its hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<BlobHash>,
    /// How many files it changes, and how many lines.
    pub files: u64,
    #[expect(missing_docs, reason = "said above")]
    pub lines: u64,
    /// In how many parts it was looked at.
    pub parts: u32,
    /// How often it was looked at from the beginning, because it had moved meanwhile.
    pub looks: u32,
    /// What was not shown, each with the reason; where there is any, nothing passes.
    pub unseen: Vec<String>,
    /// What was told of without its content, such as pictures.
    pub opaque: Vec<String>,
    /// Findings that point at nothing in the diff.
    pub dropped: Vec<Issue>,
}

/// Something that was done on the way to a verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckStep {
    /// What it was.
    pub what: StepKind,
    /// Whether it went as it had to: a control has to fail, all else has to pass.
    pub passed: bool,
    /// How it went, in one line without a full stop.
    pub reason: String,
    /// What it left behind.
    pub evidence: Evidence,
}

/// What was done on the way to a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StepKind {
    /// The check ran where it has to fail.
    Control,
    /// The check ran in a copy with the work as it is, so that a control that failed was no accident.
    Proof,
    /// The check ran and failed, and was mended.
    First,
    /// What was to mend it.
    Fix,
    /// A proof of a requirement was looked at.
    Requirement,
}

impl StepKind {
    /// Returns its name, as it is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Proof => "proof",
            Self::First => "first",
            Self::Fix => "fix",
            Self::Requirement => "requirement",
        }
    }
}

/// What a check decided, and on what grounds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The check's name.
    pub check: String,
    /// Whether it passed.
    pub passed: bool,
    /// Why, in one line without a full stop.
    pub reason: String,
    /// What it found.
    pub issues: Vec<Issue>,
    /// What it left behind.
    pub evidence: Evidence,
    /// What was done before it decided, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<CheckStep>,
    /// Whether nobody judged: the model of the agent that was to look did not answer. Its task is given up, as
    /// no work mends that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unjudged: bool,
    /// Whether it could not be run at all: its program is not there or may not be started, or its protection cannot be
    /// had. That is the fault of how things are set up and says nothing of the work, so its task is given up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_run: bool,
}

impl Verdict {
    /// Makes a verdict without issues, evidence and steps.
    pub fn bare(check: impl Into<String>, passed: bool, reason: impl Into<String>) -> Self {
        Self {
            check: check.into(),
            passed,
            reason: reason.into(),
            issues: Vec::new(),
            evidence: Evidence::default(),
            steps: Vec::new(),
            unjudged: false,
            not_run: false,
        }
    }

    /// Makes the verdict of a check that could not be run.
    pub fn not_run(check: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { not_run: true, ..Self::bare(check, false, reason) }
    }

    /// Returns what a model needs in order to mend what failed: the reason, the issues, the excerpt. Lines of an
    /// output have a bar before them, so that none passes for a line of the verdict.
    pub fn for_model(&self) -> String {
        let mut text = format!(
            "check {:?} {}: {}\n",
            self.check,
            if self.passed { "passed" } else { "failed" },
            self.reason
        );
        if !self.evidence.argv.is_empty() {
            text.push_str(&format!("command: {}\n", self.evidence.argv.join(" ")));
        }
        for issue in &self.issues {
            text.push_str(&format!("- {}\n", issue.to_string().replace('\n', "\n  ")));
        }
        // The issues name the requirements that are not kept.
        let before = |step: &&CheckStep| step.what != StepKind::Requirement;
        for step in self.steps.iter().filter(before) {
            text.push_str(&format!("before it, the {}: {}\n", step.what.as_str(), step.reason));
        }
        if !self.evidence.excerpt.is_empty() {
            text.push_str("output:\n");
            for line in self.evidence.excerpt.lines() {
                text.push_str(&format!("  | {line}\n"));
            }
        }
        text
    }
}
