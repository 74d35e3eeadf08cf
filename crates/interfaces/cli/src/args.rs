//! What may be written on the command line.
//!
//! Only the verb that is asked for is put together, for a start would wait for all the others. What a struct of arguments
//! says of itself would then stand in the help in place of what its verb says, so it is said in comments.
#![expect(missing_docs, reason = "see above")]

use std::{ffi::OsString, net::SocketAddr, path::PathBuf};

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use formwork_protocols::{
    AgentName, BlobHash, CredentialId, EventName, ItemId, ModelRef, NameError, PermissionMode,
    Position, RunId, Scope, SourceName, Span, SubscriptionName, ToolName, Usd, WorkerLabel,
    WorkerName, money::UsdError,
};
use formwork_services::{PublicKey, operations::runs::Point};
use formwork_worker::MAX_SLOTS;

/// Structured programming for AI agents: work with entry checks, exit checks, a budget and a record.
#[derive(Debug, Parser)]
#[command(
    name = "formwork",
    version,
    max_term_width = 100,
    subcommand_negates_reqs = true,
    // How a task in words runs is told by `formwork run --help`; here it would fill the screen.
    mut_arg("mode", |arg| arg.hide(true)),
    mut_arg("agent", |arg| arg.hide(true)),
    mut_arg("model", |arg| arg.hide(true)),
    mut_arg("usd", |arg| arg.hide(true)),
    mut_arg("rounds", |arg| arg.hide(true)),
    mut_arg("checks", |arg| arg.hide(true)),
    mut_arg("allow", |arg| arg.hide(true)),
    mut_arg("vars", |arg| arg.hide(true)),
    mut_arg("width", |arg| arg.hide(true)),
    mut_arg("sandbox", |arg| arg.hide(true)),
    mut_arg("commit", |arg| arg.hide(true)),
    mut_arg("record", |arg| arg.hide(true)),
    after_help = "Exit codes: 0 completed · 2 refused by a check, a budget or a rule · 3 setup · 64 usage · 130 interrupted · 1 anything else"
)]
pub struct Cli {
    /// What to do now; without one, TEXT is the task of a run.
    #[command(subcommand)]
    pub verb: Option<Verb>,
    /// One task, as `formwork run -m TEXT`, with the same options.
    #[arg(value_name = "TEXT")]
    pub text: Option<String>,
    /// How that task runs.
    #[command(flatten)]
    pub run: RunOptions,
    /// What holds for every verb.
    #[command(flatten)]
    pub global: Global,
}

impl Cli {
    /// Reads a command line, the name of the program first.
    ///
    /// # Errors
    /// What is wrong with it, or what it asks for: the help, the version.
    pub fn read(line: &[OsString]) -> Result<Self, clap::Error> {
        // What cannot be read so is told of by what knows all verbs.
        Self::of_one_verb(line).map_or_else(|| Self::try_parse_from(line), Ok)
    }

    /// Reads a line whose first word is a verb, without the other verbs: to hand what holds for every verb down to each
    /// of them is most of what reading costs.
    fn of_one_verb(line: &[OsString]) -> Option<Self> {
        let whole = Self::command();
        let verb = whole.find_subcommand(line.get(1)?)?.clone();
        let bare = clap::Command::new("formwork").subcommand_negates_reqs(true);
        let narrow = bare.args(whole.get_arguments().cloned()).subcommand(verb);
        let matches = narrow.try_get_matches_from(line).ok()?;
        Self::from_arg_matches(&matches).ok()
    }
}

/// What holds for every verb.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// The workspace; the present folder where absent.
    #[arg(short = 'C', long, global = true, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// A config file that is trusted as it stands, in place of the project's.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where the log is, as sqlite:///FILE or postgres://…
    #[arg(long, global = true, value_name = "URL")]
    pub database_url: Option<String>,
    /// One JSON document on standard output, and nothing else there.
    #[arg(long, global = true, conflicts_with = "jsonl")]
    pub json: bool,
    /// Each event as a line of JSON on standard output, the outcome last.
    #[arg(long, global = true)]
    pub jsonl: bool,
    /// Only the outcome.
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Never ask: what a person would be asked about is refused, and says how to allow it.
    #[arg(long, global = true)]
    pub no_input: bool,
    /// Whether to use colours: auto, always or never.
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true,
        hide_default_value = true
    )]
    pub color: When,
}

/// Whether to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Verb {
    /// Run a workflow, or one task, to its checked end.
    Run(Run),
    /// Answer a question about the workspace; changes nothing.
    Ask(OneTask),
    /// Make a change within the scope, and nothing beyond it.
    Edit(OneTask),
    /// Work on a task in rounds of edit, test, lint and review, until all of it passes.
    Loop(Loop),
    /// Reach a goal by a plan: tasks done apart, each merged once it passes with the others.
    Goal(Goal),
    /// Have a change judged: 0 only where it is approved, 3 where no reviewer answers.
    Review(Review),
    /// Talk with an agent at the terminal; also what `formwork` alone does there.
    Chat(Chat),
    /// Watch a broken repository being fixed; needs no set-up.
    Demo(Demo),
    /// List, show, pause, resume, abort, fork, rewind, export and import runs.
    #[command(subcommand)]
    Runs(Runs),
    /// List the tasks of a run, or show one with its checks and their evidence.
    #[command(subcommand)]
    Tasks(Tasks),
    /// Tell what was spent, by task, agent, model, tool and class of token.
    Spend(Spend),
    /// Take back what a run has changed, and nothing else.
    Undo(Undo),
    /// List, merge or give up what tasks did in workspaces of their own.
    #[command(subcommand)]
    Apart(Apart),
    /// List, restore and remove for good what agents have deleted.
    #[command(subcommand)]
    Trash(Trash),
    /// Carry a run out again from its recorded answers, offline, and name the first divergence.
    Replay(Replay),
    /// Print the events of a run, or of all; `events fire` tells runs that something has happened.
    Events(Events),
    /// Answer what runs ask.
    #[command(subcommand)]
    Inbox(Inbox),
    /// Print what the tasks of a run noted for each other.
    Notepad(Notepad),
    /// Follow the log, and do what subscriptions say by what happens.
    Dispatch(Dispatch),
    /// Carry out calls of runs elsewhere, in this workspace and by its rules.
    Worker(Worker),
    /// List subscriptions, show where one stands, have what it gave up tried again.
    #[command(subcommand)]
    Subscriptions(Subscriptions),
    /// Serve a client of MCP over standard input and output, until it goes.
    Mcp(Mcp),
    /// List who outside may tell of what happens, show what came from one.
    #[command(subcommand)]
    Sources(Sources),
    /// Print the whole of an output or message by its hash.
    Blob(Blob),
    /// Check documents and list every fault; runs nothing.
    Validate(Validate),
    /// Print the JSON Schema of a document.
    Schema(Schema),
    /// Find keys and personal data; ends with 2 where there are any, or where it could not look.
    Check(Check),
    /// Find what would break a run, and say what to do.
    Doctor(Doctor),
    /// List models and what they cost, look at one closely, have one fetched.
    Models(Models),
    /// List the agents of the workspace and the built-in ones.
    Agents,
    /// List and check workflows, or show what one would do and could cost at the most.
    #[command(subcommand)]
    Workflows(Workflows),
    /// List the tools, show one, or call one by hand.
    Tools(Tools),
    /// Write a commented starting set of documents.
    Init(Init),
    /// Let the project's config and tools take effect, as they stand now.
    Trust(Trust),
    /// List, or take back, the calls that were approved for good in this workspace.
    #[command(subcommand)]
    Approvals(Approvals),
    /// Serve the workspace over HTTP, on this machine unless told otherwise.
    Serve(Serve),
    /// Say who may ask a server and for what: give, list, rotate and revoke credentials.
    #[command(subcommand)]
    Auth(Auth),
    /// Check the log, and sign what it is.
    #[command(subcommand)]
    Audit(Audit),
    /// Look after the store: what it holds, whether it is whole, what leaves it.
    #[command(subcommand)]
    Db(Db),
    /// Show the config.
    #[command(subcommand)]
    Config(Config),
    /// Print completions for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

// How a run is carried out.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct RunOptions {
    /// What agents may do: ask, plan, edit or auto.
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub mode: Option<PermissionMode>,
    /// The agent of a one-task run.
    #[arg(long, value_name = "NAME")]
    pub agent: Option<AgentName>,
    /// The model of every agent, as provider/model.
    #[arg(long, value_name = "MODEL", value_parser = model)]
    pub model: Option<ModelRef>,
    /// The most that the run may cost, in US dollars.
    #[arg(long, value_name = "AMOUNT", value_parser = amount, allow_hyphen_values = true)]
    pub usd: Option<Usd>,
    /// The most model calls.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    pub rounds: Option<u32>,
    /// An exit check of a one-task run, such as "cargo test". May be repeated.
    #[arg(long = "check", value_name = "COMMAND")]
    pub checks: Vec<String>,
    /// A file of requirements that a one-task run is held to, such as SPEC.md.
    #[arg(long, value_name = "FILE")]
    pub spec: Option<String>,
    /// A command that agents may run, such as "cargo test *". May be repeated.
    #[arg(long = "allow", value_name = "PATTERN")]
    pub allow: Vec<String>,
    /// A value of a workflow's variable. May be repeated.
    #[arg(long = "var", value_name = "NAME=VALUE")]
    pub vars: Vec<String>,
    /// How many tasks run at once.
    #[arg(long, value_name = "N", value_parser = at_once, allow_negative_numbers = true)]
    pub width: Option<usize>,
    /// Whether processes are confined: on, auto or off.
    #[arg(long, value_name = "MODE", hide_possible_values = true)]
    pub sandbox: Option<SandboxArg>,
    /// Commit what the run has changed once it has completed, and nothing else.
    #[arg(long)]
    pub commit: bool,
    /// Nobody is there to be asked: a decision takes what it assumes at once, and fails where it assumes nothing.
    #[arg(long)]
    pub headless: bool,
    /// Keep what models are asked and answer in this folder, without keys, to be replayed by a
    /// provider of kind "recorded".
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
}

/// Whether processes are confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "the words of the config")]
pub enum SandboxArg {
    On,
    Auto,
    Off,
}

// `formwork run`
#[derive(Debug, Args)]
pub struct Run {
    /// A workflow: a file, or a name below .formwork/workflows.
    #[arg(
        value_name = "WORKFLOW",
        required_unless_present = "message",
        conflicts_with = "message"
    )]
    pub workflow: Option<String>,
    /// One task in words; - reads it from standard input.
    #[arg(short, long, value_name = "TEXT")]
    pub message: Option<String>,
    /// How it runs.
    #[command(flatten)]
    pub options: RunOptions,
}

// `formwork ask`, `formwork edit`
#[derive(Debug, Args)]
pub struct OneTask {
    /// The task in words; - reads it from standard input.
    #[arg(value_name = "TEXT", required_unless_present = "message", conflicts_with = "message")]
    pub text: Option<String>,
    /// The same, as everywhere.
    #[arg(short, long, value_name = "TEXT")]
    pub message: Option<String>,
    /// How it runs.
    #[command(flatten)]
    pub options: RunOptions,
}

// `formwork loop`
#[derive(Debug, Args)]
pub struct Loop {
    /// The task in words; - reads it from standard input.
    #[arg(value_name = "TEXT", required_unless_present = "message", conflicts_with = "message")]
    pub text: Option<String>,
    /// The same, as everywhere.
    #[arg(short, long, value_name = "TEXT")]
    pub message: Option<String>,
    /// The suite of tests, such as "cargo test"; the project's own where absent, if it has one that is known.
    #[arg(long, value_name = "COMMAND")]
    pub test: Option<String>,
    /// The linter, such as "cargo clippy -- -D warnings".
    #[arg(long, value_name = "COMMAND")]
    pub lint: Option<String>,
    /// An agent has to approve of the change.
    #[arg(long)]
    pub review: bool,
    /// The agent that reviews; reviewer where absent.
    #[arg(long, value_name = "NAME", requires = "review")]
    pub reviewer: Option<AgentName>,
    /// The most rounds; 8 where absent.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    pub rounds: Option<u32>,
    /// The most that all rounds together may cost, in US dollars.
    #[arg(long, visible_alias = "usd", value_name = "AMOUNT", value_parser = amount, allow_hyphen_values = true)]
    pub budget: Option<Usd>,
    /// Tests that failed before the first edit may go on failing.
    #[arg(long)]
    pub known_failures: bool,
    /// The most lines that all rounds together may change; 2000 where absent.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), allow_negative_numbers = true)]
    pub max_lines: Option<u64>,
    /// The most files; 60 where absent.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), allow_negative_numbers = true)]
    pub max_files: Option<u64>,
    /// What must not be touched, such as "tests/**". May be repeated.
    #[arg(long, value_name = "GLOB")]
    pub protect: Vec<String>,
    /// The agent that works; coder where absent.
    #[arg(long, value_name = "NAME")]
    pub agent: Option<AgentName>,
    /// The model of every agent, as provider/model.
    #[arg(long, value_name = "MODEL", value_parser = model)]
    pub model: Option<ModelRef>,
    /// What agents may do: edit or auto.
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub mode: Option<PermissionMode>,
    /// A command that agents may run, such as "cargo test *". May be repeated.
    #[arg(long = "allow", value_name = "PATTERN")]
    pub allow: Vec<String>,
    /// Whether processes are confined: on, auto or off.
    #[arg(long, value_name = "MODE", hide_possible_values = true)]
    pub sandbox: Option<SandboxArg>,
    /// Commit what the rounds have changed once all of it passes, and nothing else.
    #[arg(long)]
    pub commit: bool,
    /// Keep what models are asked and answer in this folder, as `formwork run --record`.
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
}

// `formwork goal`
#[derive(Debug, Args)]
pub struct Goal {
    /// The goal in words; - reads it from standard input.
    #[arg(
        value_name = "TEXT",
        required_unless_present_any = ["message", "plan"],
        conflicts_with = "message"
    )]
    pub text: Option<String>,
    /// The same, as everywhere.
    #[arg(short, long, value_name = "TEXT")]
    pub message: Option<String>,
    /// Do a plan that is there: that of a run with --plan-only, by the run's id, or one in a file, as --json prints it.
    /// What is not said otherwise is as it was for that run.
    #[arg(long, value_name = "RUN|FILE", conflicts_with_all = ["plan_only", "planner"])]
    pub plan: Option<String>,
    /// The suite that has to pass before each task is merged; the project's own where absent, if it has one that is known.
    #[arg(long, value_name = "COMMAND")]
    pub test: Option<String>,
    /// Make the plan and do nothing of it.
    #[arg(long)]
    pub plan_only: bool,
    /// The most tasks of the plan; 12 where absent.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    pub tasks: Option<u32>,
    /// The most that plan and tasks together may cost, in US dollars.
    #[arg(long, visible_alias = "usd", value_name = "AMOUNT", value_parser = amount, allow_hyphen_values = true)]
    pub budget: Option<Usd>,
    /// What none of the tasks may touch, such as "tests/**". May be repeated.
    #[arg(long, value_name = "GLOB")]
    pub protect: Vec<String>,
    /// The agent that plans; researcher where absent.
    #[arg(long, value_name = "NAME")]
    pub planner: Option<AgentName>,
    /// The agent of tasks whose plan names none; coder where absent.
    #[arg(long, value_name = "NAME")]
    pub agent: Option<AgentName>,
    /// The model of every agent, as provider/model.
    #[arg(long, value_name = "MODEL", value_parser = model)]
    pub model: Option<ModelRef>,
    /// What agents may do: edit or auto.
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub mode: Option<PermissionMode>,
    /// A command that agents may run, such as "cargo test *". May be repeated.
    #[arg(long = "allow", value_name = "PATTERN")]
    pub allow: Vec<String>,
    /// Whether processes are confined: on, auto or off.
    #[arg(long, value_name = "MODE", hide_possible_values = true)]
    pub sandbox: Option<SandboxArg>,
    /// Commit what was merged once all of it is, and nothing else.
    #[arg(long)]
    pub commit: bool,
    /// Keep what models are asked and answer in this folder, as `formwork run --record`.
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
}

// `formwork review`
#[derive(Debug, Args)]
pub struct Review {
    /// Files and folders; all that was changed where absent.
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// All since HEAD left this revision, what is not committed included.
    #[arg(long, visible_alias = "since", value_name = "REF")]
    pub base: Option<String>,
    /// Only what the next commit would bring.
    #[arg(long)]
    pub staged: bool,
    /// What to look for in particular; - reads it from standard input.
    #[arg(short, long, value_name = "TEXT")]
    pub message: Option<String>,
    /// The agent that judges; reviewer where absent.
    #[arg(long, value_name = "NAME")]
    pub agent: Option<AgentName>,
    /// The model of the agent, as provider/model.
    #[arg(long, value_name = "MODEL", value_parser = model)]
    pub model: Option<ModelRef>,
    /// The most that it may cost, in US dollars.
    #[arg(long, value_name = "AMOUNT", value_parser = amount, allow_hyphen_values = true)]
    pub usd: Option<Usd>,
    /// Keep what models are asked and answer in this folder, as `formwork run --record`.
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
}

// `formwork chat`
#[derive(Debug, Default, Args)]
pub struct Chat {
    /// Go on with a chat: the one that a turn belongs to, or the newest of this workspace.
    #[arg(long, value_name = "RUN")]
    pub resume: Option<Option<RunId>>,
    /// The model of every turn, in place of what the agent asks for.
    #[arg(long, value_name = "PROVIDER/MODEL", value_parser = model)]
    pub model: Option<ModelRef>,
    /// What the agent may do: ask, plan, edit or auto. It asks about what that leaves open.
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub mode: Option<PermissionMode>,
    /// The agent that is spoken to; partner where absent.
    #[arg(long, value_name = "NAME")]
    pub agent: Option<AgentName>,
}

// `formwork demo`
#[derive(Debug, Args)]
pub struct Demo {
    /// A scripted model claims success without a fix, and is refused by the evidence.
    #[arg(long)]
    pub liar: bool,
    /// Use this model, as provider/model; the provider is configured or a known one whose key is set.
    #[arg(long, value_name = "MODEL", value_parser = model, conflicts_with = "liar")]
    pub model: Option<ModelRef>,
    /// Use the scripted model even where a real one is found.
    #[arg(long, conflicts_with = "model")]
    pub scripted: bool,
    /// Keep the repository in this folder, which must not exist yet.
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
}

/// `formwork runs`
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Runs {
    /// List runs, the newest first.
    List {
        /// How many.
        #[arg(short = 'n', long, default_value_t = 20, value_parser = at_least_one, allow_negative_numbers = true)]
        limit: usize,
        /// Only those older than this one.
        #[arg(long, value_name = "RUN")]
        before: Option<RunId>,
    },
    /// Show a run: its tree, its checks with their evidence, its spend.
    Show {
        /// The run; the last one where absent.
        run: Option<RunId>,
    },
    /// Take an interrupted run up where it stopped.
    Resume {
        /// The run; the newest of this workspace that has not ended where absent.
        run: Option<RunId>,
        /// Keep what models are asked and answer from here on in this folder, as `formwork run --record`.
        #[arg(long, value_name = "DIR")]
        record: Option<PathBuf>,
    },
    /// Show what was said in a run: its conversations, message by message.
    Transcript {
        /// The run; the last one where absent.
        run: Option<RunId>,
    },
    /// Find a text in what was said in the runs of this workspace.
    Search {
        /// The text, in whatever letters.
        text: String,
        /// How many finds.
        #[arg(short = 'n', long, default_value_t = 20, value_parser = at_least_one, allow_negative_numbers = true)]
        limit: usize,
    },
    /// Say something to a run that goes on; its conversations hear it at their next turn.
    Steer {
        /// The run.
        run: RunId,
        /// What is said; - reads it from standard input.
        text: String,
    },
    /// Write a run into a file that stands for itself.
    Export {
        /// The run.
        run: RunId,
        /// The file, compressed where its name ends in .zst; - prints it. RUN.jsonl.zst where absent.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Write over a file that is there.
        #[arg(long)]
        force: bool,
    },
    /// Take in the runs of a bundle or an archive, once it was found to be what was written.
    Import {
        /// The file.
        file: PathBuf,
    },
    /// Pause a run, whichever process works on it; `resume` goes on.
    Pause(Stop),
    /// End a run for good, whichever process works on it.
    Abort(Stop),
    /// Make a new run that goes on from an event of another one.
    Fork {
        /// The run.
        run: RunId,
        /// The last event to begin with: its place in the run, as 57, or in the log, as @1042; the last where
        /// absent.
        #[arg(long, value_name = "SEQ|@POSITION")]
        at: Option<Point>,
    },
    /// Compare two runs: where they part first, their tasks, their spend and their files.
    Diff {
        /// The first.
        first: RunId,
        /// The second.
        second: RunId,
    },
    /// Make the files that a run changed what they were at one of its events, and go on from there.
    Rewind {
        /// The run.
        run: RunId,
        /// The last event to keep: its place in the run, as 57, or in the log, as @1042.
        #[arg(long, value_name = "SEQ|@POSITION")]
        to: Point,
        /// Also where somebody else has changed the same files since.
        #[arg(long)]
        force: bool,
    },
}

// `formwork runs pause`, `formwork runs abort`
#[derive(Debug, Args)]
pub struct Stop {
    /// The run.
    pub run: RunId,
    /// Why, for the record.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Ask, and do not wait until it has come about.
    #[arg(long)]
    pub no_wait: bool,
}

/// `formwork tasks`
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Tasks {
    /// List the tasks of a run with their states and costs.
    List {
        /// The run; the last one where absent.
        run: Option<RunId>,
    },
    /// Show a task: its attempts, its checks with their evidence, its spend.
    Get {
        /// The run.
        run: RunId,
        /// The task: its name, its path as in build/test, or its id.
        task: String,
    },
}

/// `formwork workflows`
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Workflows {
    /// List the workflows of the workspace.
    List,
    /// Print the text of a workflow.
    Get {
        /// A file, or a name below .formwork/workflows.
        workflow: String,
    },
    /// Check a workflow and list every fault; runs nothing.
    Validate {
        /// A file, or a name below .formwork/workflows.
        workflow: String,
    },
    /// Show what a workflow would do, in which order, with which models, and the most that it could cost;
    /// spends nothing.
    Plan {
        /// A file, or a name below .formwork/workflows.
        workflow: String,
        /// A value of a variable. May be repeated.
        #[arg(long = "var", value_name = "NAME=VALUE")]
        vars: Vec<String>,
        /// The model of every agent, as provider/model.
        #[arg(long, value_name = "MODEL", value_parser = model)]
        model: Option<ModelRef>,
    },
}

// `formwork spend`
#[derive(Debug, Args)]
pub struct Spend {
    /// The run; all runs of this workspace where absent.
    pub run: Option<RunId>,
    /// The runs of other workspaces as well.
    #[arg(long, conflicts_with = "run")]
    pub all: bool,
}

// `formwork tools`
#[derive(Debug, Args)]
pub struct Tools {
    /// What to do; they are listed without a word.
    #[command(subcommand)]
    pub verb: Option<ToolsVerb>,
}

// What `formwork tools` does.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum ToolsVerb {
    /// List the tools that agents can be given, and those of the workspace that are not trusted yet.
    List,
    /// Show a tool: what it is for, what it is given and what it does to the world.
    Show {
        /// The tool.
        name: ToolName,
    },
    /// Call a tool once by hand, through all that holds for a call of an agent, as a run of its own.
    Call(ToolCall),
}

// `formwork tools call`
#[derive(Debug, Args)]
pub struct ToolCall {
    /// The tool.
    pub name: ToolName,
    /// An argument. A text is taken as it is, anything else as JSON; several of a list make it up.
    #[arg(value_name = "KEY=VALUE")]
    pub pairs: Vec<String>,
    /// All arguments as one JSON object; - reads it from standard input.
    #[arg(long, value_name = "JSON", conflicts_with = "pairs")]
    pub args: Option<String>,
    /// Say what the rules make of the call and what it would do, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// The agent as which it is called; the rules of the config alone hold where absent.
    #[arg(long, value_name = "NAME")]
    pub agent: Option<AgentName>,
    /// What may be done: ask, plan, edit or auto.
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub mode: Option<PermissionMode>,
    /// A command that may be run, such as "cargo test *". May be repeated.
    #[arg(long = "allow", value_name = "PATTERN")]
    pub allow: Vec<String>,
    /// Whether processes are confined: on, auto or off.
    #[arg(long, value_name = "MODE", hide_possible_values = true)]
    pub sandbox: Option<SandboxArg>,
}

// `formwork notepad`
#[derive(Debug, Args)]
pub struct Notepad {
    /// The run.
    pub run: RunId,
}

// `formwork undo`
#[derive(Debug, Args)]
pub struct Undo {
    /// The run.
    pub run: RunId,
    /// Only what came after this event: its place in the run, as 57, or in the log, as @1042, both as `formwork events RUN`
    /// shows them.
    #[arg(long, value_name = "SEQ|@POSITION")]
    pub to: Option<Point>,
    /// Take back also what was changed since; those later changes are lost.
    #[arg(long)]
    pub force: bool,
    /// Only show what it would do.
    #[arg(long)]
    pub dry_run: bool,
}

/// `formwork apart`
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Apart {
    /// List the workspaces that tasks have of their own beside this one.
    List,
    /// Bring what a task did into this workspace, all of it or nothing; no check is run.
    Merge {
        /// Its name, or that of its task.
        name: String,
    },
    /// Remove one; what is not merged only with --discard, or where you say so. A snapshot of it is kept.
    Discard {
        /// Its name, or that of its task.
        name: String,
        /// Give up what is not merged, without being asked.
        #[arg(long)]
        discard: bool,
    },
}

// `formwork dispatch`
#[derive(Debug, Args)]
pub struct Dispatch {
    /// The subscriptions; all of the workspace where absent.
    #[arg(value_name = "NAME")]
    pub names: Vec<SubscriptionName>,
    /// Do what is to be done by now, and end.
    #[arg(long)]
    pub once: bool,
    /// What workflows may do: ask, plan, edit or auto.
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub mode: Option<PermissionMode>,
}

// `formwork worker`
#[derive(Debug, Args)]
pub struct Worker {
    /// The server to work for, as wss://HOST; ws:// on this machine alone.
    #[arg(long, value_name = "URL")]
    pub connect: String,
    /// What this worker offers: tasks with that target are given to it. Can be given again.
    #[arg(long = "label", value_name = "LABEL", required = true)]
    pub labels: Vec<WorkerLabel>,
    /// How many calls it takes at once.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SLOTS)))]
    pub slots: u32,
    /// Its name; that of this machine and a sign of the workspace where absent.
    #[arg(long, value_name = "NAME")]
    pub name: Option<WorkerName>,
    /// A file that holds the token; FORMWORK_WORKER_TOKEN of the environment where absent.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// What calls may do here: ask, plan, edit or auto.
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub mode: Option<PermissionMode>,
}

/// `formwork subscriptions`
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Subscriptions {
    /// List the subscriptions of the workspace.
    List,
    /// Show what one does, what waits, and what was given up and why.
    Show {
        /// The subscription.
        name: SubscriptionName,
    },
    /// Have what one gave up tried again, from the action that failed.
    Retry {
        /// The subscription.
        name: SubscriptionName,
        /// What it gave up, by its name; all of that where absent.
        #[arg(long, value_name = "EVENT", value_parser = position)]
        delivery: Option<Position>,
    },
}

// `formwork serve`
#[derive(Debug, Args)]
pub struct Serve {
    /// Where to listen; port 0 is one that is free.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:4676")]
    pub listen: SocketAddr,
    /// A name that it is asked for by, beside addresses and localhost: that of a proxy, as often as wanted.
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,
    /// What runs may do: ask, plan, edit or auto.
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub mode: Option<PermissionMode>,
}

// `formwork mcp`
#[derive(Debug, Args)]
pub struct Mcp {
    /// What the client may ask for: to look (read), to work with runs too (run), or everything (admin).
    #[arg(long, value_name = "SCOPE", value_parser = client_scope, default_value = "run")]
    pub scope: Scope,
    /// What runs may do: ask, plan, edit or auto.
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub mode: Option<PermissionMode>,
}

/// `formwork auth`
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Auth {
    /// Give the first credential, with every scope, and print its token once.
    Bootstrap {
        /// Who acts with it, as in `ada` or `service:ops`; you where absent.
        name: Option<String>,
    },
    /// Give somebody a credential, and print its token once.
    Add {
        /// Who acts with it, as in `ada` or `service:ci`.
        name: String,
        /// What they may ask for: read, run, admin and worker, with commas between.
        #[arg(long = "scope", value_name = "SCOPES", required = true, value_delimiter = ',', value_parser = scope)]
        scopes: Vec<Scope>,
        /// How long it is taken, as in 30d; until it is revoked where absent.
        #[arg(long, value_name = "TIME", value_parser = span)]
        expires: Option<Span>,
    },
    /// List who may ask, and for what.
    List {
        /// Those that are over as well.
        #[arg(long)]
        all: bool,
    },
    /// Give a credential another token, and print that once.
    Rotate {
        /// The credential.
        #[arg(value_name = "CREDENTIAL", value_parser = crate::verbs::auth::credential)]
        id: CredentialId,
        /// How long the token that it has is taken as well, as in 1h; 0s ends it at once.
        #[arg(long, value_name = "TIME", value_parser = span)]
        overlap: Option<Span>,
    },
    /// Refuse a credential from its next request on, for good.
    Revoke {
        /// The credential.
        #[arg(value_name = "CREDENTIAL", value_parser = crate::verbs::auth::credential)]
        id: CredentialId,
    },
}

/// `formwork sources`
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Sources {
    /// List the sources of the workspace.
    List,
    /// Show how one signs, what came lately, and how much was refused.
    Show {
        /// The source.
        name: SourceName,
    },
}

/// `formwork trash`
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Trash {
    /// List what agents have deleted here, the oldest first.
    List {
        /// Those of other workspaces as well.
        #[arg(long)]
        all: bool,
    },
    /// Bring an entry back to where it was; nothing may be there by now.
    Restore {
        /// The entry.
        id: String,
    },
    /// Remove an entry for good, or all that are old enough.
    Purge {
        /// The entry.
        #[arg(required_unless_present = "older_than", conflicts_with = "older_than")]
        id: Option<String>,
        /// Those that were deleted longer ago, in any workspace, such as 30d.
        #[arg(long, value_name = "TIME", value_parser = age)]
        older_than: Option<Age>,
    },
}

/// `formwork approvals`
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Approvals {
    /// List what is not asked about any more.
    List,
    /// Take an approval back.
    Revoke {
        /// Its number in the list.
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        number: Option<usize>,
        /// All of them.
        #[arg(long)]
        all: bool,
    },
}

// `formwork replay`
#[derive(Debug, Args)]
pub struct Replay {
    /// The run; the last one where absent.
    pub run: Option<RunId>,
}

// `formwork events`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_precedence_over_arg = true)]
pub struct Events {
    /// What is done instead of printing.
    #[command(subcommand)]
    pub verb: Option<EventsVerb>,
    /// The run; all where absent.
    pub run: Option<RunId>,
    /// Only events after this position.
    #[arg(long, value_name = "POSITION", value_parser = position, default_value = "0", allow_negative_numbers = true)]
    pub after: Position,
    /// Only kinds that begin so, such as tool. or task.escalated. May be repeated.
    #[arg(long, value_name = "PREFIX")]
    pub kind: Vec<String>,
    /// How many; all of a run, and 1000 of the whole log, where absent.
    #[arg(short = 'n', long, value_parser = at_least_one, allow_negative_numbers = true)]
    pub limit: Option<usize>,
    /// Go on as they come.
    #[arg(short, long)]
    pub follow: bool,
}

// `formwork events fire`
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum EventsVerb {
    /// Tell runs that something has happened; tasks that wait for it go on.
    Fire {
        /// What has happened, such as external.review.
        name: EventName,
        /// What there is to know of it, as JSON.
        #[arg(long, value_name = "JSON")]
        data: Option<String>,
        /// The run that is told; all that wait for it where absent.
        #[arg(long)]
        run: Option<RunId>,
    },
}

/// `formwork inbox`
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Inbox {
    /// List what waits for an answer; of a run all that it ever asked.
    List {
        /// The run.
        run: Option<RunId>,
        /// All that is about tasks that were given up, which no run waits for; the newest ten where absent.
        #[arg(long)]
        all: bool,
    },
    /// Show a question and what became of it.
    Get {
        /// The item.
        item: ItemId,
    },
    /// Answer by one of the options.
    Answer {
        /// The item.
        item: ItemId,
        /// The option, or its number in the list of options.
        answer: String,
    },
    /// Leave the answer to whoever asked: what is assumed is taken, and a call is not made.
    Skip {
        /// The item.
        #[arg(required_unless_present = "given_up", conflicts_with = "given_up")]
        item: Option<ItemId>,
        /// All that is about tasks that were given up, which no run waits for.
        #[arg(long)]
        given_up: bool,
        /// Why.
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Say that what it is about is not wanted at all: the task that asks fails; a call is refused, with the reason.
    Reject {
        /// The item.
        item: ItemId,
        /// Why.
        #[arg(long, default_value = "")]
        reason: String,
    },
}

// `formwork blob`
#[derive(Debug, Args)]
pub struct Blob {
    /// The hash.
    #[arg(value_parser = hash)]
    pub hash: BlobHash,
}

// `formwork validate`
#[derive(Debug, Args)]
pub struct Validate {
    /// Files or folders; the workspace's own documents where absent.
    pub paths: Vec<PathBuf>,
}

// `formwork check`
#[derive(Debug, Args)]
pub struct Check {
    /// Only what the next commit would bring, in the very bytes that are staged.
    #[arg(long, conflicts_with_all = ["all", "paths"])]
    pub staged: bool,
    /// All files of the workspace that git tracks or does not ignore, as where nothing else is said.
    #[arg(long, conflicts_with = "paths")]
    pub all: bool,
    /// List the rules.
    #[arg(long, conflicts_with_all = ["staged", "all", "paths"])]
    pub rules: bool,
    /// Files and folders.
    #[arg(value_name = "PATH")]
    pub paths: Vec<std::path::PathBuf>,
}

// `formwork schema`
#[derive(Debug, Args)]
pub struct Schema {
    /// Which document.
    pub document: Document,
}

/// A kind of document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Document {
    /// formwork.toml
    Config,
    /// .formwork/agents/*.toml
    Agent,
    /// .formwork/workflows/*.toml
    Workflow,
    /// .formwork/tools/*.toml
    Tool,
    /// .formwork/subscriptions/*.toml
    Subscription,
    /// .formwork/sources/*.toml
    Source,
    /// The script of a scripted model.
    Script,
    /// An event of the log.
    Event,
}

// `formwork models`
#[derive(Debug, Args)]
pub struct Models {
    /// What to do; they are listed without a word.
    #[command(subcommand)]
    pub action: Option<ModelsAction>,
}

// What to do with models.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum ModelsAction {
    /// List the models that are there and what they cost.
    List,
    /// Ask servers what they are and what their models can do; and one model for a real tool call.
    Probe {
        /// A provider, a model as provider/model, or an address; every configured provider where absent.
        target: Option<String>,
    },
    /// Have a server fetch a model.
    Pull {
        /// The model, as provider/model.
        #[arg(value_parser = model)]
        model: ModelRef,
    },
}

// `formwork doctor`
#[derive(Debug, Args)]
pub struct Doctor {
    /// Do not ask the endpoints.
    #[arg(long)]
    pub offline: bool,
}

// `formwork init`
#[derive(Debug, Args)]
pub struct Init {
    /// Overwrite what is there.
    #[arg(long)]
    pub force: bool,
}

// `formwork trust`
#[derive(Debug, Args)]
pub struct Trust {
    /// Take the trust back in everything that came with the workspace.
    #[arg(long)]
    pub revoke: bool,
}

/// `formwork audit`
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Audit {
    /// Check the hash chain and the blobs of a run, or the whole log with its checkpoints.
    Verify {
        /// The run; the whole log where absent.
        run: Option<RunId>,
        /// A file of checkpoints that was kept elsewhere. May be repeated.
        #[arg(long = "checkpoint", value_name = "FILE", conflicts_with = "run")]
        checkpoints: Vec<PathBuf>,
        /// The public key of another machine whose checkpoints are known. May be repeated.
        #[arg(long = "key", value_name = "HEX", conflicts_with = "run")]
        keys: Vec<PublicKey>,
        /// The folder where the archives are by now, if it is not where they were put.
        #[arg(long, value_name = "DIR", conflicts_with = "run")]
        archives: Option<PathBuf>,
    },
    /// Sign what the whole log is now, so that what is removed later is missed.
    Checkpoint,
}

/// `formwork db`
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Db {
    /// Make the store.
    Init,
    /// Tell what the store is, what it holds and how large it is.
    Status {
        /// Count the blobs that no run refers to as well; reads the whole log.
        #[arg(long)]
        orphans: bool,
    },
    /// Bring the store to the version of this program.
    Migrate,
    /// Make every view again from the log.
    Rebuild,
    /// Check the log, that the views are what it says, and the pages of the database.
    Verify,
    /// Give free space back to the machine.
    Vacuum,
    /// Take runs that ended long ago out into a compressed file; `runs import` brings them back.
    Archive {
        /// Only those last written longer ago than this, such as 90d or 12h.
        #[arg(long, value_name = "TIME", value_parser = age)]
        older_than: Age,
        /// The folder for the file; `archive` in the folder of state where absent.
        #[arg(short, long, value_name = "DIR")]
        output: Option<PathBuf>,
    },
}

/// How long ago something was, in days as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Age(pub Span);

/// `formwork config`
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Config {
    /// Print the config that holds.
    Show {
        /// Say where each value came from.
        #[arg(long)]
        origin: bool,
    },
}

fn mode(text: &str) -> Result<PermissionMode, String> {
    match text {
        "ask" => Ok(PermissionMode::Ask),
        "plan" => Ok(PermissionMode::Plan),
        "edit" => Ok(PermissionMode::Edit),
        "auto" => Ok(PermissionMode::Auto),
        _ => Err("expected ask, plan, edit or auto".to_owned()),
    }
}

fn model(text: &str) -> Result<ModelRef, String> {
    match text.contains('/') {
        true => text.parse().map_err(|error: NameError| error.to_string()),
        false => {
            Err("expected provider/model; `formwork models` lists those that there are".to_owned())
        }
    }
}

fn hash(text: &str) -> Result<BlobHash, String> {
    text.parse()
        .map_err(|_| "expected the 64 hexadecimal digits of a hash, as events name it".to_owned())
}

fn age(text: &str) -> Result<Age, String> {
    match text.strip_suffix('d').map(str::parse::<u64>) {
        Some(Ok(days)) => Ok(Age(Span::from_secs(days.saturating_mul(86_400)))),
        _ => {
            text.parse().map(Age).map_err(|_| "expected a time such as 90d, 12h or 90s".to_owned())
        }
    }
}

fn scope(text: &str) -> Result<Scope, String> {
    text.parse().map_err(|_| "expected read, run, admin or worker".to_owned())
}

/// Reads a scope of which each covers those before it.
fn client_scope(text: &str) -> Result<Scope, String> {
    let scope = text.parse().ok().filter(|scope| *scope != Scope::Worker);
    scope.ok_or_else(|| "expected read, run or admin".to_owned())
}

/// Reads how long.
fn span(text: &str) -> Result<Span, String> {
    age(text).map(|Age(span)| span)
}

/// Reads a place in the log.
fn position(text: &str) -> Result<Position, String> {
    // As `formwork events` writes it.
    let text = text.strip_prefix('@').unwrap_or(text);
    text.parse().map(Position).map_err(|_| "expected a number of at least 0".to_owned())
}

/// Reads how many of something are wanted.
fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("wanted at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(_) => Err(format!("wanted a number from 1 to {}", usize::MAX)),
    }
}

/// Reads how many may be at work at once.
fn at_once(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("nothing is done by none".to_owned()),
        Ok(width) => Ok(width),
        Err(_) => Err("wanted a number of at least 1".to_owned()),
    }
}

/// Reads what something may cost.
fn amount(text: &str) -> Result<Usd, String> {
    let amount: Usd = text.parse().map_err(|error: UsdError| error.to_string())?;
    match amount < Usd::ZERO {
        true => Err("nothing can cost less than 0".to_owned()),
        false => Ok(amount),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_is_no_model_and_no_hash_is_told_with_what_is_one() {
        let said = |arguments: &[&str]| Cli::try_parse_from(arguments).unwrap_err().to_string();

        assert!(
            said(&["formwork", "ask", "--model", "x", "hi"]).contains("expected provider/model")
        );
        assert!(said(&["formwork", "models", "pull", "x"]).contains("expected provider/model"));
        assert!(said(&["formwork", "blob", "x"]).contains("expected the 64 hexadecimal digits"));
    }

    #[test]
    fn a_line_is_read_with_one_verb_as_it_is_with_all_of_them() {
        let mut lines = vec![
            "",
            "Fix-it",
            "-V",
            "--help",
            "help runs",
            "--json runs list",
            "-C /tmp runs list",
            "runs",
            "runs list -n 3 --json",
            "runs list -n 0",
            "runs list --json --jsonl",
            "runs --help",
            "runs help list",
            "runs lsit",
            "runs list --version",
            "runs list --mode edit",
            "runs list -C /tmp --color never -q --no-input",
            "run -m text --usd 0.5 --check true --var a=b --config x.toml",
            "run wf --database-url sqlite:///x --width 2",
            "ask hi --model a/b",
            "edit",
            "agents --jsonl",
            "completions bash",
            "completions nosuchshell",
            "events",
            "events fire a.b --json",
            "models pull x",
            "tools call fs.read",
            "audit verify",
            "db archive --help",
            "config show --origin",
            "inbox list",
            "demo --liar",
        ]
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>();
        for verb in Cli::command().get_subcommands() {
            let name = verb.get_name();
            lines.extend([name.to_owned(), format!("{name} --no-such"), format!("{name} a b c d")]);
        }

        for line in lines {
            let words: Vec<OsString> = std::iter::once("formwork")
                .chain(line.split_whitespace())
                .map(Into::into)
                .collect();
            let told = |read: Result<Cli, clap::Error>| match read {
                Ok(cli) => format!("{cli:?}"),
                Err(error) => format!("{:?} {error}", error.kind()),
            };

            assert_eq!(told(Cli::read(&words)), told(Cli::try_parse_from(&words)), "{line}");
        }
    }

    #[test]
    fn a_bare_text_is_a_task_and_a_verb_is_a_verb() {
        let task = Cli::parse_from(["formwork", "Fix the failing tests", "--usd", "0.5"]);
        assert_eq!(task.text.as_deref(), Some("Fix the failing tests"));
        assert_eq!(task.run.usd, Some("0.5".parse().unwrap()));

        let verb = Cli::parse_from(["formwork", "runs", "list", "--json"]);
        assert!(verb.global.json && matches!(verb.verb, Some(Verb::Runs(Runs::List { .. }))));

        let before = Cli::parse_from(["formwork", "--database-url", "sqlite:///x", "runs", "list"]);
        assert!(before.text.is_none() && matches!(before.verb, Some(Verb::Runs(_))));
    }
}
