//! What the commands of a chat do.

use formwork_protocols::{EventBody, ModelRef, PermissionMode, Position, Usd, store::Selection};
use formwork_services::operations::{
    runs::{ChatsParams, ListChats},
    tools,
};

use super::{Chat, commands::help, markdown::dim};
use crate::{fault::Fault, terminal::harmless, view::visible};

/// How many chats are listed.
const LISTED: usize = 10;

impl Chat {
    /// Does a command.
    pub(super) async fn command(&mut self, name: &str, behind: &str) -> Result<(), Fault> {
        match name {
            "help" => self.say(&help()),
            "model" => self.set_model(behind),
            "permissions" => self.set_mode(behind),
            "context" => self.show_context().await,
            "compact" => {
                self.compact = true;
                self.say("the conversation is made shorter before your next turn")
            }
            "tools" => self.show_tools().await,
            "diff" => self.show_diff(behind).await,
            "undo" => self.undo().await,
            "rewind" => self.rewind(behind).await,
            "fork" => self.fork(behind).await,
            "find" => self.find(behind).await,
            "agents" => self.agents(behind).await,
            "cost" => self.show_cost().await,
            "new" => {
                self.turns.clear();
                self.say("a new conversation begins")
            }
            "resume" => self.resume(behind).await,
            _ => Ok(()),
        }
    }

    fn set_model(&mut self, behind: &str) -> Result<(), Fault> {
        if behind.is_empty() {
            let told = self
                .model
                .as_ref()
                .map_or("what the agent asks for".to_owned(), ToString::to_string);
            return self.say(&format!("model: {told}"));
        }
        let model: ModelRef = behind.parse().map_err(|error| Fault::usage(format!("{error}")))?;
        self.model = Some(model);
        self.say(&format!("the next turns ask {}", visible(behind)))
    }

    fn set_mode(&mut self, behind: &str) -> Result<(), Fault> {
        if behind.is_empty() {
            return self.say(&format!("permissions: {}", self.mode.as_str()));
        }
        let modes =
            [PermissionMode::Ask, PermissionMode::Plan, PermissionMode::Edit, PermissionMode::Auto];
        match modes.into_iter().find(|mode| mode.as_str() == behind) {
            Some(mode) => {
                self.mode = mode;
                self.say(&format!("the next turns may {}", mode.as_str()))
            }
            None => {
                Err(Fault::usage(format!("there are ask, plan, edit and auto, not {behind:?}")))
            }
        }
    }

    /// Shows how full the window was at the last model call.
    async fn show_context(&mut self) -> Result<(), Fault> {
        let Some(&run) = self.turns.last() else { return self.say("nothing was said yet") };
        let kinds =
            ["model.completed", "context.compacted", "session.started", "instructions.loaded"];
        let kinds = kinds.map(str::to_owned).to_vec();
        let selection = Selection { run: Some(run), task: None, kinds };
        let store = self.formwork.store();
        let events = store.read(Position::default(), &selection, 10_000).await;
        let (mut text, mut last) = (String::new(), None);
        for event in events.map_err(formwork_services::Error::from)? {
            match event.body {
                EventBody::ModelCompleted(done) if done.purpose.is_turn() => last = Some(done),
                EventBody::SessionReprompted(told) => text.push_str(&format!("{told}\n")),
                EventBody::ContextCompacted(done) => text.push_str(&format!("{done}\n")),
                EventBody::SessionStarted(started) if started.carried > 0 => {
                    text.push_str(&format!("{} messages from the turns before\n", started.carried));
                }
                EventBody::InstructionsLoaded(loaded) => {
                    text.push_str(&format!(
                        "follows {} ({} bytes)\n",
                        visible(&loaded.path),
                        loaded.bytes
                    ));
                }
                _ => {}
            }
        }
        match last {
            Some(done) => {
                let usage = done.usage;
                let cached = usage.cache_read;
                text.push_str(&format!(
                    "the last request to {} had {} tokens, {cached} of them from the cache\n",
                    done.model,
                    usage.total_input(),
                ));
            }
            None => text.push_str("no model has answered in the last turn\n"),
        }
        self.say(&text)
    }

    async fn show_tools(&mut self) -> Result<(), Fault> {
        let listed = self.formwork.call::<tools::List>(&self.caller, tools::ListParams {}).await?;
        let lines = listed.tools.iter().map(|tool| {
            let what = tool.definition.description.lines().next().unwrap_or_default();
            format!("  {:<20} {}\n", tool.definition.name.as_str(), visible(what))
        });
        let lines: String = lines.collect();
        self.say(&lines)
    }

    async fn show_diff(&mut self, behind: &str) -> Result<(), Fault> {
        let turns: Vec<_> = match behind {
            "" => self.turns.last().copied().into_iter().collect(),
            "all" => self.turns.clone(),
            _ => return Err(Fault::usage("it is /diff or /diff all")),
        };
        let mut text = String::new();
        for run in turns {
            text.push_str(&self.formwork.diff(run).await?);
        }
        if text.is_empty() {
            return self.say("nothing was changed");
        }
        let drawn = crate::terminal::painted_diff(&harmless(&text), self.color);
        self.say(&drawn)
    }

    async fn show_cost(&mut self) -> Result<(), Fault> {
        let (mut cost, mut tokens) = (Usd::ZERO, 0);
        for &run in &self.turns {
            let row =
                self.formwork.store().run(run).await.map_err(formwork_services::Error::from)?;
            if let Some(row) = row {
                cost = cost.saturating_add(row.cost);
                tokens += row.usage.total();
            }
        }
        let turns = self.turns.len();
        let turns = crate::verbs::counted(turns as u64, "turn");
        self.say(&format!("{turns} · {tokens} tokens · ${cost}"))
    }

    async fn resume(&mut self, behind: &str) -> Result<(), Fault> {
        if !behind.is_empty() {
            let run = behind.parse().map_err(|error| Fault::usage(format!("{error}")))?;
            return self.go_on(Some(run)).await;
        }
        let chats =
            self.formwork.call::<ListChats>(&self.caller, ChatsParams { limit: LISTED }).await?;
        if chats.chats.is_empty() {
            return self.say("no chat in this workspace yet");
        }
        let lines = chats.chats.iter().map(|chat| {
            let asked = visible(chat.said.asked.lines().next().unwrap_or_default());
            let asked = crate::view::columns(&asked, 60);
            format!(
                "  {}  {}, ${}, {}: {asked}\n",
                chat.last,
                crate::verbs::counted(chat.turns.len() as u64, "turn"),
                chat.cost,
                chat.state
            )
        });
        let lines: String = lines.collect();
        self.say(&lines)?;
        self.say(&dim("  /resume RUN goes on with one", self.color))
    }
}
