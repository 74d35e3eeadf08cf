//! Money set aside for one model call: settled with what was used, or given back.

use std::sync::Arc;

use formwork_protocols::{
    Ask, HoldId, Ledger, OverBudget, Price, TaskId, Usage, Usd, budget::Crossing, event::Lost,
    model::Used,
};

/// A reservation on a task and all its ancestors: the worst case of one try, and what the tries before it have lost.
///
/// A dropped hold is settled as well: at what was lost before its request was sent, and at the estimate of
/// its input besides after that, since providers bill a request they have begun.
pub(crate) struct Hold {
    ledger: Arc<dyn Ledger>,
    task: TaskId,
    id: HoldId,
    price: Price,
    /// What counts of the present try if nobody says better.
    used: Usage,
    /// What the tries before it used, each at its own price.
    lost: Option<Lost>,
    settled: bool,
}

/// What a call came to.
pub(crate) struct Bill {
    /// What its last try cost.
    pub(crate) cost: Usd,
    /// What the tries before it used in vain.
    pub(crate) lost: Option<Lost>,
    /// All of it.
    pub(crate) total: Lost,
    /// The lines that budgets crossed by it.
    pub(crate) crossings: Vec<Crossing>,
}

impl Hold {
    /// Reserves what a try may need at the most.
    pub(crate) fn take(
        ledger: &Arc<dyn Ledger>,
        task: TaskId,
        id: HoldId,
        ask: Ask,
        price: Price,
    ) -> Result<Self, OverBudget> {
        ledger.reserve(task, id, ask)?;
        let ledger = Arc::clone(ledger);
        let (used, lost, settled) = (Usage::default(), None, false);
        Ok(Self { ledger, task, id, price, used, lost, settled })
    }

    /// Returns the reservation's id.
    pub(crate) const fn id(&self) -> HoldId {
        self.id
    }

    /// Notes that the request is on its way, with so many tokens.
    pub(crate) const fn sent(&mut self, input: u64) {
        self.used.input = input;
    }

    /// Takes what a try used in vain, and makes room for another.
    ///
    /// # Errors
    /// [`OverBudget`] when a budget cannot bear another try. What was lost counts all the same.
    pub(crate) fn lose(&mut self, used: Used) -> Result<Lost, OverBudget> {
        let cost = self.price.cost(&used.usage);
        let lost = Lost { usage: used.usage, cost, estimated: used.estimated };
        self.lost = Some(self.lost.map_or(lost, |before| before + lost));
        let more = Ask { usd: cost, tokens: used.usage.total() };
        self.ledger.extend(self.task, self.id, more)?;
        Ok(lost)
    }

    /// Returns what a try costs, or nothing where no amount is as large.
    pub(crate) fn cost(&self, usage: &Usage) -> Option<Usd> {
        self.price.checked_cost(usage)
    }

    /// Notes that another model, at another price, answers.
    pub(crate) const fn answered_at(&mut self, price: Price) {
        self.price = price;
    }

    /// Replaces the reservation by what was used: by the last try, and by those that were lost before it.
    pub(crate) fn settle(mut self, used: Used) -> Bill {
        self.settled = true;
        let cost = self.price.cost(&used.usage);
        let last = Lost { usage: used.usage, cost, estimated: used.estimated };
        let total = self.lost.map_or(last, |lost| lost + last);
        let crossings = self.ledger.settle(self.id, &total.usage, total.cost);
        Bill { cost, lost: self.lost, total, crossings }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.settled {
            let lost = self.lost.unwrap_or_default();
            let usage = lost.usage + self.used;
            let cost = lost.cost.saturating_add(self.price.cost(&self.used));
            self.ledger.settle(self.id, &usage, cost);
        }
    }
}
