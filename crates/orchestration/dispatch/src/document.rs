//! A subscription as a person writes it.

use std::{collections::BTreeMap, num::NonZeroU32};

use formwork_protocols::{
    RunId, SourceName, Span, SubscriptionName, VariableName, WorkflowName,
    document::{DocumentType, Reserved},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Begin;

/// A subscription: which events, and what is done by them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubscriptionDocument {
    /// Its name, which is that of its file.
    pub name: SubscriptionName,
    /// What it is for, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Where it begins when it is dispatched for the first time: with what happens from then on, or with all that the log holds.
    #[serde(default)]
    pub begin: Begin,
    /// Which events are for it.
    pub filter: FilterDocument,
    /// Which of them are gathered before anything is done; each by itself where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accumulate: Option<AccumulateDocument>,
    /// What is done, in this order. What stands behind an action that fails for good is not done.
    #[schemars(length(min = 1))]
    pub actions: Vec<ActionDocument>,
}

/// Which events are for a subscription: those of which all of this holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilterDocument {
    /// The kinds, such as `run.finished`; a `*` stands for any characters, as in `tool.*`. One of them has to be that of the
    /// event.
    #[schemars(length(min = 1))]
    pub kinds: Vec<String>,
    /// Who caused it, such as `user:ada` or `agent:*`; one of them has to be. Anybody where empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub principals: Vec<String>,
    /// The sources of which one has to have sent it, as in `external.received`; anybody where empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceName>,
    /// The one run that it has to be of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The workflows of whose runs it has to be; any where empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workflows: Vec<WorkflowName>,
    /// A condition in CEL over `kind`, `principal`, `run`, `task`, `seq`, `position`, `workflow` and `data`. An event that
    /// lacks what it asks for is not for the subscription.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
}

/// How events are gathered before anything is done: at least one of `count` and `within`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccumulateDocument {
    /// So many of them, and then the next so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub count: Option<NonZeroU32>,
    /// With `count`: that many within so long of each other, and what is older does not count any more. Alone: all that come
    /// within so long of the first.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "formwork_protocols::time::some_time"
    )]
    pub within: Option<Span>,
    /// An expression in CEL over the same names as `when`: only events with the same value are gathered together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Something that is done: exactly one of `command`, `workflow` and `webhook`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActionDocument {
    /// A program and its arguments; no shell is involved. It reads what has happened as JSON on its standard input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// How long a command may take; two minutes where absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "formwork_protocols::time::some_time"
    )]
    pub timeout: Option<Span>,
    /// A workflow of the workspace that is run to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<WorkflowName>,
    /// What its variables are set to: an expression in CEL for each, over the names of `when`, and over `events`, `count` and
    /// `key` of what was gathered.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub vars: BTreeMap<VariableName, String>,
    /// A request by POST, with what has happened as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookDocument>,
    /// What becomes of it when it fails.
    #[serde(default)]
    pub retry: RetryDocument,
}

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebhookDocument {
    /// The address, as it stands. Its host has to be one of `permissions.http.hosts`.
    pub url: String,
    /// The headers, by name; `{{secret:NAME}}` puts in a secret that may be sent to that host.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

/// What becomes of an action that fails.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetryDocument {
    /// How often it is tried before it is given up; three times where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub attempts: Option<NonZeroU32>,
    /// How long it is waited before the next attempt; ten seconds where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
}

/// What is designed and not there yet.
const RESERVED: &[Reserved] = &[
    Reserved::key("actions.*.inbox"),
    Reserved::key("actions.*.notify"),
    Reserved::key("actions.*.event"),
    Reserved::key("actions.*.log"),
    Reserved::key("actions.*.native"),
];

impl DocumentType for SubscriptionDocument {
    const NAME: &'static str = "subscription";

    fn reserved() -> &'static [Reserved] {
        RESERVED
    }
}
