//! One question and its answer.

use std::time::{Duration, Instant};

use crossterm::style::Color;
use formwork_protocols::{
    Live, OutcomeCode, Position, RunId, RunOutcome, event::DeltaKind, store::Selection,
};
use formwork_services::operations::runs::{
    Abort, Resume, ResumeParams, Start, StartParams, Steer, SteerParams, StopParams, Work,
};
use futures::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{BoxStream, FuturesUnordered},
};

use super::{
    Chat,
    editor::Typed,
    markdown::{Markdown, dim, painted},
    receipts::Receipts,
    screen::{Below, width},
};
use crate::{
    asking::{self, Open, Reading},
    fault::Fault,
    mentions::mentions,
    view::{told_of_the_log, visible},
};

/// How often the time is shown anew while a turn goes on.
const TICK: Duration = Duration::from_millis(250);

/// A turn as it is shown.
struct Shown {
    run: RunId,
    began: Instant,
    markdown: Markdown,
    /// The part of a line that is not whole yet.
    line: String,
    receipts: Receipts,
    /// The last event that was shown.
    seen: Position,
    interrupted: bool,
    open: Option<Open>,
    /// What was asked of it and is not recorded yet.
    asked: FuturesUnordered<BoxFuture<'static, Asked>>,
}

/// What came of what a person asked of a turn.
enum Asked {
    End {
        is_recorded: bool,
    },
    /// What is told of a word to it.
    Word(String),
}

impl Chat {
    /// Asks, and shows the answer until it ends.
    pub(super) async fn turn(&mut self, text: String) -> Result<(), Fault> {
        let named = mentions(&text, self.formwork.workspace());
        for missed in &named.missed {
            self.say(&painted(&visible(missed), Color::Yellow, self.color))?;
        }
        let attach = named.files;
        let happening = self.formwork.store().watch();
        let params = StartParams {
            work: Work::Turn {
                prompt: text,
                agent: self.agent.clone(),
                after: self.turns.last().copied(),
                compact: std::mem::take(&mut self.compact),
                attach,
            },
            vars: serde_json::Map::new(),
            model: self.model.clone(),
            width: None,
            commit: false,
            mode: Some(self.mode),
            headless: false,
        };
        let started = self.formwork.call::<Start>(&self.caller, params).await?;
        for note in &started.notes {
            self.say(&painted(&visible(note), Color::Yellow, self.color))?;
        }
        let unheard = crate::verbs::unheard(&started);
        if self.turns.is_empty() && !unheard.is_empty() {
            self.say(unheard.trim_end())?;
        }
        self.turns.push(started.run);
        self.follow(started.run, happening).await
    }

    /// Takes up a turn that was interrupted.
    pub(super) async fn resume_turn(&mut self, run: RunId) -> Result<(), Fault> {
        let happening = self.formwork.store().watch();
        self.formwork.call::<Resume>(&self.caller, ResumeParams { run }).await?;
        self.follow(run, happening).await
    }

    /// Shows a whole answer.
    pub(super) fn answer(&mut self, text: &str) -> Result<(), Fault> {
        let mut markdown = Markdown::default();
        let drawn = text.lines().map(|line| markdown.line(line, self.color) + "\n");
        let drawn: String = drawn.collect();
        self.say(&drawn)
    }

    async fn follow(
        &mut self,
        run: RunId,
        mut happening: BoxStream<'static, Live>,
    ) -> Result<(), Fault> {
        let mut shown = Shown {
            run,
            began: Instant::now(),
            markdown: Markdown::default(),
            line: String::new(),
            receipts: Receipts::default(),
            seen: Position::default(),
            interrupted: false,
            open: None,
            asked: FuturesUnordered::new(),
        };
        let formwork = self.formwork.clone();
        let finished = formwork.wait(run);
        tokio::pin!(finished);
        let mut away = self.formwork.away();
        let mut waits = false;
        let mut tick = tokio::time::interval(TICK);
        let outcome = loop {
            self.draw(&shown)?;
            let is_asked = shown.open.is_some();
            tokio::select! {
                biased;
                Some(next) = happening.next() => self.happened(&mut shown, next).await?,
                outcome = &mut finished => break outcome,
                Ok(()) = away.changed() => {
                    let why = away.borrow_and_update().get(&run).cloned();
                    if why.is_some() && shown.interrupted {
                        self.formwork.interrupt(run);
                    }
                    if std::mem::replace(&mut waits, why.is_some()) || waits {
                        self.finish_line(&mut shown)?;
                        self.say(&dim(told_of_the_log(why.as_deref()).trim_end(), self.color))?;
                    }
                }
                () = taken_back(&mut shown.open) => shown.open = None,
                Some(open) = self.questions.recv(), if !is_asked => {
                    self.finish_line(&mut shown)?;
                    self.say(&painted(&asking::question(&open.request), Color::Yellow, self.color))?;
                    shown.open = Some(open);
                }
                Some(done) = shown.asked.next(), if !shown.asked.is_empty() => match done {
                    // What cannot be recorded is at least broken off, and can be resumed.
                    Asked::End { is_recorded } => if !is_recorded {
                        self.formwork.interrupt(run);
                    },
                    Asked::Word(told) => self.say(&dim(&told, self.color))?,
                },
                Some(event) = self.keys.recv() => match self.typed(event)? {
                    Typed::Sent(text) => self.spoken(&mut shown, &text)?,
                    Typed::Interrupt if shown.interrupted => {
                        let told = anyhow::anyhow!("interrupted twice");
                        return Err(Fault { code: OutcomeCode::Interrupted, ..Fault::failed(told) });
                    }
                    Typed::Interrupt => {
                        shown.interrupted = true;
                        match waits {
                            // What its log would have to hold that it waits for.
                            true => self.formwork.interrupt(run),
                            false => shown.asked.push(self.ended(run)),
                        }
                    }
                    _ => {}
                },
                _ = tick.tick() => {}
            }
        };
        while let Some(Some(next)) = happening.next().now_or_never() {
            self.happened(&mut shown, next).await?;
        }
        // Whoever has ended it does not wait for a log that is not there.
        while !shown.interrupted
            && let Some(done) = shown.asked.next().await
        {
            if let Asked::Word(told) = done {
                self.say(&dim(&told, self.color))?;
            }
        }
        self.finish_line(&mut shown)?;
        self.draw_nothing()?;
        match outcome {
            Ok(outcome) => self.conclude(&shown, &outcome),
            Err(error) if shown.interrupted => {
                let why = format!("the turn was ended, and /resume takes it up again: {error}");
                self.say(&format!("{} {}", painted("✗", Color::Red, self.color), visible(&why)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Ends a turn for good, beside all else: a log that is held lets nobody write for a while.
    fn ended(&self, run: RunId) -> BoxFuture<'static, Asked> {
        let (formwork, caller) = (self.formwork.clone(), self.caller.clone());
        let reason = Some("the person ended the turn".to_owned());
        let params = StopParams { run, reason, wait: None };
        async move {
            let is_recorded = formwork.call::<Abort>(&caller, params).await.is_ok();
            Asked::End { is_recorded }
        }
        .boxed()
    }

    /// Says something to a turn, beside all else.
    fn said(&self, run: RunId, text: &str) -> BoxFuture<'static, Asked> {
        let (formwork, caller) = (self.formwork.clone(), self.caller.clone());
        let params = SteerParams { run, text: text.to_owned() };
        let echoed = visible(text.lines().next().unwrap_or_default());
        async move {
            Asked::Word(match formwork.call::<Steer>(&caller, params).await {
                Ok(_) => format!("> {echoed} (it hears it at its next step)"),
                // The turn goes on, and is not left for that.
                Err(error) => format!("> {echoed} (it was not heard: {error}; say it again)"),
            })
        }
        .boxed()
    }

    /// Takes what a person sends while the turn goes on: the answer to a question, or a word to the model.
    fn spoken(&mut self, shown: &mut Shown, text: &str) -> Result<(), Fault> {
        let Some(open) = shown.open.take() else {
            if text.trim_start().starts_with('/') {
                return self
                    .say(&dim("commands wait until the turn is over; Ctrl-C ends it", self.color));
            }
            shown.asked.push(self.said(shown.run, text));
            return Ok(());
        };
        match asking::read(Some(text), &open.request) {
            Reading::Answer(approval) => {
                open.answer(approval);
                return Ok(());
            }
            Reading::Show => self.say(&asking::whole(&open.request))?,
            Reading::Unclear => self.say("  answer y, s, a, r, n or v")?,
        }
        shown.open = Some(open);
        Ok(())
    }

    async fn happened(&mut self, shown: &mut Shown, next: Live) -> Result<(), Fault> {
        match next {
            Live::Delta(delta) if delta.run == shown.run && delta.kind == DeltaKind::Text => {
                shown.line.push_str(&delta.text);
                while let Some(end) = shown.line.find('\n') {
                    let rest = shown.line.split_off(end + 1);
                    let line = std::mem::replace(&mut shown.line, rest);
                    let drawn = shown.markdown.line(line.trim_end(), self.color);
                    self.say(&format!("{drawn}\n"))?;
                }
            }
            Live::Event(event) if event.run == shown.run => self.event(shown, &event)?,
            Live::Lagged(_) => {
                let selection = Selection { run: Some(shown.run), ..Selection::default() };
                let store = self.formwork.store();
                let events = store.read(shown.seen, &selection, 10_000).await;
                for event in events.map_err(formwork_services::Error::from)? {
                    self.event(shown, &event)?;
                }
            }
            Live::Event(_) | Live::Delta(_) => {}
        }
        Ok(())
    }

    fn event(&mut self, shown: &mut Shown, event: &formwork_protocols::Event) -> Result<(), Fault> {
        if event.position <= shown.seen {
            return Ok(());
        }
        shown.seen = event.position;
        if let Some(line) = shown.receipts.take(event, self.color) {
            self.finish_line(shown)?;
            self.say(&line)?;
        }
        Ok(())
    }

    /// Shows what is left of a line that the model did not end.
    fn finish_line(&mut self, shown: &mut Shown) -> Result<(), Fault> {
        let rest = std::mem::take(&mut shown.line);
        if rest.trim().is_empty() {
            return Ok(());
        }
        let drawn = shown.markdown.line(rest.trim_end(), self.color);
        self.say(&drawn)
    }

    fn draw(&mut self, shown: &Shown) -> Result<(), Fault> {
        let mut lines = Vec::new();
        let room = self.screen.width().saturating_sub(1);
        if !shown.line.trim().is_empty() {
            lines.push(cut_left(&visible(&shown.line), room));
        }
        let seconds = shown.began.elapsed().as_secs();
        let doing = match (&shown.open, shown.interrupted) {
            (_, true) => "ends the turn",
            (Some(_), _) => "waits for your answer",
            (None, _) => shown.receipts.doing.as_str(),
        };
        let status = format!("● {seconds}s · {doing} · Ctrl-C ends the turn");
        lines.push(dim(crate::view::columns(&status, room), self.color));
        let prompt = if shown.open.is_some() { "? " } else { "> " };
        let (text, cursor) = self.editor.content();
        let below = Below { lines, prompt, text: text.to_owned(), cursor };
        Ok(self.screen.show(below)?)
    }

    fn conclude(&mut self, shown: &Shown, outcome: &RunOutcome) -> Result<(), Fault> {
        if outcome.code != OutcomeCode::Completed {
            let text = match shown.interrupted {
                true => "the turn was ended; what it had said and done stands".to_owned(),
                false => visible(&outcome.to_string()),
            };
            self.say(&format!("{} {text}", painted("✗", Color::Red, self.color)))?;
        }
        let files = match outcome.files_changed {
            0 => String::new(),
            1 => " · 1 file changed, /diff shows it, /undo takes it back".to_owned(),
            many => {
                let more = if outcome.more_files { " and more" } else { "" };
                format!(" · {many}{more} files changed, /diff shows them, /undo takes them back")
            }
        };
        let calls = match shown.receipts.made {
            0 => String::new(),
            1 => "1 call · ".to_owned(),
            many => format!("{many} calls · "),
        };
        let seconds = shown.began.elapsed().as_secs();
        let told = format!(
            "{calls}{} tokens · ${} · {seconds}s{files}",
            outcome.usage.total(),
            outcome.cost
        );
        self.say(&dim(&told, self.color))
    }
}

/// Waits until nobody wants the answer to a question any more; for ever where none is open.
async fn taken_back(open: &mut Option<Open>) {
    match open {
        Some(open) => open.taken_back().await,
        None => std::future::pending().await,
    }
}

/// Returns the end of a line that is too long: that is where it grows.
fn cut_left(line: &str, room: usize) -> String {
    if width(line) <= room {
        return line.to_owned();
    }
    let mut kept: Vec<char> = Vec::new();
    let mut used = 1;
    for character in line.chars().rev() {
        used += width(character.encode_utf8(&mut [0; 4]));
        if used > room {
            break;
        }
        kept.push(character);
    }
    kept.push('…');
    kept.iter().rev().collect()
}
