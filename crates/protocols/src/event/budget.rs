//! Data of the events of budgets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::EventBody;
use crate::{
    budget::{Cap, Crossing, Usage},
    id::{CallId, HoldId, TaskId},
    money::Usd,
};

/// Data of `budget.reserved`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetReserved {
    /// The reservation.
    pub hold: HoldId,
    /// The model call that it is for.
    pub call: CallId,
    /// The most that the call can cost.
    pub usd: Usd,
    /// The most tokens that the call can use.
    pub tokens: u64,
}

/// Data of `budget.settled`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetSettled {
    /// The reservation.
    pub hold: HoldId,
    /// The model call that it was for.
    pub call: CallId,
    /// What it cost, lost tries included.
    pub usd: Usd,
    /// What it used, lost tries included.
    pub usage: Usage,
}

/// Returns the fact that tells of a line that a budget crossed.
pub fn crossed(crossing: Crossing) -> EventBody {
    if !crossing.exhausted {
        return EventBody::BudgetWarned(crossing);
    }
    let detail = crossing.to_string();
    EventBody::BudgetExhausted(BudgetExhausted { task: crossing.task, cap: crossing.cap, detail })
}

/// Data of `budget.exhausted`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetExhausted {
    /// The task whose budget it is.
    pub task: TaskId,
    /// Which cap.
    pub cap: Cap,
    /// What is missing, in one line.
    pub detail: String,
}
