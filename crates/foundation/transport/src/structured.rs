//! Answers that follow a schema: asked for by the wire's own means, checked here, and asked for once more.

use std::fmt;

use formwork_protocols::{
    Cancel, Completion, Message, ModelRequest, Provider, ProviderError, Role, model::StopReason,
};
use jsonschema::Validator;
use serde_json::Value;

/// The most problems that a model is told of at once.
const PROBLEMS: usize = 8;

/// A schema that answers have to follow.
#[derive(Debug)]
pub struct OutputSchema {
    name: String,
    schema: Value,
    validator: Validator,
}

/// An answer that follows its schema.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the type's sentence names its fields")]
pub struct Structured {
    pub value: Value,
    /// Every answer that it took, the last of which holds the value; each of them is paid for.
    pub answers: Vec<Completion>,
}

/// Why an answer does not follow its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the type's sentence names its fields")]
pub struct Mismatch {
    pub schema: String,
    pub problems: Vec<String>,
}

/// Why there is no answer that follows its schema.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Error {
    /// The schema is none.
    #[error("schema {name:?} cannot be used: {reason}")]
    Schema { name: String, reason: String },
    /// The call failed. What `answers` hold was used nevertheless.
    #[error("no answer came for schema {name:?}")]
    Provider { name: String, answers: Vec<Completion>, source: Box<ProviderError> },
    /// The model declined, or its provider withheld the answer.
    #[error("the model declined to answer by schema {name:?}")]
    Declined { name: String, answers: Vec<Completion> },
    /// The answer, and the one after it was told why, do not follow the schema.
    #[error("no answer follows the schema, also not when asked again: {mismatch}")]
    Mismatch { mismatch: Mismatch, answers: Vec<Completion> },
}

impl OutputSchema {
    /// Makes a schema of a JSON Schema, which must be whole: nothing is fetched.
    ///
    /// # Errors
    /// [`Error::Schema`] when it is not a JSON Schema.
    pub fn new(name: impl Into<String>, schema: Value) -> Result<Self, Error> {
        let name = name.into();
        match jsonschema::validator_for(&schema) {
            Ok(validator) => Ok(Self { name, schema, validator }),
            Err(error) => Err(Error::Schema { name, reason: error.to_string() }),
        }
    }

    /// Returns `request` as one for an answer that follows the schema.
    #[must_use]
    pub fn ask(&self, request: ModelRequest) -> ModelRequest {
        ModelRequest { output_schema: Some((self.name.clone(), self.schema.clone())), ..request }
    }

    /// Reads the value of an answer. A fence or words around the JSON are passed over; what is cut is no value.
    ///
    /// # Errors
    /// [`Mismatch`] says where the answer does not follow the schema.
    pub fn read(&self, answer: &Completion) -> Result<Value, Mismatch> {
        let text = answer.message.to_text();
        let value = match answer.stop {
            StopReason::Length => Err("the answer was cut at the limit of its tokens".to_owned()),
            StopReason::Gap => Err("a part of the answer was lost on its way".to_owned()),
            StopReason::Missing => Err("the answer ended without its end marker".to_owned()),
            _ => json_in(&text),
        };
        let value = value.map_err(|problem| self.mismatch(vec![problem]))?;
        let problems = self.validator.iter_errors(&value).take(PROBLEMS).map(|error| {
            let path = error.instance_path().to_string();
            if path.is_empty() { error.to_string() } else { format!("at {path}: {error}") }
        });
        let problems: Vec<String> = problems.collect();
        if problems.is_empty() { Ok(value) } else { Err(self.mismatch(problems)) }
    }

    /// Asks for a value, and once more, with what was wrong, where the answer does not follow the schema.
    ///
    /// Whoever counts each call against a budget asks by himself, with [`ask`](Self::ask), [`read`](Self::read) and
    /// [`Mismatch::follow_up`].
    ///
    /// # Errors
    /// [`Error::Provider`], [`Error::Declined`] and [`Error::Mismatch`], each with the answers that were paid for.
    pub async fn complete(
        &self,
        provider: &dyn Provider,
        request: ModelRequest,
        cancel: Cancel,
    ) -> Result<Structured, Error> {
        let mut request = self.ask(request);
        let mut answers = Vec::new();
        loop {
            let answer = match provider.complete(request.clone(), cancel.clone()).await {
                Ok(answer) => answer,
                Err(error) => {
                    let source = Box::new(error);
                    return Err(Error::Provider { name: self.name.clone(), answers, source });
                }
            };
            let declined = matches!(answer.stop, StopReason::Refusal | StopReason::ContentFilter);
            let read = self.read(&answer);
            let follow_up = read.as_ref().err().map(|mismatch| mismatch.follow_up(&answer));
            answers.push(answer);
            match read {
                Ok(value) => return Ok(Structured { value, answers }),
                Err(_) if declined => {
                    return Err(Error::Declined { name: self.name.clone(), answers });
                }
                Err(mismatch) if answers.len() > 1 => {
                    return Err(Error::Mismatch { mismatch, answers });
                }
                Err(_) => request.messages.extend(follow_up.into_iter().flatten()),
            }
        }
    }

    fn mismatch(&self, problems: Vec<String>) -> Mismatch {
        Mismatch { schema: self.name.clone(), problems }
    }
}

impl Mismatch {
    /// Returns what continues the conversation: the answer, and what was wrong with it.
    pub fn follow_up(&self, answer: &Completion) -> Vec<Message> {
        let problems: Vec<_> = self.problems.iter().map(|problem| format!("- {problem}")).collect();
        let text = format!(
            "That answer does not follow the schema {:?}:\n{}\nAnswer again, with nothing but the corrected JSON.",
            self.schema,
            problems.join("\n")
        );
        // Calls would want results; only what was said is repeated.
        let said = answer.message.to_text();
        let mut messages = vec![Message::text(Role::User, text)];
        if !said.trim().is_empty() {
            messages.insert(0, Message::text(Role::Assistant, said));
        }
        messages
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "schema {:?}: {}", self.schema, self.problems.join("; "))
    }
}

impl std::error::Error for Mismatch {}

/// Returns the one JSON value of a text: all of it, or the first object or list that stands in it.
fn json_in(text: &str) -> Result<Value, String> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err("the answer is empty".to_owned());
    }
    let error = match serde_json::from_str(trimmed) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let mut from = 0;
    while let Some(at) = trimmed.get(from..).and_then(|rest| rest.find(['{', '['])) {
        let rest = trimmed.get(from + at..).unwrap_or_default();
        let value = serde_json::Deserializer::from_str(rest).into_iter::<Value>().next();
        match value {
            Some(Ok(value)) => return Ok(value),
            // What stands within a value that is cut is not the value.
            Some(Err(cut)) if cut.is_eof() => {
                return Err(format!("the JSON of the answer is cut: {cut}"));
            }
            _ => {}
        }
        from += at + 1; // A bracket is one byte.
    }
    Err(format!("the answer is not JSON: {error}"))
}

#[cfg(test)]
mod tests;
