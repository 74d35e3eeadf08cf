//! Text in many files: every line that matches, and the first.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use formwork_protocols::{
    AgentName, CallId, Cancel, RunId, SessionId, SystemClock, SystemRng, TaskId, Tool,
    tool::CallContext,
};
use formwork_tool::{Registry, builtin};
use formwork_write_safety::{Reads, Root, Workspace, WriteRules};
use serde_json::json;

use crate::{
    figure::{Figure, Limit, Report, Target},
    noise::Noise,
};

/// What `search` measures.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The folder to search; the sources that cargo has fetched where absent.
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// Finds where cargo keeps what it has fetched.
    #[arg(long, env = "CARGO_HOME", hide = true)]
    cargo_home: Option<PathBuf>,
    #[arg(long, env = "HOME", hide = true)]
    home: Option<PathBuf>,
}

/// A literal that is rare, one that is nowhere, a class, words of any case, and a line with a shape. None of them
/// is on more lines than one call returns.
const PATTERNS: [&str; 5] = [
    "restrict_self",
    "zq0xv_nowhere",
    "[A-Z]+_SUSPEND",
    "(?i)certificate revocation list",
    r"^\s*unsafe impl .* for .*Guard",
];

/// The most lines that one call returns.
const MOST: usize = 5_000;

/// How many files a tree has at least to be called large.
const LARGE: usize = 30_000;

/// Runs the bench.
pub(crate) fn run(options: &Options, is_quick: bool, report: &mut Report) -> Result<()> {
    let tree = tree(options)?;
    let grep = Grep::new(&tree)?;
    let has_rg = Command::new("rg").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !has_rg {
        report.note("there is no rg in PATH to search against");
    }
    let files = grep.files()?;
    report.note(format!("search of {files} files below {}", tree.display()));
    if files < LARGE {
        report.note(format!("{LARGE} files are wanted: name a larger folder with --tree"));
    }
    let noise = Noise::begin();
    let repetitions = if is_quick { 3 } else { 9 };
    for pattern in PATTERNS {
        let (mut all, mut one, mut floor) = (Vec::new(), Vec::new(), Vec::new());
        // Once without counting: files come into the cache.
        for repetition in 0..=repetitions {
            let whole = grep.timed(pattern, MOST)?;
            let first = grep.timed(pattern, 1)?;
            let bare = if has_rg { rg(pattern, &tree)? } else { Duration::ZERO };
            if repetition > 0 {
                all.push(millis(whole));
                one.push(millis(first));
                floor.push(millis(bare));
            }
        }
        let mut whole = Figure::new(format!("search {pattern}/all"), "ms", all);
        let mut first = Figure::new(format!("search {pattern}/one hit"), "ms", one);
        if has_rg {
            let bar = Target::ratio(Limit::AtMost(1.1), Limit::AtMost(0.9));
            whole = whole.against("rg", floor.clone()).aims(bar);
            first = first.against("rg", floor);
            // What is nowhere has no first line.
            if !pattern.contains("nowhere") {
                first = first.aims(Target::ratio(Limit::AtMost(0.8), Limit::AtMost(0.3)));
            }
        }
        report.add(whole);
        report.add(first);
    }
    report.noise("search", &noise);
    Ok(())
}

fn tree(options: &Options) -> Result<PathBuf> {
    let home = options.home.as_ref().map(|home| home.join(".cargo"));
    let fetched = options.cargo_home.clone().or(home).map(|cargo| cargo.join("registry/src"));
    let tree = options.tree.clone().or(fetched).context("name a folder with --tree")?;
    tree.canonicalize().with_context(|| format!("cannot search {}", tree.display()))
}

/// The tool that agents search with.
struct Grep {
    tool: Arc<dyn Tool>,
    context: CallContext,
    runtime: tokio::runtime::Runtime,
}

impl Grep {
    fn new(tree: &Path) -> Result<Self> {
        let root = Arc::new(Root::open(tree)?);
        let workspace = Workspace::new(root, WriteRules::nothing(), Reads::new().session());
        let mut registry = Registry::new();
        builtin::register_files(&mut registry, &workspace, |_| Err("no pictures here".to_owned()))?;
        let tools = registry.select(|spec| spec.definition.name.as_str() == "fs.grep");
        let (clock, rng) = (SystemClock, SystemRng);
        Ok(Self {
            tool: tools.into_iter().next().context("there is no fs.grep")?,
            context: CallContext {
                run: RunId::generate(&clock, &rng),
                task: TaskId::generate(&clock, &rng),
                session: SessionId::generate(&clock, &rng),
                call: CallId::generate(&clock, &rng),
                agent: AgentName::parse("bench")?,
            },
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build()?,
        })
    }

    fn call(&self, pattern: &str, limit: usize) -> Result<String> {
        let arguments = json!({ "pattern": pattern, "limit": limit });
        let cancel = Cancel::new();
        let called = self.tool.call(&self.context, arguments, &cancel);
        let output =
            self.runtime.block_on(called).map_err(|error| anyhow::anyhow!(error.message))?;
        Ok(output.text)
    }

    fn timed(&self, pattern: &str, limit: usize) -> Result<Duration> {
        let began = Instant::now();
        let text = self.call(pattern, limit)?;
        let took = began.elapsed();
        let is_cut = limit == MOST && text.contains("[more than");
        ensure!(!is_cut, "{pattern} is on more than {MOST} lines of this tree");
        Ok(took)
    }

    /// Counts the files that are searched.
    fn files(&self) -> Result<usize> {
        let text = self.call("zq0xv_nowhere", 1)?;
        let count = text.split_whitespace().find_map(|word| word.parse().ok());
        count.with_context(|| format!("the count of files is not in {text:?}"))
    }
}

/// Searches the same files by ripgrep, which prints into a pipe.
fn rg(pattern: &str, tree: &Path) -> Result<Duration> {
    let began = Instant::now();
    let output = Command::new("rg")
        .args(["--no-config", "--no-messages", "--no-heading", "--with-filename", "--line-number"])
        .args(["--hidden", "--no-require-git", "--glob", "!.git", "--regexp", pattern])
        .arg(tree)
        .stdin(Stdio::null())
        .output()
        .context("cannot run rg")?;
    let took = began.elapsed();
    let is_fine = matches!(output.status.code(), Some(0 | 1));
    ensure!(is_fine, "rg failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(took)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
