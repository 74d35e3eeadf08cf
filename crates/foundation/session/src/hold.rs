//! Money set aside for one model call: settled with what was used, or given back.

use std::sync::Arc;

use formwork_protocols::{
    Ask, HoldId, Ledger, OverBudget, Price, TaskId, Usage, Usd, budget::Crossing,
};

/// A reservation on a task and all its ancestors.
///
/// A dropped hold is settled as well: at nothing before its request was sent, and at the estimate of
/// its input after that, since providers bill a request they have begun.
pub(crate) struct Hold {
    ledger: Arc<dyn Ledger>,
    id: HoldId,
    price: Price,
    /// What counts if nobody says better.
    used: Usage,
    settled: bool,
}

impl Hold {
    /// Reserves what a call may need at the most.
    pub(crate) fn take(
        ledger: &Arc<dyn Ledger>,
        task: TaskId,
        id: HoldId,
        ask: Ask,
        price: Price,
    ) -> Result<Self, OverBudget> {
        ledger.reserve(task, id, ask)?;
        let ledger = Arc::clone(ledger);
        Ok(Self { ledger, id, price, used: Usage::default(), settled: false })
    }

    /// Returns the reservation's id.
    pub(crate) const fn id(&self) -> HoldId {
        self.id
    }

    /// Notes that the request is on its way, with so many tokens.
    pub(crate) const fn sent(&mut self, input: u64) {
        self.used.input = input;
    }

    /// Notes that another model, at another price, answers.
    pub(crate) const fn answered_at(&mut self, price: Price) {
        self.price = price;
    }

    /// Replaces the reservation by what was used. Returns the cost and the lines that were crossed.
    pub(crate) fn settle(mut self, usage: &Usage) -> (Usd, Vec<Crossing>) {
        self.settled = true;
        let cost = self.price.cost(usage);
        (cost, self.ledger.settle(self.id, usage, cost))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.settled {
            self.ledger.settle(self.id, &self.used, self.price.cost(&self.used));
        }
    }
}
