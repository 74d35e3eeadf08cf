//! What all runs of a check at one task may use together, out of the task's own budget.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use formwork_protocols::{
    Ask, Budget, EventBody, HoldId, Ledger, OverBudget, Position, Store, TaskId, Usage, Usd,
    budget::{Cap, Crossing, Remaining},
    check::Phase,
    event::Decided,
    store::Selection,
};
use formwork_scheduler::CheckJob;

use crate::Error;

/// Which check of which task.
type Place = (TaskId, Phase, u32);

/// The shares of the checks that were made so far.
#[derive(Default)]
pub(crate) struct Shares(Mutex<HashMap<Place, Arc<Share>>>);

/// The share of one check: a ledger within the ledger of the run.
pub(super) struct Share {
    inner: Arc<dyn Ledger>,
    limit: Budget,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    usd: Usd,
    tokens: u64,
    rounds: u32,
    tool_calls: u32,
    holds: HashMap<HoldId, Ask>,
}

impl Shares {
    /// Returns the share of a check; one that an earlier process has used of is found again in the log.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub(super) async fn of(&self, store: &dyn Store, job: &CheckJob) -> Result<Arc<Share>, Error> {
        let place = (job.task, job.phase, job.index);
        if let Some(known) = lock(&self.0).get(&place) {
            return Ok(Arc::clone(known));
        }
        let used = Mutex::new(recorded(store, job).await?);
        let (inner, limit) = (Arc::clone(&job.ledger), job.check.budget.clone());
        let share = Arc::new(Share { inner, limit, used });
        Ok(Arc::clone(lock(&self.0).entry(place).or_insert(share)))
    }
}

/// Adds up what a check has used, as the log tells: whatever its task spent while it ran.
async fn recorded(store: &dyn Store, job: &CheckJob) -> Result<Used, Error> {
    let kinds = ["check.", "budget.settled", "tool.requested"].map(str::to_owned).to_vec();
    let selection = Selection { run: Some(job.run), task: Some(job.task), kinds };
    let (mut used, mut runs, mut after) = (Used::default(), false, Position::default());
    loop {
        let events = store.read(after, &selection, 1_000).await?;
        let Some(last) = events.last() else { return Ok(used) };
        after = last.position;
        for event in events {
            match event.body {
                EventBody::CheckStarted(started) => {
                    runs = (started.phase, started.index) == (job.phase, job.index);
                }
                EventBody::CheckFinished(_) => runs = false,
                EventBody::BudgetSettled(settled) if runs => {
                    used.usd = used.usd.saturating_add(settled.usd);
                    used.tokens = used.tokens.saturating_add(settled.usage.total());
                    used.rounds = used.rounds.saturating_add(1);
                }
                EventBody::ToolRequested(asked) if runs && asked.decision == Decided::Allowed => {
                    used.tool_calls = used.tool_calls.saturating_add(1);
                }
                _ => {}
            }
        }
    }
}

impl Share {
    fn left(&self) -> Remaining {
        let used = lock(&self.used);
        let Budget { usd, tokens, rounds, tool_calls, .. } = &self.limit;
        Remaining {
            usd: usd.map(|limit| limit.saturating_sub(used.usd).max(Usd::ZERO)),
            tokens: tokens.map(|limit| limit.saturating_sub(used.tokens)),
            rounds: rounds.map(|limit| limit.saturating_sub(used.rounds)),
            tool_calls: tool_calls.map(|limit| limit.saturating_sub(used.tool_calls)),
        }
    }
}

impl Share {
    /// Tells whether the dollars and the tokens of the check bear that much more.
    fn bears(&self, task: TaskId, ask: &Ask) -> Result<(), OverBudget> {
        let left = self.left();
        let over = |cap, limit: String, left: String, asked: String| {
            Err(OverBudget { task, cap, limit, left, asked })
        };
        if let (Some(limit), Some(left)) = (self.limit.usd, left.usd)
            && ask.usd > left
        {
            return over(Cap::Usd, limit.to_string(), left.to_string(), ask.usd.to_string());
        }
        if let (Some(limit), Some(left)) = (self.limit.tokens, left.tokens)
            && ask.tokens > left
        {
            return over(Cap::Tokens, limit.to_string(), left.to_string(), ask.tokens.to_string());
        }
        Ok(())
    }
}

impl Ledger for Share {
    fn reserve(&self, task: TaskId, hold: HoldId, ask: Ask) -> Result<(), OverBudget> {
        self.bears(task, &ask)?;
        if let (Some(limit), Some(0)) = (self.limit.rounds, self.left().rounds) {
            let (limit, left, asked) = (limit.to_string(), "0".to_owned(), "1".to_owned());
            return Err(OverBudget { task, cap: Cap::Rounds, limit, left, asked });
        }
        self.inner.reserve(task, hold, ask)?;
        let mut used = lock(&self.used);
        used.usd = used.usd.saturating_add(ask.usd);
        used.tokens = used.tokens.saturating_add(ask.tokens);
        used.rounds = used.rounds.saturating_add(1);
        used.holds.insert(hold, ask);
        Ok(())
    }

    fn extend(&self, task: TaskId, hold: HoldId, lost: Ask) -> Result<(), OverBudget> {
        self.bears(task, &lost)?;
        self.inner.extend(task, hold, lost)?;
        let mut used = lock(&self.used);
        used.usd = used.usd.saturating_add(lost.usd);
        used.tokens = used.tokens.saturating_add(lost.tokens);
        if let Some(ask) = used.holds.get_mut(&hold) {
            ask.usd = ask.usd.saturating_add(lost.usd);
            ask.tokens = ask.tokens.saturating_add(lost.tokens);
        }
        Ok(())
    }

    fn settle(&self, hold: HoldId, usage: &Usage, cost: Usd) -> Vec<Crossing> {
        {
            let mut used = lock(&self.used);
            if let Some(ask) = used.holds.remove(&hold) {
                used.usd = used.usd.saturating_sub(ask.usd).saturating_add(cost);
                used.tokens = used.tokens.saturating_sub(ask.tokens).saturating_add(usage.total());
            }
        }
        self.inner.settle(hold, usage, cost)
    }

    fn count_tool_call(&self, task: TaskId) -> Result<Vec<Crossing>, OverBudget> {
        if let (Some(limit), Some(0)) = (self.limit.tool_calls, self.left().tool_calls) {
            let (limit, left, asked) = (limit.to_string(), "0".to_owned(), "1".to_owned());
            return Err(OverBudget { task, cap: Cap::ToolCalls, limit, left, asked });
        }
        let crossings = self.inner.count_tool_call(task)?;
        let mut used = lock(&self.used);
        used.tool_calls = used.tool_calls.saturating_add(1);
        Ok(crossings)
    }

    fn remaining(&self, task: TaskId) -> Remaining {
        let (own, around) = (self.left(), self.inner.remaining(task));
        Remaining {
            usd: tighter(own.usd, around.usd),
            tokens: tighter(own.tokens, around.tokens),
            rounds: tighter(own.rounds, around.rounds),
            tool_calls: tighter(own.tool_calls, around.tool_calls),
        }
    }
}

fn tighter<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use formwork_protocols::{SeededRng, SystemClock};
    use formwork_scheduler::Accounts;

    use super::*;

    #[test]
    fn what_a_check_lost_comes_out_of_its_own_share_and_of_its_tasks_budget() {
        let rng = SeededRng::new(1);
        let task = TaskId::generate(&SystemClock, &rng);
        let id = HoldId::generate(&SystemClock, &rng);
        let dollars = |nanos| Budget { usd: Some(Usd::from_nanos(nanos)), ..Budget::default() };
        let ask = |nanos| Ask { usd: Usd::from_nanos(nanos), tokens: 0 };
        let accounts = Arc::new(Accounts::new());
        accounts.open(task, None, &dollars(100));
        let inner = Arc::clone(&accounts) as _;
        let share = Share { inner, limit: dollars(50), used: Mutex::default() };

        share.reserve(task, id, ask(20)).unwrap();
        share.extend(task, id, ask(20)).unwrap();
        let over = share.extend(task, id, ask(11)).unwrap_err();
        let held = (share.left().usd, accounts.remaining(task).usd);
        share.settle(id, &Usage::default(), Usd::from_nanos(25));

        assert_eq!((over.task, over.cap, over.left.as_str()), (task, Cap::Usd, "0.00000001"));
        assert_eq!(held, (Some(Usd::from_nanos(10)), Some(Usd::from_nanos(60))));
        assert_eq!(share.left().usd, Some(Usd::from_nanos(25)));
        assert_eq!(accounts.remaining(task).usd, Some(Usd::from_nanos(75)));
    }
}
