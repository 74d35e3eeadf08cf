//! Before each model call: the conversation is made to fit the window.

use std::{
    collections::{HashMap, HashSet},
    ops::ControlFlow,
};

use formwork_context::{
    Fitting, Group, History, Look, Protected, Room, SUMMARISE, Step, Stretch, brief, digest,
    message_tokens, pictures, summary, tool_tokens, transcript,
};
use formwork_protocols::{
    Blob, Cancel, CompactionCause, ContextCompacted, ContextEdit, EventBody, Message, Model,
    ModelRequest, ProviderFault, Purpose, Role, SessionId, ToolCall, ToolClass, Usage, Usd,
    canonical,
    event::{SessionEnded, SessionStarted},
    message::Arguments,
    model::StopReason,
    tool::named_paths,
};

use super::Session;
use crate::{
    Error,
    guard::{Key, key},
    spec::SessionEnd,
};

/// The most tokens of a summary.
const SUMMARY_TOKENS: u32 = 1_000;

/// The part of its window that a model is given to sum up, in bytes for each token: what is not the transcript is
/// short, and no text has fewer bytes for a token than two.
const TRANSCRIPT_BYTES_PER_TOKEN: u64 = 1;

/// The most bytes that are given to a model to sum up, however large its window is: it is a cheap one.
const TRANSCRIPT_BYTES: u64 = 200_000;

/// The most bytes of a brief for the conversation that goes on.
const BRIEF_BYTES: u64 = 24_000;

/// What was done so far of making a conversation fit.
struct Done {
    cause: CompactionCause,
    room: Option<u64>,
    before: u64,
    edits: Vec<ContextEdit>,
    superseded: usize,
    spilled: usize,
    summarised: usize,
}

impl Done {
    const fn new(cause: CompactionCause) -> Self {
        Self {
            cause,
            room: None,
            before: 0,
            edits: Vec::new(),
            superseded: 0,
            spilled: 0,
            summarised: 0,
        }
    }
}

impl Session {
    /// Asks that the conversation is made as short as it can be before the next model call.
    pub const fn compact(&mut self) {
        self.compact_asked = true;
    }

    /// Returns the model that is asked for that.
    pub(super) fn model_for(&self, purpose: Purpose) -> &Model {
        match purpose {
            Purpose::Summary => self.spec.summary.as_ref().unwrap_or(&self.spec.model),
            _ => &self.spec.model,
        }
    }

    /// Returns the room for a request, where anything is known of it.
    fn room(&self) -> Option<Room> {
        let answer = u64::from(self.max_output());
        let known = self.spec.model.info.context_tokens.map(|window| Room::of(window, answer));
        match (known, self.meter.refused()) {
            (Some(room), Some(refused)) => Some(room.refused(refused)),
            (None, Some(refused)) => Some(Room::unknown(refused)),
            (known, None) => known,
        }
    }

    /// Returns how long the next answer may be, within what the window has room for.
    pub(super) fn answer_limit(&self, measure: u64) -> u32 {
        let wanted = self.max_output();
        let Some(window) = self.spec.model.info.context_tokens else { return wanted };
        Room::of(window, u64::from(wanted)).answer(self.meter.likely(measure), wanted)
    }

    /// Makes the conversation fit, where it does not: leaves out what later results say again, shows less of long
    /// results, sums up the oldest groups, and as the last step goes on in a new conversation with a brief of this one.
    pub(super) async fn fit(&mut self, stop: &Cancel) -> Result<ControlFlow<SessionEnd>, Error> {
        self.leave_pictures()?;
        let asked = std::mem::take(&mut self.compact_asked);
        let known = self.room();
        if known.is_none() && !asked {
            return Ok(ControlFlow::Continue(()));
        }
        let before = self.meter.likely(self.measure());
        let (room, cause) = match known {
            Some(room) if self.overflowed => (room, CompactionCause::Overflow),
            Some(room) if before > room.full => (room, CompactionCause::Window),
            known if asked => {
                let room = known.unwrap_or(Room::unknown(u64::MAX));
                (Room { aim: 0, ..room }, CompactionCause::Asked)
            }
            _ => return Ok(ControlFlow::Continue(())),
        };
        let most = known.map(|room| room.most);
        let mut done = Done { room: most, before, ..Done::new(cause) };
        let mut fitting = Fitting::new(room);
        loop {
            // The last groups may take half of what is aimed at, as far as it is known how dense they are.
            let last = scaled(self.measure(), room.full / 3, before.max(1));
            let protected = Protected::of(&self.history, self.task_at, last);
            let tokens = self.meter.likely(self.measure());
            let fixed = self.meter.likely(self.fixed());
            let looks = self.looks();
            match fitting
                .next(&self.history, &protected, (tokens, fixed), &|call| look(&looks, call))
            {
                Step::Supersede(edits) => {
                    done.superseded = edits.len();
                    self.edit(&mut done, edits);
                }
                Step::Spill(spilled) => {
                    done.spilled = spilled.len();
                    let (edits, blobs): (Vec<_>, Vec<_>) = spilled.into_iter().unzip();
                    self.record.journal().put([], blobs.into_iter().flatten());
                    self.edit(&mut done, edits);
                }
                Step::Summarise(stretch) => {
                    let words = match self.summed_up(&stretch, stop).await? {
                        ControlFlow::Continue(words) => words,
                        ControlFlow::Break(end) => {
                            self.put_compacted(done)?;
                            return Ok(ControlFlow::Break(end));
                        }
                    };
                    done.summarised += stretch.count;
                    self.seams.heard.guide.forget();
                    let edit = summary(&self.history, &stretch, &words);
                    self.edit(&mut done, vec![edit]);
                }
                Step::HandOver => return self.hand_over(done, &room),
                Step::Done => break,
            }
        }
        if done.edits.is_empty() && cause == CompactionCause::Overflow {
            return Ok(ControlFlow::Break(self.too_small(&room)));
        }
        self.put_compacted(done)?;
        Ok(ControlFlow::Continue(()))
    }

    /// Leaves the oldest pictures out where there are more than a request may carry, whatever the window holds.
    fn leave_pictures(&mut self) -> Result<(), Error> {
        let protected = Protected::of(&self.history, self.task_at, 0);
        let edits = pictures(&self.history, &protected);
        if edits.is_empty() {
            return Ok(());
        }
        let before = self.meter.likely(self.measure());
        let (cause, spilled) = (CompactionCause::Pictures, edits.len());
        let mut done = Done { before, spilled, ..Done::new(cause) };
        self.edit(&mut done, edits);
        self.put_compacted(done)
    }

    /// Returns the measure of what every conversation about the task has.
    fn fixed(&self) -> u64 {
        let groups = self.history.groups().iter().zip(self.history.places());
        let task = groups
            .filter(|(_, place)| **place == self.task_at)
            .flat_map(|(group, _)| group.messages());
        let messages = std::iter::once(self.history.system().clone()).chain(task);
        let said: u64 = messages.map(|message| message_tokens(&message)).sum();
        said.saturating_add(tool_tokens(&self.tools()))
    }

    /// Does some edits and remembers them.
    fn edit(&mut self, done: &mut Done, edits: Vec<ContextEdit>) {
        self.leave_out(&edits);
        done.edits.extend(edits);
    }

    /// Does some edits, and tells the guard whose results can be read no more.
    pub(super) fn leave_out(&mut self, edits: &[ContextEdit]) {
        let before: Vec<ToolCall> = edited(&self.history, edits);
        self.history.apply(edits);
        self.tokens = self.history.messages().map(|message| message_tokens(&message)).sum();
        if before.is_empty() {
            return;
        }
        let mut seen: HashMap<Key, u32> = before.iter().map(|call| (key(call), 0)).collect();
        for (group, place) in self.history.groups().iter().zip(self.history.places()) {
            let Group::Turn(turn) = group else { continue };
            for (at, call) in turn.assistant().tool_calls().enumerate() {
                let is_edited = edits.iter().any(|edit| names(edit, *place, at));
                if let Some(seen) = seen.get_mut(&key(call)).filter(|_| !is_edited) {
                    *seen = seen.saturating_add(1);
                }
            }
        }
        self.guard.left_out(seen);
    }

    /// Gathers that the conversation was made shorter, if it was, with what that does to the provider's cache.
    fn put_compacted(&mut self, done: Done) -> Result<(), Error> {
        if done.edits.is_empty() {
            return Ok(());
        }
        let task = self.task();
        let session = self.id;
        let text = canonical::to_string(&done.edits)
            .map_err(|source| Error::UnwritableMessage { session, source })?;
        let blob = Blob::new(text.into_bytes());
        let first = done.edits.iter().map(|edit| match edit {
            ContextEdit::Result { group, .. } => *group,
            ContextEdit::Summary { from, .. } => *from,
        });
        let first = first.min().unwrap_or_default();
        let behind = self.history.groups().iter().zip(self.history.places());
        let behind =
            behind.filter(|(_, place)| **place >= first).flat_map(|(group, _)| group.messages());
        let behind: u64 = behind.map(|message| message_tokens(&message)).sum();
        let compacted = self.compacted(&done, behind, Some(&blob), None);
        self.record.put_with(task, EventBody::ContextCompacted(compacted), blob);
        Ok(())
    }

    fn compacted(
        &self,
        done: &Done,
        behind: u64,
        edits: Option<&Blob>,
        handed_over: Option<SessionId>,
    ) -> ContextCompacted {
        let measure = self.measure();
        let after = self.meter.likely(measure);
        let rebilled = scaled(after, behind, measure.max(1)).min(after);
        let price = self.spec.model.price;
        let anew = price.cost(&Usage { input: rebilled, ..Usage::default() });
        let cached = price.cost(&Usage { cache_read: rebilled, ..Usage::default() });
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        ContextCompacted {
            session: self.id,
            cause: done.cause,
            before: done.before,
            after,
            room: done.room,
            superseded: count(done.superseded),
            spilled: count(done.spilled),
            summarised: count(done.summarised),
            masked: 0,
            rebilled_tokens: rebilled,
            rebilled: anew.checked_sub(cached).unwrap_or(Usd::ZERO),
            edits: edits.map(Blob::hash),
            handed_over,
        }
    }

    /// Has a stretch summed up by the cheap model, or without one where that cannot be had.
    async fn summed_up(
        &mut self,
        stretch: &Stretch,
        stop: &Cancel,
    ) -> Result<ControlFlow<SessionEnd, String>, Error> {
        let groups = stretch.groups(&self.history);
        let without = digest(groups);
        let info = &self.model_for(Purpose::Summary).info;
        let window = info.context_tokens.unwrap_or(u64::MAX);
        let bytes = (window / 2).saturating_mul(TRANSCRIPT_BYTES_PER_TOKEN).min(TRANSCRIPT_BYTES);
        let material = transcript(groups, usize::try_from(bytes).unwrap_or(usize::MAX));
        let asked = format!("<conversation>\n{material}</conversation>\n\nWrite the notes.");
        let messages =
            vec![Message::text(Role::System, SUMMARISE), Message::text(Role::User, asked)];
        let measure = messages.iter().map(message_tokens).sum();
        let most = info.max_output_tokens.unwrap_or(u32::MAX).min(SUMMARY_TOKENS);
        let request = ModelRequest {
            max_output_tokens: Some(most),
            temperature: self.spec.limits.temperature,
            seed: self.spec.limits.seed,
            ..ModelRequest::new(info.model.model.clone(), messages)
        };
        // A budget that cannot bear a summary may yet bear the next turn, which says so where not.
        let ControlFlow::Continue((sent, mut hold)) =
            self.reserve(measure, &request, Purpose::Summary)
        else {
            return Ok(ControlFlow::Continue(without));
        };
        self.record.flush().await?;
        hold.sent(sent.input);
        match self.receive(request, sent, &mut hold, stop).await? {
            Ok(completion) => {
                let words = completion.message.to_text();
                let words = self.seams.scrub.scrub_text(words.trim()).into_owned();
                let answer = Message::text(Role::Assistant, words.as_str());
                let session = self.id;
                let answer = canonical::to_string(&answer)
                    .map_err(|source| Error::UnwritableMessage { session, source })?;
                self.settle(&completion, sent, hold, Some(Blob::new(answer.into_bytes())));
                // Nobody could tell later what is missing in it.
                let is_whole = !matches!(completion.stop, StopReason::Gap | StopReason::Missing);
                Ok(ControlFlow::Continue(if is_whole && !words.is_empty() {
                    words
                } else {
                    without
                }))
            }
            Err(broken) => {
                let error = self.fail(broken, sent, hold);
                self.record.flush().await?;
                Ok(match error.fault {
                    ProviderFault::Cancelled => ControlFlow::Break(SessionEnd::Cancelled),
                    _ => ControlFlow::Continue(without),
                })
            }
        }
    }

    /// Goes on in a new conversation, which begins with the task and a brief of this one.
    fn hand_over(&mut self, done: Done, room: &Room) -> Result<ControlFlow<SessionEnd>, Error> {
        let turns = |group: &&Group| matches!(group, Group::Turn(_));
        let turns = self.history.groups().iter().filter(turns).count();
        // What comes after one turn again, comes after every turn; and without any there is nothing to leave out.
        if turns < if self.handed_over { 2 } else { 1 } {
            return Ok(ControlFlow::Break(self.too_small(room)));
        }
        let bytes = (room.aim / 2).clamp(1_000, BRIEF_BYTES);
        let brief =
            brief(&self.history, self.task_at, usize::try_from(bytes).unwrap_or(usize::MAX));
        let task_place = self.history.places().iter().position(|place| *place == self.task_at);
        let task = task_place.and_then(|at| self.history.groups().get(at));
        let task = task.and_then(|group| group.messages().next());
        let Some(task) = task else { return Ok(ControlFlow::Break(self.too_small(room))) };

        let (old, new) = (self.id, SessionId::generate(&*self.seams.clock, &*self.seams.rng));
        let tools = self.tools().into_iter().map(|tool| tool.name.to_string()).collect();
        let system = self.history.system().clone();
        self.record.begin(new);
        let said: Vec<Message> = vec![system, task, Message::text(Role::User, brief)];
        let own = self.task();
        // The facts of the old conversation stand before the first of the new one.
        let mut next = History::new(said.first().map(Message::to_text).unwrap_or_default());
        said.iter().skip(1).for_each(|message| next.say(message.clone()));
        self.history = next;
        self.tokens = said.iter().map(message_tokens).sum();
        (self.task_at, self.handed_over, self.accepted) = (1, true, 1);
        let compacted = self.compacted(&done, self.tokens, None, Some(new));
        self.record.put(own, EventBody::ContextCompacted(compacted));
        let reason = format!("the window is full; it goes on as {new}");
        self.record.put(own, EventBody::SessionEnded(SessionEnded { session: old, reason }));
        let started = SessionStarted {
            session: new,
            agent: self.spec.agent.clone(),
            model: self.spec.model.info.model.clone(),
            agent_version: self.spec.agent_version.clone(),
            tools,
            continues: Some(old),
            carried: 0,
            counted: None,
            call: self.spec.call,
        };
        // The conversation is that of the task, whatever part of it is open: an attempt goes on in this one.
        self.record.put(self.spec.task, EventBody::SessionStarted(Box::new(started)));
        self.id = new;
        self.seams.heard.guide.forget();
        for message in &said {
            self.record.put_message(own, message)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Says that not even what has to be said fits, and what takes the rest of the window.
    fn too_small(&self, room: &Room) -> SessionEnd {
        let tokens = self.meter.likely(self.measure());
        let (window, most) = (room.window, room.most);
        let answer = u64::from(self.max_output());
        let declared = self.spec.model.info.context_tokens.map(|known| Room::of(known, answer));
        let refused = self.meter.refused().unwrap_or(window);
        let why = match declared {
            Some(declared) if declared.most <= most => {
                let (free, answer) = (declared.free(), window - most - declared.free());
                format!(
                    "of the window of {window} there is room for {most}: {answer} are kept for the answer, \
                     and {free} for what the server adds"
                )
            }
            Some(_) => format!(
                "at most {most} are sent, because the server refused about {refused}, whatever window of \
                 {window} it is said to have"
            ),
            None => format!("at most {most} are sent, because the server refused about {refused}"),
        };
        let message = format!(
            "the conversation has about {tokens} tokens, and {why}; nothing more of it can be left out"
        );
        SessionEnd::ContextOverflow(self.provider_error(ProviderFault::ContextOverflow, &message))
    }

    /// Returns the tools that only look at something, by each form of their names.
    fn looks(&self) -> HashSet<String> {
        let mut looks = HashSet::new();
        for tool in self.seams.tools.offered() {
            if tool.class == ToolClass::Read {
                let name = tool.definition.name.as_str();
                looks.insert(name.replace('.', "_"));
                looks.insert(name.to_owned());
            }
        }
        looks
    }
}

/// Returns the calls whose results some edits leave out, or show less of.
fn edited(history: &History, edits: &[ContextEdit]) -> Vec<ToolCall> {
    let mut calls = Vec::new();
    for (group, place) in history.groups().iter().zip(history.places()) {
        let Group::Turn(turn) = group else { continue };
        let named = turn.assistant().tool_calls().enumerate();
        let named = named.filter(|(at, _)| edits.iter().any(|edit| names(edit, *place, *at)));
        calls.extend(named.map(|(_, call)| call.clone()));
    }
    calls
}

/// Tells whether an edit concerns the result at a place of the group at a place.
fn names(edit: &ContextEdit, place: u32, at: usize) -> bool {
    match edit {
        ContextEdit::Result { group, result, .. } => {
            *group == place && usize::try_from(*result).is_ok_and(|result| result == at)
        }
        ContextEdit::Summary { from, through, .. } => (*from..=*through).contains(&place),
    }
}

/// Says what a call looks at, if it only looks: a path, and all of it where nothing else is asked for.
fn look(looks: &HashSet<String>, call: &ToolCall) -> Option<Look> {
    let Arguments::Json(value) = &call.arguments else { return None };
    if !looks.contains(&call.name) {
        return None;
    }
    let at = named_paths(value).into_iter().next()?;
    let whole = value.as_object()?.len() == 1;
    let key = format!("{} {}", call.name, canonical::to_string(value).ok()?);
    Some(Look { at, whole, key })
}

/// Returns `of` times `times` by `by`.
fn scaled(of: u64, times: u64, by: u64) -> u64 {
    let product = u128::from(of).saturating_mul(u128::from(times)) / u128::from(by.max(1));
    u64::try_from(product).unwrap_or(u64::MAX)
}
