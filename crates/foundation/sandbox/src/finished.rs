//! How a run ended.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Captured, Refusal};

/// A run that is over: its whole tree has ended.
#[derive(Debug)]
pub struct Finished {
    /// How the command itself ended.
    pub exit: Exit,
    /// From its start until it ended, by the monotonic clock.
    pub duration: Duration,
    /// What it wrote to its standard output; to its terminal, where it has one.
    pub stdout: Captured,
    /// What it wrote to its standard error.
    pub stderr: Captured,
    /// Both streams in the order in which they were read. Writes to different streams that lie
    /// closer together than a read may be swapped.
    pub combined: Captured,
    /// How many processes the command left running, which were then killed.
    pub stragglers: u32,
    /// How many of its processes could not be killed, because the kernel holds them. It is 0 but
    /// on a machine with a broken disk or mount.
    pub unkillable: u32,
    /// The connections that were refused to it, where it had a [`Gateway`](crate::Gateway), each once.
    pub refused: Vec<Refusal>,
    /// Where it was connected to, each once, as `host:port`.
    pub reached: Vec<String>,
}

impl Finished {
    /// Says whether the command ended by itself with code 0.
    pub fn succeeded(&self) -> bool {
        self.exit == Exit::Code(0)
    }
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By a signal that this crate did not send.
    Signal(i32),
    /// It was ended because its time was over.
    TimedOut,
    /// It was ended because the caller cancelled.
    Cancelled,
    /// It was killed because its tree used more than its limits allow.
    OverLimit(Resource),
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::TimedOut => write!(f, "timed out"),
            Self::Cancelled => write!(f, "cancelled"),
            Self::OverLimit(resource) => write!(f, "over its limit of {resource}"),
        }
    }
}

/// What a whole tree shares under [`Limits`](crate::Limits).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Resource {
    /// Memory of all processes together.
    Memory,
    /// Processes at once.
    Processes,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => write!(f, "memory"),
            Self::Processes => write!(f, "processes"),
        }
    }
}
