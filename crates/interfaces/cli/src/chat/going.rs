//! Back and sideways in a conversation, and through all of them.

use formwork_protocols::{AgentName, Role};
use formwork_services::operations::{
    agents,
    transcripts::{Get, GetParams, Search, SearchParams},
    undo::{Undo, UndoParams},
};

use super::{Chat, markdown::dim};
use crate::{fault::Fault, view::visible};

/// How many finds are listed.
const FINDS: usize = 15;

impl Chat {
    /// Takes the last turn back: what it changed, and what was said in it.
    pub(super) async fn undo(&mut self) -> Result<(), Fault> {
        if self.turns.is_empty() {
            return self.say("there is no turn to take back");
        }
        if self.take_back().await? {
            self.say("the conversation is back before your last turn")?;
        }
        Ok(())
    }

    /// Takes back every turn behind one, the newest first; where one cannot be, it and those before it stand.
    pub(super) async fn rewind(&mut self, behind: &str) -> Result<(), Fault> {
        let Some(kept) = self.turn_named(behind, "rewind").await? else { return Ok(()) };
        while self.turns.len() > kept {
            if !self.take_back().await? {
                return Ok(());
            }
        }
        self.say(&format!("the conversation is back at turn {kept}"))
    }

    /// Goes on from an earlier turn, and leaves the later ones as they are.
    pub(super) async fn fork(&mut self, behind: &str) -> Result<(), Fault> {
        let Some(kept) = self.turn_named(behind, "fork").await? else { return Ok(()) };
        let left = self.turns.last().copied();
        self.turns.truncate(kept);
        self.say(&format!("the next turn goes on from turn {kept}; files stay as they are"))?;
        match left {
            Some(run) => {
                self.say(&dim(&format!("/resume {run} goes back to the other one"), self.color))
            }
            None => Ok(()),
        }
    }

    /// Takes the last turn back. Tells whether all of it could be.
    async fn take_back(&mut self) -> Result<bool, Fault> {
        let Some(&run) = self.turns.last() else { return Ok(false) };
        let params = UndoParams { run, to: None, force: false, dry_run: false };
        let undone = self.formwork.call::<Undo>(&self.caller, params).await?;
        let mut text = String::new();
        for path in &undone.paths {
            text.push_str(&format!("took back {}\n", visible(path)));
        }
        for left in &undone.left {
            text.push_str(&format!("left {}: {}\n", visible(&left.path), visible(&left.reason)));
        }
        text.push_str(&crate::verbs::trashed(&undone.trashed));
        let is_whole = undone.left.is_empty();
        if is_whole {
            self.turns.pop();
        } else {
            text.push_str("the turn stands, since not all of it could be taken back\n");
        }
        self.say(&text)?;
        Ok(is_whole)
    }

    /// Reads which turn is meant, of those before the last; where none is named they are listed.
    async fn turn_named(&mut self, behind: &str, command: &str) -> Result<Option<usize>, Fault> {
        let all = self.turns.len();
        if !behind.is_empty() {
            return match behind.parse() {
                Ok(at) if at < all => Ok(Some(at)),
                _ if all == 0 => Err(Fault::usage("there is no turn yet")),
                _ => Err(Fault::usage(format!("it is /{command} N, with N from 0 to {}", all - 1))),
            };
        }
        let mut lines = String::new();
        for (at, run) in self.turns.clone().into_iter().enumerate() {
            let told = self.formwork.call::<Get>(&self.caller, GetParams { run }).await?;
            let said = told.conversations.iter().flat_map(|it| &it.messages);
            let mut said = said.filter(|said| said.role == Role::User);
            let asked = said.next().map(|said| said.text.lines().next().unwrap_or_default());
            let asked = visible(asked.unwrap_or_default());
            let asked = crate::view::columns(&asked, 70);
            lines.push_str(&format!("  {:>3}  {asked}\n", at + 1));
        }
        if lines.is_empty() {
            lines.push_str("there is no turn yet\n");
        }
        self.say(&lines)?;
        self.say(&dim(
            &format!("  /{command} N goes back to turn N, and 0 to the beginning"),
            self.color,
        ))?;
        Ok(None)
    }

    /// Finds a text in what was said.
    pub(super) async fn find(&mut self, behind: &str) -> Result<(), Fault> {
        if behind.is_empty() {
            return Err(Fault::usage("it is /find TEXT"));
        }
        let params = SearchParams { text: behind.to_owned(), limit: FINDS };
        let found = self.formwork.call::<Search>(&self.caller, params).await?;
        self.say(&crate::verbs::transcripts::found(&found))
    }

    /// Lists the agents, or chooses the one that is spoken to.
    pub(super) async fn agents(&mut self, behind: &str) -> Result<(), Fault> {
        let params = agents::ListParams::default();
        let listed = self.formwork.call::<agents::List>(&self.caller, params).await?;
        if behind.is_empty() {
            let lines = listed.agents.iter().map(|agent| {
                format!("  {:<16} {}\n", agent.name.as_str(), visible(&agent.description))
            });
            let lines: String = lines.collect();
            return self.say(&lines);
        }
        let wanted = AgentName::parse(behind).map_err(|error| Fault::usage(error.to_string()))?;
        if !listed.agents.iter().any(|agent| agent.name == wanted) {
            let names = listed.agents.iter().map(|agent| agent.name.as_str());
            let near = formwork_protocols::document::nearest(behind, names);
            let near = near.map_or(String::new(), |near| format!("; did you mean {near}?"));
            return Err(Fault::usage(format!("there is no agent {wanted}{near}")));
        }
        self.say(&format!("the next turns speak to {wanted}"))?;
        self.agent = Some(wanted);
        Ok(())
    }
}
