//! Data of the events of services: programs that the tasks of a run need while they work.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::BlobHash;
use crate::{id::ServiceName, time::Span};

/// Data of `service.started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceStarted {
    /// The service.
    pub service: ServiceName,
    /// How often the process that works on the run has started it; the first time is 1.
    pub number: u32,
    /// The program and its arguments, without secrets.
    pub argv: Vec<String>,
}

/// Data of `service.ready`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceReady {
    /// The service.
    pub service: ServiceName,
    /// Which start of it.
    pub number: u32,
    /// How long that took.
    pub elapsed: Span,
}

/// Data of `service.failed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceFailed {
    /// The service.
    pub service: ServiceName,
    /// Which start of it.
    pub number: u32,
    /// Whether it had been ready.
    pub was_ready: bool,
    /// Why, in one line.
    pub reason: String,
    /// The end of its output.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub excerpt: String,
    /// Its output by its hash, the middle left out where that is long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<BlobHash>,
    /// Whether it is started again.
    pub again: bool,
}

/// Data of `service.stopped`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceStopped {
    /// The service.
    pub service: ServiceName,
    /// Which start of it.
    pub number: u32,
    /// How it ended.
    pub reason: String,
    /// Its output by its hash, the middle left out where that is long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<BlobHash>,
}

impl fmt::Display for ServiceStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, number, argv } = self;
        let argv = argv.join(" ");
        match number {
            0 | 1 => write!(f, "service {service} is started: {argv}"),
            again => write!(f, "service {service} is started for the {again}. time: {argv}"),
        }
    }
}

impl fmt::Display for ServiceReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "service {} is ready after {}", self.service, self.elapsed)
    }
}

impl fmt::Display for ServiceFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "service {} {}", self.service, self.reason)?;
        if self.again { f.write_str("; it is started again") } else { Ok(()) }
    }
}

impl fmt::Display for ServiceStopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "service {} is stopped: {}", self.service, self.reason)
    }
}
