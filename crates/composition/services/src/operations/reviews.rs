//! `reviews.get`: what came of a review.

use async_trait::async_trait;
use formwork_protocols::{
    RunId,
    check::{Issue, Reviewed},
    store::CheckRow,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
};

/// Which run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetParams {
    /// The run.
    pub run: RunId,
}

/// What a reviewer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Word {
    /// The change is fine, and all of it was seen: the only word that passes.
    Approve,
    /// It is not, or it was not seen whole.
    RequestChanges,
    /// What was said is no verdict.
    Malformed,
    /// Nobody answered, or nobody has yet.
    None,
}

impl Word {
    /// Returns the word as it is shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "APPROVE",
            Self::RequestChanges => "REQUEST_CHANGES",
            Self::Malformed => "MALFORMED",
            Self::None => "NONE",
        }
    }
}

/// What came of a review.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Review {
    /// The run.
    pub run: RunId,
    /// The word that counts.
    pub verdict: Word,
    /// Why, in a line.
    pub reason: String,
    /// The findings, the worst first, then by file and line.
    pub findings: Vec<Issue>,
    /// What was looked at, what was not seen, and the findings that were dropped.
    pub seen: Reviewed,
    /// What was said, where that is no verdict; all of it is in the blob that the check names.
    pub said: String,
}

/// `reviews.get`
pub struct Get;

#[async_trait]
impl Operation for Get {
    const NAME: &'static str = "reviews.get";
    const DOC: &'static str = "Returns what came of the review that a run made last.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = GetParams;
    type Output = Review;

    async fn run(formwork: &Formwork, _: &Caller, params: GetParams) -> Result<Review, Error> {
        let (store, run) = (&formwork.inner.store, params.run);
        super::runs::named(&**store, run).await?;
        let rows = store.checks(run).await?;
        let row = rows.into_iter().rfind(|row| row.verdict.evidence.review.is_some());
        Ok(row.map_or_else(|| nothing(run), |row| review(run, row)))
    }
}

fn nothing(run: RunId) -> Review {
    let reason = "no review has ended".to_owned();
    let (findings, seen, said) = (Vec::new(), Reviewed::default(), String::new());
    Review { run, verdict: Word::None, reason, findings, seen, said }
}

fn review(run: RunId, row: CheckRow) -> Review {
    let verdict = row.verdict;
    let seen = verdict.evidence.review.map(|seen| *seen).unwrap_or_default();
    let is_silent = verdict.unjudged || verdict.not_run;
    let word = match (verdict.passed, is_silent, seen.approves) {
        (true, ..) => Word::Approve,
        (_, true, _) => Word::None,
        (_, _, Some(_)) => Word::RequestChanges,
        (_, _, None) if verdict.evidence.excerpt.is_empty() => Word::None,
        (_, _, None) => Word::Malformed,
    };
    let (reason, findings, said) = (verdict.reason, verdict.issues, verdict.evidence.excerpt);
    Review { run, verdict: word, reason, findings, seen, said }
}
