//! `formwork run`, `ask` and `edit`: a run, shown while it goes on.

use std::{
    io::{self, Read as _, Write as _},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use formwork_protocols::{
    Approver, Clock as _, Event, EventBody, Live as Happening, OutcomeCode, PermissionMode,
    Position, RunId, RunOutcome, SystemClock, event::CommitMade, store::Selection,
};
use formwork_services::{
    Builder, Formwork,
    capability::Caller,
    config::{Layer, Origin},
    operations::runs::{Resume, ResumeParams, Start, StartParams, Started, Work},
};
use futures::{StreamExt as _, stream::BoxStream};
use serde_json::{Value, json};
use tokio::{
    runtime::Handle,
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
    task::JoinSet,
};

use super::report::{self, Report};
use crate::{
    args::{Global, OneTask, Run, RunOptions, SandboxArg},
    asking::{self, Desk, Open, Reading},
    fault::Fault,
    mentions::mentions,
    settings::{Need, Settings},
    terminal::{Format, Progress, Terminal, complain, harmless},
    view::{Live, told_of_the_log, visible},
};

/// How often the live tree is drawn anew while nothing happens, so that its times go on.
const TICK: Duration = Duration::from_millis(250);

pub(super) fn run(global: &Global, terminal: &Terminal, args: Run) -> Result<OutcomeCode, Fault> {
    let Run { workflow, message, options } = args;
    match (workflow, message) {
        (Some(workflow), _) => begin(global, terminal, Task::Workflow(workflow), options, None),
        (None, Some(message)) => task(global, terminal, message, options),
        (None, None) => Err(Fault::usage("name a workflow, or give a task with -m")),
    }
}

/// One task in words, in the mode that is configured; unattended work needs one that can work.
pub(super) fn task(
    global: &Global,
    terminal: &Terminal,
    text: String,
    options: RunOptions,
) -> Result<OutcomeCode, Fault> {
    begin(global, terminal, Task::Words(text), options, None)
}

pub(super) fn ask(
    global: &Global,
    terminal: &Terminal,
    args: OneTask,
) -> Result<OutcomeCode, Fault> {
    one(global, terminal, args, PermissionMode::Ask)
}

pub(super) fn edit(
    global: &Global,
    terminal: &Terminal,
    args: OneTask,
) -> Result<OutcomeCode, Fault> {
    one(global, terminal, args, PermissionMode::Edit)
}

fn one(
    global: &Global,
    terminal: &Terminal,
    args: OneTask,
    mode: PermissionMode,
) -> Result<OutcomeCode, Fault> {
    let OneTask { text, message, options } = args;
    let verb = mode.as_str();
    if options.commit && mode < PermissionMode::Edit {
        return Err(Fault::usage(format!(
            "`formwork {verb}` changes nothing that could be committed"
        )));
    }
    if options.mode.is_some_and(|other| other != mode) {
        return Err(Fault::usage(format!(
            "`formwork {verb}` has the mode {verb}; leave --mode out"
        )));
    }
    let text = text.or(message).ok_or_else(|| Fault::usage("say what to do"))?;
    begin(global, terminal, Task::Words(text), options, Some(mode))
}

/// What is to be run, as the command line names it.
enum Task {
    Workflow(String),
    Words(String),
    /// Words that came by standard input, which somebody else may have written: no file is shown because they name it.
    Piped(String),
}

fn begin(
    global: &Global,
    terminal: &Terminal,
    task: Task,
    options: RunOptions,
    mode: Option<PermissionMode>,
) -> Result<OutcomeCode, Fault> {
    let flags = flags(&options, mode)?;
    let task = match task {
        Task::Words(text) if text == "-" => Task::Piped(standard_input()?),
        // A model would be paid to ask what is meant.
        Task::Words(text) if text.trim().is_empty() => {
            return Err(Fault::usage("the task has no words"));
        }
        other => other,
    };
    let settings = Settings::load(global, flags, Need::Effect)?;
    let (asker, desk) = asking::open(global, terminal, &settings.principal).unzip();
    let more = |builder, _: &Settings| equipped(builder, options.record.as_deref(), asker);
    super::with_settings(settings, more, async |formwork, caller, settings| {
        let params =
            StartParams { mode: mode.or(options.mode), ..params(&settings, task, &options)? };
        start(&formwork, &caller, terminal, params, desk).await
    })
}

/// Returns the layer of config that `--mode` is.
pub(super) fn mode_flag(mode: PermissionMode) -> Layer {
    Layer::set(Origin::Flag { flag: "--mode".to_owned() }, "permissions.mode", json!(mode))
}

/// Adds what only runs need: where traffic is kept, and who is asked.
pub(super) fn equipped(
    mut builder: Builder,
    record: Option<&Path>,
    asker: Option<Arc<dyn Approver>>,
) -> Builder {
    if let Some(folder) = record {
        builder = builder.record(folder);
    }
    match asker {
        Some(asker) => builder.approver(asker),
        None => builder,
    }
}

/// Starts a run and shows it to its end.
pub(super) async fn start(
    formwork: &Formwork,
    caller: &Caller,
    terminal: &Terminal,
    params: StartParams,
    desk: Option<Desk>,
) -> Result<OutcomeCode, Fault> {
    let mut interrupts = Interrupts::listen()?;
    // Watches before it starts, so that nothing is missed between the two.
    let happening = formwork.store().watch();
    let started = tokio::select! {
        biased;
        () = interrupts.next() => {
            let told = anyhow!("interrupted before anything was begun");
            return Err(Fault { code: OutcomeCode::Interrupted, ..Fault::failed(told) });
        }
        started = begun(formwork, caller, params) => started?,
    };
    if terminal.format == Format::Text {
        for (agent, file) in &started.overridden {
            let told = format!("agent {agent} is {file}, in place of the built-in one\n");
            complain(&harmless(&told));
        }
        complain(&unheard(&started));
    }
    for note in &started.notes {
        complain(&harmless(&format!("{note}\n")));
    }
    let shown = Shown::new(terminal, started.run);
    let outcome = follow(formwork, caller, shown, happening, (interrupts, desk)).await?;
    Ok(outcome.code)
}

/// Says, a line each, which agents of the project have no effect in a run that would have one.
pub(crate) fn unheard(started: &Started) -> String {
    let told = started.untrusted.iter().map(|(agent, file)| {
        format!("agent {agent} is the built-in one: {file} is not trusted, see `formwork trust`\n")
    });
    harmless(&told.collect::<String>()).into_owned()
}

/// Begins a run beside the thread that hears of signals: to read large documents takes a while. One that is dropped before the run
/// is there begins none.
async fn begun(
    formwork: &Formwork,
    caller: &Caller,
    params: StartParams,
) -> Result<Started, Fault> {
    let (wanted, unwanted) = oneshot::channel::<()>();
    let (formwork, caller) = (formwork.clone(), caller.clone());
    let handle = Handle::current();
    let beginning = move || {
        handle.block_on(async {
            tokio::select! {
                biased;
                _ = unwanted => None,
                started = formwork.call::<Start>(&caller, params) => Some(started),
            }
        })
    };
    let begun = tokio::task::spawn_blocking(beginning).await;
    drop(wanted);
    match begun {
        Ok(Some(started)) => Ok(started?),
        Ok(None) => Err(Fault::failed(anyhow!("the run was not begun"))),
        Err(error) => Err(Fault::failed(anyhow::Error::from(error).context("cannot begin"))),
    }
}

/// Takes a run up again and shows it to its end.
pub(super) async fn resume(
    formwork: &Formwork,
    caller: &Caller,
    terminal: &Terminal,
    run: RunId,
    desk: Option<Desk>,
) -> Result<OutcomeCode, Fault> {
    let interrupts = Interrupts::listen()?;
    let mut shown = Shown::new(terminal, run);
    for event in since(formwork, run, shown.seen).await? {
        shown.seen = event.position;
        shown.view.absorb(&event);
    }
    let happening = formwork.store().watch();
    formwork.call::<Resume>(caller, ResumeParams { run }).await?;
    let outcome = follow(formwork, caller, shown, happening, (interrupts, desk)).await?;
    Ok(outcome.code)
}

/// Shows a run while it goes on, ends it on Ctrl-C, and prints its outcome.
async fn follow(
    formwork: &Formwork,
    caller: &Caller,
    mut shown: Shown<'_>,
    mut happening: BoxStream<'static, Happening>,
    (mut interrupts, mut desk): (Interrupts, Option<Desk>),
) -> Result<RunOutcome, Fault> {
    let run = shown.run;
    let mut tick = tokio::time::interval(TICK);
    let mut interrupted = false;
    // While somebody is asked, the screen is theirs.
    let mut open: Option<Open> = None;
    let finished = formwork.wait(run);
    tokio::pin!(finished);
    let mut leaver = leaves(formwork, run)?;
    let mut away = formwork.away();
    let mut waits = false;
    let outcome = loop {
        tokio::select! {
            biased;
            Some(next) = happening.next(), if open.is_none() => {
                shown.happened(formwork, next).await.map_err(|fault| unread(run, fault))?;
            }
            outcome = &mut finished => break outcome?,
            Ok(()) = away.changed() => {
                let why = away.borrow_and_update().get(&run).cloned();
                if std::mem::replace(&mut waits, why.is_some()) || waits {
                    shown.view.hold()?;
                    complain(&told_of_the_log(why.as_deref()));
                }
            }
            heard = heard(&mut desk, &mut open) => match heard {
                Heard::Asked(question) => {
                    shown.view.hold()?;
                    complain(&question);
                }
                Heard::Typed(told) => complain(&told),
            },
            () = interrupts.next() => {
                if interrupted {
                    // The second time means now; the log has all that was recorded until here.
                    // To close it may wait for the log in its turn.
                    leaver.detach_all();
                    return Err(interrupted_twice(run));
                }
                interrupted = true;
                formwork.interrupt(run);
            }
            _ = tick.tick(), if open.is_none() => if shown.terminal.format == Format::Text {
                shown.view.tick(SystemClock.now())?;
            }
        }
    };
    leaver.abort_all();
    // What was recorded last may not have been shown yet.
    while let Some(Some(next)) = futures::FutureExt::now_or_never(happening.next()) {
        match shown.happened(formwork, next).await {
            Err(fault) if fault.is_broken_pipe() => break,
            happened => happened?,
        }
    }
    if shown.terminal.format == Format::Text {
        shown.view.finish(SystemClock.now())?;
    }
    let report = report::of(formwork, caller, run).await?;
    match conclude(shown.terminal, &outcome, &shown, report.as_ref()) {
        // The run has ended as it has, whether or not somebody reads of it.
        Err(fault) if fault.is_broken_pipe() => {}
        concluded => concluded?,
    }
    Ok(outcome)
}

/// What came from where a person sits, and what is to be said there.
enum Heard {
    Asked(String),
    Typed(String),
}

/// Waits for the next question, for ever where nobody is asked; while one is open, until it is answered or taken
/// back, or something was typed that is no answer.
async fn heard(desk: &mut Option<Desk>, open: &mut Option<Open>) -> Heard {
    let Some(desk) = desk else { return std::future::pending().await };
    let Some(asked) = open.as_mut() else {
        let asked = desk.question().await;
        let question = format!("{}> ", asking::question(&asked.request));
        *open = Some(asked);
        return Heard::Asked(question);
    };
    let line = tokio::select! {
        biased;
        () = asked.taken_back() => {
            *open = None;
            return Heard::Typed("\n  it is not asked any more\n".to_owned());
        }
        line = desk.line() => line,
    };
    Heard::Typed(match asking::read(line.as_deref(), &asked.request) {
        Reading::Answer(approval) => {
            if let Some(asked) = open.take() {
                asked.answer(approval);
            }
            String::new()
        }
        Reading::Show => format!("{}> ", asking::whole(&asked.request)),
        Reading::Unclear => "  answer y, s, a, r, n or v\n> ".to_owned(),
    })
}

/// Tells of events that nobody reads any more while their run goes on: it is broken off, and that is no
/// success.
fn unread(run: RunId, fault: Fault) -> Fault {
    if !fault.is_broken_pipe() {
        return fault;
    }
    let told = anyhow!("nobody reads the events of run {run} any more; it is paused");
    Fault { code: OutcomeCode::Interrupted, ..Fault::failed(told) }
        .hint(format!("take it up again with `formwork runs resume {run}`"))
}

/// Reads what happened in a run after a position.
async fn since(formwork: &Formwork, run: RunId, mut after: Position) -> Result<Vec<Event>, Fault> {
    let selection = Selection { run: Some(run), ..Selection::default() };
    let mut events = Vec::new();
    loop {
        let page = formwork
            .store()
            .read(after, &selection, 1_000)
            .await
            .map_err(formwork_services::Error::from)?;
        let Some(last) = page.last() else { return Ok(events) };
        after = last.position;
        events.extend(page);
    }
}

/// A run that is shown, and how far it was.
struct Shown<'a> {
    terminal: &'a Terminal,
    view: Live<Progress>,
    run: RunId,
    /// Where the last event stands that was shown.
    seen: Position,
    /// What the last task said that claimed to be done.
    answer: String,
    /// Whether words of a model were shown as they came.
    spoke: bool,
    /// The commits that were made.
    commits: Vec<CommitMade>,
}

impl<'a> Shown<'a> {
    /// Returns a run of which nothing was shown yet.
    fn new(terminal: &'a Terminal, run: RunId) -> Self {
        let view = Live::new(Progress::default(), terminal.style());
        Self {
            terminal,
            view,
            run,
            seen: Position::default(),
            answer: String::new(),
            spoke: false,
            commits: Vec::new(),
        }
    }

    /// Shows one thing that happened, if it did in this run.
    async fn happened(&mut self, formwork: &Formwork, next: Happening) -> Result<(), Fault> {
        match next {
            Happening::Event(event) if event.run == self.run => self.event(&event),
            Happening::Delta(delta) if delta.run == self.run => {
                if self.terminal.format == Format::Text {
                    self.spoke = true;
                    self.view.delta(&delta, SystemClock.now())?;
                }
                Ok(())
            }
            Happening::Event(_) | Happening::Delta(_) => Ok(()),
            // Whoever reads slowly, as a pager does, still reads all of it.
            Happening::Lagged(_) => {
                for event in since(formwork, self.run, self.seen).await? {
                    self.event(&event)?;
                }
                Ok(())
            }
        }
    }

    fn event(&mut self, event: &Event) -> Result<(), Fault> {
        if event.position <= self.seen {
            return Ok(());
        }
        self.seen = event.position;
        if let EventBody::TaskMoved(moved) = &event.body
            && let Some(claim) = &moved.claim
        {
            self.answer.clone_from(&claim.summary);
        }
        if let EventBody::CommitMade(made) = &event.body {
            self.commits.push(made.clone());
        }
        match self.terminal.format {
            Format::Jsonl => crate::terminal::line(event)?,
            Format::Text => self.view.event(event)?,
            Format::Quiet | Format::Json => {}
        }
        Ok(())
    }
}

/// Prints what came of a run: the answer where it was not streamed to the same terminal, and the outcome.
fn conclude(
    terminal: &Terminal,
    outcome: &RunOutcome,
    shown: &Shown<'_>,
    report: Option<&Report>,
) -> Result<(), Fault> {
    let (answer, commits) = (shown.answer.as_str(), &shown.commits);
    let mut document = json!({ "outcome": outcome, "answer": answer });
    if !commits.is_empty() {
        document["commits"] = json!(commits);
    }
    if let Some(report) = report {
        document[report.key()] = report.json();
    }
    match terminal.format {
        Format::Json | Format::Jsonl => crate::terminal::document(&document)?,
        Format::Quiet => terminal.result(&document, || format!("{outcome}\n"))?,
        Format::Text => {
            let mut text = report.map(Report::told).unwrap_or_default();
            // A claim that was refused is no answer; `formwork runs show` tells what became of it.
            let holds = outcome.code == OutcomeCode::Completed;
            let was_shown = shown.spoke && terminal.streams();
            if holds && !answer.is_empty() && !was_shown {
                text.push_str(answer.trim_end());
                text.push('\n');
            }
            text.extend(commits.iter().map(formwork_services::told_of_commit));
            text.push_str(&format!("{outcome}\n"));
            terminal.text(harmless(&text))?;
        }
    }
    io::stdout().flush()?;
    Ok(())
}

fn interrupted_twice(run: RunId) -> Fault {
    let fault = Fault::failed(anyhow!("interrupted twice"));
    Fault { code: OutcomeCode::Interrupted, ..fault }
        .hint(format!("take it up again with `formwork runs resume {run}`"))
}

/// Hears Ctrl-C beside whoever shows a run, who may himself be waiting for a log that does not answer. The first ends the run, and
/// the second the process, where that has not ended by itself a moment later.
fn leaves(formwork: &Formwork, run: RunId) -> Result<JoinSet<()>, Fault> {
    let (mut interrupts, formwork) = (Interrupts::listen()?, formwork.clone());
    let mut leaver = JoinSet::new();
    leaver.spawn(async move {
        interrupts.next().await;
        formwork.interrupt(run);
        interrupts.next().await;
        tokio::time::sleep(super::LEAVE).await;
        complain(&interrupted_twice(run).render(false));
        std::process::exit(i32::from(OutcomeCode::Interrupted.exit_code()));
    });
    Ok(leaver)
}

/// Ctrl-C, being told to end, and a terminal that was closed. It listens from its making on: one that came while nobody waited
/// is told to who waits next.
pub(super) struct Interrupts {
    interrupted: Signal,
    terminated: Signal,
    hung_up: Signal,
}

impl Interrupts {
    /// Begins to listen; from here on these signals no longer end the process by themselves.
    pub(super) fn listen() -> Result<Self, Fault> {
        let listen = |kind| signal(kind).context("cannot listen to signals").map_err(Fault::failed);
        Ok(Self {
            interrupted: listen(SignalKind::interrupt())?,
            terminated: listen(SignalKind::terminate())?,
            hung_up: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for the next.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupted.recv() => {}
            _ = self.terminated.recv() => {}
            _ = self.hung_up.recv() => {}
        }
    }
}

/// Returns the layers of config that the options are.
pub(super) fn flags(
    options: &RunOptions,
    mode: Option<PermissionMode>,
) -> Result<Vec<Layer>, Fault> {
    let mut layers = Vec::new();
    let mut set = |flag: &str, key: &str, value: Value| {
        layers.push(Layer::set(Origin::Flag { flag: flag.to_owned() }, key, value));
    };
    if let Some(mode) = mode {
        set(&format!("formwork {}", mode.as_str()), "permissions.mode", json!(mode));
    } else if let Some(mode) = options.mode {
        set("--mode", "permissions.mode", json!(mode));
    }
    if let Some(usd) = options.usd {
        set("--usd", "budget.usd", json!(usd));
    }
    if let Some(rounds) = options.rounds {
        set("--rounds", "budget.rounds", json!(rounds));
    }
    if !options.allow.is_empty() {
        set("--allow", "permissions.exec", json!(options.allow));
    }
    if let Some(sandbox) = options.sandbox {
        let word = match sandbox {
            SandboxArg::On => "on",
            SandboxArg::Auto => "auto",
            SandboxArg::Off => "off",
        };
        set("--sandbox", "sandbox", json!(word));
    }
    Ok(layers)
}

/// Returns what a run is started with.
fn params(settings: &Settings, task: Task, options: &RunOptions) -> Result<StartParams, Fault> {
    let vars = variables(&options.vars)?;
    let checks = options
        .checks
        .iter()
        .map(|check| {
            shlex::split(check)
                .filter(|words| !words.is_empty())
                .ok_or_else(|| Fault::usage(format!("--check {check:?} is not a command")))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let work = match task {
        Task::Words(_) | Task::Piped(_) if !vars.is_empty() => {
            return Err(Fault::usage("--var is for a workflow; a task in words has no variables"));
        }
        Task::Words(ref prompt) | Task::Piped(ref prompt) => {
            let attach = match &task {
                Task::Piped(_) => Vec::new(),
                _ => {
                    let named = mentions(prompt, &settings.workspace);
                    for missed in &named.missed {
                        complain(&format!("{}\n", visible(missed)));
                    }
                    named.files
                }
            };
            let (agent, spec) = (options.agent.clone(), options.spec.clone());
            Work::Task { prompt: prompt.clone(), agent, checks, spec, attach }
        }
        Task::Workflow(name) => {
            if !checks.is_empty() || options.agent.is_some() || options.spec.is_some() {
                return Err(Fault::usage(
                    "--check, --spec and --agent are for a task in words; a workflow has its own",
                ));
            }
            let (source, text) = workflow_text(settings, &name)?;
            Work::Workflow { source, text }
        }
    };
    let (model, width, commit) = (options.model.clone(), options.width, options.commit);
    let headless = options.headless;
    Ok(StartParams { work, vars, model, width, commit, mode: None, headless })
}

/// Reads values of variables, as in NAME=VALUE.
pub(super) fn variables(pairs: &[String]) -> Result<serde_json::Map<String, Value>, Fault> {
    let mut vars = serde_json::Map::new();
    for pair in pairs {
        let (name, value) = pair
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| Fault::usage(format!("--var {pair:?} is not NAME=VALUE")))?;
        vars.insert(name.to_owned(), Value::String(value.to_owned()));
    }
    Ok(vars)
}

/// Reads a workflow, and returns where it was found with its text.
pub(super) fn workflow_text(settings: &Settings, name: &str) -> Result<(String, String), Fault> {
    let path = workflow_path(settings, name)?;
    let text = formwork_services::reading::document_of(&settings.workspace, &path)
        .with_context(|| format!("cannot read workflow {}", path.display()))
        .map_err(Fault::setup)?;
    Ok((path.display().to_string(), text))
}

/// Finds a workflow: a file, or a name below .formwork/workflows.
fn workflow_path(settings: &Settings, name: &str) -> Result<std::path::PathBuf, Fault> {
    let file = std::path::PathBuf::from(name);
    if file.is_file() {
        return Ok(file);
    }
    let folder = settings.workspace.join(".formwork/workflows");
    let named = folder.join(format!("{name}.toml"));
    if named.is_file() {
        return Ok(named);
    }
    let known: Vec<String> = std::fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".toml").map(str::to_owned))
        .collect();
    let fault = Fault::setup(anyhow!(
        "there is no workflow {name}: neither a file of that name nor {}",
        named.display()
    ));
    Err(match formwork_protocols::document::nearest(name, known.iter().map(String::as_str)) {
        Some(nearest) => fault.hint(format!("did you mean {nearest}?")),
        None if known.is_empty() => fault.hint("`formwork init` writes one to begin with"),
        None => fault.hint(format!("there is {}", known.join(", "))),
    })
}

/// Reads a text of a person's size, and no more of what has no end.
pub(super) fn standard_input() -> Result<String, Fault> {
    let most = formwork_services::reading::LARGEST;
    let unread = |error: io::Error| {
        Fault::setup(anyhow::Error::from(error).context("cannot read standard input"))
    };
    let mut bytes = Vec::new();
    io::stdin().take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(unread)?;
    if bytes.len() as u64 > most {
        return Err(Fault::usage(format!("standard input has more than {most} bytes"))
            .hint("put it into a file of the workspace, and say there where it is"));
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| unread(io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8")))?;
    if text.trim().is_empty() {
        return Err(Fault::usage("standard input is empty"));
    }
    Ok(text)
}
