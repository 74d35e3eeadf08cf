//! Programs of the operator that decide on calls, or watch what happens.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use formwork_protocols::{ToolClass, ToolName, text, tool::CallContext};
use formwork_sandbox::{Caps, Command, Exit, Finished, Protection, Sandbox, Whole};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::{
    Decision, Hashes, ToolPatterns, hash_of_file, instead_of_modules, named_files, uncached,
};

/// The version of the document that a hook reads.
const FORMAT: u32 = 1;
/// What happens when a gate is asked.
const GATE: &str = "tool.before";
/// By this exit code a gate denies without a document, and says why on its standard error.
const DENIED: i32 = 2;
/// The most that a hook may answer.
const LONGEST_ANSWER: usize = 1 << 20;
/// The most of a hook's own words that go into a reason.
const LONGEST_REASON: usize = 1000;

/// A program that is run when something happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// What must happen, such as `tool.before`.
    pub event: String,
    /// For which tools, or for all of them.
    pub tools: Option<ToolPatterns>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// How long it may take.
    pub timeout: Duration,
}

/// A call that a gate is asked about.
#[derive(Debug, Clone, Copy)]
pub struct HookCall<'a> {
    /// What is about to happen, such as `tool.before`.
    pub event: &'a str,
    /// Where the call belongs.
    pub context: &'a CallContext,
    /// The tool's name.
    pub tool: &'a ToolName,
    /// The tool's tags.
    pub tags: &'a [String],
    /// What the tool does to the world.
    pub class: ToolClass,
    /// The arguments, without secrets.
    pub arguments: &'a Value,
}

/// What the gates say of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The strictest of their decisions.
    pub decision: Decision,
    /// The arguments to use instead, if a gate replaced them. They must be judged anew, by the
    /// schema and by every rule, since the model's were.
    pub arguments: Option<Value>,
    /// What each gate answered that was asked, in their order.
    pub said: Vec<Said>,
}

/// What one gate answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    /// The gate: its program and the arguments of that.
    pub gate: String,
    /// What it decided. One that replaces arguments allows them, as far as it is concerned.
    pub decision: Decision,
    /// The arguments that it put in the place of those it was shown.
    pub arguments: Option<Value>,
    /// How long it took.
    pub elapsed: Duration,
}

impl Answer {
    /// Returns the answer of nobody: the call may be made.
    pub const fn allow() -> Self {
        Self { decision: Decision::Allow, arguments: None, said: Vec::new() }
    }
}

/// Why an observer did not do its work. Nothing is held up by it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("hook {hook} failed: {reason}")]
pub struct HookFault {
    /// The program.
    pub hook: String,
    /// What went wrong.
    pub reason: String,
}

/// The hooks of a session. They see one JSON document on their standard input.
///
/// A gate answers with exit code 0 and nothing (allowed), exit code 2 and a reason on its standard
/// error (denied), or exit code 0 and a JSON object: `decision` is `allow`, `deny`, `ask` or
/// `replace`, the middle two with a `reason` and the last with `arguments`. Anything else denies: a
/// gate that crashes, hangs or babbles has not allowed anything.
#[derive(Debug, Clone)]
pub struct Hooks {
    sandbox: Sandbox,
    cwd: PathBuf,
    protection: Protection,
    hooks: Vec<Hook>,
    /// The files below the folder that the commands name, and the hashes of what these held at first.
    own: Vec<(PathBuf, Option<String>)>,
}

/// What a gate reads.
#[derive(Serialize)]
struct Document<'a> {
    format_version: u32,
    event: &'a str,
    run: String,
    task: String,
    session: String,
    call: String,
    agent: &'a str,
    tool: &'a str,
    class: &'static str,
    arguments: &'a Value,
}

/// What a gate writes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    decision: Verb,
    reason: Option<String>,
    arguments: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Verb {
    Allow,
    Deny,
    Ask,
    Replace,
}

/// One gate's answer, understood.
enum Verdict {
    Decided(Decision),
    Replaced(Value),
}

impl Hooks {
    /// Runs `hooks` in the folder `cwd` under `protection`. A script below that folder which is changed from then on
    /// fails: whoever is to be held by a gate must not be able to rewrite it.
    pub fn new(
        sandbox: Sandbox,
        cwd: impl Into<PathBuf>,
        protection: Protection,
        hooks: Vec<Hook>,
    ) -> Self {
        let cwd = cwd.into();
        let there = hooks.iter().flat_map(|hook| named_files(&cwd, &hook.command));
        // A gate's script that is not there is not to come from whoever the gate is to hold.
        let gates = hooks.iter().filter(|hook| hook.event == GATE);
        let to_come = gates.flat_map(|hook| {
            let words = hook.command.iter().map(|word| cwd.join(word));
            words.chain(instead_of_modules(&cwd, &hook.command))
        });
        let to_come =
            to_come.filter(|path| path.starts_with(&cwd) && path.symlink_metadata().is_err());
        let own = there.chain(to_come).map(|path| (path.clone(), hash_of_file(&path))).collect();
        Self { sandbox, cwd, protection, hooks, own }
    }

    /// Takes what the files of the commands held when it was decided that they may run: one that is another by now
    /// fails, and so does one that has come since.
    #[must_use]
    pub fn since(mut self, then: &Hashes) -> Self {
        for (path, hash) in &mut self.own {
            let below = path.strip_prefix(&self.cwd).unwrap_or(path);
            *hash = then.get(&below.to_string_lossy().into_owned()).cloned();
        }
        self
    }

    /// Asks every gate for `call`, in their order; each sees what the one before it replaced.
    ///
    /// The first denial ends it, and so does `cancel`, as a denial.
    pub async fn gate(&self, call: &HookCall<'_>, cancel: &CancellationToken) -> Answer {
        let mut answer = Answer::allow();
        let asked = self.hooks.iter().filter(|hook| {
            let tools = hook.tools.as_ref();
            hook.event == call.event && tools.is_none_or(|it| it.matches(call.tool, call.tags))
        });
        for hook in asked {
            let arguments = answer.arguments.as_ref().unwrap_or(call.arguments);
            let document = document(call, arguments);
            let begun = Instant::now();
            let verdict = match self.run(hook, document, cancel).await {
                Ok(finished) => understand(finished),
                Err(reason) => Err(reason),
            };
            let (decision, arguments) = match verdict {
                Ok(Verdict::Replaced(arguments)) => (Decision::Allow, Some(arguments)),
                Ok(Verdict::Decided(decision)) => (decision, None),
                Err(reason) => {
                    let why = format!("gate {} failed, which denies: {reason}", name(hook));
                    (Decision::Deny { why }, None)
                }
            };
            let (gate, elapsed) = (name(hook), begun.elapsed());
            let said =
                Said { gate, decision: decision.clone(), arguments: arguments.clone(), elapsed };
            answer.said.push(said);
            answer.decision = answer.decision.and(decision);
            answer.arguments = arguments.or(answer.arguments);
            if matches!(answer.decision, Decision::Deny { .. }) {
                break;
            }
        }
        answer
    }

    /// Tells every observer of `event`, and returns who did not take it. Of an event that is about a tool, those are
    /// told that are for it, by its name and tags.
    pub async fn observe(
        &self,
        (event, tool): (&str, Option<(&ToolName, &[String])>),
        document: &Value,
        cancel: &CancellationToken,
    ) -> Vec<HookFault> {
        let mut faults = Vec::new();
        let is_told = |hook: &&Hook| match (&hook.tools, tool) {
            (Some(tools), Some((name, tags))) => tools.matches(name, tags),
            _ => true,
        };
        for hook in self.hooks.iter().filter(|hook| hook.event == event).filter(is_told) {
            let reason = match self.run(hook, document.to_string(), cancel).await {
                Ok(finished) if finished.succeeded() => continue,
                Ok(finished) => ended(&finished),
                Err(reason) => reason,
            };
            faults.push(HookFault { hook: name(hook), reason });
        }
        faults
    }

    async fn run(
        &self,
        hook: &Hook,
        document: String,
        cancel: &CancellationToken,
    ) -> Result<Finished, String> {
        let own = self.own.clone();
        let look = move || own.into_iter().find(|(path, hash)| hash_of_file(path) != *hash);
        match tokio::task::spawn_blocking(look).await {
            Ok(None) => {}
            Ok(Some((path, _))) => {
                return Err(format!("{} was changed since it was taken up", path.display()));
            }
            Err(error) => return Err(format!("its program could not be looked at: {error}")),
        }
        let mut command = Command::new(&hook.command, &self.cwd, self.protection.clone());
        let files = named_files(&self.cwd, &hook.command);
        command.set.extend(uncached(&files).map(|(name, value)| (name.into(), value.into())));
        command.stdin = Some(document.into_bytes().into());
        command.timeout = hook.timeout;
        command.caps = Caps { head: LONGEST_ANSWER, tail: 0, whole: LONGEST_ANSWER as u64 };
        let run = self.sandbox.run(command, cancel.clone(), None);
        Box::pin(run).await.map_err(|error| chain(&error))
    }
}

fn document(call: &HookCall<'_>, arguments: &Value) -> String {
    let document = Document {
        format_version: FORMAT,
        event: call.event,
        run: call.context.run.to_string(),
        task: call.context.task.to_string(),
        session: call.context.session.to_string(),
        call: call.context.call.to_string(),
        agent: call.context.agent.as_str(),
        tool: call.tool.as_str(),
        class: call.class.as_str(),
        arguments,
    };
    serde_json::to_string(&document).expect("a document of texts and a JSON value is JSON")
}

/// Reads what a gate answered.
fn understand(finished: Finished) -> Result<Verdict, String> {
    match finished.exit {
        Exit::Code(0) => {}
        Exit::Code(DENIED) => {
            let said = finished.stderr.preview();
            let why = match said.trim() {
                "" => "a gate denied it".to_owned(),
                said => text::head(said, LONGEST_REASON).to_owned(),
            };
            return Ok(Verdict::Decided(Decision::Deny { why }));
        }
        _ => return Err(ended(&finished)),
    }
    let Whole::Memory(answer) = finished.stdout.whole else {
        return Err(format!("its answer is more than {LONGEST_ANSWER} bytes"));
    };
    if answer.trim_ascii().is_empty() {
        return Ok(Verdict::Decided(Decision::Allow));
    }
    let said: Written = serde_json::from_slice(&answer)
        .map_err(|error| format!("its answer is not the JSON that a gate writes: {error}"))?;
    match said {
        Written { decision: Verb::Allow, reason: _, arguments: None } => {
            Ok(Verdict::Decided(Decision::Allow))
        }
        Written { decision: Verb::Deny, reason: Some(why), arguments: None } => {
            Ok(Verdict::Decided(Decision::Deny { why }))
        }
        Written { decision: Verb::Ask, reason: Some(why), arguments: None } => {
            Ok(Verdict::Decided(Decision::Ask { why }))
        }
        Written { decision: Verb::Replace, reason: _, arguments: Some(arguments) } => {
            Ok(Verdict::Replaced(Value::Object(arguments)))
        }
        Written { decision: Verb::Deny | Verb::Ask, arguments: None, reason: None } => {
            Err("its answer lacks a reason".into())
        }
        Written { decision: Verb::Replace, arguments: None, .. } => {
            Err("its answer replaces arguments and brings none".into())
        }
        Written { arguments: Some(_), .. } => {
            Err("its answer brings arguments and does not replace".into())
        }
    }
}

/// Says how a hook ended and what it complained of.
fn ended(finished: &Finished) -> String {
    let said = finished.stderr.preview();
    match text::head(said.trim(), LONGEST_REASON) {
        "" => finished.exit.to_string(),
        said => format!("{}: {said}", finished.exit),
    }
}

fn name(hook: &Hook) -> String {
    hook.command.join(" ")
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
