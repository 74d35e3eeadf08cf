//! What work may cost, what it did cost, and the seam that holds the two together.

use std::{
    fmt,
    ops::{Add, AddAssign},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    id::{HoldId, TaskId},
    money::{self, Usd},
    time::Span,
};

/// The caps of a task or a run; what is absent is not capped by it, only by its ancestors.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// United States dollars, the whole subtree together.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "money::maybe_not_negative_out",
        deserialize_with = "money::maybe_not_negative"
    )]
    pub usd: Option<Usd>,
    /// Tokens of all classes, the whole subtree together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Model calls, the whole subtree together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub rounds: Option<u32>,
    /// Tool calls, the whole subtree together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u32>,
    /// Wall time from the start of the task to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall: Option<Span>,
    /// Lines added and removed together by the task and all below it, compared when it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff_lines: Option<u64>,
    /// The caps of the tree below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeCaps>,
    /// What happens once dollars, tokens, model calls, tool calls or wall time are used up; `block_new` where absent. Where
    /// the time is over, `block_new` ends the task. More changed lines than there may be fail it, unless this is `unlimited`.
    /// The caps of the tree hold whatever this says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_exhausted: Option<OnExhausted>,
}

/// What happens once a budget is used up: when a cap is reached, or the next call may need more than is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnExhausted {
    /// No further call is made. What is under way ends by itself.
    #[default]
    BlockNew,
    /// The task and all below it are ended at once.
    CancelAll,
    /// Calls go on for this long, beyond the caps; then the task and all below it are ended. The caps of the
    /// tasks above hold all the while.
    Grace(Span),
    /// Calls go on, and so does a task that changes more. The caps are only told of, but for those of the tree.
    Unlimited,
}

impl OnExhausted {
    /// Tells whether this lets more happen beyond the caps than `other` does.
    pub fn laxer_than(self, other: Self) -> bool {
        let rank = |policy: Self| match policy {
            Self::CancelAll => (0, Span::ZERO),
            Self::BlockNew => (1, Span::ZERO),
            Self::Grace(span) => (2, span),
            Self::Unlimited => (3, Span::ZERO),
        };
        rank(self) > rank(other)
    }
}

impl TreeCaps {
    /// Returns the smaller of each cap.
    #[must_use]
    pub fn tighter(self, other: Self) -> Self {
        Self {
            depth: self.depth.min(other.depth),
            fan_out: self.fan_out.min(other.fan_out),
            tasks: self.tasks.min(other.tasks),
        }
    }
}

impl Budget {
    /// Tells whether anything is capped that [`on_exhausted`](Self::on_exhausted) decides about.
    pub const fn is_decided_about(&self) -> bool {
        self.usd.is_some()
            || self.tokens.is_some()
            || self.rounds.is_some()
            || self.tool_calls.is_some()
            || self.wall.is_some()
            || self.diff_lines.is_some()
    }

    /// Looks for a cap that lets nothing be done at all.
    ///
    /// # Errors
    /// Its key, and what is wrong with it.
    pub fn check(&self) -> Result<(), (&'static str, &'static str)> {
        if self.rounds == Some(0) {
            return Err(("rounds", "wanted at least 1, found 0"));
        }
        if self.wall == Some(Span::ZERO) {
            return Err(("wall", "wanted more than no time, found 0s"));
        }
        Ok(())
    }
}

/// How large a tree may grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TreeCaps {
    /// Levels below the root.
    pub depth: u32,
    /// Children of one task.
    pub fan_out: u32,
    /// Tasks altogether.
    pub tasks: u32,
}

impl Default for TreeCaps {
    /// Caps that stop a runaway and not a large plan: 6 levels, 256 children, 1,000 tasks.
    fn default() -> Self {
        Self { depth: 6, fan_out: 256, tasks: 1_000 }
    }
}

/// Tokens in five disjoint classes; their sum is the provider's own total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Usage {
    /// Input that was read anew.
    pub input: u64,
    /// Input that came from the provider's cache.
    pub cache_read: u64,
    /// Input that was written to the provider's cache.
    pub cache_write: u64,
    /// Output, without reasoning.
    pub output: u64,
    /// Output that was reasoning.
    pub reasoning: u64,
}

impl Usage {
    /// Returns all tokens.
    pub const fn total(&self) -> u64 {
        self.input
            .saturating_add(self.cache_read)
            .saturating_add(self.cache_write)
            .saturating_add(self.output)
            .saturating_add(self.reasoning)
    }

    /// Returns all tokens that went in, cached or not.
    pub const fn total_input(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write)
    }

    /// Returns all tokens that came out, reasoning included.
    pub const fn total_output(&self) -> u64 {
        self.output.saturating_add(self.reasoning)
    }
}

impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
            output: self.output.saturating_add(other.output),
            reasoning: self.reasoning.saturating_add(other.reasoning),
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// What a model costs: dollars for a million tokens of each class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// A million tokens of input.
    #[serde(serialize_with = "money::not_negative_out", deserialize_with = "money::not_negative")]
    pub input: Usd,
    /// A million tokens of output, reasoning included unless `reasoning` says otherwise.
    #[serde(serialize_with = "money::not_negative_out", deserialize_with = "money::not_negative")]
    pub output: Usd,
    /// A million tokens read from the cache; the price of input where absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "money::maybe_not_negative_out",
        deserialize_with = "money::maybe_not_negative"
    )]
    pub cache_read: Option<Usd>,
    /// A million tokens written to the cache; the price of input where absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "money::maybe_not_negative_out",
        deserialize_with = "money::maybe_not_negative"
    )]
    pub cache_write: Option<Usd>,
    /// A million tokens of reasoning; the price of output where absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "money::maybe_not_negative_out",
        deserialize_with = "money::maybe_not_negative"
    )]
    pub reasoning: Option<Usd>,
}

impl Price {
    /// The price of a model on one's own machine: nothing.
    pub const LOCAL: Self = Self {
        input: Usd::ZERO,
        output: Usd::ZERO,
        cache_read: None,
        cache_write: None,
        reasoning: None,
    };

    /// Returns what `usage` costs, and at most [`Usd::MAX`]; each class is rounded up to a nano-dollar once.
    pub fn cost(&self, usage: &Usage) -> Usd {
        self.checked_cost(usage).unwrap_or(Usd::MAX)
    }

    /// Returns the same, or nothing where it does not fit.
    pub fn checked_cost(&self, usage: &Usage) -> Option<Usd> {
        let classes = [
            (self.input, usage.input),
            (self.cache_read.unwrap_or(self.input), usage.cache_read),
            (self.cache_write.unwrap_or(self.input), usage.cache_write),
            (self.output, usage.output),
            (self.reasoning.unwrap_or(self.output), usage.reasoning),
        ];
        classes.into_iter().try_fold(Usd::ZERO, |sum, (price, tokens)| {
            sum.checked_add(price.checked_per_million(tokens)?)
        })
    }

    /// Returns a price at which no call costs less than at either of the two: the dearer of each class.
    #[must_use]
    pub fn or_dearer(&self, other: &Self) -> Self {
        let dearer = |own: Option<Usd>, else_own: Usd, its: Option<Usd>, else_its: Usd| {
            // Where neither says anything of a class, the class costs what it falls back to.
            own.or(its).map(|_| own.unwrap_or(else_own).max(its.unwrap_or(else_its)))
        };
        let (input, output) = (self.input.max(other.input), self.output.max(other.output));
        Self {
            input,
            output,
            cache_read: dearer(self.cache_read, self.input, other.cache_read, other.input),
            cache_write: dearer(self.cache_write, self.input, other.cache_write, other.input),
            reasoning: dearer(self.reasoning, self.output, other.reasoning, other.output),
        }
    }

    /// Returns the most that a call can cost: every input token at the dearest input price, and
    /// `max_output` tokens at the dearest output price. At most [`Usd::MAX`].
    pub fn worst_case(&self, input: u64, max_output: u64) -> Usd {
        self.checked_worst_case(input, max_output).unwrap_or(Usd::MAX)
    }

    /// Returns the same, or nothing where it does not fit.
    pub fn checked_worst_case(&self, input: u64, max_output: u64) -> Option<Usd> {
        let dearest_input = [Some(self.input), self.cache_read, self.cache_write]
            .into_iter()
            .flatten()
            .max()
            .unwrap_or(self.input);
        let dearest_output = self.reasoning.map_or(self.output, |price| price.max(self.output));
        let output = dearest_output.checked_per_million(max_output)?;
        dearest_input.checked_per_million(input)?.checked_add(output)
    }
}

/// What a model call asks of the budget before it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// The most that it can cost.
    pub usd: Usd,
    /// The most tokens that it can use.
    pub tokens: u64,
}

/// Which cap was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cap {
    /// Dollars.
    Usd,
    /// Tokens.
    Tokens,
    /// Model calls.
    Rounds,
    /// Tool calls.
    ToolCalls,
    /// Wall time.
    Wall,
    /// Lines added and removed.
    DiffLines,
    /// Levels of tasks.
    Depth,
    /// Children of one task.
    FanOut,
    /// Tasks altogether.
    Tasks,
}

impl Cap {
    /// Tells whether a grace begins once it is used up, where [`on_exhausted`](Budget::on_exhausted) says so. The others are
    /// refused in place: a change by its check, a task where it would be made.
    pub const fn begins_grace(self) -> bool {
        match self {
            Self::Usd | Self::Tokens | Self::Rounds | Self::ToolCalls | Self::Wall => true,
            Self::DiffLines | Self::Depth | Self::FanOut | Self::Tasks => false,
        }
    }

    /// Returns what it counts, in words.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Usd => "USD",
            Self::Tokens => "tokens",
            Self::Rounds => "model calls",
            Self::ToolCalls => "tool calls",
            Self::Wall => "of its time",
            Self::DiffLines => "changed lines",
            Self::Depth => "levels of tasks",
            Self::FanOut => "children of one task",
            Self::Tasks => "tasks altogether",
        }
    }
}

/// Why nothing was reserved: some budget on the path to the root cannot bear the ask.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{left} {unit} are left of {limit}, and the call may need {asked}", unit = cap.unit())]
#[expect(missing_docs, reason = "the message names its fields")]
pub struct OverBudget {
    /// The task whose budget it is: the asking one or an ancestor.
    pub task: TaskId,
    pub cap: Cap,
    pub limit: String,
    pub left: String,
    pub asked: String,
}

/// A budget that crossed a line when something was used of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Crossing {
    /// The task whose budget it is.
    pub task: TaskId,
    /// Which cap.
    pub cap: Cap,
    /// What is used, as text in the cap's own unit.
    pub used: String,
    /// The limit, as text in the cap's own unit.
    pub limit: String,
    /// True at the limit itself, false at four fifths of it.
    pub exhausted: bool,
}

impl Crossing {
    /// Finds the lines that were crossed when what is used of a cap grew: four fifths of the limit, the limit itself, or both
    /// where it grew past both at once.
    pub fn of(
        task: TaskId,
        cap: Cap,
        (before, now): (u64, u64),
        limit: u64,
    ) -> impl Iterator<Item = Self> {
        crosses((before.into(), now.into()), limit.into()).map(move |exhausted| {
            let (used, limit) = (now.to_string(), limit.to_string());
            Self { task, cap, used, limit, exhausted }
        })
    }
}

/// Tells which lines were crossed when what is used grew: false at four fifths of the limit, true at the limit itself.
pub fn crosses((before, now): (u128, u128), limit: u128) -> impl Iterator<Item = bool> {
    // Compared without rounding.
    let is_warned = |used: u128| used.saturating_mul(5) >= limit.saturating_mul(4);
    let warned = (is_warned(now) && !is_warned(before)).then_some(false);
    let exhausted = (now >= limit && before < limit).then_some(true);
    warned.into_iter().chain(exhausted)
}

impl fmt::Display for Crossing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { used, limit, .. } = self;
        match self.cap {
            Cap::Usd => write!(f, "${used} of ${limit} used"),
            Cap::Wall => write!(f, "{used} of {limit} of its time used"),
            cap => write!(f, "{used} of {limit} {} used", cap.unit()),
        }
    }
}

/// What the tightest budget on the path to the root still holds; absent where nothing caps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the fields are those of a budget")]
pub struct Remaining {
    pub usd: Option<Usd>,
    pub tokens: Option<u64>,
    pub rounds: Option<u32>,
    pub tool_calls: Option<u32>,
}

/// Holds every budget of a run. Calls may come from many sessions at once.
///
/// A reservation is taken on a task and all its ancestors, or on none of them, so that no
/// interleaving of parallel children can overspend any of them.
pub trait Ledger: Send + Sync {
    /// Reserves the worst case of a model call and counts one round.
    ///
    /// # Errors
    /// [`OverBudget`] names the budget that cannot bear it; nothing was reserved.
    fn reserve(&self, task: TaskId, hold: HoldId, ask: Ask) -> Result<(), OverBudget>;

    /// Enlarges a reservation of `task` by what a lost try of its call used, so that it holds the worst case of one more
    /// besides. No round is counted: it is the same call.
    ///
    /// # Errors
    /// [`OverBudget`] names the budget that cannot bear it; the reservation is as large as before.
    fn extend(&self, task: TaskId, hold: HoldId, lost: Ask) -> Result<(), OverBudget>;

    /// Replaces a reservation by what was really used. Returns the lines that were crossed.
    fn settle(&self, hold: HoldId, usage: &Usage, cost: Usd) -> Vec<Crossing>;

    /// Counts one tool call on the path to the root. Returns the lines that were crossed.
    ///
    /// # Errors
    /// [`OverBudget`] when a cap on tool calls is used up; nothing was counted.
    fn count_tool_call(&self, task: TaskId) -> Result<Vec<Crossing>, OverBudget>;

    /// Returns what is left for `task`.
    fn remaining(&self, task: TaskId) -> Remaining;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_costs_the_sum_of_its_five_classes() {
        let price = Price {
            input: "3".parse().unwrap(),
            output: "15".parse().unwrap(),
            cache_read: Some("0.30".parse().unwrap()),
            cache_write: Some("3.75".parse().unwrap()),
            reasoning: None,
        };
        let usage =
            Usage { input: 1_000, cache_read: 10_000, cache_write: 100, output: 50, reasoning: 7 };

        assert_eq!(price.cost(&usage).to_string(), "0.00723");
    }

    #[test]
    fn a_crossed_line_is_told_with_its_unit() {
        let told = |cap, used: &str, limit: &str| {
            let (used, limit) = (used.to_owned(), limit.to_owned());
            Crossing {
                task: TaskId::from_uuid(uuid::Uuid::nil()),
                cap,
                used,
                limit,
                exhausted: false,
            }
            .to_string()
        };

        assert_eq!(told(Cap::Usd, "18", "0.1"), "$18 of $0.1 used");
        assert_eq!(told(Cap::Tokens, "90", "100"), "90 of 100 tokens used");
        assert_eq!(told(Cap::Rounds, "2", "2"), "2 of 2 model calls used");
        assert_eq!(told(Cap::Wall, "50s", "1m"), "50s of 1m of its time used");
    }

    #[test]
    fn what_grows_past_four_fifths_and_the_limit_at_once_crosses_both_lines() {
        let crossed = |before, now, limit| crosses((before, now), limit).collect::<Vec<_>>();

        let below = [crossed(0, 7, 10), crossed(8, 9, 10), crossed(10, 12, 10), crossed(0, 1, 0)];
        let over = [crossed(7, 8, 10), crossed(8, 10, 10), crossed(0, 12, 10), crossed(0, 1, 1)];

        assert!(below.iter().all(Vec::is_empty), "{below:?}");
        assert_eq!(over, [vec![false], vec![true], vec![false, true], vec![false, true]]);
    }

    #[test]
    fn a_cost_that_does_not_fit_is_none() {
        let price = Price {
            input: "3".parse().unwrap(),
            output: "15".parse().unwrap(),
            ..Price::default()
        };
        let most = Usage { input: u64::MAX, output: u64::MAX, ..Usage::default() };
        let sum = Usage { input: 2_000_000_000_000_000, output: 400_000_000_000_000, ..most };

        for usage in [most, sum] {
            assert_eq!((price.checked_cost(&usage), price.cost(&usage)), (None, Usd::MAX));
            assert_eq!(price.checked_worst_case(usage.input, usage.output), None);
        }
        let fits = Usage { input: 1_000_000, output: 1_000_000, ..Usage::default() };
        assert_eq!(price.checked_cost(&fits), "18".parse().ok());
    }

    #[test]
    fn the_worst_case_is_never_below_the_cost() {
        let price = Price {
            input: "3".parse().unwrap(),
            output: "15".parse().unwrap(),
            cache_read: Some("0.30".parse().unwrap()),
            cache_write: Some("3.75".parse().unwrap()),
            reasoning: None,
        };
        let usage =
            Usage { input: 0, cache_read: 0, cache_write: 1_000, output: 10, reasoning: 10 };

        assert!(price.worst_case(usage.total_input(), usage.total_output()) >= price.cost(&usage));
    }

    #[test]
    fn the_dearer_of_two_prices_is_dearer_class_by_class() {
        let price = |input: &str, output: &str, cache_read: Option<&str>| Price {
            input: input.parse().unwrap(),
            output: output.parse().unwrap(),
            cache_read: cache_read.map(|price| price.parse().unwrap()),
            ..Price::default()
        };

        let dearer = price("3", "4", Some("0.3")).or_dearer(&price("1", "15", None));

        assert_eq!(dearer, price("3", "15", Some("1")));
    }
}
