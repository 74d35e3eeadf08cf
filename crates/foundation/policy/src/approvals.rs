//! What was approved: for a conversation, and as rules of a workspace that outlive it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use formwork_protocols::{
    Answer, Approval, ApprovalRequest, Approver, BlobHash, Cancel, Cover, Principal, ToolClass,
    canonical,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Call, CommandPatterns, Error, kept::Kept};

/// What was approved beyond a single call. It answers questions, and lifts no denial.
#[derive(Debug, Default)]
pub struct Grants(Mutex<Vec<Cover>>);

impl Grants {
    /// Begins with what was approved before.
    pub fn new(covers: impl IntoIterator<Item = Cover>) -> Self {
        Self(Mutex::new(covers.into_iter().collect()))
    }

    /// Approves more.
    pub fn add(&self, cover: Cover) {
        let mut covers = self.lock();
        if !covers.contains(&cover) {
            covers.push(cover);
        }
    }

    /// Says whether a call with these arguments is covered.
    pub fn cover(&self, call: &Call<'_>, arguments: &Value) -> bool {
        let exact = exact(call, arguments);
        let here = is_here(arguments);
        self.lock().iter().any(|cover| *cover == exact || (here && reaches(cover, call)))
    }

    /// Says whether the very call with these arguments was approved.
    pub fn cover_exactly(&self, call: &Call<'_>, arguments: &Value) -> bool {
        self.lock().contains(&exact(call, arguments))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Cover>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the folder that a call runs in, where that is not the one in which calls run by themselves. Elsewhere the same words
/// start something else.
pub fn elsewhere(arguments: &Value) -> Option<&str> {
    let cwd = arguments.get("cwd").filter(|cwd| !cwd.is_null())?;
    // What is no text is no folder either, and least of all the one where calls run by themselves.
    Some(cwd.as_str().unwrap_or("?")).filter(|cwd| !matches!(*cwd, "" | "."))
}

fn is_here(arguments: &Value) -> bool {
    elsewhere(arguments).is_none()
}

fn reaches(cover: &Cover, call: &Call<'_>) -> bool {
    match cover {
        Cover::Commands { pattern } => match (call.class, call.argv) {
            (ToolClass::Exec | ToolClass::Shell, Some(argv)) => CommandPatterns::parse([pattern])
                .is_ok_and(|it| it.check(argv, call.meaning).is_ok()),
            _ => false,
        },
        Cover::Host { host } => {
            call.class == ToolClass::Network
                && !call.hosts.is_empty()
                && call.hosts.iter().all(|own| host_of(own).as_ref() == Some(host))
        }
        // Not by its arguments, or of a kind that a later version knows.
        _ => false,
    }
}

/// Returns what covers a call with these arguments and no other.
pub fn exact(call: &Call<'_>, arguments: &Value) -> Cover {
    // What cannot be written has a hash of its own, which no other call has.
    let text = canonical::to_string(arguments).unwrap_or_else(|_| format!("{arguments:?}"));
    Cover::Call { tool: call.tool.clone(), arguments: BlobHash::of(text.as_bytes()) }
}

/// Returns what covers a call and those like it. Of a call that connects to one host by a usual port: every one to that
/// host. In the folder where calls run by themselves: the program with its first word, where that is no option. Nothing for a call elsewhere, and for programs that are known to start others.
pub fn alike(call: &Call<'_>, arguments: &Value) -> Option<Cover> {
    if let (ToolClass::Network, [host]) = (call.class, call.hosts) {
        return host_of(host).map(|host| Cover::Host { host });
    }
    let (ToolClass::Exec, Some([program, verb, ..])) = (call.class, call.argv) else { return None };
    if !is_here(arguments) || launches(program, verb) {
        return None;
    }
    let is_plain = |word: &String| {
        !word.is_empty() && !word.starts_with('-') && !word.contains(['*', '"', '\'', '\n'])
    };
    if !is_plain(program) || !is_plain(verb) || program.contains(char::is_whitespace) {
        return None;
    }
    let verb = match verb.contains(char::is_whitespace) {
        true => format!("'{verb}'"),
        false => verb.clone(),
    };
    let cover = Cover::Commands { pattern: format!("{program} {verb} *") };
    // A program that starts another is seen through, and then the pattern would not cover it.
    reaches(&cover, call).then_some(cover)
}

/// Returns the name of a host that is reached by a usual port; the others are approved call by call.
fn host_of(host: &str) -> Option<String> {
    let (name, port) = host.rsplit_once(':')?;
    let is_usual = port.parse().is_ok_and(crate::host::is_usual);
    is_usual.then(|| name.to_owned())
}

/// Says whether a program starts the one that is named after its first word, so that a wildcard there covers every program.
fn launches(program: &str, verb: &str) -> bool {
    const ALWAYS: [&str; 44] = [
        "adb",
        "apptainer",
        "asdf",
        "bundle",
        "bunx",
        "conda",
        "corepack",
        "devbox",
        "direnv",
        "distrobox",
        "docker",
        "flatpak",
        "guix",
        "hatch",
        "kubectl",
        "lima",
        "limactl",
        "mamba",
        "micromamba",
        "mise",
        "nerdctl",
        "nix",
        "nix-shell",
        "npx",
        "oc",
        "pdm",
        "pipenv",
        "pipx",
        "pixi",
        "pnpx",
        "podman",
        "poetry",
        "pyenv",
        "rbenv",
        "rtx",
        "rye",
        "singularity",
        "snap",
        "ssh",
        "toolbox",
        "uv",
        "uvx",
        "vagrant",
        "yarn",
    ];
    const VERBS: [(&str, &[&str]); 9] = [
        ("bun", &["x", "run"]),
        ("cargo", &["watch"]),
        ("composer", &["exec"]),
        ("deno", &["run", "eval", "task"]),
        ("dotnet", &["exec", "tool"]),
        ("go", &["run", "tool", "generate"]),
        ("npm", &["exec", "x", "explore"]),
        ("pnpm", &["exec", "dlx", "x"]),
        ("rustup", &["run"]),
    ];
    let program = program.rsplit('/').next().unwrap_or(program);
    ALWAYS.contains(&program)
        || VERBS.iter().any(|(name, verbs)| *name == program && verbs.contains(&verb))
}

/// Answers for those who run unattended: what the rules leave open is refused, and the model and whoever
/// reads the record are told how to allow it beforehand.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unattended;

#[async_trait]
impl Approver for Unattended {
    async fn ask(&self, request: &ApprovalRequest, _: &Cancel) -> Option<Answer> {
        let reason =
            format!("{}; nobody is there to approve it. {}", request.why, how_to_allow(request));
        Some(Answer { approval: Approval::Denied { reason }, by: Principal::system("unattended") })
    }
}

fn how_to_allow(request: &ApprovalRequest) -> String {
    match (&request.alike, request.class) {
        (Some(Cover::Commands { pattern }), _) => format!(
            "Whoever starts the run allows it with --allow {pattern:?}, or with exec = [{pattern:?}] below \
             [permissions] of the config, or with the mode auto"
        ),
        (_, ToolClass::Exec) => {
            "Whoever starts the run allows it with a pattern for --allow or for exec below \
             [permissions] of the config, or with the mode auto"
                .to_owned()
        }
        (_, ToolClass::Network) => {
            "Whoever starts the run allows it with the host in hosts below [permissions.http] of the config"
                .to_owned()
        }
        _ => "Whoever starts the run allows it with the mode auto".to_owned(),
    }
}

/// The approvals that hold until somebody takes them back, by workspace, in a file of the user's own.
#[derive(Debug, Clone)]
pub struct ApprovalBook {
    book: Kept<Content>,
    workspace: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    workspaces: BTreeMap<String, Vec<Cover>>,
}

impl ApprovalBook {
    /// Keeps the approvals of `workspace` in the file `book`, which need not exist.
    ///
    /// # Errors
    /// [`Error::StoreInside`] when the file lies within the workspace, where an agent could write it.
    pub fn new(book: impl Into<PathBuf>, workspace: &Path) -> Result<Self, Error> {
        let book = Kept::new(book, "list of approvals", workspace)?;
        Ok(Self { book, workspace: workspace.to_string_lossy().into_owned() })
    }

    /// Returns what is approved in the workspace, in the order in which it was.
    ///
    /// # Errors
    /// When the file cannot be read: then nothing is approved by it.
    pub fn covers(&self) -> Result<Vec<Cover>, Error> {
        Ok(self.book.read()?.workspaces.remove(&self.workspace).unwrap_or_default())
    }

    /// Approves more.
    ///
    /// # Errors
    /// When the file cannot be read or written: then it is as it was.
    pub fn add(&self, cover: &Cover) -> Result<(), Error> {
        self.book.change(|content| {
            let covers = content.workspaces.entry(self.workspace.clone()).or_default();
            if !covers.contains(cover) {
                covers.push(cover.clone());
            }
        })
    }

    /// Takes back the approval at a place of [`covers`](Self::covers), or all of them. Returns how many.
    ///
    /// # Errors
    /// When the file cannot be read or written: then it is as it was.
    pub fn revoke(&self, which: Option<&Cover>) -> Result<usize, Error> {
        self.book.change(|content| {
            let Some(covers) = content.workspaces.get_mut(&self.workspace) else { return 0 };
            let before = covers.len();
            covers.retain(|cover| which.is_some_and(|which| which != cover));
            let revoked = before - covers.len();
            if covers.is_empty() {
                content.workspaces.remove(&self.workspace);
            }
            revoked
        })
    }
}

#[cfg(test)]
mod tests;
