//! What was seen.

use std::{
    collections::VecDeque,
    fmt::{self, Write as _},
};

/// The lines of a series that are kept to show what led to a broken promise.
const KEPT_LINES: usize = 60;

/// What a simulation went through. Nothing of it broke a promise.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Report {
    /// The seed of its first tree.
    pub seed: u64,
    /// Things that happened.
    pub steps: u64,
    /// Runs, each carried to its end.
    pub trees: u64,
    /// Runs whose root completed.
    pub completed: u64,
    /// Tasks, parts of conversations included.
    pub tasks: u64,
    /// Tasks that were opened as parts of conversations.
    pub parts: u64,
    /// Tasks that bodies made while they worked.
    pub made: u64,
    /// Times that a body waited for what it had made.
    pub waits: u64,
    /// Times that a task waited for what another writes.
    pub blocked: u64,
    /// Attempts that were begun, those that went on after a pause or crash included.
    pub attempts: u64,
    /// Verdicts of checks.
    pub checks: u64,
    /// Model calls that were paid for.
    pub model_calls: u64,
    /// Model and tool calls that a budget refused.
    pub refused: u64,
    /// Tasks whose time was over.
    pub timeouts: u64,
    /// Tasks that somebody cancelled.
    pub cancels: u64,
    /// Pauses that were reached.
    pub pauses: u64,
    /// Tasks that whoever governs the run has decided about.
    pub overseen: u64,
    /// Processes that died.
    pub crashes: u64,
    /// Tells this series of steps from every other (FNV-1a over its text).
    pub digest: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, steps, trees, completed, tasks, parts, attempts, checks, .. } = self;
        let Self { made, waits, blocked, overseen, .. } = self;
        let Self { model_calls, refused, timeouts, cancels, pauses, crashes, digest, .. } = self;
        write!(
            f,
            "seed {seed}: {steps} steps, {trees} trees ({completed} completed), {tasks} tasks \
             ({parts} parts, {made} made, {waits} waits), {blocked} blocked, {attempts} attempts, {checks} checks, {model_calls} model calls, \
             {refused} refused, {overseen} overseen, {timeouts} timeouts, {cancels} cancels, {pauses} pauses, \
             {crashes} crashes, digest {digest:016x}"
        )
    }
}

/// A promise that was broken, and the seed that breaks it again in its first tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("seed {seed} broke a promise in step {step}: {promise}")]
#[non_exhaustive]
pub struct Broken {
    /// The seed of the tree.
    pub seed: u64,
    /// The step of that tree; the first is 1.
    pub step: u64,
    /// What should have been, and what was found.
    pub promise: String,
    /// What led to it, the last line last.
    pub series: Vec<String>,
}

/// The text of all steps: hashed whole, kept in part.
#[derive(Debug)]
pub(super) struct Series {
    digest: u64,
    lines: VecDeque<String>,
}

impl Series {
    pub(super) const fn new() -> Self {
        // FNV-1a, 64 bits: its offset basis.
        Self { digest: 0xcbf2_9ce4_8422_2325, lines: VecDeque::new() }
    }

    pub(super) fn note(&mut self, line: fmt::Arguments<'_>) {
        // The oldest line's room is used again, because there are millions of them.
        let mut text = if self.lines.len() < KEPT_LINES {
            String::new()
        } else {
            self.lines.pop_front().unwrap_or_default()
        };
        text.clear();
        text.write_fmt(line).expect("a string takes any text");
        for byte in text.as_bytes() {
            self.digest = (self.digest ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self.lines.push_back(text);
    }

    pub(super) const fn digest(&self) -> u64 {
        self.digest
    }

    pub(super) fn last_lines(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }
}
