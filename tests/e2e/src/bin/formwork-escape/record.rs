//! What the program says, sends and records of a run.

use serde_json::Value;

/// All that a run left behind that anybody can read.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// The requests to the model, as they were sent.
    pub(crate) asked: Vec<String>,
    /// The events of the log, oldest first.
    pub(crate) events: Vec<Value>,
}

impl Record {
    /// Finds the first event with a text that holds one of `signs`, and tells its kind, its number and that text.
    pub(crate) fn find(&self, signs: &[String]) -> Option<(String, String)> {
        self.events.iter().find_map(|event| {
            let text = texts(&event["data"]).into_iter().find(|text| {
                let is_sign = |sign: &String| text.contains(sign.as_str());
                signs.iter().any(is_sign)
            })?;
            let kind = event["kind"].as_str().unwrap_or("an event");
            // What was only asked for is no refusal.
            (kind != "model.completed" && kind != "session.message")
                .then(|| (format!("{kind} #{}", event["seq"]), text.to_owned()))
        })
    }

    /// Returns the place where a text is told: what is said, sent or recorded.
    pub(crate) fn tells(&self, text: &str) -> Option<&'static str> {
        let is_told = |place: &str| place.contains(text);
        let in_events = || {
            let all = self.events.iter().flat_map(|event| texts(&event["data"]));
            all.into_iter().any(is_told)
        };
        match () {
            () if is_told(&self.stdout) => Some("standard output"),
            () if is_told(&self.stderr) => Some("standard error"),
            () if self.asked.iter().any(|it| is_told(it)) => Some("a request to the model"),
            () if in_events() => Some("the log"),
            () => None,
        }
    }

    /// Returns what was said and what was recorded of calls, checks and attempts, for whoever looks into it.
    pub(crate) fn told(&self) -> String {
        let is_told = |event: &&Value| {
            let kind = event["kind"].as_str().unwrap_or_default();
            ["tool.", "check.", "attempt."].iter().any(|of| kind.starts_with(of))
        };
        let events: Vec<_> = self.events.iter().filter(is_told).map(ToString::to_string).collect();
        let Self { code, stdout, stderr, .. } = self;
        format!("exit {code:?}\n{stdout}{stderr}{}", events.join("\n"))
    }

    /// Counts the events of a kind.
    pub(crate) fn count(&self, kind: &str) -> usize {
        self.events.iter().filter(|event| event["kind"] == kind).count()
    }
}

/// Returns all texts within a value.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(fields) => fields.values().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}
