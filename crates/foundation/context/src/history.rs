//! A conversation as groups, so that no call is without its result and no result without its call.

use formwork_protocols::{Attachment, ContextEdit, Message, Part, Role, ToolCall, ToolResult};

/// A conversation: the system message, and what was said since, in whole groups.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    system: Message,
    groups: Vec<Group>,
    /// Where the first message of each group stands in the log of the conversation, the system message
    /// at 0. What stands for several groups stands where the first of them stood.
    places: Vec<u32>,
    /// Where the next message will stand.
    next: u32,
}

/// A part of a conversation that is kept or left out as a whole.
#[derive(Debug, Clone, PartialEq)]
pub enum Group {
    /// What a person said, or the runtime in a person's place.
    User(Message),
    /// What the model said, with the results of all its calls.
    Turn(Turn),
}

/// An answer of the model and a result for each of its calls, in the order of the calls.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    assistant: Message,
    results: Vec<ToolResult>,
}

/// An answer of the model whose calls are not yet all answered. It cannot be part of a history.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenTurn {
    assistant: Message,
    calls: Vec<(ToolCall, Option<ToolResult>)>,
}

/// What came of a call, without the names that pair it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// The text for the model.
    pub content: String,
    /// Whether the call failed or was refused.
    pub is_error: bool,
    /// The pictures that it shows besides.
    pub attached: Vec<Attachment>,
}

impl Answered {
    /// Returns the answer of a call that did what it was asked.
    pub fn ok(content: impl Into<String>) -> Self {
        Self { content: content.into(), is_error: false, attached: Vec::new() }
    }

    /// Returns the answer of a call that did not.
    pub fn error(content: impl Into<String>) -> Self {
        Self { content: content.into(), is_error: true, attached: Vec::new() }
    }
}

/// Why a series of messages is no conversation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum HistoryError {
    /// The first message has another role.
    #[error("message 0 is {found:?}, expected the system message")]
    NoSystem { found: Option<Role> },
    /// A message stands where its role has no place.
    #[error("message {index} is {found:?}, which has no place there")]
    OutOfPlace { index: usize, found: Role },
    /// The results are not those of the calls before them.
    #[error("message {index} has results for {found:?}, expected {expected:?}")]
    Unpaired { index: usize, expected: Vec<String>, found: Vec<String> },
}

impl History {
    /// Begins a conversation with its system message.
    pub fn new(system: impl Into<String>) -> Self {
        Self::after(Message::text(Role::System, system))
    }

    const fn after(system: Message) -> Self {
        Self { system, groups: Vec::new(), places: Vec::new(), next: 1 }
    }

    /// Adds what a person said, or the runtime in a person's place. Its role becomes [`Role::User`].
    pub fn say(&mut self, mut message: Message) {
        message.role = Role::User;
        self.add(Group::User(message));
    }

    fn add(&mut self, group: Group) {
        self.places.push(self.next);
        self.next = self.next.saturating_add(group.size());
        self.groups.push(group);
    }

    /// Takes the last answer out again, if nothing was called or said since.
    pub fn take_last_answer(&mut self) -> Option<Message> {
        let last = self.groups.pop()?;
        match last {
            Group::Turn(Turn { assistant, results }) if results.is_empty() => {
                self.next = self.places.pop().unwrap_or(self.next);
                Some(assistant)
            }
            other => {
                self.groups.push(other);
                None
            }
        }
    }

    /// Adds an answer whose calls are all answered.
    pub fn push(&mut self, turn: Turn) {
        self.add(Group::Turn(turn));
    }

    /// Returns the groups after the system message, the oldest first.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Returns where the first message of each group stands in the log of the conversation.
    pub fn places(&self) -> &[u32] {
        &self.places
    }

    /// Changes a conversation as it was changed before: what an edit names and is not there is left as it is.
    pub fn apply(&mut self, edits: &[ContextEdit]) {
        for edit in edits {
            match edit {
                ContextEdit::Result { group, result, content } => {
                    let at = self.places.iter().position(|place| place == group);
                    if let Some(Group::Turn(turn)) = at.and_then(|at| self.groups.get_mut(at))
                        && let Some(result) = turn.results.get_mut(*result as usize)
                    {
                        result.content.clone_from(content);
                        // What is left of a result is said in words, its pictures too.
                        result.attached.clear();
                    }
                }
                ContextEdit::Summary { from, through, content } => {
                    let stands = |place: &u32| (from..=through).contains(&place);
                    let Some(first) = self.places.iter().position(stands) else { continue };
                    let count = self.places.iter().skip(first).take_while(|at| stands(at)).count();
                    let summary = Group::User(Message::text(Role::User, content.as_str()));
                    let place = self.places.get(first).copied().unwrap_or(*from);
                    self.groups.splice(first..first + count, [summary]);
                    self.places.splice(first..first + count, [place]);
                }
            }
        }
    }

    /// Yields the images and documents that are shown in it, the oldest first.
    pub fn attachments(&self) -> impl Iterator<Item = &Attachment> {
        self.groups.iter().flat_map(Group::attachments)
    }

    /// Puts a line in the place of each image and document that `why` has a reason against. Returns how many there were.
    pub fn mask(&mut self, why: &dyn Fn(&Attachment) -> Option<String>) -> u32 {
        let masked = self.groups.iter_mut().map(|group| match group {
            Group::User(message) => message.mask(why),
            Group::Turn(turn) => turn.results.iter_mut().map(|result| result.mask(why)).sum(),
        });
        masked.sum()
    }

    /// Returns the system message.
    pub const fn system(&self) -> &Message {
        &self.system
    }

    /// Yields the messages in the order in which a model is sent them.
    pub fn messages(&self) -> impl Iterator<Item = Message> {
        let groups = self.groups.iter().flat_map(Group::messages);
        std::iter::once(self.system.clone()).chain(groups)
    }

    /// Reads a conversation back from its messages. What the model said last may still be open.
    ///
    /// # Errors
    /// [`HistoryError`] when the messages are not those of a conversation.
    pub fn fold(
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<(Self, Option<OpenTurn>), HistoryError> {
        let mut messages = messages.into_iter().enumerate();
        let system = match messages.next() {
            Some((_, message)) if message.role == Role::System => message,
            other => {
                return Err(HistoryError::NoSystem { found: other.map(|(_, found)| found.role) });
            }
        };
        let mut history = Self::after(system);
        let mut open: Option<OpenTurn> = None;
        for (index, message) in messages {
            let out_of_place = HistoryError::OutOfPlace { index, found: message.role };
            match (message.role, open.take()) {
                (Role::User, None) => history.add(Group::User(message)),
                (Role::Assistant, None) => match OpenTurn::new(message).close() {
                    Ok(turn) => history.push(turn),
                    Err(still_open) => open = Some(still_open),
                },
                (Role::Tool, Some(turn)) => history.push(turn.close_with(index, message)?),
                _ => return Err(out_of_place),
            }
        }
        Ok((history, open))
    }
}

impl Group {
    /// Returns how many messages it is sent as.
    pub const fn size(&self) -> u32 {
        match self {
            Self::Turn(turn) if !turn.results.is_empty() => 2,
            Self::User(_) | Self::Turn(_) => 1,
        }
    }

    /// Yields the images and documents that are shown in it.
    pub fn attachments(&self) -> impl Iterator<Item = &Attachment> {
        let (said, results) = match self {
            Self::User(message) => (Some(message), &[][..]),
            Self::Turn(turn) => (None, turn.results.as_slice()),
        };
        let said = said.into_iter().flat_map(Message::attachments);
        said.chain(results.iter().flat_map(|result| &result.attached))
    }

    /// Returns its messages.
    pub fn messages(&self) -> impl Iterator<Item = Message> {
        let messages = match self {
            Self::User(message) => [Some(message.clone()), None],
            Self::Turn(turn) => [Some(turn.assistant.clone()), turn.tool_message()],
        };
        messages.into_iter().flatten()
    }
}

impl Turn {
    /// Returns what the model said.
    pub const fn assistant(&self) -> &Message {
        &self.assistant
    }

    /// Returns the results, in the order of the calls.
    pub fn results(&self) -> &[ToolResult] {
        &self.results
    }

    /// Yields each call with its result.
    pub fn pairs(&self) -> impl Iterator<Item = (&ToolCall, &ToolResult)> {
        self.assistant.tool_calls().zip(&self.results)
    }

    /// Returns the message that carries the results; none where nothing was called.
    pub fn tool_message(&self) -> Option<Message> {
        let parts: Vec<_> = self.results.iter().cloned().map(Part::ToolResult).collect();
        (!parts.is_empty()).then_some(Message { role: Role::Tool, parts })
    }
}

impl OpenTurn {
    /// Takes an answer of the model, with none of its calls answered. Its role becomes
    /// [`Role::Assistant`].
    pub fn new(mut assistant: Message) -> Self {
        assistant.role = Role::Assistant;
        let calls = assistant.tool_calls().map(|call| (call.clone(), None)).collect();
        Self { assistant, calls }
    }

    /// Returns what the model said.
    pub const fn assistant(&self) -> &Message {
        &self.assistant
    }

    /// Yields the calls that are not yet answered, each with its place.
    pub fn unanswered(&self) -> impl Iterator<Item = (usize, &ToolCall)> {
        let calls = self.calls.iter().enumerate();
        calls.filter(|(_, (_, result))| result.is_none()).map(|(place, (call, _))| (place, call))
    }

    /// Answers the call at a place; a place that has no call, or is answered, stays as it is.
    pub fn answer(&mut self, place: usize, answered: Answered) {
        if let Some((call, result @ None)) = self.calls.get_mut(place) {
            *result = Some(ToolResult {
                call_id: call.id.clone(),
                name: call.name.clone(),
                content: answered.content,
                is_error: answered.is_error,
                attached: answered.attached,
            });
        }
    }

    /// Answers every call that is still open in the same way.
    pub fn answer_rest(&mut self, answered: &Answered) {
        for place in 0..self.calls.len() {
            self.answer(place, answered.clone());
        }
    }

    /// Returns the whole turn.
    ///
    /// # Errors
    /// The turn as it was, while a call is not answered.
    pub fn close(self) -> Result<Turn, Self> {
        let results: Option<Vec<_>> = self.calls.iter().map(|(_, result)| result.clone()).collect();
        match results {
            Some(results) => Ok(Turn { assistant: self.assistant, results }),
            None => Err(self),
        }
    }

    /// Takes the results from the message that carries them.
    fn close_with(self, index: usize, message: Message) -> Result<Turn, HistoryError> {
        let expected: Vec<_> = self.calls.into_iter().map(|(call, _)| call.id).collect();
        let mut results = Vec::with_capacity(expected.len());
        for part in message.parts {
            match part {
                Part::ToolResult(result) => results.push(result),
                _ => return Err(HistoryError::OutOfPlace { index, found: message.role }),
            }
        }
        let found: Vec<_> = results.iter().map(|result| result.call_id.clone()).collect();
        if found != expected {
            return Err(HistoryError::Unpaired { index, expected, found });
        }
        Ok(Turn { assistant: self.assistant, results })
    }
}

#[cfg(test)]
mod tests {
    use formwork_protocols::message::Arguments;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn call(id: &str) -> Part {
        Part::ToolCall(ToolCall {
            id: id.to_owned(),
            name: "read".to_owned(),
            arguments: Arguments::Json(json!({ "path": "a" })),
        })
    }

    fn result(id: &str) -> Part {
        Part::ToolResult(ToolResult {
            call_id: id.to_owned(),
            name: "read".to_owned(),
            content: "text".to_owned(),
            is_error: false,
            attached: Vec::new(),
        })
    }

    fn message(role: Role, parts: Vec<Part>) -> Message {
        Message { role, parts }
    }

    #[test]
    fn a_turn_closes_only_when_every_call_is_answered() {
        let mut open = OpenTurn::new(message(Role::Assistant, vec![call("a"), call("b")]));

        open.answer(1, Answered::ok("second"));
        let mut open = open.close().unwrap_err();
        assert_eq!(open.unanswered().map(|(place, _)| place).collect::<Vec<_>>(), [0]);
        open.answer(0, Answered::error("first"));
        open.answer(0, Answered::ok("too late"));
        let turn = open.close().unwrap();

        let contents: Vec<_> = turn.results().iter().map(|r| r.content.as_str()).collect();
        assert_eq!(contents, ["first", "second"]);
    }

    #[test]
    fn messages_that_are_no_conversation_are_refused_with_their_place() {
        let system = Message::text(Role::System, "s");
        let user = Message::text(Role::User, "u");
        let asks = message(Role::Assistant, vec![call("a")]);
        let results = |id| message(Role::Tool, vec![result(id)]);

        let no_system = HistoryError::NoSystem { found: Some(Role::User) };
        assert_eq!(History::fold([user.clone()]).unwrap_err(), no_system);
        let orphan = HistoryError::OutOfPlace { index: 1, found: Role::Tool };
        assert_eq!(History::fold([system.clone(), results("a")]).unwrap_err(), orphan);
        let unanswered = HistoryError::OutOfPlace { index: 2, found: Role::User };
        assert_eq!(History::fold([system.clone(), asks.clone(), user]).unwrap_err(), unanswered);
        let unpaired = HistoryError::Unpaired {
            index: 2,
            expected: vec!["a".to_owned()],
            found: vec!["b".to_owned()],
        };
        assert_eq!(History::fold([system, asks, results("b")]).unwrap_err(), unpaired);
    }

    #[test]
    fn a_conversation_cut_before_the_results_is_read_back_open() {
        let system = Message::text(Role::System, "s");
        let asks = message(Role::Assistant, vec![call("a"), call("b")]);

        let (history, open) = History::fold([system.clone(), asks.clone()]).unwrap();

        assert_eq!(history.messages().collect::<Vec<_>>(), [system]);
        assert_eq!(open, Some(OpenTurn::new(asks)));
    }

    /// What happens in a conversation: something is said, or the model answers with some calls.
    fn steps() -> impl Strategy<Value = Vec<Option<usize>>> {
        prop::collection::vec(prop::option::of(0_usize..4), 0..24)
    }

    proptest! {
        #[test]
        fn a_history_is_read_back_from_its_messages_and_pairs_every_call(steps in steps()) {
            let mut history = History::new("system");
            for (at, step) in steps.into_iter().enumerate() {
                match step {
                    None => history.say(Message::text(Role::User, format!("say {at}"))),
                    Some(calls) => {
                        let parts = (0..calls).map(|n| call(&format!("{at}-{n}"))).collect();
                        let mut open = OpenTurn::new(message(Role::Assistant, parts));
                        open.answer_rest(&Answered::ok("done"));
                        history.push(open.close().unwrap());
                    }
                }
            }
            let messages: Vec<_> = history.messages().collect();

            let mut asked: Vec<String> = Vec::new();
            for message in &messages {
                for part in &message.parts {
                    match part {
                        Part::ToolCall(call) => asked.push(call.id.clone()),
                        Part::ToolResult(result) => {
                            prop_assert_eq!(&result.call_id, &asked.remove(0));
                        }
                        _ => prop_assert!(asked.is_empty()),
                    }
                }
            }
            prop_assert!(asked.is_empty());
            prop_assert_eq!(History::fold(messages).unwrap(), (history, None));
        }

        #[test]
        fn no_series_of_messages_panics(roles in prop::collection::vec(0_u8..4, 0..12)) {
            let messages = roles.into_iter().map(|role| match role {
                0 => Message::text(Role::System, "s"),
                1 => Message::text(Role::User, "u"),
                2 => message(Role::Assistant, vec![call("a")]),
                _ => message(Role::Tool, vec![result("a")]),
            });
            let _ = History::fold(messages);
        }
    }
}
