//! What is tried.

mod commands; // Words that rules should not be talked around with.
mod files; // Paths, by the tools that take one.
mod git; // Git, and what a repository tells it to start.
mod kernel; // System calls, other processes, and too much of everything.
mod network; // Ways around the proxy of programs that may reach some hosts.
mod programs; // The same by every way in which a program is started.

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    model::Call,
    place::{ESCAPEE, Place},
    trial::{Attempt, Scene},
};

/// Who refuses.
mod by {
    pub(super) const RESOLVER: &str = "the resolver of paths";
    pub(super) const RULES: &str = "the rules of writing";
    pub(super) const KERNEL: &str = "Landlock or a mount";
    pub(super) const FILTER: &str = "seccomp";
    pub(super) const SCOPE: &str = "Landlock's scope";
    pub(super) const LIMITS: &str = "the limits of programs";
    pub(super) const SUPERVISOR: &str = "the supervisor";
    pub(super) const ALLOW_LIST: &str = "the allow-list of variables";
    pub(super) const PROXY: &str = "the proxy of the run";
    pub(super) const OWN_NETWORK: &str = "a network of its own";
    pub(super) const GIT: &str = "git's list of arguments";
    pub(super) const SETTINGS: &str = "settings put in place of the repository's";
    pub(super) const POLICY: &str = "the rules of commands";
    pub(super) const TRUST: &str = "trust by content";
    pub(super) const UNASKED: &str = "the look at what git would run";
}

/// Returns every attempt, in the order of the table.
pub(crate) fn all() -> Vec<Attempt> {
    let mut all = files::all();
    all.extend(git::all());
    all.extend(commands::all());
    all.extend(programs::all());
    all.extend(kernel::all());
    all.extend(network::all());
    all
}

/// Describes an attempt by a scene.
fn attempt(
    name: impl Into<String>,
    way: &'static str,
    by: &'static str,
    scene: impl Fn(&Place) -> Result<Scene> + Send + Sync + 'static,
) -> Attempt {
    Attempt { name: name.into(), way, by, needs: "", scene: Box::new(scene) }
}

/// Returns a call of the hostile program.
fn escapee(words: &[String]) -> Call {
    let command: Vec<Value> = std::iter::once(format!("./{ESCAPEE}"))
        .chain(words.iter().cloned())
        .map(Value::from)
        .collect();
    ("exec", json!({ "command": command }))
}

/// Describes an attempt of the hostile program, run by an agent.
fn exec(
    name: impl Into<String>,
    by: &'static str,
    words: impl Fn(&Place) -> Result<Vec<String>> + Send + Sync + 'static,
) -> Attempt {
    attempt(name, "exec", by, move |place| {
        Ok(Scene::new(vec![vec![escapee(&words(place)?)]], &["refused: "]))
    })
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}
