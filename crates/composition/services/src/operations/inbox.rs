//! `inbox.*`: what runs ask people, and what these answer, from whatever process.

mod calls; // Calls that are asked about.

use std::collections::HashMap;

use async_trait::async_trait;
use formwork_protocols::{
    Append, CallId, Event, EventBody, InboxState, ItemId, NewEvent, Position, Principal, RunId,
    RunState, Store, TaskId, TaskState, Timestamp, WorkflowName,
    document::nearest_hint,
    event::{InboxAnswered, InboxClosed, InboxContradicted, contradiction_key, inbox_key},
    store::{RunRow, Selection, TaskRow},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
};

/// How many runs are looked at in one page.
const PAGE: usize = 200;

/// The most bytes of a reason.
const MAX_REASON: usize = 2_000;

/// A question of a run, and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Item {
    /// Its id: that of the task that asks, or of the call that is asked about.
    pub item: ItemId,
    /// The run that asks.
    pub run: RunId,
    /// The run's workflow.
    pub workflow: WorkflowName,
    /// What is asked.
    pub question: String,
    /// What can be answered.
    pub options: Vec<String>,
    /// Since when.
    pub asked: Timestamp,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// What is taken for the answer when nobody gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assume: Option<String>,
    /// Where it stands.
    pub state: InboxState,
    /// The answer, given or assumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Who resolved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Principal>,
    /// When it was resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<Timestamp>,
    /// Why it was skipped or rejected, in their words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What was answered otherwise, once what was assumed had been acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contradiction: Option<Contradiction>,
    /// Whether it is about a task that was given up. Its run has gone on by what is assumed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub escalation: bool,
}

/// An answer that came too late, and is not what was assumed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Contradiction {
    /// The answer.
    pub answer: String,
    /// Who gives it.
    pub by: Principal,
    /// When.
    pub at: Timestamp,
}

impl Item {
    /// Says who has resolved it, when and how.
    fn how(&self) -> String {
        let by = self.by.as_ref().map_or(String::new(), |by| format!(" by {by}"));
        let at = self.resolved.map_or(String::new(), |at| format!(" at {at}"));
        let assumed = match &self.answer {
            Some(answer) => format!(", and {answer:?} was assumed"),
            None => String::new(),
        };
        match self.state {
            InboxState::Pending => "waits for an answer".to_owned(),
            InboxState::Answered => {
                let answer = self.answer.as_deref().unwrap_or_default();
                format!("was answered{by}{at} with {answer:?}")
            }
            InboxState::Skipped => format!("was left open{by}{at}{assumed}"),
            InboxState::Rejected => format!("was rejected{by}{at}"),
            InboxState::Expired => match &self.answer {
                Some(answer) => format!("was answered by nobody, and {answer:?} was assumed{at}"),
                None => format!("was answered by nobody, and was over{at}"),
            },
        }
    }
}

/// Lists the runs that have not ended.
pub(super) async fn open_runs(store: &dyn Store) -> Result<Vec<RunRow>, Error> {
    let (mut open, mut before) = (Vec::new(), None);
    loop {
        let page = store.runs(before, PAGE).await?;
        let Some(last) = page.last() else { return Ok(open) };
        before = Some(last.run);
        open.extend(page.into_iter().filter(|row| !row.state.is_terminal()));
    }
}

/// Lists what was asked about tasks that were given up, the oldest first: of a run, or what is pending of all, ended ones
/// included.
async fn given_up(store: &dyn Store, run: Option<RunId>) -> Result<Vec<Item>, Error> {
    let selection = Selection { run, task: None, kinds: vec!["inbox.".to_owned()] };
    let mut of_task: HashMap<TaskId, Vec<Event>> = HashMap::new();
    let mut after = Position::default();
    loop {
        let events = store.read(after, &selection, 1_000).await?;
        let Some(last) = events.last() else { break };
        after = last.position;
        for event in events {
            let Some(task) = event.task else { continue };
            let asks = matches!(event.body, EventBody::InboxAsked(_));
            let begins = matches!(&event.body, EventBody::InboxAsked(asked) if asked.escalation);
            match of_task.get_mut(&task) {
                // It is resolved, and of all runs only what is pending is wanted.
                Some(_) if run.is_none() && !asks => drop(of_task.remove(&task)),
                Some(known) => known.push(event),
                None if begins => drop(of_task.insert(task, vec![event])),
                None => {}
            }
        }
    }
    let mut found = Vec::with_capacity(of_task.len());
    for (task, events) in of_task {
        found.extend(folded(store, task, events).await?);
    }
    found.sort_by_key(|item| (item.asked, item.item));
    Ok(found)
}

/// Reads an item from the events of its task.
async fn read(store: &dyn Store, item: TaskId) -> Result<Option<Item>, Error> {
    let kinds = vec!["inbox.".to_owned()];
    let selection = Selection { run: None, task: Some(item), kinds };
    let events = store.read(Position::default(), &selection, 10).await?;
    folded(store, item, events).await
}

/// Puts an item together of the events of its task.
async fn folded(
    store: &dyn Store,
    item: TaskId,
    events: Vec<Event>,
) -> Result<Option<Item>, Error> {
    let mut found: Option<Item> = None;
    for event in events {
        match (event.body, &mut found) {
            (EventBody::InboxAsked(asked), None) => {
                let row = store.run(event.run).await?;
                let Some(row) = row else { continue };
                found = Some(Item {
                    item: item.into(),
                    run: event.run,
                    workflow: row.name,
                    question: asked.question,
                    options: asked.options,
                    asked: event.at,
                    deadline: asked.deadline,
                    assume: asked.assume,
                    state: InboxState::Pending,
                    answer: None,
                    by: None,
                    resolved: None,
                    reason: String::new(),
                    contradiction: None,
                    escalation: asked.escalation,
                });
            }
            (EventBody::InboxContradicted(said), Some(item)) => {
                let (answer, by, at) = (said.answer, event.principal, event.at);
                item.contradiction.get_or_insert(Contradiction { answer, by, at });
            }
            (body, Some(item)) if item.state == InboxState::Pending => {
                match body {
                    EventBody::InboxAnswered(said) => {
                        (item.state, item.answer) = (InboxState::Answered, Some(said.answer));
                    }
                    EventBody::InboxSkipped(said) => {
                        (item.state, item.reason) = (InboxState::Skipped, said.reason);
                        item.answer.clone_from(&item.assume);
                    }
                    EventBody::InboxRejected(said) => {
                        (item.state, item.reason) = (InboxState::Rejected, said.reason);
                    }
                    EventBody::InboxExpired(expired) => {
                        (item.state, item.answer) = (InboxState::Expired, expired.assumed);
                    }
                    _ => continue,
                }
                (item.by, item.resolved) = (Some(event.principal), Some(event.at));
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Closes a question whose task has ended without an answer: where nobody is asked, what is assumed is taken at once. Of a task
/// that was given up the question begins with its end.
fn over(mut item: Item, task: &TaskRow) -> Item {
    if item.state == InboxState::Pending && !item.escalation && task.state.is_terminal() {
        let is_taken = task.state == TaskState::Completed;
        item.answer = item.assume.clone().filter(|_| is_taken);
        item.state = InboxState::Expired;
        (item.by, item.resolved) = (Some(Principal::system("scheduler")), task.ended);
    }
    item
}

async fn named(store: &dyn Store, item: ItemId) -> Result<Item, Error> {
    let task = TaskId::from_uuid(item.as_uuid());
    if let Some(found) = read(store, task).await? {
        let tasks = store.tasks(found.run).await?;
        return Ok(match tasks.iter().find(|row| row.task == task) {
            Some(row) => over(found, row),
            None => found,
        });
    }
    let call = calls::find(store, CallId::from_uuid(item.as_uuid())).await?;
    call.ok_or_else(|| Error::Inbox {
        item,
        reason: "is none that waits or was ever asked".to_owned(),
    })
}

/// Which items.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListParams {
    /// All of this run, resolved ones included; those that wait, of all runs, where absent.
    pub run: Option<RunId>,
    /// Whether all are listed that are about what was given up, and not only the newest. A run waits for none of them.
    pub all: bool,
}

/// Items, those that a run waits for before those about what was given up, each the oldest first.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Listed {
    /// The items.
    pub items: Vec<Item>,
    /// How many older ones about what was given up are left out.
    #[serde(default)]
    pub left_out: u64,
}

/// How many items about what was given up are listed where nobody asks for all: they are added with each run that fails
/// and nobody watches, and no run waits for them.
const GIVEN_UP: usize = 10;

/// `inbox.list`
pub struct List;

#[async_trait]
impl Operation for List {
    const NAME: &'static str = "inbox.list";
    const DOC: &'static str = "Lists what runs ask people.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = ListParams;
    type Output = Listed;

    async fn run(formwork: &Formwork, _: &Caller, params: ListParams) -> Result<Listed, Error> {
        let store = &*formwork.inner.store;
        let runs = match params.run {
            Some(run) => vec![super::runs::named(store, run).await?.run],
            None => open_runs(store).await?.into_iter().map(|row| row.run).collect(),
        };
        let mut items = Vec::new();
        for run in runs {
            items.extend(calls::of(store, run).await?);
            for task in store.tasks(run).await? {
                let waits = task.state == TaskState::Suspended;
                if task.body == "decision" && (waits || params.run.is_some()) {
                    items.extend(read(store, task.task).await?.map(|item| over(item, &task)));
                }
            }
        }
        items.sort_by_key(|item| item.asked);
        // Nobody waits for an answer about what was given up.
        let mut given_up = given_up(store, params.run).await?;
        let most = if params.all || params.run.is_some() { usize::MAX } else { GIVEN_UP };
        let left_out = given_up.len().saturating_sub(most);
        items.extend(given_up.split_off(left_out));
        // One that was answered stays with its task until somebody takes the run up.
        items.retain(|item| params.run.is_some() || item.state == InboxState::Pending);
        Ok(Listed { items, left_out: left_out as u64 })
    }
}

/// Which item.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetParams {
    /// The item.
    pub item: ItemId,
}

/// `inbox.get`
pub struct Get;

#[async_trait]
impl Operation for Get {
    const NAME: &'static str = "inbox.get";
    const DOC: &'static str = "Shows a question of a run and what became of it.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = GetParams;
    type Output = Item;

    async fn run(formwork: &Formwork, _: &Caller, params: GetParams) -> Result<Item, Error> {
        named(&*formwork.inner.store, params.item).await
    }
}

/// What becomes of an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[expect(missing_docs, reason = "their fields' names say it")]
pub enum Resolution {
    /// It is answered by one of its options.
    Answer { answer: String },
    /// It is left to whoever asked: what is assumed is taken.
    Skip { reason: String },
    /// What it is about is not wanted at all: the task that asks fails.
    Reject { reason: String },
}

/// What becomes of which item.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolveParams {
    /// The item.
    pub item: ItemId,
    /// What becomes of it.
    pub resolution: Resolution,
}

/// An item that was resolved.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Resolved {
    /// The item as it is now.
    pub item: Item,
    /// Where its run stands: one that is paused goes on once it is resumed.
    pub run_state: RunState,
}

/// `inbox.resolve`
pub struct Resolve;

#[async_trait]
impl Operation for Resolve {
    const NAME: &'static str = "inbox.resolve";
    const DOC: &'static str = "Answers, skips or rejects a question of a run, once.";
    const SCOPE: Scope = Scope::Run;
    const EFFECT: Effect = Effect::Write;
    type Params = ResolveParams;
    type Output = Resolved;

    async fn run(
        formwork: &Formwork,
        caller: &Caller,
        params: ResolveParams,
    ) -> Result<Resolved, Error> {
        let (inner, id) = (&formwork.inner, params.item);
        let item = named(&*inner.store, id).await?;
        super::runs::own(formwork, item.run, "answered").await?;
        let row = super::runs::named(&*inner.store, item.run).await?;
        let refused = |reason: String| Error::Inbox { item: id, reason };
        let settled = |item: &Item| Error::Settled {
            item: id,
            how: item.how(),
            is_assumed: item.state == InboxState::Expired && item.answer.is_some(),
        };
        // What was assumed, at its deadline or at once where nobody is asked, was acted on. What somebody left open, they
        // have decided.
        if let Resolution::Answer { answer } = &params.resolution
            && let (InboxState::Expired, Some(assumed)) = (item.state, item.answer.clone())
        {
            is_option(&item, answer).map_err(refused)?;
            let item = contradict(formwork, caller, item, (assumed, answer.clone())).await?;
            return Ok(Resolved { item, run_state: row.state });
        }
        if item.state != InboxState::Pending {
            return Err(settled(&item));
        }
        // An answer about a task that was given up is kept, whatever has become of its run.
        if row.state.is_terminal() && !item.escalation {
            return Err(refused(format!("cannot be resolved: its run is {}", row.state)));
        }
        let short =
            |reason: String| formwork_protocols::text::head(reason.trim(), MAX_REASON).to_owned();
        let body = match params.resolution {
            Resolution::Answer { answer } => {
                is_option(&item, &answer).map_err(refused)?;
                EventBody::InboxAnswered(InboxAnswered { answer })
            }
            Resolution::Skip { reason } => {
                EventBody::InboxSkipped(InboxClosed { reason: short(reason) })
            }
            Resolution::Reject { reason } => {
                EventBody::InboxRejected(InboxClosed { reason: short(reason) })
            }
        };
        if let Some(asked) = calls::asked(&*inner.store, item.run, id).await? {
            let answered = calls::answer(formwork, caller, (asked, &item), body).await?;
            return Ok(Resolved {
                item: answered.ok_or_else(|| Error::Settled {
                    item: item.item,
                    how: "was resolved by somebody else at this moment".to_owned(),
                    is_assumed: false,
                })?,
                run_state: row.state,
            });
        }
        let id = TaskId::from_uuid(id.as_uuid());
        let event = NewEvent {
            task: Some(id),
            principal: caller.principal().clone(),
            at: inner.clock.now(),
            body,
            // Whoever comes second, at the same moment even, changes nothing.
            idempotency_key: Some(inbox_key(id)),
        };
        let batch = Append { run: item.run, token: None, events: vec![event], blobs: Vec::new() };
        let recorded = inner.store.append(batch).await?;
        let item = named(&*inner.store, id.into()).await?;
        if recorded.iter().any(|recorded| recorded.duplicate) {
            return Err(settled(&item));
        }
        Ok(Resolved { item, run_state: row.state })
    }
}

/// Tells whether an answer is one of those that can be given, or why not.
fn is_option(item: &Item, answer: &str) -> Result<(), String> {
    if item.options.iter().any(|option| option == answer) {
        return Ok(());
    }
    let hint = nearest_hint(answer, item.options.iter().map(String::as_str));
    let hint = hint.unwrap_or_else(|| format!("choose one of {}", item.options.join(", ")));
    Err(format!("has no option {answer:?}; {hint}"))
}

/// Records that the answer to a question is not what was assumed, whatever has become of its run. One that was assumed
/// rightly is as it was.
async fn contradict(
    formwork: &Formwork,
    caller: &Caller,
    item: Item,
    (assumed, answer): (String, String),
) -> Result<Item, Error> {
    let (inner, id) = (&formwork.inner, TaskId::from_uuid(item.item.as_uuid()));
    let settled = |item: &Item| {
        let said = item.contradiction.as_ref().map_or(String::new(), |it| {
            format!(", and {} said {:?} instead at {}", it.by, it.answer, it.at)
        });
        Error::Settled { item: item.item, how: format!("{}{said}", item.how()), is_assumed: false }
    };
    if item.contradiction.is_some() {
        return Err(settled(&item));
    }
    if answer == assumed {
        return Ok(item);
    }
    let question = item.question.clone();
    let event = NewEvent {
        task: Some(id),
        principal: caller.principal().clone(),
        at: inner.clock.now(),
        body: EventBody::InboxContradicted(InboxContradicted { question, assumed, answer }),
        idempotency_key: Some(contradiction_key(id)),
    };
    let batch = Append { run: item.run, token: None, events: vec![event], blobs: Vec::new() };
    let recorded = inner.store.append(batch).await?;
    let item = named(&*inner.store, item.item).await?;
    match recorded.iter().any(|recorded| recorded.duplicate) {
        true => Err(settled(&item)),
        false => Ok(item),
    }
}
