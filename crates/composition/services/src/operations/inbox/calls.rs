//! Calls that the rules leave open, as items of the inbox.

use std::collections::BTreeMap;

use formwork_protocols::{
    Append, Approval, CallId, Event, EventBody, InboxState, ItemId, NewEvent, Position, RunId,
    Store,
    event::{ToolAnswered, ToolAsked},
    store::Selection,
};

use super::{Item, open_runs};
use crate::{Error, Formwork, capability::Caller};

/// How a call is answered: it is made once, it and those like it in this session, those always, or not at all.
const OPTIONS: [&str; 4] = ["once", "session", "always", "no"];

/// The most bytes of the arguments that a question shows.
const MAX_SHOWN: usize = 2_000;

/// Reads the calls that a run has asked about, and where each stands.
pub(super) async fn of(store: &dyn Store, run: RunId) -> Result<Vec<Item>, Error> {
    let kinds = ["tool.asked", "tool.answered", "tool.decided", "tool.requested", "run.finished"];
    let selection =
        Selection { run: Some(run), task: None, kinds: kinds.map(str::to_owned).to_vec() };
    let Some(row) = store.run(run).await? else { return Ok(Vec::new()) };
    let mut items: BTreeMap<CallId, Item> = BTreeMap::new();
    let mut after = Position::default();
    loop {
        let events = store.read(after, &selection, 1_000).await?;
        let Some(last) = events.last() else { break };
        after = last.position;
        for event in events {
            take(&mut items, event, &row.name);
        }
    }
    Ok(items.into_values().collect())
}

fn take(
    items: &mut BTreeMap<CallId, Item>,
    event: Event,
    workflow: &formwork_protocols::WorkflowName,
) {
    let (by, at) = (event.principal.clone(), event.at);
    let (call, approval) = match event.body {
        EventBody::ToolAsked(asked) => {
            let item = Item {
                item: asked.call.into(),
                run: event.run,
                workflow: workflow.clone(),
                question: question(by.as_ref(), &asked),
                options: options(&asked),
                asked: event.at,
                deadline: None,
                assume: None,
                state: InboxState::Pending,
                answer: None,
                by: None,
                resolved: None,
                reason: String::new(),
                contradiction: None,
                escalation: false,
            };
            items.insert(asked.call, item);
            return;
        }
        EventBody::ToolAnswered(answered) => (answered.call, Some(answered.approval)),
        EventBody::ToolDecided(decided) => (decided.call, Some(decided.approval)),
        // Whatever became of it, nobody asks any more.
        EventBody::ToolRequested(made) => (made.call, None),
        EventBody::RunFinished(_) => {
            let waiting = items.values_mut().filter(|item| item.state == InboxState::Pending);
            for item in waiting {
                (item.state, item.resolved) = (InboxState::Expired, Some(at));
            }
            return;
        }
        _ => return,
    };
    let Some(item) = items.get_mut(&call).filter(|item| item.state == InboxState::Pending) else {
        return;
    };
    item.resolved = Some(at);
    match approval {
        Some(Approval::Denied { reason }) => {
            (item.state, item.reason, item.by) = (InboxState::Rejected, reason, Some(by));
        }
        Some(approval) => {
            let answer = match approval {
                Approval::Session { .. } => "session",
                Approval::Rule { .. } => "always",
                _ => "once",
            };
            (item.state, item.answer, item.by) =
                (InboxState::Answered, Some(answer.to_owned()), Some(by));
        }
        None => item.state = InboxState::Expired,
    }
}

fn question(by: &str, asked: &ToolAsked) -> String {
    let arguments = asked.arguments.to_string();
    let arguments = formwork_protocols::text::preview(&arguments, MAX_SHOWN);
    format!("{by} wants to call {}: {arguments}, because {}", asked.tool, asked.why)
}

fn options(asked: &ToolAsked) -> Vec<String> {
    // A question of a version that did not say what an answer may cover is answered for its call alone.
    let has_cover = asked.exact.is_some();
    let known = OPTIONS.into_iter().filter(|option| has_cover || matches!(*option, "once" | "no"));
    known.map(str::to_owned).collect()
}

/// Finds a call that a run has asked about which has not ended.
pub(super) async fn find(store: &dyn Store, call: CallId) -> Result<Option<Item>, Error> {
    for row in open_runs(store).await? {
        if let Some(item) =
            of(store, row.run).await?.into_iter().find(|item| item.item == call.into())
        {
            return Ok(Some(item));
        }
    }
    Ok(None)
}

/// Returns the question about a call, with the task that it belongs to, if it is one.
pub(super) async fn asked(
    store: &dyn Store,
    run: RunId,
    item: ItemId,
) -> Result<Option<Event>, Error> {
    let selection = Selection { run: Some(run), task: None, kinds: vec!["tool.asked".to_owned()] };
    let mut after = Position::default();
    loop {
        let events = store.read(after, &selection, 1_000).await?;
        let Some(last) = events.last() else { return Ok(None) };
        after = last.position;
        let is_it = |event: &Event| match &event.body {
            EventBody::ToolAsked(asked) => ItemId::from(asked.call) == item,
            _ => false,
        };
        if let Some(found) = events.into_iter().find(is_it) {
            return Ok(Some(found));
        }
    }
}

/// Records what is answered about a call; nothing where somebody was first.
pub(super) async fn answer(
    formwork: &Formwork,
    caller: &Caller,
    (asked, item): (Event, &Item),
    said: EventBody,
) -> Result<Option<Item>, Error> {
    let inner = &formwork.inner;
    let EventBody::ToolAsked(question) = asked.body else { return Ok(None) };
    let covers = question.alike.or(question.exact);
    let denied = |reason: String, otherwise: &str| {
        let reason = if reason.is_empty() { otherwise.to_owned() } else { reason };
        Approval::Denied { reason }
    };
    let approval = match (said, covers) {
        (EventBody::InboxAnswered(said), covers) => match (said.answer.as_str(), covers) {
            ("session", Some(covers)) => Approval::Session { covers },
            ("always", Some(covers)) => Approval::Rule { covers },
            ("once", _) => Approval::Once,
            _ => denied(String::new(), "a person said no"),
        },
        (EventBody::InboxSkipped(said), _) => {
            denied(said.reason, "a person left it open: do without it")
        }
        (EventBody::InboxRejected(said), _) => denied(said.reason, "a person said no"),
        _ => return Ok(None),
    };
    let call = question.call;
    let event = NewEvent {
        task: asked.task,
        principal: caller.principal().clone(),
        at: inner.clock.now(),
        body: EventBody::ToolAnswered(ToolAnswered { call, approval }),
        // Whoever comes second, at the same moment even, changes nothing.
        idempotency_key: Some(format!("answer/{call}")),
    };
    let batch = Append { run: item.run, token: None, events: vec![event], blobs: Vec::new() };
    let recorded = inner.store.append(batch).await?;
    if recorded.iter().any(|recorded| recorded.duplicate) {
        return Ok(None);
    }
    let items = of(&*inner.store, item.run).await?;
    Ok(items.into_iter().find(|own| own.item == item.item))
}
