//! Data of the events about workers, which carry out calls elsewhere.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{CallId, WorkerLabel, WorkerName};

/// Data of `worker.awaited`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerAwaited {
    /// The label that a worker has to have.
    pub label: WorkerLabel,
    /// What is missing, in words.
    pub reason: String,
}

impl fmt::Display for WorkerAwaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "waits for a worker with label {}: {}", self.label, self.reason)
    }
}

/// Data of `worker.connected`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerConnected {
    /// The worker.
    pub worker: WorkerName,
    /// The label by which it was chosen.
    pub label: WorkerLabel,
}

impl fmt::Display for WorkerConnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {} answers for label {}", self.worker, self.label)
    }
}

/// Data of `worker.lost`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerLost {
    /// The worker.
    pub worker: WorkerName,
    /// The label by which it was chosen.
    pub label: WorkerLabel,
    /// How it went.
    pub reason: String,
}

impl fmt::Display for WorkerLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {} is lost: {}", self.worker, self.reason)
    }
}

/// Data of `worker.refused`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerRefused {
    /// The worker.
    pub worker: WorkerName,
    /// The call that it answered.
    pub call: CallId,
    /// Why it was not heard.
    pub reason: String,
}

impl fmt::Display for WorkerRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an answer of worker {} was refused: {}", self.worker, self.reason)
    }
}
