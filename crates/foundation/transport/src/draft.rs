//! An answer while it grows, the same for every wire.

mod reasoning;

use std::{collections::VecDeque, mem, ops::Range};

use formwork_protocols::{
    Message, ModelEvent, ModelRequest, Part, ProviderFault, Role, Usage,
    message::{Arguments, Provenance, Reasoning},
    model::{StopReason, Used},
    text,
};

use crate::{
    assembly::{Assembly, Delta, Ended, Step},
    fault::Fault,
    shape::Words,
    stop, text_calls,
    tool_names::ToolNames,
    usage::{self, Came, Counts, Worth},
};

/// How many bytes of a word for why an answer ended are told.
const STOP_WORD: usize = 64;

/// An answer while it grows.
#[derive(Debug)]
pub(crate) struct Draft {
    names: ToolNames,
    parts: Vec<DraftPart>,
    calls: Assembly,
    told: VecDeque<Told>,
    refused: bool,
    /// How often anything was added.
    changes: u64,
    /// How many bytes of the answer came, and how many had come when the server counted last.
    bytes: usize,
    counted: usize,
    /// How many of the bytes were reasoning.
    thought: usize,
    /// Why it ended, once the server has said so.
    pub(crate) stop: Option<StopReason>,
    /// The server's word for that, where nobody knows it.
    stop_word: Option<String>,
    /// Whether the wire's own end marker came.
    pub(crate) ended: bool,
    /// What shows that a part of it was lost, if anything does.
    lost: Option<&'static str>,
    /// The number of the last event, where the server counts them.
    number: Option<u64>,
    /// Whether more came than the request asked for.
    overran: bool,
    told_usage: Counts,
    /// The model, as the server names it.
    pub(crate) model: Option<String>,
    /// The server's id of the answer.
    pub(crate) id: Option<String>,
    /// Where the words stood that were added last, if that was the last change: their address, which is compared and
    /// never followed, and their length.
    last_words: Option<(Words, usize, usize)>,
    /// The last event whose counts were not read yet, and how they are.
    uncounted: String,
    uncounted_at: usize,
    count: Option<fn(&str) -> Option<Counts>>,
}

#[derive(Debug)]
enum DraftPart {
    Text(String),
    Reasoning { text: String, signature: Option<String>, redacted: bool },
    Call,
}

/// What is to be told. An event has the size of the largest there is, most of which no wire brings.
#[derive(Debug)]
enum Told {
    Text(String),
    Reasoning(String),
    Call(Step),
}

/// What has become of a draft.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) message: Message,
    pub(crate) stop: StopReason,
    pub(crate) usage: Usage,
    pub(crate) usage_estimated: bool,
    pub(crate) usage_doubted: Option<Usage>,
}

impl Draft {
    pub(crate) fn new(request: &ModelRequest, names: ToolNames) -> Self {
        Self {
            names,
            parts: Vec::new(),
            // The length of the history differs from turn to turn, so made ids do not repeat in it.
            calls: Assembly::new(request.messages.len()),
            told: VecDeque::new(),
            refused: false,
            changes: 0,
            bytes: 0,
            counted: 0,
            thought: 0,
            last_words: None,
            uncounted: String::new(),
            uncounted_at: 0,
            count: None,
            stop: None,
            stop_word: None,
            ended: false,
            lost: None,
            number: None,
            overran: false,
            told_usage: Counts::default(),
            model: None,
            id: None,
        }
    }

    /// Returns the next event to be told.
    #[inline]
    pub(crate) fn pop_event(&mut self) -> Option<ModelEvent> {
        Some(match self.told.pop_front()? {
            Told::Text(text) => ModelEvent::Text { text },
            Told::Reasoning(text) => ModelEvent::Reasoning { text },
            Told::Call(Step::Started { index, id, name }) => {
                ModelEvent::ToolCallStarted { index, id, name: self.names.back(&name).to_owned() }
            }
            Told::Call(Step::Grew { index, text }) => ModelEvent::ToolCallDelta { index, text },
        })
    }

    /// Takes the server's word for why the answer ended, and tells whether it says anything: some have an empty one until the
    /// end.
    pub(crate) fn stop_for(&mut self, word: &str) -> bool {
        if word.trim().is_empty() {
            return false;
        }
        let known = stop::known(word);
        self.stop_word = known.is_none().then(|| text::head(word, STOP_WORD).to_owned());
        self.stop = Some(known.unwrap_or(StopReason::Other));
        true
    }

    /// Takes note that a part of the answer is missing, and of what shows it.
    pub(crate) const fn lose(&mut self, why: &'static str) {
        if self.lost.is_none() {
            self.lost = Some(why);
        }
    }

    /// Returns what shows that a part of the answer is missing.
    pub(crate) const fn lost(&self) -> Option<&'static str> {
        self.lost
    }

    /// Returns the number that the next event of a server that counts them has.
    #[inline]
    pub(crate) const fn next_number(&self) -> Option<u64> {
        match self.number {
            Some(number) => number.checked_add(1),
            None => None,
        }
    }

    /// Takes the number of an event. A server that gives each the same does not count them.
    #[inline]
    pub(crate) fn numbered(&mut self, number: u64) {
        if self.next_number().is_some_and(|next| number > next) {
            self.lose("the number of an event is left out");
        }
        self.number = Some(number);
    }

    /// Returns how many bytes of the answer came: words, reasoning and calls.
    #[inline]
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes note that more came than the request asked for: what the server counts of it is not believed any more.
    pub(crate) const fn overrun(&mut self) {
        self.overran = true;
    }

    /// Returns the arguments of the call at an index, as far as they came.
    pub(crate) fn arguments(&self, index: Option<i64>) -> Option<&str> {
        self.calls.arguments(index)
    }

    /// Returns how often anything was added.
    #[inline]
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    /// Keeps an event whose counts are only read if they are the last.
    #[inline]
    pub(crate) fn count_later(&mut self, data: &str, count: fn(&str) -> Option<Counts>) {
        self.uncounted.clear();
        self.uncounted.push_str(data);
        self.uncounted_at = self.bytes;
        self.count = Some(count);
    }

    /// Takes what the server counts of all that has come so far.
    pub(crate) fn counted(&mut self, counts: Counts) {
        self.counted_at(counts, self.bytes);
    }

    /// Takes what the server counts, of an answer of which so many bytes had come.
    fn counted_at(&mut self, counts: Counts, bytes: usize) {
        self.told_usage = self.told_usage.then(counts);
        if counts.usage().total_output() > 0 {
            self.counted = bytes;
        }
    }

    /// Tells whether the server has counted all that came.
    pub(crate) const fn is_counted(&self) -> bool {
        self.counted == self.bytes
    }

    /// Takes it that what has come is counted in the same words as before.
    #[inline]
    pub(crate) const fn count_again(&mut self) {
        self.counted = self.bytes;
    }

    /// Reads the counts that were kept.
    #[inline]
    pub(crate) fn count_now(&mut self) {
        if let Some(count) = self.count.take()
            && let Some(counts) = count(&self.uncounted)
        {
            self.counted_at(counts, self.uncounted_at);
        }
    }

    /// Returns what was used although no answer comes of it, as far as anything shows that it was: what the server has
    /// counted, and an estimate of what came behind that count.
    pub(crate) fn used(&mut self, request: &ModelRequest) -> Option<Used> {
        self.count_now();
        if self.told_usage.usage().total() == 0 && self.bytes == 0 {
            return None;
        }
        let came = Came { bytes: self.bytes, thought: self.thought };
        let billed = self.told_usage.bill(request, came, || usage::tokens(self.bytes));
        let mut used = Used { usage: billed.usage, estimated: billed.is_estimated() };
        // What came behind the last count is not in it.
        let uncounted = match billed.output {
            Worth::Told => self.bytes.saturating_sub(self.counted),
            Worth::Missing | Worth::Impossible => 0,
        };
        used.usage.output = used.usage.output.saturating_add(usage::tokens(uncounted));
        used.estimated |= uncounted > 0;
        let received = usage::tokens(self.bytes).saturating_sub(used.usage.reasoning);
        if self.overran && used.usage.output < received {
            (used.usage.output, used.estimated) = (received, true);
        }
        Some(used)
    }

    /// Takes note of a change that brings no words.
    const fn changed(&mut self) {
        self.changes += 1;
        self.last_words = None;
    }

    /// Returns what the words were that were added last, and where in `data` they stand, if they do.
    pub(crate) fn last_words_in(&self, data: &str) -> Option<(Words, Range<usize>)> {
        let (kind, address, length) = self.last_words?;
        let start = address.checked_sub(data.as_ptr().addr())?;
        let end = start.checked_add(length)?;
        (end <= data.len()).then_some((kind, start..end))
    }

    #[inline]
    pub(crate) fn add_text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.changes += 1;
        self.bytes += text.len();
        self.last_words = Some((Words::Text, text.as_ptr().addr(), text.len()));
        match self.parts.last_mut() {
            Some(DraftPart::Text(before)) => before.push_str(text),
            _ => self.parts.push(DraftPart::Text(text.to_owned())),
        }
        self.told.push_back(Told::Text(text.to_owned()));
    }

    /// Adds the text with which the model declines.
    pub(crate) fn add_refusal(&mut self, text: &str) {
        self.refused |= !text.is_empty();
        self.add_text(text);
    }

    pub(crate) fn add_reasoning(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.changes += 1;
        self.bytes += text.len();
        self.thought += text.len();
        self.last_words = Some((Words::Reasoning, text.as_ptr().addr(), text.len()));
        match self.parts.last_mut() {
            Some(DraftPart::Reasoning { text: before, signature: None, redacted: false }) => {
                before.push_str(text);
            }
            _ => self.parts.push(DraftPart::Reasoning {
                text: text.to_owned(),
                signature: None,
                redacted: false,
            }),
        }
        self.told.push_back(Told::Reasoning(text.to_owned()));
    }

    pub(crate) fn add_call(&mut self, delta: Delta<'_>) {
        self.changed();
        self.bytes += delta.name.map_or(0, str::len) + delta.arguments.map_or(0, str::len);
        let before = self.calls.len();
        let told = &mut self.told;
        self.calls.take(delta, &mut |step| told.push_back(Told::Call(step)));
        self.parts.extend((before..self.calls.len()).map(|_| DraftPart::Call));
    }

    /// Tells of the calls that have no arguments; to be called once nothing more comes.
    pub(crate) fn flush(&mut self) {
        self.told.extend(self.calls.flush().into_iter().map(Told::Call));
    }

    /// Ends the answer.
    ///
    /// # Errors
    /// When the stream ended before the answer did, and when the answer says nothing.
    pub(crate) fn finish(
        &mut self,
        request: &ModelRequest,
        provenance: &Provenance,
    ) -> Result<Finished, Fault> {
        let stop = match self.stop {
            Some(stop) => stop,
            None if self.ended => StopReason::Missing,
            None => {
                return Err(Fault::new(
                    ProviderFault::Transport,
                    "the stream ended before the answer was whole",
                ));
            }
        };
        let stop = match stop {
            StopReason::EndTurn | StopReason::Other if self.refused => StopReason::Refusal,
            StopReason::EndTurn if !self.calls.is_empty() => StopReason::ToolUse,
            stop => stop,
        };
        let is_withheld = matches!(stop, StopReason::Refusal | StopReason::ContentFilter);
        if self.parts.is_empty() && !is_withheld {
            if let Some(why) = self.lost {
                let message = format!("no part of the answer could be read: {why}");
                return Err(Fault::new(ProviderFault::Protocol, message));
            }
            if let Some(word) = self.stop_word.as_deref() {
                let message = format!("the answer is empty, and ended for {word:?}");
                return Err(Fault::new(ProviderFault::Protocol, message));
            }
            if stop != StopReason::Length {
                return Err(Fault::new(ProviderFault::Protocol, "the answer is empty"));
            }
        }
        if stop == StopReason::ToolUse && self.calls.is_empty() {
            self.lose("it ended for its calls, and none came");
        }
        let stop = match stop {
            stop if is_withheld => stop,
            _ if self.lost.is_some() => StopReason::Gap,
            StopReason::EndTurn if self.writes_a_call(request) => StopReason::ProseCall,
            stop => stop,
        };
        let ended = match stop {
            _ if self.lost.is_some() => Ended::WithLoss,
            StopReason::EndTurn | StopReason::ToolUse | StopReason::ProseCall => Ended::Whole,
            StopReason::Length => Ended::ForLength,
            StopReason::Other => Ended::ForUnknown,
            _ => Ended::WithoutMarker,
        };
        let calls = mem::replace(&mut self.calls, Assembly::new("")).finish(ended);
        let mut calls = calls.into_iter().map(|mut call| {
            call.name = self.names.back(&call.name).to_owned();
            if let (Some(word), Arguments::Malformed { error, .. }) =
                (self.stop_word.as_deref(), &mut call.arguments)
                && ended == Ended::ForUnknown
            {
                *error = format!(
                    "the answer ended for {word:?}, which is no reason that is known, so the call may be cut"
                );
            }
            Part::ToolCall(call)
        });
        let parts = mem::take(&mut self.parts).into_iter().filter_map(|part| match part {
            DraftPart::Text(text) => Some(Part::Text { text }),
            DraftPart::Reasoning { text, signature, redacted } => {
                Some(Part::Reasoning(Reasoning {
                    text,
                    signature,
                    redacted,
                    provenance: provenance.clone(),
                }))
            }
            DraftPart::Call => calls.next(),
        });
        let message = Message { role: Role::Assistant, parts: parts.collect() };
        self.count_now();
        let came = Came { bytes: self.bytes, thought: self.thought };
        let billed = self.told_usage.bill(request, came, || usage::message(&message));
        Ok(Finished {
            message,
            stop,
            usage: billed.usage,
            usage_estimated: billed.is_estimated(),
            usage_doubted: billed.doubted(),
        })
    }

    /// Tells whether its text holds what should have been a call.
    fn writes_a_call(&self, request: &ModelRequest) -> bool {
        !request.tools.is_empty()
            && self.parts.iter().any(|part| match part {
                DraftPart::Text(text) => text_calls::is_prose(text, request),
                DraftPart::Reasoning { .. } | DraftPart::Call => false,
            })
    }
}
