//! What was spent and held, counted a second time.

use formwork_protocols::{Ask, Budget, Usage, Usd};

use super::Kept;
use crate::{core::TaskIndex, ledger::Spent};

/// What a task and all below it have used, and may use.
#[derive(Debug, Default)]
struct Purse {
    above: Option<TaskIndex>,
    limit: Budget,
    spent: Spent,
    held_usd: i64,
    held_tokens: u64,
    held_rounds: u32,
}

impl Purse {
    /// Says which cap is passed, if one is.
    fn passed(&self) -> Option<&'static str> {
        let usd = self.spent.usd.as_nanos() + self.held_usd;
        let tokens = self.spent.usage.total() + self.held_tokens;
        let rounds = self.spent.rounds + self.held_rounds;
        let caps = [
            ("dollars", self.limit.usd.is_some_and(|limit| usd > limit.as_nanos())),
            ("tokens", self.limit.tokens.is_some_and(|limit| tokens > limit)),
            ("rounds", self.limit.rounds.is_some_and(|limit| rounds > limit)),
            ("tool calls", self.limit.tool_calls.is_some_and(|cap| self.spent.tool_calls > cap)),
        ];
        caps.into_iter().find_map(|(name, is_passed)| is_passed.then_some(name))
    }
}

/// The purses of all tasks, by their places.
#[derive(Debug, Default)]
pub(super) struct Purses(Vec<Purse>);

impl Purses {
    pub(super) fn open(&mut self, above: Option<TaskIndex>, limit: &Budget) {
        self.0.push(Purse { above, limit: limit.clone(), ..Purse::default() });
    }

    pub(super) fn spent(&self, task: TaskIndex) -> Spent {
        self.0.get(task.position()).map(|purse| purse.spent).unwrap_or_default()
    }

    /// Takes note of a reservation and whether it was granted.
    pub(super) fn reserved(&mut self, task: TaskIndex, ask: Ask, is_granted: bool) -> Kept {
        let hold = |purse: &mut Purse, sign: i64| {
            purse.held_usd += sign * ask.usd.as_nanos();
            purse.held_tokens = purse.held_tokens.wrapping_add_signed(sign * tokens(ask));
            purse.held_rounds =
                purse.held_rounds.saturating_add_signed(if sign > 0 { 1 } else { -1 });
        };
        self.each_above(task, |purse| hold(purse, 1));
        let passed = self.passed(task);
        if !is_granted {
            self.each_above(task, |purse| hold(purse, -1));
        }
        verdict(task, passed, is_granted)
    }

    /// Takes note of a settlement.
    pub(super) fn settled(&mut self, task: TaskIndex, ask: Ask, usage: &Usage, cost: Usd) -> Kept {
        self.each_above(task, |purse| {
            purse.held_usd -= ask.usd.as_nanos();
            purse.held_tokens = purse.held_tokens.wrapping_add_signed(-tokens(ask));
            purse.held_rounds = purse.held_rounds.saturating_sub(1);
            purse.spent.usd = purse.spent.usd.saturating_add(cost);
            purse.spent.usage += *usage;
            purse.spent.rounds += 1;
        });
        verdict(task, self.passed(task), true)
    }

    /// Takes note of a tool call and whether it was granted.
    pub(super) fn called(&mut self, task: TaskIndex, is_granted: bool) -> Kept {
        self.each_above(task, |purse| purse.spent.tool_calls += 1);
        let passed = self.passed(task);
        if !is_granted {
            self.each_above(task, |purse| purse.spent.tool_calls -= 1);
        }
        verdict(task, passed, is_granted)
    }

    fn passed(&self, task: TaskIndex) -> Option<&'static str> {
        let path = std::iter::successors(self.0.get(task.position()), |purse| {
            self.0.get(purse.above?.position())
        });
        path.into_iter().find_map(Purse::passed)
    }

    fn each_above(&mut self, task: TaskIndex, mut act: impl FnMut(&mut Purse)) {
        let mut next = Some(task);
        while let Some(purse) = next.and_then(|task| self.0.get_mut(task.position())) {
            act(purse);
            next = purse.above;
        }
    }
}

fn tokens(ask: Ask) -> i64 {
    i64::try_from(ask.tokens).unwrap_or(i64::MAX)
}

fn verdict(task: TaskIndex, passed: Option<&str>, is_granted: bool) -> Kept {
    match (passed, is_granted) {
        (Some(cap), true) => {
            Err(format!("{task:?} was granted {cap} that a budget above it lacks"))
        }
        (None, false) => Err(format!("{task:?} was refused what every budget above it bears")),
        _ => Ok(()),
    }
}
