//! The tree of tasks, folded from the events of a run.

use std::collections::HashMap;

use formwork_protocols::{
    Ending, Event, EventBody, Span, TaskId, TaskState, Timestamp, Usage, Usd, event::Decided,
};

/// A task as it is shown.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    /// Its name.
    pub name: String,
    /// Levels below the root.
    pub depth: usize,
    /// Where it stands.
    pub state: TaskState,
    /// How it ended.
    pub ending: Option<Ending>,
    /// What its subtree has spent.
    pub cost: Usd,
    /// What its subtree has used.
    pub usage: Usage,
    /// How often its body was tried.
    pub attempts: u32,
    /// What it does now, in a few words.
    pub doing: String,
    started: Option<Timestamp>,
    ended: Option<Timestamp>,
    parent: Option<TaskId>,
}

impl Node {
    /// Returns how long it has taken until `now`, or took.
    pub(super) fn elapsed(&self, now: Timestamp) -> Option<Span> {
        self.started.map(|started| self.ended.unwrap_or(now).since(started))
    }
}

/// The tree of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct Tree {
    nodes: HashMap<TaskId, Node>,
    /// Parents before their children, siblings in the order of their creation.
    order: Vec<TaskId>,
    /// What a model call or tool call is named when it ends.
    calls: HashMap<formwork_protocols::CallId, String>,
}

impl Tree {
    /// Returns the tasks from the root down.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.order.iter().filter_map(|id| self.nodes.get(id))
    }

    /// Returns the name of a task.
    pub(super) fn name(&self, task: TaskId) -> &str {
        self.nodes.get(&task).map_or("?", |node| node.name.as_str())
    }

    /// Returns the name of a call that has begun.
    pub(super) fn call(&self, call: formwork_protocols::CallId) -> &str {
        self.calls.get(&call).map_or("call", String::as_str)
    }

    /// Takes in what happened.
    pub(super) fn apply(&mut self, event: &Event) {
        let Some(task) = event.task else { return };
        match &event.body {
            EventBody::TaskCreated(created) => {
                let depth = created
                    .parent
                    .and_then(|parent| self.nodes.get(&parent))
                    .map_or(0, |parent| parent.depth + 1);
                self.nodes.insert(
                    task,
                    Node {
                        name: created.spec.name.to_string(),
                        depth,
                        state: TaskState::Created,
                        ending: None,
                        cost: Usd::ZERO,
                        usage: Usage::default(),
                        attempts: 0,
                        doing: String::new(),
                        started: None,
                        ended: None,
                        parent: created.parent,
                    },
                );
                let at = self.place(created.parent);
                self.order.insert(at, task);
            }
            EventBody::TaskMoved(moved) => {
                if let Some(node) = self.nodes.get_mut(&task) {
                    node.state = moved.to;
                    node.ending.clone_from(&moved.ending);
                    node.started.get_or_insert(event.at);
                    if moved.to == TaskState::Suspended {
                        node.doing = "waits for an event".to_owned();
                    }
                    if moved.to.is_terminal() {
                        node.ended = Some(event.at);
                        node.doing.clear();
                    }
                }
            }
            EventBody::AttemptStarted(started) => {
                self.doing(task, String::new());
                if let Some(node) = self.nodes.get_mut(&task) {
                    node.attempts = started.number;
                }
            }
            EventBody::CheckStarted(check) => {
                self.doing(task, format!("{} check {:?}", check.phase.as_str(), check.check));
            }
            EventBody::TaskBlocked(blocked) => self.doing(task, blocked.to_string()),
            EventBody::WorkerAwaited(awaited) => self.doing(task, awaited.to_string()),
            EventBody::WorkerConnected(_) => self.doing(task, String::new()),
            EventBody::InboxAsked(_) | EventBody::OverseerAsked(_) => {
                self.doing(task, "waits for an answer".to_owned());
            }
            EventBody::OverseerAnswered(_) => self.doing(task, String::new()),
            EventBody::WaitMet(_) | EventBody::InboxAnswered(_) => self.doing(task, String::new()),
            EventBody::CheckFinished(_) => self.doing(task, String::new()),
            EventBody::ModelRequested(asked) => self.doing(task, format!("asks {}", asked.model)),
            EventBody::ModelRetried(retried) => {
                self.doing(
                    task,
                    format!("waits {} ({})", retried.wait, retried.error.fault.as_str()),
                );
            }
            EventBody::ModelFellBack(fell) => self.doing(task, format!("asks {}", fell.to)),
            EventBody::ToolAsked(asked) => {
                let name = describe(&asked.tool, &asked.arguments);
                self.doing(task, format!("waits for approval of {name}"));
            }
            EventBody::ToolRequested(asked) => {
                let name = describe(&asked.tool, &asked.arguments);
                if asked.decision == Decided::Allowed {
                    self.doing(task, name.clone());
                }
                self.calls.insert(asked.call, name);
            }
            EventBody::ToolCompleted(_) | EventBody::ToolFailed(_) => {
                self.doing(task, String::new());
            }
            EventBody::BudgetSettled(settled) => {
                self.doing(task, String::new());
                self.spend(task, settled.usd, settled.usage);
            }
            _ => {}
        }
    }

    fn doing(&mut self, task: TaskId, what: String) {
        if let Some(node) = self.nodes.get_mut(&task) {
            node.doing = what;
        }
    }

    /// Adds a spend to a task and all above it.
    fn spend(&mut self, task: TaskId, cost: Usd, usage: Usage) {
        let mut at = Some(task);
        // A log that was made by hand may name parents in a circle.
        for _ in 0..self.nodes.len() {
            let Some(node) = at.and_then(|id| self.nodes.get_mut(&id)) else { break };
            node.cost = node.cost.saturating_add(cost);
            node.usage += usage;
            at = node.parent;
        }
    }

    /// Returns the place behind the last descendant of `parent`.
    fn place(&self, parent: Option<TaskId>) -> usize {
        let Some(at) = parent.and_then(|parent| self.order.iter().position(|id| *id == parent))
        else {
            return self.order.len();
        };
        let depth = self.depth(at);
        let below = (at + 1..self.order.len()).find(|next| self.depth(*next) <= depth);
        below.unwrap_or(self.order.len())
    }

    fn depth(&self, at: usize) -> usize {
        self.order.get(at).and_then(|id| self.nodes.get(id)).map_or(0, |node| node.depth)
    }
}

/// Describes a tool call in a few words: its name and what it is about.
pub(crate) fn describe(tool: &str, arguments: &serde_json::Value) -> String {
    let about = ["path", "command", "arguments", "pattern", "name", "question", "url"]
        .iter()
        .find_map(|key| match arguments.get(*key)? {
            serde_json::Value::String(text) => Some(text.clone()),
            serde_json::Value::Array(words) => {
                let words: Vec<_> = words.iter().filter_map(serde_json::Value::as_str).collect();
                Some(words.join(" "))
            }
            _ => None,
        });
    let about = about.unwrap_or_default();
    let line = about.lines().next().unwrap_or_default();
    format!("{tool} {}", formwork_protocols::text::head(line, 60)).trim_end().to_owned()
}
