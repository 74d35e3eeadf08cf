//! What is said in a conversation, one after the other: a run for each, that goes on with the one before.

use std::collections::BTreeSet;

use async_trait::async_trait;
use formwork_protocols::{
    AgentName, BlobHash, Budget, EventBody, Message, Position, Role, RunId, RunState, SessionId,
    Store, Timestamp, Usd, WorkflowName,
    spec::Retries,
    store::{RunRow, Selection},
    text,
};
use formwork_scheduler::workflow::{Plan, SingleTask};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{named, own, recorded};
use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
    setup::After,
};

/// The name of a run that is a turn of a conversation.
const NAME: &str = "chat";

/// The agent that is spoken to unless somebody says otherwise.
const PARTNER: &str = "partner";

/// How many runs are looked through for conversations.
const LOOKED: usize = 500;

/// Finds the conversation that goes on: the last one of a run, or of the one before it where it had none.
pub(super) async fn after(
    formwork: &Formwork,
    run: Option<RunId>,
    compact: bool,
) -> Result<Option<After>, Error> {
    let Some(mut run) = run else { return Ok(None) };
    let store = &*formwork.inner.store;
    loop {
        let row = named(store, run).await?;
        own(formwork, run, "gone on with").await?;
        if std::path::Path::new(&row.workspace) != formwork.workspace() {
            return Err(Error::elsewhere(run, row.workspace));
        }
        if let Some(session) = last_session(store, run).await? {
            return Ok(Some(After { of_run: run, of_session: session, compact }));
        }
        match recorded(store, run).await?.after {
            Some(before) => run = before.of_run,
            None => return Ok(None),
        }
    }
}

async fn last_session(store: &dyn Store, run: RunId) -> Result<Option<SessionId>, Error> {
    Ok(sessions(store, run).await?.pop())
}

/// Lists the conversations of a turn itself, one for each that went on with the one before: what its agent has had done
/// by others was talked about with those.
async fn sessions(store: &dyn Store, run: RunId) -> Result<Vec<SessionId>, Error> {
    let tasks = store.tasks(run).await?;
    let Some(root) = tasks.iter().find(|task| task.parent.is_none()) else {
        return Ok(Vec::new());
    };
    let kinds = vec!["session.started".to_owned()];
    let selection = Selection { run: Some(run), task: Some(root.task), kinds };
    let (mut own, mut after) = (Vec::new(), Position::default());
    loop {
        let events = store.read(after, &selection, 1_000).await?;
        let Some(last) = events.last() else { return Ok(own) };
        after = last.position;
        own.extend(events.into_iter().filter_map(|event| match event.body {
            // Whom it asked a question is not whom it is.
            EventBody::SessionStarted(started) if started.call.is_none() => Some(started.session),
            _ => None,
        }));
    }
}

/// Makes the plan of a turn.
pub(super) fn plan(prompt: String, agent: Option<AgentName>) -> Plan {
    let parsed =
        |name: &str| AgentName::parse(name).expect("the names of built-in agents follow the rule");
    let agent = agent.unwrap_or_else(|| parsed(PARTNER));
    let name = WorkflowName::parse(NAME).expect("the name follows the rule");
    let retries = Retries { max: 0, ..Retries::default() };
    let task = SingleTask { agent, prompt, postchecks: Vec::new(), retries, timeout: None };
    Plan::single(name, task, Budget::default())
}

/// Which conversations are wanted.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChatsParams {
    /// How many at the most.
    pub limit: usize,
}

/// The conversations of a workspace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Chats {
    /// The newest first.
    pub chats: Vec<Chat>,
}

/// A conversation: turns that go on with each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Chat {
    /// Its last turn.
    pub last: RunId,
    /// Where that stands.
    pub state: RunState,
    /// When it was said.
    pub at: Timestamp,
    /// The turns, the oldest first.
    pub turns: Vec<RunId>,
    /// What all of them cost.
    pub cost: Usd,
    /// What was said last, and what was answered.
    pub said: Said,
}

/// What was said and answered in a turn.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence names its fields")]
pub struct Said {
    pub asked: String,
    pub answered: String,
}

/// `runs.chats`
pub struct List;

#[async_trait]
impl Operation for List {
    const NAME: &'static str = "runs.chats";
    const DOC: &'static str = "Lists the conversations of the workspace, each with its turns.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = ChatsParams;
    type Output = Chats;

    async fn run(formwork: &Formwork, _: &Caller, params: ChatsParams) -> Result<Chats, Error> {
        let store = &*formwork.inner.store;
        let own = formwork.workspace().display().to_string();
        let rows = store.runs(None, LOOKED).await?;
        let is_turn = |row: &&RunRow| row.name.as_str() == NAME && row.workspace == own;
        let turns: Vec<&RunRow> = rows.iter().filter(is_turn).collect();
        let mut continued: BTreeSet<RunId> = BTreeSet::new();
        let mut chats = Vec::new();
        for row in turns {
            // A newer turn that goes on with this one has told of it already.
            if continued.contains(&row.run)
                || is_undone(store, row.run).await?
                || formwork.trace().is_imported(row.run).await?
            {
                continue;
            }
            let (mut chain, mut cost, mut at) = (vec![row.run], row.cost, row.run);
            while let Some(before) = recorded(store, at).await?.after {
                at = before.of_run;
                // What came from a file may go round in a circle.
                if chain.contains(&at) {
                    break;
                }
                continued.insert(at);
                let known = rows.iter().find(|row| row.run == at);
                cost = cost.saturating_add(known.map_or(Usd::ZERO, |row| row.cost));
                chain.push(at);
            }
            chain.reverse();
            let said = said(store, row.run).await?;
            chats.push(Chat {
                last: row.run,
                state: row.state,
                at: row.created,
                turns: chain,
                cost,
                said,
            });
            if chats.len() >= params.limit {
                break;
            }
        }
        Ok(Chats { chats })
    }
}

/// Tells whether a turn was taken back: the one before it is then the last.
async fn is_undone(store: &dyn Store, run: RunId) -> Result<bool, Error> {
    let kinds = vec!["run.undone".to_owned()];
    let selection = Selection { run: Some(run), task: None, kinds };
    Ok(!store.read(Position::default(), &selection, 1).await?.is_empty())
}

/// Returns what was asked and answered in a turn.
async fn said(store: &dyn Store, run: RunId) -> Result<Said, Error> {
    let own = sessions(store, run).await?;
    let kinds = vec!["session.".to_owned()];
    let selection = Selection { run: Some(run), task: None, kinds };
    let events = store.read(Position::default(), &selection, 10_000).await?;
    let (mut carried, mut asked, mut answered): (u32, Option<BlobHash>, Option<BlobHash>) =
        (0, None, None);
    for event in events {
        match event.body {
            EventBody::SessionStarted(started) if own.contains(&started.session) => {
                carried = started.carried;
            }
            EventBody::SessionMessage(said) if !own.contains(&said.session) => {}
            EventBody::SessionMessage(said) if said.index < carried => {}
            EventBody::SessionMessage(said) if said.role == Role::User && asked.is_none() => {
                asked = Some(said.message);
            }
            EventBody::SessionMessage(said) if said.role == Role::Assistant => {
                answered = Some(said.message);
            }
            _ => {}
        }
    }
    let read = async |hash: Option<BlobHash>| -> Result<String, Error> {
        let Some(hash) = hash else { return Ok(String::new()) };
        let bytes = store.blob(&hash).await?.unwrap_or_default();
        let message: Option<Message> = serde_json::from_slice(&bytes).ok();
        let words = message.map(|message| message.to_text()).unwrap_or_default();
        Ok(text::preview(&words, 4_000).into_owned())
    };
    Ok(Said { asked: read(asked).await?, answered: read(answered).await? })
}
