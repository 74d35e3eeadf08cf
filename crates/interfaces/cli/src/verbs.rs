//! What each verb does, one module per verb or family.

mod apart;
mod approvals;
mod audit;
pub(crate) mod auth;
mod bundles;
mod check;
mod config;
mod db;
mod demo;
mod doctor;
mod documents;
mod events;
mod goal;
mod inbox;
mod init;
mod lists;
mod mcp;
mod models;
mod report;
mod review;
mod rounds;
mod run;
mod runs;
mod serve;
mod sources;
mod subscriptions;
mod tasks;
mod tool_call;
pub(crate) mod transcripts;
mod trust;
mod undo;
mod worker;
mod workflows;

use clap::CommandFactory as _;
use formwork_protocols::OutcomeCode;
use formwork_services::{Builder, Formwork, capability::Caller, config::Layer};

use crate::{
    args::{Chat, Cli, Global, RunOptions, Verb},
    fault::Fault,
    settings::{Need, Settings},
    terminal::{Format, Terminal},
    view::{columns, visible},
};
pub(crate) use undo::trashed;

/// Does what the command line says and returns the code to end with.
///
/// # Errors
/// [`Fault`], to be told to the reader.
pub(crate) fn run(cli: Cli, terminal: &Terminal) -> Result<OutcomeCode, Fault> {
    let Cli { verb, text, run, global } = cli;
    if verb.is_some() && (text.is_some() || run != RunOptions::default()) {
        // Where it stands it would be ignored.
        return Err(Fault::usage(
            "an option or text of a run stands before the verb it belongs to",
        )
        .hint("write it behind the verb, as in `formwork run -m TEXT --usd 1`"));
    }
    match verb {
        None => match text {
            Some(word) if !word.trim().contains(char::is_whitespace) && word != "-" => {
                Err(unknown_verb(&word))
            }
            Some(text) => run::task(&global, terminal, text, run),
            None if chats(terminal, &global, &run) => {
                crate::chat::chat(&global, terminal, Chat { mode: run.mode, ..Chat::default() })
            }
            None if matches!(terminal.format, Format::Json | Format::Jsonl) => {
                Err(Fault::usage("neither a verb nor a task is given")
                    .hint("`formwork --help` lists what there is"))
            }
            None => {
                let help = Cli::command().render_help();
                terminal.text(help.to_string())?;
                Ok(OutcomeCode::Usage)
            }
        },
        Some(Verb::Run(args)) => run::run(&global, terminal, args),
        Some(Verb::Ask(args)) => run::ask(&global, terminal, args),
        Some(Verb::Edit(args)) => run::edit(&global, terminal, args),
        Some(Verb::Goal(args)) => goal::goal(&global, terminal, args),
        Some(Verb::Loop(args)) => rounds::rounds(&global, terminal, args),
        Some(Verb::Review(args)) => review::review(&global, terminal, args),
        Some(Verb::Chat(args)) => crate::chat::chat(&global, terminal, args),
        Some(Verb::Demo(args)) => demo::demo(&global, terminal, args),
        Some(Verb::Runs(args)) => runs::runs(&global, terminal, args),
        Some(Verb::Tasks(args)) => tasks::tasks(&global, terminal, args),
        Some(Verb::Workflows(args)) => workflows::workflows(&global, terminal, args),
        Some(Verb::Spend(args)) => tasks::spend(&global, terminal, args),
        Some(Verb::Undo(args)) => undo::undo(&global, terminal, args),
        Some(Verb::Apart(args)) => apart::apart(&global, terminal, args),
        Some(Verb::Trash(args)) => undo::trash(&global, terminal, args),
        Some(Verb::Replay(args)) => runs::replay(&global, terminal, args.run),
        Some(Verb::Events(args)) => events::events(&global, terminal, args),
        Some(Verb::Inbox(args)) => inbox::inbox(&global, terminal, args),
        Some(Verb::Notepad(args)) => lists::notepad(&global, terminal, args.run),
        Some(Verb::Blob(args)) => events::blob(&global, terminal, args),
        Some(Verb::Validate(args)) => documents::validate(&global, terminal, args),
        Some(Verb::Schema(args)) => documents::schema(terminal, args),
        Some(Verb::Check(args)) => check::check(&global, terminal, args),
        Some(Verb::Doctor(args)) => doctor::doctor(&global, terminal, args),
        Some(Verb::Models(args)) => models::models(&global, terminal, args),
        Some(Verb::Agents) => lists::agents(&global, terminal),
        Some(Verb::Tools(args)) => lists::tools(&global, terminal, args),
        Some(Verb::Init(args)) => init::init(&global, terminal, args),
        Some(Verb::Dispatch(args)) => subscriptions::dispatch(&global, terminal, args),
        Some(Verb::Mcp(args)) => mcp::mcp(&global, args),
        Some(Verb::Sources(args)) => sources::sources(&global, terminal, args),
        Some(Verb::Worker(args)) => worker::worker(&global, terminal, args),
        Some(Verb::Subscriptions(args)) => subscriptions::subscriptions(&global, terminal, args),
        Some(Verb::Serve(args)) => serve::serve(&global, terminal, args),
        Some(Verb::Trust(args)) => trust::trust(&global, terminal, args),
        Some(Verb::Approvals(args)) => approvals::approvals(&global, terminal, args),
        Some(Verb::Auth(args)) => auth::auth(&global, terminal, args),
        Some(Verb::Audit(args)) => audit::audit(&global, terminal, args),
        Some(Verb::Db(args)) => db::db(&global, terminal, args),
        Some(Verb::Config(args)) => config::config(&global, terminal, args),
        Some(Verb::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "formwork", &mut script);
            crate::terminal::bytes(&script)?;
            Ok(OutcomeCode::Completed)
        }
    }
}

/// Tells whether the bare command begins a chat: on a terminal, where nothing else is asked for.
fn chats(terminal: &Terminal, global: &Global, run: &RunOptions) -> bool {
    let only_mode = RunOptions { mode: run.mode, ..RunOptions::default() };
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stdin());
    let is_text = terminal.format == crate::terminal::Format::Text;
    is_terminal && terminal.stdout && is_text && !global.no_input && *run == only_mode
}

/// Returns the layer of config that `--mode` is.
pub(crate) fn mode_flag(mode: formwork_protocols::PermissionMode) -> Layer {
    run::mode_flag(mode)
}

/// Says which agents of the project have no effect in a run that would have one.
pub(crate) fn unheard(started: &formwork_services::operations::runs::Started) -> String {
    run::unheard(started)
}

/// Adds who is asked about calls that the rules leave open.
pub(crate) fn equipped(
    builder: Builder,
    asker: Option<std::sync::Arc<dyn formwork_protocols::Approver>>,
) -> Builder {
    run::equipped(builder, None, asker)
}

/// A single word is a verb that does not exist, and no task: a task in words has several.
fn unknown_verb(word: &str) -> Fault {
    let command = Cli::command();
    let verbs = command.get_subcommands().map(clap::Command::get_name);
    let fault = Fault::usage(format!("there is no verb {word:?}"));
    match formwork_protocols::document::nearest(word, verbs) {
        Some(nearest) => fault.hint(format!("did you mean `formwork {nearest}`?")),
        None => fault.hint(format!(
            "`formwork --help` lists the verbs; a task of one word is `formwork run -m {word}`"
        )),
    }
}

/// Writes a number with its noun.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// Writes a name that a model, a server or a file has made as it stands in a table: within one line, and no longer than a line.
fn cell(name: &str) -> String {
    let shown = visible(name);
    let fits = columns(&shown, CELL);
    if fits.len() < shown.len() { format!("{fits}…") } else { shown }
}

/// How many columns a name has in a table at the most.
const CELL: usize = 72;

/// Writes what may have several lines behind a word: the lines after the first below it, so that none begins where a line of
/// ours would.
fn folded(text: &str, indent: usize) -> String {
    let lines: Vec<String> = text.trim_end().lines().map(visible).collect();
    lines.join(&format!("\n{}", " ".repeat(indent)))
}

/// Carries out work that waits: one thread where one is enough.
fn block_on<T>(work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    carried_out(tokio::runtime::Builder::new_current_thread(), work)
}

/// The same with some threads, so that what takes long for one who asks holds up nobody else.
fn block_on_threads<T>(
    threads: usize,
    work: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(threads);
    carried_out(runtime, work)
}

fn carried_out<T>(
    mut runtime: tokio::runtime::Builder,
    work: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    has_room()?;
    let runtime = runtime
        .enable_all()
        .build()
        .map_err(|error| Fault::failed(anyhow::Error::from(error).context("cannot start")))?;
    let done = runtime.block_on(async {
        outlives_its_files();
        work.await
    });
    // What was given up may still hold a thread, and changes nothing any more.
    runtime.shutdown_timeout(LEAVE);
    done
}

/// Has a write that would make a file larger than this process may (`ulimit -f`) fail as one to a full disk does, in place of ending
/// the process without a word. It is heard and not ignored: what is ignored would be so in every program that is started.
fn outlives_its_files() {
    use tokio::signal::unix::{SignalKind, signal};
    // Where it cannot be heard, it is as it was.
    let _ = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()));
}

/// How many files a process has to be allowed to open: a log, its readers, and a few programs with their pipes. Whoever has
/// fewer is told so at once, in place of by whatever comes to need one more.
const FILES: u64 = 64;

/// Sees to it that as many files can be opened as a verb needs.
fn has_room() -> Result<(), Fault> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let is_enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= FILES);
    let wanted = Rlimit { current: Some(FILES), maximum };
    if is_enough(current) || (is_enough(maximum) && setrlimit(Resource::Nofile, wanted).is_ok()) {
        return Ok(());
    }
    let limit = current.unwrap_or_default();
    Err(Fault::setup(anyhow::anyhow!(
        "no more than {limit} files may be open at once, and {FILES} are needed"
    ))
    .hint("raise the limit, as by `ulimit -n 1024`"))
}

/// Makes a folder for a while.
fn temporary() -> Result<tempfile::TempDir, Fault> {
    let made = tempfile::Builder::new().prefix("formwork-").tempdir();
    made.map_err(|error| {
        Fault::setup(anyhow::Error::from(error).context("cannot make a temporary folder"))
            .hint("set TMPDIR to a folder that is there and can be written")
    })
}

/// How long a thread is waited for whose work nobody waits for.
const LEAVE: std::time::Duration = std::time::Duration::from_millis(500);

/// Opens Formwork as the settings say.
async fn open(settings: &Settings) -> Result<Formwork, Fault> {
    builder(settings).build().await.map_err(Fault::from)
}

fn builder(settings: &Settings) -> Builder {
    let mut builder = Builder::new(&settings.workspace)
        .state(&settings.state)
        .configured(&settings.configured)
        .config(settings.layered.config.clone())
        .environment(settings.environment.clone());
    if let Some(project) = settings.project.as_ref().filter(|it| !it.reaching.is_empty()) {
        builder = builder.project(project.brought());
    }
    if let Ok(program) = std::env::current_exe() {
        builder = builder.launcher(program);
    }
    builder
}

/// Reads the settings, opens Formwork and asks it something.
fn with<T, F>(
    global: &Global,
    flags: Vec<Layer>,
    need: Need,
    work: impl FnOnce(Formwork, Caller, Settings) -> F,
) -> Result<T, Fault>
where
    F: Future<Output = Result<T, Fault>>,
{
    let settings = Settings::load(global, flags, need)?;
    with_settings(settings, |builder, _| builder, work)
}

/// The same for a verb that only reads: it makes nothing, and reads what it may not write.
fn reading<T, F>(
    global: &Global,
    need: Need,
    work: impl FnOnce(Formwork, Caller, Settings) -> F,
) -> Result<T, Fault>
where
    F: Future<Output = Result<T, Fault>>,
{
    let settings = Settings::load(global, Vec::new(), need)?;
    with_settings(settings, |builder, _| builder.reading(), work)
}

/// The same for a verb of which some actions only read.
fn reading_if<T, F>(
    reads: bool,
    global: &Global,
    need: Need,
    work: impl FnOnce(Formwork, Caller, Settings) -> F,
) -> Result<T, Fault>
where
    F: Future<Output = Result<T, Fault>>,
{
    match reads {
        true => reading(global, need, work),
        false => with(global, Vec::new(), need, work),
    }
}

/// The same, with the settings read and more said to the builder.
pub(crate) fn with_settings<T, F>(
    settings: Settings,
    more: impl FnOnce(Builder, &Settings) -> Builder,
    work: impl FnOnce(Formwork, Caller, Settings) -> F,
) -> Result<T, Fault>
where
    F: Future<Output = Result<T, Fault>>,
{
    block_on(async {
        let builder = more(builder(&settings), &settings);
        let formwork = builder.build().await?;
        let caller = Caller::owner(settings.principal.clone());
        let done = work(formwork.clone(), caller, settings).await;
        formwork.leave().await;
        done
    })
}

impl From<formwork_services::Error> for Fault {
    fn from(error: formwork_services::Error) -> Self {
        let (code, hint) = (error.code(), error.hint());
        let fault = match error {
            formwork_services::Error::Documents(faults) => Self::documents(faults),
            other => Self { code, ..Self::failed(other) },
        };
        match hint {
            Some(hint) => fault.hint(hint),
            None => fault,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_somebody_made_cannot_forge_a_line_of_a_table() {
        let forged = "fs_read\n  agents                       $0 in 0 calls";

        assert_eq!(cell(forged).lines().count(), 1);
        assert_eq!(cell("fs.read"), "fs.read");
        assert_eq!(cell(&"f".repeat(100_000)).chars().count(), CELL + 1);
        assert_eq!(folded("one\ntwo\u{1b}[2J\n", 4), "one\n    two\u{fffd}[2J");
    }
}
