//! `formwork chat`: a conversation with an agent at the terminal, turn by turn.
//!
//! Each turn is a run that goes on with the conversation of the one before, so that it is recorded, shown, taken back
//! and taken up again as any other run is.

mod commands; // What begins with a slash.
mod doing; // What the commands do.
mod editor; // What is typed.
mod going; // Back, sideways, and through what was said.
mod markdown; // What is answered.
mod receipts; // What was done for it.
mod screen; // Where both stand.
mod turn; // One question and its answer.

use std::{
    io::{self, IsTerminal as _, Stdout, Write as _},
    sync::Arc,
};

use crossterm::{
    event::{DisableBracketedPaste, EnableBracketedPaste, Event},
    terminal::{disable_raw_mode, enable_raw_mode},
};
use formwork_protocols::{AgentName, ModelRef, OutcomeCode, PermissionMode, RunId};
use formwork_services::{
    Formwork,
    capability::Caller,
    operations::runs::{ChatsParams, ListChats},
};
use tokio::sync::mpsc;

use crate::{
    args::{Chat as Args, Global},
    asking::{self, Open},
    fault::Fault,
    settings::{Need, Settings},
    terminal::{Format, Terminal},
    view::visible,
};
use commands::{Wanted, complete, read};
use editor::{Editor, Typed};
use markdown::{bold, dim};
use screen::{Below, Screen};

/// How many keys wait that were typed faster than they are taken.
const TYPED_AHEAD: usize = 256;

/// A chat as it goes on.
struct Chat {
    formwork: Formwork,
    caller: Caller,
    screen: Screen<Stdout>,
    editor: Editor,
    keys: mpsc::Receiver<Event>,
    questions: mpsc::Receiver<Open>,
    color: bool,
    agent: Option<AgentName>,
    model: Option<ModelRef>,
    mode: PermissionMode,
    /// The turns of the conversation, the oldest first.
    turns: Vec<RunId>,
    /// Whether the conversation is made shorter before the next turn.
    compact: bool,
}

/// Puts the terminal back as it was, however the chat ends.
struct Raw;

impl Raw {
    fn begin() -> io::Result<Self> {
        enable_raw_mode()?;
        let raw = Self;
        crossterm::execute!(io::stdout(), EnableBracketedPaste)?;
        Ok(raw)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // What cannot be put back cannot be told either.
        let _ = crossterm::execute!(io::stdout(), DisableBracketedPaste);
        let _ = disable_raw_mode();
    }
}

/// Holds a conversation until the person ends it.
pub(crate) fn chat(global: &Global, terminal: &Terminal, args: Args) -> Result<OutcomeCode, Fault> {
    let fits =
        terminal.format == Format::Text && io::stdin().is_terminal() && io::stdout().is_terminal();
    if !fits || global.no_input {
        return Err(Fault::usage("`formwork chat` needs a terminal on both sides")
            .hint("`formwork run -m TEXT` does one task, with --json for machines"));
    }
    let Args { resume, model, mode, agent } = args;
    let flags = mode.map(crate::verbs::mode_flag).into_iter().collect();
    // The first frame waits for no file and no log.
    let color = terminal.color;
    let hello = format!("{} · /help · Ctrl-D ends it\n", bold("formwork chat", color));
    io::stdout().write_all(hello.as_bytes())?;
    io::stdout().flush()?;
    let settings = Settings::load(global, flags, Need::Effect)?;
    let mode =
        settings.layered.config.permissions.as_ref().and_then(|it| it.mode).unwrap_or_default();
    let (asker, questions) = asking::pair(&settings.principal);
    let more = |builder, _: &Settings| crate::verbs::equipped(builder, Some(Arc::clone(&asker)));
    crate::verbs::with_settings(settings, more, async |formwork, caller, _| {
        let raw = Raw::begin()?;
        let mut chat = Chat {
            formwork,
            caller,
            screen: Screen::new(io::stdout(), crate::terminal::size()),
            editor: Editor::default(),
            keys: keys(),
            questions,
            color,
            agent,
            model,
            mode,
            turns: Vec::new(),
            compact: false,
        };
        let ended = chat.hold(resume).await;
        chat.screen.end()?;
        drop(raw);
        if let (Ok(_), Some(last)) = (&ended, chat.turns.last()) {
            let told = format!("go on with `formwork chat --resume {last}`\n");
            io::stdout().write_all(dim(&told, color).as_bytes())?;
        }
        ended
    })
}

/// Reads the keys in a thread of its own. It is not joined: it ends with the process, whatever nobody types.
fn keys() -> mpsc::Receiver<Event> {
    let (sender, keys) = mpsc::channel(TYPED_AHEAD);
    std::thread::spawn(move || {
        while let Ok(event) = crossterm::event::read() {
            if sender.blocking_send(event).is_err() {
                return;
            }
        }
    });
    keys
}

impl Chat {
    /// Says something above what is written. It has been made harmless.
    fn say(&mut self, text: &str) -> Result<(), Fault> {
        Ok(self.screen.say(text)?)
    }

    /// Says that something went wrong.
    fn complain(&mut self, fault: &Fault) -> Result<(), Fault> {
        let mut text = String::new();
        for message in fault.messages() {
            text.push_str(&format!("✗ {}\n", visible(&message)));
        }
        if let Some(hint) = &fault.hint {
            text.push_str(&format!("  {}\n", visible(hint)));
        }
        self.say(&text)
    }

    /// Takes turns until the person has enough.
    async fn hold(&mut self, resume: Option<Option<RunId>>) -> Result<OutcomeCode, Fault> {
        if let Some(run) = resume
            && let Err(fault) = self.go_on(run).await
        {
            self.complain(&fault)?;
        }
        loop {
            self.draw_idle()?;
            let Some(event) = self.keys.recv().await else { return Ok(OutcomeCode::Completed) };
            match self.typed(event)? {
                Typed::Sent(text) => {
                    let echoed = text.lines().map(|line| format!("> {}\n", visible(line)));
                    let echoed: String = echoed.collect();
                    self.draw_nothing()?;
                    self.say(&bold(echoed.trim_end(), self.color))?;
                    match self.sent(&text).await {
                        Ok(true) => {}
                        Ok(false) => return Ok(OutcomeCode::Completed),
                        Err(fault) if fault.is_broken_pipe() => return Err(fault),
                        Err(fault) => self.complain(&fault)?,
                    }
                }
                Typed::Interrupt if self.editor.is_empty() => {
                    self.say(&dim("/exit or Ctrl-D ends the chat", self.color))?;
                }
                Typed::Interrupt => drop(self.editor.clear()),
                Typed::End => return Ok(OutcomeCode::Completed),
                Typed::Nothing | Typed::Complete | Typed::Redraw => {}
            }
        }
    }

    /// Takes what happened at the terminal. What only concerns the text is done with it.
    fn typed(&mut self, event: Event) -> Result<Typed, Fault> {
        Ok(match event {
            Event::Key(key) => match self.editor.key(key) {
                Typed::Complete => {
                    self.complete()?;
                    Typed::Nothing
                }
                Typed::Redraw => {
                    self.screen.redraw()?;
                    Typed::Nothing
                }
                other => other,
            },
            Event::Paste(text) => {
                self.editor.insert(&text);
                Typed::Nothing
            }
            Event::Resize(columns, lines) => {
                self.screen.resize(crate::terminal::known(Some((columns, lines))));
                Typed::Nothing
            }
            _ => Typed::Nothing,
        })
    }

    fn complete(&mut self) -> Result<(), Fault> {
        let (start, word) = self.editor.word();
        let (common, found) = complete(word, start == 0, self.formwork.workspace());
        match common {
            Some(common) => self.editor.replace_word(&common),
            None if found.len() > 1 => {
                let names: Vec<String> = found.iter().take(40).map(|it| visible(it)).collect();
                self.say(&dim(&names.join("  "), self.color))?;
            }
            None => {}
        }
        Ok(())
    }

    fn draw_idle(&mut self) -> Result<(), Fault> {
        let (text, cursor) = self.editor.content();
        let below = Below { lines: Vec::new(), prompt: "> ", text: text.to_owned(), cursor };
        Ok(self.screen.show(below)?)
    }

    fn draw_nothing(&mut self) -> Result<(), Fault> {
        Ok(self.screen.show(Below::default())?)
    }

    /// Does what was sent; false ends the chat.
    async fn sent(&mut self, text: &str) -> Result<bool, Fault> {
        match read(text) {
            Wanted::Say(text) => self.turn(text).await?,
            Wanted::Command("exit", _) => return Ok(false),
            Wanted::Command(name, behind) => self.command(name, &behind).await?,
            Wanted::Unknown(word, near) => {
                let near = near.map_or(String::new(), |near| format!("; did you mean /{near}?"));
                self.say(&format!("there is no /{}{near} (/help lists them)", visible(&word)))?;
            }
        }
        Ok(true)
    }

    /// Takes a conversation up: the one of a run, or the newest of the workspace.
    async fn go_on(&mut self, run: Option<RunId>) -> Result<(), Fault> {
        let chats =
            self.formwork.call::<ListChats>(&self.caller, ChatsParams { limit: 200 }).await?;
        let found =
            chats.chats.into_iter().find(|chat| run.is_none_or(|run| chat.turns.contains(&run)));
        let Some(chat) = found else {
            let what = run.map_or("no chat in this workspace yet".to_owned(), |run| {
                format!("no chat has a turn {run}")
            });
            return Err(Fault::usage(what));
        };
        // From an earlier turn on, the later ones are left behind.
        let end = run.and_then(|run| chat.turns.iter().position(|turn| *turn == run));
        self.turns = chat.turns.into_iter().take(end.map_or(usize::MAX, |end| end + 1)).collect();
        let is_last = self.turns.last() == Some(&chat.last);
        if is_last && !chat.said.asked.is_empty() {
            let asked = chat.said.asked.lines().next().unwrap_or_default();
            self.say(&bold(&format!("> {}", visible(asked)), self.color))?;
        }
        if is_last && !chat.state.is_terminal() {
            self.say(&dim("the turn was interrupted; it goes on", self.color))?;
            return self.resume_turn(chat.last).await;
        }
        if is_last {
            self.answer(&chat.said.answered)?;
        }
        Ok(())
    }
}
