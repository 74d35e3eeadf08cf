//! Functions of the embedder as bodies of tasks.

use std::{collections::BTreeMap, fmt, sync::Arc};

use async_trait::async_trait;
use formwork_protocols::{Body, Cancel, Claim, Escalation, StoreError, check::Verdict};
use futures::future::BoxFuture;

use crate::executor::{AttemptEnd, AttemptJob, CheckJob, Executor};

type Function =
    dyn Fn(AttemptJob, Cancel) -> BoxFuture<'static, Result<Claim, String>> + Send + Sync;

type CheckFunction = dyn Fn(CheckJob, Cancel) -> BoxFuture<'static, Verdict> + Send + Sync;

/// Functions that tasks can name as their bodies, and others that decide as checks.
#[derive(Clone, Default)]
pub struct Natives {
    functions: BTreeMap<String, Arc<Function>>,
    checks: BTreeMap<String, Arc<CheckFunction>>,
}

impl Natives {
    /// Begins with none.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a function, or puts it in the place of the one of that name.
    ///
    /// Its error is a failed attempt, whose reason the next attempt is shown.
    #[must_use]
    pub fn with<F, R>(mut self, name: impl Into<String>, function: F) -> Self
    where
        F: Fn(AttemptJob, Cancel) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Claim, String>> + Send + 'static,
    {
        let function: Arc<Function> = Arc::new(move |job, cancel| Box::pin(function(job, cancel)));
        self.functions.insert(name.into(), function);
        self
    }

    /// Lists the names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.functions.keys().map(String::as_str)
    }

    /// Adds a function that decides as a check, or puts it in the place of the one of that name.
    ///
    /// What it says is taken as it is, except for the name, which is the check's own.
    #[must_use]
    pub fn with_check<F, R>(mut self, name: impl Into<String>, function: F) -> Self
    where
        F: Fn(CheckJob, Cancel) -> R + Send + Sync + 'static,
        R: Future<Output = Verdict> + Send + 'static,
    {
        let function: Arc<CheckFunction> =
            Arc::new(move |job, cancel| Box::pin(function(job, cancel)));
        self.checks.insert(name.into(), function);
        self
    }

    /// Lists the names of the checks.
    pub fn check_names(&self) -> impl Iterator<Item = &str> {
        self.checks.keys().map(String::as_str)
    }

    /// Has a function decide. One that is not there cannot be run.
    pub async fn check(&self, job: CheckJob, function: &str, cancel: &Cancel) -> Verdict {
        let name = job.check.name.clone();
        let Some(decide) = self.checks.get(function) else {
            return Verdict::not_run(name, format!("there is no native check {function:?}"));
        };
        Verdict { check: name, ..decide(job, cancel.clone()).await }
    }

    /// Makes an attempt at a native body.
    pub async fn attempt(&self, job: AttemptJob, cancel: &Cancel) -> AttemptEnd {
        let Body::Native { function } = &job.spec.body else {
            return failed(format!("{} is no native body", job.spec.body.as_str()));
        };
        let Some(function) = self.functions.get(function) else {
            return failed(format!("there is no native function {function:?}"));
        };
        match function(job, cancel.clone()).await {
            Ok(claim) => AttemptEnd::Claimed { claim, session: None, files_changed: 0 },
            Err(_) if cancel.is_cancelled() => AttemptEnd::Interrupted { session: None },
            Err(detail) => failed(detail),
        }
    }
}

impl fmt::Debug for Natives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.functions.keys()).entries(self.checks.keys()).finish()
    }
}

fn failed(detail: String) -> AttemptEnd {
    let why = Escalation::BodyFailed { detail };
    AttemptEnd::Failed { why, session: None, files_changed: 0 }
}

type Check = dyn Fn(&CheckJob) -> Verdict + Send + Sync;

/// An executor of native bodies alone, with one function for all checks.
#[derive(Clone)]
pub struct NativeExecutor {
    natives: Natives,
    check: Arc<Check>,
}

impl NativeExecutor {
    /// Takes the functions and what decides on checks.
    pub fn new(
        natives: Natives,
        check: impl Fn(&CheckJob) -> Verdict + Send + Sync + 'static,
    ) -> Self {
        Self { natives, check: Arc::new(check) }
    }
}

impl fmt::Debug for NativeExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NativeExecutor").field(&self.natives).finish()
    }
}

#[async_trait]
impl Executor for NativeExecutor {
    async fn attempt(&self, job: AttemptJob, cancel: &Cancel) -> Result<AttemptEnd, StoreError> {
        Ok(self.natives.attempt(job, cancel).await)
    }

    async fn check(&self, job: CheckJob, _: &Cancel) -> Result<Verdict, StoreError> {
        Ok((self.check)(&job))
    }
}
