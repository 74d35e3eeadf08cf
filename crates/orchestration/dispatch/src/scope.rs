//! What the expressions of a subscription see: the parts of an event that they ask for.

use std::{borrow::Cow, cell::OnceCell};

use formwork_expression::{Expression, Reference};
use formwork_protocols::{Event, WorkflowName};
use serde_json::{Map, Value};

/// The names of what is known of one event.
pub(crate) const OF_EVENT: [&str; 8] =
    ["kind", "principal", "run", "task", "seq", "position", "workflow", "data"];

/// The names of what is known of all that was gathered, besides those of the last event.
pub(crate) const OF_ALL: [&str; 3] = ["events", "count", "key"];

/// An event with the workflow of its run. Its data is made into a value once, and only if anybody asks.
#[derive(Debug)]
pub struct Occurrence<'a> {
    event: &'a Event,
    workflow: &'a WorkflowName,
    data: OnceCell<Value>,
}

impl<'a> Occurrence<'a> {
    /// Takes an event, and the name of the workflow of its run.
    pub const fn new(event: &'a Event, workflow: &'a WorkflowName) -> Self {
        Self { event, workflow, data: OnceCell::new() }
    }

    /// Returns the event.
    pub const fn event(&self) -> &'a Event {
        self.event
    }

    /// Returns the workflow of its run.
    pub const fn workflow(&self) -> &'a WorkflowName {
        self.workflow
    }

    fn data(&self) -> &Value {
        // Every body is made of texts, numbers and lists, which are always JSON.
        self.data.get_or_init(|| self.event.body.data().unwrap_or(Value::Null))
    }

    /// Returns what is known by a name.
    fn named(&self, name: &str) -> Option<Cow<'_, Value>> {
        let event = self.event;
        let text = |text: &str| Cow::Owned(Value::String(text.to_owned()));
        Some(match name {
            "kind" => text(event.body.kind()),
            "principal" => text(event.principal.as_str()),
            "run" => Cow::Owned(Value::String(event.run.to_string())),
            "task" => Cow::Owned(event.task.map_or(Value::Null, |task| task.to_string().into())),
            "seq" => Cow::Owned(event.seq.into()),
            "position" => Cow::Owned(event.position.0.into()),
            "workflow" => text(self.workflow.as_str()),
            "data" => Cow::Borrowed(self.data()),
            _ => return None,
        })
    }

    /// Returns what an expression refers to, and no more: of the data only the fields that it names, where it names them.
    pub(crate) fn seen_by(&self, expression: &Expression) -> Map<String, Value> {
        let mut seen = Map::new();
        let is_data = |reference: &&Reference| reference.name() == "data";
        let whole = expression.references().filter(is_data).any(|it| it.field().is_none());
        for reference in expression.references() {
            let name = reference.name();
            match (name, reference.field().filter(|_| !whole)) {
                ("data", Some(field)) => {
                    let fields = seen.entry(name).or_insert_with(|| Value::Object(Map::new()));
                    if let (Some(fields), Some(value)) =
                        (fields.as_object_mut(), self.data().get(field))
                    {
                        fields.entry(field).or_insert_with(|| value.clone());
                    }
                }
                _ if seen.contains_key(name) => {}
                _ => {
                    if let Some(value) = self.named(name) {
                        seen.insert(name.to_owned(), value.into_owned());
                    }
                }
            }
        }
        seen
    }

    /// Returns all that is known.
    pub(crate) fn whole(&self) -> Map<String, Value> {
        let known = |name: &&str| Some(((*name).to_owned(), self.named(name)?.into_owned()));
        OF_EVENT.iter().filter_map(known).collect()
    }
}

#[cfg(test)]
mod tests {
    use formwork_protocols::{BlobHash, EventBody, Position, Principal, RunId, Timestamp};
    use serde_json::json;

    use super::*;

    #[test]
    fn an_expression_is_shown_what_it_names_and_no_more() {
        let data = json!({ "reason": "x", "long": "y".repeat(1_000) });
        let event = Event {
            position: Position(9),
            run: RunId::from_uuid(uuid::Uuid::nil()),
            seq: 2,
            task: None,
            principal: Principal::system("test"),
            at: Timestamp::from_micros(0),
            body: EventBody::from_parts("test.said", data.clone()).unwrap(),
            idempotency_key: None,
            hash: BlobHash::of(b""),
        };
        let workflow = WorkflowName::parse("w").unwrap();
        let seen = |text: &str| {
            let expression = Expression::parse(text).unwrap();
            Value::Object(Occurrence::new(&event, &workflow).seen_by(&expression))
        };

        assert_eq!(seen("data.reason == 'x'"), json!({ "data": { "reason": "x" } }));
        assert_eq!(seen("has(data.gone) && seq > 1"), json!({ "data": {}, "seq": 2 }));
        assert_eq!(seen("size(data) > 1"), json!({ "data": data }));
        assert_eq!(seen("task == null"), json!({ "task": null }));
    }
}
