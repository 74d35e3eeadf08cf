//! What the two ends say: one JSON object a frame, its `type` first among equals.
//!
//! The version is the WebSocket's subprotocol, [`PROTOCOL`]: ends that share none do not speak. Within a version a field
//! that is not known is passed over, so that either end can learn to say more; a `type` that is not known is a fault, and
//! so is anything unknown within [`Bounds`], where to pass over a word would be to allow more.

use formwork_protocols::{
    BlobHash, ToolErrorKind, ToolName, WorkerLabel, WorkerName, canonical, event::FileChange,
    message::ToolDefinition, tool::CallContext,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

/// The version that both ends speak, as a subprotocol of WebSocket.
pub const PROTOCOL: &str = "formwork.worker.v1";

/// The most bytes of a frame from a worker: what is larger comes in parts.
pub const MAX_FRAME_BYTES: usize = 1 << 20;

/// The most bytes of a frame to a worker, which a call has to fit into: more than a model writes at once.
pub const MAX_CALL_BYTES: usize = 8 << 20;

/// The most bytes of an answer, all its parts together: the longest output that is kept whole, and room to write it down.
pub const MAX_ANSWER_BYTES: usize = 24 << 20;

/// The bytes of an answer that go into one part. Written down within a frame they are twice as many at the most.
pub(crate) const PART_BYTES: usize = 256 << 10;

/// Why a frame was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Fault(pub String);

/// Reads a frame.
///
/// # Errors
/// What is wrong with it, whatever it holds.
pub fn decode<T: DeserializeOwned>(frame: &str) -> Result<T, Fault> {
    serde_json::from_str(frame)
        .map_err(|error| Fault(format!("a frame was not understood: {error}")))
}

/// Writes a frame.
pub fn encode<T: Serialize>(message: &T) -> String {
    // Names, numbers, texts and values that were read as JSON are always JSON.
    serde_json::to_string(message).unwrap_or_default()
}

/// A call that was given to one worker: which, and the how-manieth time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lease {
    /// The lease. A hub gives out none twice.
    pub lease: u64,
    /// Grows when the call is given to another worker: what the one before says of it is not heard any more.
    pub epoch: u32,
}

/// What a worker says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromWorker {
    /// It introduces itself: the first that it says, and only once a connection.
    Hello(Hello),
    /// It has room for so many calls more.
    Pull {
        /// How many.
        calls: u32,
    },
    /// It is there.
    Beat {},
    /// A part of an answer, in order.
    Part {
        /// Of which call.
        #[serde(flatten)]
        of: Lease,
        /// The text.
        text: String,
    },
    /// An answer is whole: its parts put together are an [`Answer`].
    Done {
        /// Of which call.
        #[serde(flatten)]
        of: Lease,
        /// How many parts it had.
        parts: u32,
    },
    /// It leaves for good, and has nothing at work any more.
    Bye {},
}

/// Who a worker is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// Its name.
    pub name: WorkerName,
    /// Tells this process from another of the same name: one that comes back with it has kept what it had at work.
    pub instance: String,
    /// What it offers.
    pub labels: Vec<WorkerLabel>,
    /// How many calls it takes at once.
    pub slots: u32,
    /// The tools that it has.
    pub tools: Vec<Announced>,
}

/// A tool that a worker has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announced {
    /// Its name.
    pub name: ToolName,
    /// The hash of the schema of its arguments: with another one it is another tool.
    pub schema: BlobHash,
}

impl Announced {
    /// Announces a tool.
    pub fn of(tool: &ToolDefinition) -> Self {
        Self { name: tool.name.clone(), schema: schema_of(tool) }
    }
}

/// Returns the hash of the schema of a tool's arguments, the same however its keys are ordered.
pub fn schema_of(tool: &ToolDefinition) -> BlobHash {
    let text = canonical::to_string(&tool.parameters).unwrap_or_default();
    BlobHash::of(text.as_bytes())
}

/// What a hub says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToWorker {
    /// The worker is taken.
    Welcome {
        /// The calls that it still holds, if it was here before.
        open: Vec<Lease>,
        /// In how many milliseconds one hears of the other at least once.
        beat_ms: u64,
        /// How many milliseconds it may be away before its calls are settled without it.
        grace_ms: u64,
    },
    /// It is not, and why.
    Refused {
        /// Why.
        reason: String,
        /// Whether a later try may be taken.
        again: bool,
    },
    /// A call, for this worker alone.
    Call {
        /// Its lease.
        #[serde(flatten)]
        of: Lease,
        /// In how many milliseconds it has to have ended.
        left_ms: u64,
        /// The call.
        given: Box<Given>,
    },
    /// A call is to be ended, with all that it has started. It is answered all the same.
    Cancel {
        /// Which.
        #[serde(flatten)]
        of: Lease,
    },
    /// An answer was taken: nothing of it has to be kept.
    Taken {
        /// Which.
        #[serde(flatten)]
        of: Lease,
    },
    /// It is there.
    Beat {},
}

/// A call as a worker is given it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Given {
    /// Where it belongs.
    #[serde(with = "context")]
    pub context: CallContext,
    /// The tool, and which one of that name.
    pub tool: Announced,
    /// Its arguments. They hold no secret.
    pub arguments: Value,
    /// What the run lets it do, beside what the worker does.
    pub bounds: Bounds,
}

/// What a run lets a call do. A worker lets it do what both let.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// What may be written: what all of these let.
    pub write: Vec<Globs>,
    /// Where programs may connect to: to what all of these lists name, and nowhere where there is none.
    pub network: Option<Vec<Vec<String>>>,
}

/// What may be written, as globs from the root of the workspace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Globs {
    /// These.
    pub write: Vec<String>,
    /// But not these.
    pub protected: Vec<String>,
}

/// What came of a call at the far end, whole and not yet shortened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// It was carried out.
    Completed {
        /// The whole output.
        text: String,
        /// Where it came from, if not from there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outside: Option<String>,
        /// The files that it changed there.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        changes: Vec<FileChange>,
        /// What it has to show besides.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pictures: Vec<Picture>,
    },
    /// It was not, or failed.
    Failed {
        /// How.
        kind: ToolErrorKind,
        /// What the model is told.
        message: String,
        /// Where what is quoted came from, if not from there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outside: Option<String>,
    },
}

impl Answer {
    /// Returns a failure.
    pub fn failed(kind: ToolErrorKind, message: impl Into<String>) -> Self {
        Self::Failed { kind, message: message.into(), outside: None }
    }
}

/// A picture.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    /// Of which kind.
    pub media_type: String,
    /// What it is called.
    pub name: String,
    /// Its bytes, in base64.
    pub base64: String,
}

/// Cuts an answer into texts that fit into frames.
pub(crate) fn parts(answer: &Answer) -> Vec<String> {
    let mut text = encode(answer);
    if text.len() > MAX_ANSWER_BYTES {
        text = encode(&shortened(answer));
    }
    let (mut parts, mut rest) = (Vec::new(), text.as_str());
    while !rest.is_empty() {
        let part = formwork_protocols::text::head(rest, PART_BYTES);
        parts.push(part.to_owned());
        rest = &rest[part.len()..];
    }
    parts
}

/// Leaves out the middle of an answer that is too long, and its pictures.
fn shortened(answer: &Answer) -> Answer {
    // What a byte is written down with within JSON is six at the most.
    let short =
        |text: &str| formwork_protocols::text::preview(text, MAX_ANSWER_BYTES / 8).into_owned();
    match answer {
        Answer::Completed { text, outside, changes, .. } => Answer::Completed {
            text: short(text),
            outside: outside.clone(),
            changes: changes.iter().take(MAX_CHANGES).cloned().collect(),
            pictures: Vec::new(),
        },
        Answer::Failed { kind, message, outside } => {
            Answer::Failed { kind: *kind, message: short(message), outside: outside.clone() }
        }
    }
}

/// The most changes of files that one answer tells.
pub(crate) const MAX_CHANGES: usize = 10_000;

/// Puts the parts of an answer together.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn whole(parts: &[String]) -> Result<Answer, Fault> {
    decode(&parts.concat())
}

/// How the place of a call is written down, whose own type has no form on a wire.
mod context {
    use formwork_protocols::{AgentName, CallId, RunId, SessionId, TaskId, tool::CallContext};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Wire {
        run: RunId,
        task: TaskId,
        session: SessionId,
        call: CallId,
        agent: AgentName,
    }

    pub(super) fn serialize<S: Serializer>(it: &CallContext, to: S) -> Result<S::Ok, S::Error> {
        let CallContext { run, task, session, call, agent } = it.clone();
        Wire { run, task, session, call, agent }.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<CallContext, D::Error> {
        let Wire { run, task, session, call, agent } = Wire::deserialize(from)?;
        Ok(CallContext { run, task, session, call, agent })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn completed(text: &str) -> Answer {
        Answer::Completed {
            text: text.to_owned(),
            outside: None,
            changes: Vec::new(),
            pictures: Vec::new(),
        }
    }

    #[test]
    fn behaviour_39_what_is_not_known_is_passed_over_but_for_bounds_and_kinds() {
        let beat = r#"{"type":"beat","mood":"good"}"#;
        let kind = r#"{"type":"lunch"}"#;
        let bounds = r#"{"write":[],"network":null,"only_on":"monday"}"#;

        assert_eq!(decode(beat), Ok(FromWorker::Beat {}));
        assert!(decode::<FromWorker>(kind).is_err());
        assert!(decode::<Bounds>(bounds).is_err());
    }

    #[test]
    fn an_answer_too_long_for_a_hub_is_told_in_part() {
        let answer = completed(&"\u{1b}".repeat(MAX_ANSWER_BYTES / 3));

        let parts = parts(&answer);

        let bytes: usize = parts.iter().map(String::len).sum();
        assert!(bytes <= MAX_ANSWER_BYTES, "{bytes}");
        let Ok(Answer::Completed { text, .. }) = whole(&parts) else { panic!("not completed") };
        assert!(text.contains("left out") || text.len() < MAX_ANSWER_BYTES / 3);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn behaviour_39_any_bytes_are_a_message_or_one_error(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
            let text = String::from_utf8_lossy(&bytes);
            let _ = decode::<FromWorker>(&text);
            let _ = decode::<ToWorker>(&text);
            let _ = decode::<Answer>(&text);
        }

        #[test]
        fn behaviour_39_a_message_with_a_piece_changed_is_a_message_or_one_error(at in 0_usize..400, with in any::<char>(), cut in 0_usize..400) {
            let given = r#"{"type":"call","lease":7,"epoch":2,"left_ms":5,"given":{"context":{"run":"00000000-0000-7000-8000-000000000000","task":"00000000-0000-7000-8000-000000000000","session":"00000000-0000-7000-8000-000000000000","call":"00000000-0000-7000-8000-000000000000","agent":"coder"},"tool":{"name":"exec","schema":"0000000000000000000000000000000000000000000000000000000000000000"},"arguments":{"command":["a"]},"bounds":{"write":[],"network":null}}}"#;
            prop_assert!(decode::<ToWorker>(given).is_ok());
            let mut chars: Vec<char> = given.chars().collect();
            let at = at % chars.len();
            chars[at] = with;
            chars.truncate(chars.len() - cut % chars.len());
            let _ = decode::<ToWorker>(&chars.into_iter().collect::<String>());
        }

        #[test]
        fn an_answer_comes_back_from_its_parts_whatever_it_says(text in ".{0,64}", times in prop_oneof![1_usize..9, 8_000_usize..9_000]) {
            let answer = completed(&text.repeat(times));
            let parts = parts(&answer);
            for part in &parts {
                let frame = FromWorker::Part { of: Lease { lease: 1, epoch: 1 }, text: part.clone() };
                prop_assert!(encode(&frame).len() <= MAX_FRAME_BYTES);
            }
            prop_assert_eq!(whole(&parts), Ok(answer));
        }
    }

    #[test]
    fn behaviour_39_what_is_nested_without_end_is_an_error() {
        let deep = format!("{}{}", r#"{"type":"hello","tools":"#, "[".repeat(100_000));

        assert!(decode::<FromWorker>(&deep).is_err());
    }
}
