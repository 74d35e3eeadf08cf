//! What a subscription means, once its document has no fault.

use std::collections::{BTreeMap, BTreeSet};

use formwork_expression::Expression;
use formwork_protocols::{
    EventBody, RunId, SourceName, Span, SubscriptionName, VariableName, WorkflowName,
    document::{self, Diagnostic, Diagnostics, Parsed, nearest_hint, pointer},
    event::{ExternalReceived, task_kind},
    state::TaskState,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ActionDocument, FilterDocument, Occurrence, Pattern, SubscriptionDocument,
    scope::{OF_ALL, OF_EVENT},
};

/// What the kinds of a subscription's own events begin with.
pub(crate) const OWN: &str = "dispatch.";

/// How often an action is tried where its document does not say.
const ATTEMPTS: u32 = 3;

/// How long it is waited between two attempts where the document does not say.
const DELAY: Span = Span::from_secs(10);

/// How long a command may take where the document does not say.
const TIMEOUT: Span = Span::from_secs(120);

/// The most actions of a subscription, and the most kinds, principals and workflows of its filter.
const MOST: usize = 100;

/// Where a subscription begins that was never dispatched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Begin {
    /// With what happens from then on.
    #[default]
    Now,
    /// With the first event of the log.
    Beginning,
}

/// A subscription.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the fields are those of its document")]
pub struct Subscription {
    pub name: SubscriptionName,
    pub description: String,
    pub begin: Begin,
    pub filter: Filter,
    pub accumulate: Option<Accumulate>,
    pub actions: Vec<Action>,
}

/// Which events are for a subscription: those of which all of this holds.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the fields are those of its document")]
pub struct Filter {
    pub kinds: Vec<Pattern>,
    pub principals: Vec<Pattern>,
    pub sources: Vec<SourceName>,
    pub run: Option<RunId>,
    pub workflows: Vec<WorkflowName>,
    pub when: Option<Expression>,
}

/// How events are gathered.
#[derive(Debug, Clone, PartialEq)]
pub struct Accumulate {
    /// So many of them.
    pub count: Option<usize>,
    /// Within so long.
    pub within: Option<Span>,
    /// Those with the same value.
    pub key: Option<Expression>,
}

/// Something that is done.
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    /// What.
    pub kind: ActionKind,
    /// And what becomes of it when it fails.
    pub retry: Retry,
}

/// What is done.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ActionKind {
    /// A program is run.
    #[expect(missing_docs, reason = "its fields' names say it")]
    Command { argv: Vec<String>, timeout: Span },
    /// A workflow is run to its end, with an expression for each variable that is set.
    #[expect(missing_docs, reason = "its fields' names say it")]
    Workflow { workflow: WorkflowName, vars: BTreeMap<VariableName, Expression> },
    /// A request is sent.
    Webhook(Webhook),
}

impl ActionKind {
    /// Says what it does, in a line.
    pub fn told(&self) -> String {
        match self {
            Self::Command { argv, .. } => format!("runs {}", argv.join(" ")),
            Self::Workflow { workflow, .. } => format!("runs workflow {workflow}"),
            Self::Webhook(webhook) => format!("posts to {}", webhook.url),
        }
    }
}

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of its document")]
pub struct Webhook {
    pub url: String,
    pub headers: BTreeMap<String, String>,
}

/// What becomes of an action that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// How often it is tried at the most.
    pub attempts: u32,
    /// How long it is waited before the next attempt.
    pub delay: Span,
}

impl Filter {
    /// Tells whether an event is for it, by all that it asks.
    pub fn matches(&self, seen: &Occurrence<'_>) -> bool {
        let event = seen.event();
        self.run.is_none_or(|run| run == event.run)
            && self.is_by(event.principal.as_str())
            && self.is_of_kind(event.body.kind())
            && self.holds_for_the_rest(seen)
    }

    /// Tells whether the kind of an event is one of its kinds.
    pub(crate) fn is_of_kind(&self, kind: &str) -> bool {
        !kind.starts_with(OWN) && self.kinds.iter().any(|pattern| pattern.matches(kind))
    }

    /// Tells whether who caused an event is one of those it asks for.
    pub(crate) fn is_by(&self, principal: &str) -> bool {
        self.principals.is_empty() || self.principals.iter().any(|it| it.matches(principal))
    }

    /// Tells whether an event was sent by one of the sources it asks for.
    fn is_from(&self, body: &EventBody) -> bool {
        let is_one = |sent: &ExternalReceived| self.sources.contains(&sent.source);
        self.sources.is_empty() || matches!(body, EventBody::ExternalReceived(it) if is_one(it))
    }

    /// Asks what needs more than the event itself.
    pub(crate) fn holds_for_the_rest(&self, seen: &Occurrence<'_>) -> bool {
        let is_of_workflow = self.workflows.is_empty() || self.workflows.contains(seen.workflow());
        // What has no value over an event, since that lacks what it asks for, does not hold.
        is_of_workflow
            && self.is_from(&seen.event().body)
            && self.when.as_ref().is_none_or(|when| when.test(&seen.seen_by(when)).unwrap_or(false))
    }
}

impl Accumulate {
    /// Returns what an event has in common with those that it is gathered with.
    pub fn key_of(&self, seen: &Occurrence<'_>) -> String {
        let Some(key) = &self.key else { return String::new() };
        match key.evaluate(&seen.seen_by(key)) {
            Ok(serde_json::Value::String(text)) => text,
            Ok(value) => value.to_string(),
            // Those that lack it have that in common.
            Err(_) => String::new(),
        }
    }
}

impl Subscription {
    /// Reads a subscription; `source` is the name of its file, and `workflows` are those that there are.
    ///
    /// # Errors
    /// [`Diagnostics`] lists every fault with its place.
    pub fn parse(
        source: &str,
        text: &str,
        workflows: &BTreeSet<WorkflowName>,
    ) -> Result<Self, Diagnostics> {
        let parsed = match document::parse::<SubscriptionDocument>(source, text) {
            Ok(parsed) => parsed,
            Err(mut faults) => {
                // What can be read besides is held to its meaning as well.
                if let Some(rest) = document::salvage::<SubscriptionDocument>(source, text) {
                    let reader =
                        Reader { parsed: &rest, workflows, is_partial: true, faults: Vec::new() };
                    let more = reader.read();
                    faults.merge(more.err().into_iter().flatten());
                }
                return Err(faults);
            }
        };
        Reader { parsed: &parsed, workflows, is_partial: false, faults: Vec::new() }
            .read()
            .map_err(|faults| faults.into_iter().collect())
    }
}

/// Reads the meaning of a document whose form is right.
struct Reader<'a> {
    parsed: &'a Parsed<SubscriptionDocument>,
    workflows: &'a BTreeSet<WorkflowName>,
    /// Whether something was left out that has a fault already.
    is_partial: bool,
    faults: Vec<Diagnostic>,
}

impl Reader<'_> {
    fn fault(&mut self, at: &str, told: impl Into<String>, hint: Option<String>) {
        let fault = self.parsed.diagnostic(at, told);
        self.faults.push(Diagnostic { hint: hint.or(fault.hint.clone()), ..fault });
    }

    fn read(mut self) -> Result<Subscription, Vec<Diagnostic>> {
        let document = &self.parsed.value;
        let filter = self.filter(&document.filter);
        let accumulate = document.accumulate.as_ref().map(|written| {
            if written.count.is_none() && written.within.is_none() {
                self.fault(
                    "/accumulate",
                    "events are gathered by count, by within, or by both",
                    None,
                );
            }
            let key = written.key.as_ref();
            Accumulate {
                count: written.count.map(|count| usize::try_from(count.get()).unwrap_or(MOST)),
                within: written.within,
                key: key.and_then(|key| self.expression("/accumulate/key", key, &[])),
            }
        });
        if document.actions.is_empty() {
            self.fault(
                "/actions",
                "a subscription does something: it has at least one action",
                None,
            );
        }
        if document.actions.len() > MOST {
            let told =
                format!("there are {} actions, at most {MOST} are read", document.actions.len());
            self.fault("/actions", told, None);
        }
        let actions = document.actions.iter().enumerate();
        let actions: Vec<Option<Action>> =
            actions.map(|(at, action)| self.action(&format!("/actions/{at}"), action)).collect();
        if !self.faults.is_empty() {
            return Err(self.faults);
        }
        Ok(Subscription {
            name: document.name.clone(),
            description: document.description.clone(),
            begin: document.begin,
            filter,
            accumulate,
            actions: actions.into_iter().flatten().collect(),
        })
    }

    fn filter(&mut self, written: &FilterDocument) -> Filter {
        if written.kinds.is_empty() {
            let told = "a filter names at least one kind; `*` stands for all";
            self.fault("/filter/kinds", told, None);
        }
        for (what, found) in [
            ("kinds", written.kinds.len()),
            ("principals", written.principals.len()),
            ("sources", written.sources.len()),
            ("workflows", written.workflows.len()),
        ] {
            if found > MOST {
                let told = format!("there are {found} {what}, at most {MOST} are read");
                self.fault(&format!("/filter/{what}"), told, None);
            }
        }
        for (at, kind) in written.kinds.iter().enumerate() {
            self.kind(&format!("/filter/kinds/{at}"), kind);
        }
        for (at, principal) in written.principals.iter().enumerate() {
            if principal.is_empty() || principal.chars().any(char::is_whitespace) {
                let told = format!("{principal:?} is no principal, such as user:ada or agent:*");
                self.fault(&format!("/filter/principals/{at}"), told, None);
            }
        }
        Filter {
            kinds: written.kinds.iter().map(|kind| Pattern::new(kind)).collect(),
            principals: written.principals.iter().map(|it| Pattern::new(it)).collect(),
            sources: written.sources.clone(),
            run: written.run,
            workflows: written.workflows.clone(),
            when: written.when.as_ref().and_then(|when| self.expression("/filter/when", when, &[])),
        }
    }

    /// Holds the kinds that a filter names to those that there are.
    fn kind(&mut self, at: &str, kind: &str) {
        let known = || {
            let tasks = TaskState::ALL.into_iter().map(task_kind);
            EventBody::KINDS.iter().copied().chain(tasks).filter(|known| !known.starts_with(OWN))
        };
        if kind.starts_with(OWN) {
            let told = "what subscriptions record of themselves is for no subscription";
            return self.fault(at, told, None);
        }
        let pattern = Pattern::new(kind);
        if !known().any(|known| pattern.matches(known)) {
            let hint = nearest_hint(kind, known());
            self.fault(at, format!("there are no events of kind {kind:?}"), hint);
        }
    }

    fn expression(&mut self, at: &str, text: &str, more: &[&'static str]) -> Option<Expression> {
        let expression = match Expression::parse(text) {
            Ok(expression) => expression,
            Err(error) => {
                self.fault(at, error.to_string(), None);
                return None;
            }
        };
        let known = || OF_EVENT.iter().chain(more).copied();
        let names = expression.references().map(|reference| reference.name().to_owned());
        let unknown: BTreeSet<String> =
            names.filter(|name| known().all(|known| known != name)).collect();
        for name in unknown {
            let hint = nearest_hint(&name, known());
            self.fault(at, format!("nothing is known as {name:?} of an event"), hint);
        }
        Some(expression)
    }

    fn action(&mut self, at: &str, written: &ActionDocument) -> Option<Action> {
        let kind = match (&written.command, &written.workflow, &written.webhook) {
            (Some(argv), None, None) => self.command(at, argv, written),
            (None, Some(workflow), None) => self.workflow(at, workflow, written),
            (None, None, Some(webhook)) => {
                let (url, headers) = (webhook.url.clone(), webhook.headers.clone());
                if !url.starts_with("https://") && !url.starts_with("http://") {
                    let told = format!("{url:?} is no address of http or https");
                    self.fault(&format!("{at}/webhook/url"), told, None);
                }
                if url.contains("{{") {
                    let told = "the address stands as it is; a secret goes into a header";
                    self.fault(&format!("{at}/webhook/url"), told, None);
                }
                ActionKind::Webhook(Webhook { url, headers })
            }
            (None, None, None) if self.is_partial => return None,
            _ => {
                let told = "an action does one thing: command, workflow or webhook";
                self.fault(at, told, None);
                return None;
            }
        };
        if written.timeout.is_some() && written.command.is_none() {
            self.fault(&format!("{at}/timeout"), "only a command has a timeout", None);
        }
        if !written.vars.is_empty() && written.workflow.is_none() {
            self.fault(&format!("{at}/vars"), "only a workflow has variables", None);
        }
        let retry = Retry {
            attempts: written.retry.attempts.map_or(ATTEMPTS, std::num::NonZeroU32::get),
            delay: written.retry.delay.unwrap_or(DELAY),
        };
        Some(Action { kind, retry })
    }

    fn command(&mut self, at: &str, argv: &[String], written: &ActionDocument) -> ActionKind {
        if argv.first().is_none_or(|program| program.trim().is_empty()) {
            self.fault(&format!("{at}/command"), "a command names a program", None);
        }
        for (number, word) in argv.iter().enumerate() {
            if word.contains("{{") {
                let told = "the words of a command stand as they are: what has happened is on its standard input, and a \
                    secret among them would be seen by every process";
                self.fault(&format!("{at}/command/{number}"), told, None);
            }
        }
        ActionKind::Command { argv: argv.to_vec(), timeout: written.timeout.unwrap_or(TIMEOUT) }
    }

    fn workflow(
        &mut self,
        at: &str,
        workflow: &WorkflowName,
        written: &ActionDocument,
    ) -> ActionKind {
        if !self.workflows.contains(workflow) {
            let names = self.workflows.iter().map(WorkflowName::as_str);
            let hint = nearest_hint(workflow.as_str(), names);
            self.fault(&format!("{at}/workflow"), format!("there is no workflow {workflow}"), hint);
        }
        let mut vars = BTreeMap::new();
        for (name, text) in &written.vars {
            let place = format!("{at}{}", pointer(["vars", name.as_str()]));
            if let Some(expression) = self.expression(&place, text, &OF_ALL) {
                vars.insert(name.clone(), expression);
            }
        }
        ActionKind::Workflow { workflow: workflow.clone(), vars }
    }
}
