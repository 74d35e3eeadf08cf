//! What tasks have come to, as those who use it look at it.

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, LazyLock, OnceLock},
};

use formwork_protocols::{Claim, Span, TaskName, Usd};
use serde_json::{Map, Value, json};

/// A task that has ended, as far as others may use it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ended {
    pub(crate) name: TaskName,
    pub(crate) claim: Option<Arc<Claim>>,
    pub(crate) passed: bool,
    pub(crate) attempts: u32,
    pub(crate) cost: Usd,
    pub(crate) files_changed: u64,
    pub(crate) elapsed: Span,
}

/// How amounts and times stand in a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As people read them, for prompts.
    Texts,
    /// As numbers that can be compared: dollars and seconds.
    Numbers,
}

impl Ended {
    fn result(&self, form: Form) -> Value {
        let claim = self.claim.as_deref();
        let (cost, duration) = match form {
            Form::Texts => (json!(self.cost), json!(self.elapsed)),
            Form::Numbers => {
                // Both stay far below what a double holds exactly in whole micro-dollars and milliseconds.
                let dollars = self.cost.as_nanos() as f64 / 1e9;
                (json!(dollars), json!(self.elapsed.as_micros() as f64 / 1e6))
            }
        };
        json!({
            "output": claim.and_then(|claim| claim.output.as_ref()),
            "text": claim.map_or("", |claim| &claim.summary),
            "passed": self.passed,
            "attempts": self.attempts,
            "cost_usd": cost,
            "files_changed": self.files_changed,
            "duration": duration,
        })
    }
}

/// Makes a value of each, by name.
pub(crate) fn values(ended: &[Ended], form: Form) -> Map<String, Value> {
    ended.iter().map(|one| (one.name.as_str().to_owned(), one.result(form))).collect()
}

/// The results of other tasks, by name, each with `output`, `text`, `passed`, `attempts`, `cost_usd`, `files_changed` and
/// `duration`.
///
/// They are those of the moment at which they were handed over, and the values are made when somebody first looks at them:
/// few do.
#[derive(Clone, Default)]
pub struct Results(Option<Arc<Lazy>>);

#[derive(Default)]
struct Lazy {
    ended: Vec<Ended>,
    values: OnceLock<Map<String, Value>>,
}

static NONE: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

impl Results {
    pub(crate) fn of(ended: Vec<Ended>) -> Self {
        let is_none = ended.is_empty();
        Self((!is_none).then(|| Arc::new(Lazy { ended, values: OnceLock::new() })))
    }
}

impl Deref for Results {
    type Target = Map<String, Value>;

    fn deref(&self) -> &Self::Target {
        let Some(lazy) = &self.0 else { return &NONE };
        lazy.values.get_or_init(|| values(&lazy.ended, Form::Texts))
    }
}

impl fmt::Debug for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_made_when_somebody_looks_at_them_and_once() {
        let ended = Ended {
            name: TaskName::parse("left").unwrap(),
            claim: Some(Arc::new(Claim { summary: "met".to_owned(), output: Some(json!(7)) })),
            passed: true,
            attempts: 2,
            cost: Usd::from_nanos(1_500_000_000),
            files_changed: 3,
            elapsed: Span::from_secs(2),
        };
        let results = Results::of(vec![ended]);
        let other = results.clone();
        let is_made = |it: &Results| it.0.as_ref().is_some_and(|it| it.values.get().is_some());
        assert!(!is_made(&results));

        let looked_at = results["left"].clone();

        assert!(is_made(&results) && is_made(&other));
        let wanted = json!({
            "output": 7, "text": "met", "passed": true, "attempts": 2, "cost_usd": "1.5",
            "files_changed": 3, "duration": "2s",
        });
        assert_eq!(looked_at, wanted);
        assert!(Results::default().is_empty());
    }
}
