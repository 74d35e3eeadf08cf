//! The budgets of a run: what is held, what is spent, and what that leaves.

use std::sync::{Mutex, MutexGuard, PoisonError};

use formwork_protocols::{
    Ask, Budget, HoldId, Ledger, OverBudget, TaskId, Usage, Usd,
    budget::{Cap, Crossing, OnExhausted, Remaining, crosses},
};
use tokio::sync::Notify;

use crate::ids::IdMap;

/// What a subtree used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// Dollars.
    pub usd: Usd,
    /// Tokens by class.
    pub usage: Usage,
    /// Model calls.
    pub rounds: u32,
    /// Tool calls.
    pub tool_calls: u32,
}

/// A reservation that was never settled, because its process died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct LapsedHold {
    pub task: TaskId,
    pub hold: HoldId,
    pub ask: Ask,
}

/// The account book of a run: one account per task, each within its parent's.
///
/// A reservation is taken on a task and on everything above it under one lock, or on none of them. So a
/// child's budget comes out of its parent's, whatever the children beside it do meanwhile. The lock is
/// held for a walk to the root and never across a wait.
#[derive(Debug, Default)]
pub struct Accounts {
    book: Mutex<Book>,
    /// Wakes whoever waits to hear that a budget is used up.
    run_dry: Notify,
}

/// A budget that is used up, and what is to happen for it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct Exhausted {
    pub task: TaskId,
    pub policy: OnExhausted,
    pub cap: Cap,
    /// What is missing, in one line.
    pub detail: String,
    /// Whether whoever has found it records it: a line that was crossed is, a call that goes on beyond it is not.
    pub is_recorded: bool,
}

#[derive(Debug, Default)]
struct Book {
    accounts: Vec<Account>,
    places: IdMap<TaskId, usize>,
    holds: IdMap<HoldId, (usize, Ask)>,
    exhausted: Vec<Exhausted>,
}

#[derive(Debug)]
struct Account {
    task: TaskId,
    parent: Option<usize>,
    limit: Budget,
    spent: Spent,
    held_usd: Usd,
    held_tokens: u64,
    held_rounds: u32,
    /// Whether somebody was told that it is used up.
    is_told: bool,
    /// Whether its grace is over.
    is_closed: bool,
}

impl Accounts {
    /// Opens a book without accounts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the account of a task within its parent's. A task that has one keeps it.
    ///
    /// A parent without an account is as none: the task is then only bound by its own budget.
    pub fn open(&self, task: TaskId, parent: Option<TaskId>, limit: &Budget) {
        let mut book = self.lock();
        if book.places.contains_key(&task) {
            return;
        }
        let parent = parent.and_then(|parent| book.places.get(&parent).copied());
        let place = book.accounts.len();
        book.accounts.push(Account {
            task,
            parent,
            limit: limit.clone(),
            spent: Spent::default(),
            held_usd: Usd::ZERO,
            held_tokens: 0,
            held_rounds: 0,
            is_told: false,
            is_closed: false,
        });
        book.places.insert(task, place);
    }

    /// Takes over a reservation from the record, whatever it leaves.
    pub fn restore_hold(&self, task: TaskId, hold: HoldId, ask: Ask) {
        let mut book = self.lock();
        if let Some(&place) = book.places.get(&task) {
            book.hold(place, hold, ask);
        }
    }

    /// Takes over from the record what a lost try of a call used, whatever it leaves.
    pub fn restore_lost(&self, hold: HoldId, lost: Ask) {
        self.lock().enlarge(hold, lost);
    }

    /// Takes over a tool call from the record, whatever it leaves.
    pub fn restore_tool_call(&self, task: TaskId) {
        let mut book = self.lock();
        if let Some(&place) = book.places.get(&task) {
            book.each_above(place, |account| {
                account.spent.tool_calls = account.spent.tool_calls.saturating_add(1);
            });
        }
    }

    /// Lists the reservations that are not settled, in the order of their ids.
    pub fn unsettled(&self) -> Vec<LapsedHold> {
        let book = self.lock();
        let mut holds: Vec<LapsedHold> = book
            .holds
            .iter()
            .filter_map(|(hold, (place, ask))| {
                let task = book.accounts.get(*place)?.task;
                Some(LapsedHold { task, hold: *hold, ask: *ask })
            })
            .collect();
        holds.sort_unstable_by_key(|lapsed| lapsed.hold);
        holds
    }

    /// Returns what a task and all below it have used. What is only held is not in it.
    pub fn spent(&self, task: TaskId) -> Spent {
        let book = self.lock();
        let account = book.places.get(&task).and_then(|place| book.accounts.get(*place));
        account.map(|account| account.spent).unwrap_or_default()
    }

    /// Waits until a budget is used up for which something has to happen. Cancel safe.
    pub(crate) async fn dry(&self) {
        self.run_dry.notified().await;
    }

    /// Returns the budgets that are used up and for which something has to happen, each once.
    pub fn take_exhausted(&self) -> Vec<Exhausted> {
        std::mem::take(&mut self.lock().exhausted)
    }

    /// Takes over from the record that somebody was told that a budget is used up.
    pub(crate) fn restore_told(&self, task: TaskId) {
        let mut book = self.lock();
        if let Some(&place) = book.places.get(&task)
            && let Some(account) = book.accounts.get_mut(place)
        {
            account.is_told = true;
        }
    }

    /// Ends the grace of a budget: from here on its caps hold.
    pub fn close(&self, task: TaskId) {
        let mut book = self.lock();
        if let Some(&place) = book.places.get(&task)
            && let Some(account) = book.accounts.get_mut(place)
        {
            account.is_closed = true;
        }
    }

    fn tell(&self, book: &Book) {
        if !book.exhausted.is_empty() {
            self.run_dry.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        // Nothing in a critical section can panic between two writes, so a poisoned book is whole.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn path(&self, place: usize) -> impl Iterator<Item = &Account> {
        let first = self.accounts.get(place);
        std::iter::successors(first, |account| self.accounts.get(account.parent?))
    }

    fn each_above(&mut self, place: usize, mut act: impl FnMut(&mut Account)) {
        let mut next = Some(place);
        while let Some(account) = next.and_then(|place| self.accounts.get_mut(place)) {
            act(account);
            next = account.parent;
        }
    }

    /// Takes what the accounts above a place say to a call: the first that refuses it, by its policy. Notes
    /// those that are used up.
    fn admit(
        &mut self,
        place: usize,
        refuses: impl Fn(&Account) -> Option<OverBudget>,
    ) -> Result<(), OverBudget> {
        let mut refusal = None;
        let mut next = Some(place);
        while let Some(at) = next {
            let Some(account) = self.accounts.get(at) else { break };
            next = account.parent;
            let Some(over) = refuses(account) else { continue };
            let is_open = account.goes_on();
            self.note(at, (over.cap, over.to_string()), !is_open);
            if !is_open {
                refusal.get_or_insert(over);
            }
        }
        refusal.map_or(Ok(()), Err)
    }

    /// Notes that an account is used up, where something has to happen for it.
    fn note(&mut self, place: usize, (cap, detail): (Cap, String), is_recorded: bool) {
        let Some(account) = self.accounts.get_mut(place) else { return };
        let policy = account.limit.on_exhausted.unwrap_or_default();
        let matters = matches!(policy, OnExhausted::CancelAll | OnExhausted::Grace(_));
        if matters && !std::mem::replace(&mut account.is_told, true) {
            let task = account.task;
            self.exhausted.push(Exhausted { task, policy, cap, detail, is_recorded });
        }
    }

    fn hold(&mut self, place: usize, hold: HoldId, ask: Ask) {
        self.each_above(place, |account| {
            account.held_usd = account.held_usd.saturating_add(ask.usd);
            account.held_tokens = account.held_tokens.saturating_add(ask.tokens);
            account.held_rounds = account.held_rounds.saturating_add(1);
        });
        self.holds.insert(hold, (place, ask));
    }

    /// Adds to a reservation. One that is settled stays so.
    fn enlarge(&mut self, hold: HoldId, more: Ask) {
        let Some((place, ask)) = self.holds.get_mut(&hold) else { return };
        ask.usd = ask.usd.saturating_add(more.usd);
        ask.tokens = ask.tokens.saturating_add(more.tokens);
        let place = *place;
        self.each_above(place, |account| {
            account.held_usd = account.held_usd.saturating_add(more.usd);
            account.held_tokens = account.held_tokens.saturating_add(more.tokens);
        });
    }
}

impl Account {
    /// Tells whether calls go on although it is used up.
    fn goes_on(&self) -> bool {
        match self.limit.on_exhausted.unwrap_or_default() {
            OnExhausted::BlockNew | OnExhausted::CancelAll => false,
            OnExhausted::Grace(_) => !self.is_closed,
            OnExhausted::Unlimited => true,
        }
    }

    fn used_usd(&self) -> Usd {
        self.spent.usd.saturating_add(self.held_usd)
    }

    fn used_tokens(&self) -> u64 {
        self.spent.usage.total().saturating_add(self.held_tokens)
    }

    const fn used_rounds(&self) -> u32 {
        self.spent.rounds.saturating_add(self.held_rounds)
    }

    fn left_usd(&self) -> Option<Usd> {
        let left = self.limit.usd?.saturating_sub(self.used_usd());
        Some(left.max(Usd::ZERO))
    }

    fn left_tokens(&self) -> Option<u64> {
        Some(self.limit.tokens?.saturating_sub(self.used_tokens()))
    }

    fn left_rounds(&self) -> Option<u32> {
        Some(self.limit.rounds?.saturating_sub(self.used_rounds()))
    }

    fn left_tool_calls(&self) -> Option<u32> {
        Some(self.limit.tool_calls?.saturating_sub(self.spent.tool_calls))
    }

    /// Says why a call cannot be made, if it cannot.
    fn refuse(&self, ask: &Ask) -> Option<OverBudget> {
        self.refuse_more(ask).or_else(|| {
            let (limit, left) = (self.limit.rounds?, self.left_rounds()?);
            (left == 0).then(|| OverBudget {
                task: self.task,
                cap: Cap::Rounds,
                limit: limit.to_string(),
                left: "0".to_owned(),
                asked: "1".to_owned(),
            })
        })
    }

    /// Says why a call that is made cannot have more, if it cannot.
    fn refuse_more(&self, ask: &Ask) -> Option<OverBudget> {
        let over = |cap, limit: String, left: String, asked: String| {
            Some(OverBudget { task: self.task, cap, limit, left, asked })
        };
        if let (Some(limit), Some(left)) = (self.limit.usd, self.left_usd())
            && ask.usd > left
        {
            return over(Cap::Usd, limit.to_string(), left.to_string(), ask.usd.to_string());
        }
        if let (Some(limit), Some(left)) = (self.limit.tokens, self.left_tokens())
            && ask.tokens > left
        {
            return over(Cap::Tokens, limit.to_string(), left.to_string(), ask.tokens.to_string());
        }
        None
    }

    /// Adds the lines that were crossed between what was used before and what is used now.
    fn crossings(&self, before: &Spent, found: &mut Vec<Crossing>) {
        let mut line = |cap, limit: u128, before: u128, now: u128, text: [String; 2]| {
            found.extend(crosses((before, now), limit).map(|exhausted| {
                let [used, limit] = text.clone();
                Crossing { task: self.task, cap, used, limit, exhausted }
            }));
        };
        let nanos = |usd: Usd| u128::try_from(usd.as_nanos()).unwrap_or(0);
        if let Some(limit) = self.limit.usd {
            let text = [self.spent.usd.to_string(), limit.to_string()];
            line(Cap::Usd, nanos(limit), nanos(before.usd), nanos(self.spent.usd), text);
        }
        if let Some(limit) = self.limit.tokens {
            let now = self.spent.usage.total();
            let text = [now.to_string(), limit.to_string()];
            line(Cap::Tokens, limit.into(), before.usage.total().into(), now.into(), text);
        }
        if let Some(limit) = self.limit.rounds {
            let text = [self.spent.rounds.to_string(), limit.to_string()];
            line(Cap::Rounds, limit.into(), before.rounds.into(), self.spent.rounds.into(), text);
        }
        if let Some(limit) = self.limit.tool_calls {
            let (before, now) = (before.tool_calls, self.spent.tool_calls);
            let text = [now.to_string(), limit.to_string()];
            line(Cap::ToolCalls, limit.into(), before.into(), now.into(), text);
        }
    }
}

impl Ledger for Accounts {
    fn reserve(&self, task: TaskId, hold: HoldId, ask: Ask) -> Result<(), OverBudget> {
        let mut book = self.lock();
        let Some(&place) = book.places.get(&task) else {
            return Err(no_account(task, Cap::Usd, ask.usd.to_string()));
        };
        let admitted = book.admit(place, |account| account.refuse(&ask));
        if admitted.is_ok() {
            book.hold(place, hold, ask);
        }
        self.tell(&book);
        admitted
    }

    fn extend(&self, task: TaskId, hold: HoldId, lost: Ask) -> Result<(), OverBudget> {
        let mut book = self.lock();
        let Some(&(place, _)) = book.holds.get(&hold) else {
            return Err(no_account(task, Cap::Usd, lost.usd.to_string()));
        };
        let admitted = book.admit(place, |account| account.refuse_more(&lost));
        if admitted.is_ok() {
            book.enlarge(hold, lost);
        }
        self.tell(&book);
        admitted
    }

    fn settle(&self, hold: HoldId, usage: &Usage, cost: Usd) -> Vec<Crossing> {
        let mut book = self.lock();
        let Some((place, ask)) = book.holds.remove(&hold) else {
            return Vec::new(); // It was settled before.
        };
        let mut crossings = Vec::new();
        book.each_above(place, |account| {
            account.held_usd = account.held_usd.saturating_sub(ask.usd);
            account.held_tokens = account.held_tokens.saturating_sub(ask.tokens);
            account.held_rounds = account.held_rounds.saturating_sub(1);
            let before = account.spent;
            account.spent.usd = account.spent.usd.saturating_add(cost);
            account.spent.usage += *usage;
            account.spent.rounds = account.spent.rounds.saturating_add(1);
            account.crossings(&before, &mut crossings);
        });
        for crossing in crossings.iter().filter(|crossing| crossing.exhausted) {
            if let Some(&place) = book.places.get(&crossing.task) {
                let detail = crossing.to_string();
                book.note(place, (crossing.cap, detail), true);
            }
        }
        self.tell(&book);
        crossings
    }

    fn count_tool_call(&self, task: TaskId) -> Result<Vec<Crossing>, OverBudget> {
        let mut book = self.lock();
        let Some(&place) = book.places.get(&task) else {
            return Err(no_account(task, Cap::ToolCalls, "1".to_owned()));
        };
        let admitted = book.admit(place, |account| {
            (account.left_tool_calls() == Some(0)).then(|| OverBudget {
                task: account.task,
                cap: Cap::ToolCalls,
                limit: account.limit.tool_calls.unwrap_or_default().to_string(),
                left: "0".to_owned(),
                asked: "1".to_owned(),
            })
        });
        self.tell(&book);
        admitted?;
        let mut crossings = Vec::new();
        book.each_above(place, |account| {
            let before = account.spent;
            account.spent.tool_calls = account.spent.tool_calls.saturating_add(1);
            account.crossings(&before, &mut crossings);
        });
        for crossing in crossings.iter().filter(|crossing| crossing.exhausted) {
            let Some(&place) = book.places.get(&crossing.task) else { continue };
            // The last call that it bears is made: what ends everything waits for one beyond it.
            let is_graced = book.accounts.get(place).is_some_and(|account| {
                matches!(account.limit.on_exhausted, Some(OnExhausted::Grace(_)))
            });
            if is_graced {
                let detail = crossing.to_string();
                book.note(place, (crossing.cap, detail), true);
            }
        }
        self.tell(&book);
        Ok(crossings)
    }

    fn remaining(&self, task: TaskId) -> Remaining {
        let book = self.lock();
        let Some(&place) = book.places.get(&task) else { return Remaining::default() };
        Remaining {
            usd: book.path(place).filter_map(Account::left_usd).min(),
            tokens: book.path(place).filter_map(Account::left_tokens).min(),
            rounds: book.path(place).filter_map(Account::left_rounds).min(),
            tool_calls: book.path(place).filter_map(Account::left_tool_calls).min(),
        }
    }
}

/// A task that nobody opened an account for has nothing to spend.
fn no_account(task: TaskId, cap: Cap, asked: String) -> OverBudget {
    OverBudget { task, cap, limit: "0".to_owned(), left: "0".to_owned(), asked }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use formwork_protocols::{Rng as _, SeededRng, SystemClock};
    use proptest::prelude::*;

    use super::*;

    fn task(rng: &SeededRng) -> TaskId {
        TaskId::generate(&SystemClock, rng)
    }

    fn hold(rng: &SeededRng) -> HoldId {
        HoldId::generate(&SystemClock, rng)
    }

    fn dollars(nanos: i64) -> Budget {
        Budget { usd: Some(Usd::from_nanos(nanos)), ..Budget::default() }
    }

    fn ask(nanos: i64, tokens: u64) -> Ask {
        Ask { usd: Usd::from_nanos(nanos), tokens }
    }

    #[test]
    fn a_reservation_is_taken_on_every_ancestor_or_on_none() {
        let rng = SeededRng::new(1);
        let (root, left, right) = (task(&rng), task(&rng), task(&rng));
        let accounts = Accounts::new();
        accounts.open(root, None, &dollars(100));
        accounts.open(left, Some(root), &dollars(80));
        accounts.open(right, Some(root), &Budget::default());

        accounts.reserve(left, hold(&rng), ask(70, 0)).unwrap();
        let refusal = accounts.reserve(right, hold(&rng), ask(31, 0)).unwrap_err();

        assert_eq!(refusal.task, root);
        assert_eq!(refusal.cap, Cap::Usd);
        assert_eq!(refusal.left, "0.00000003");
        assert_eq!(accounts.remaining(right).usd, Some(Usd::from_nanos(30)));
        assert_eq!(accounts.remaining(left).usd, Some(Usd::from_nanos(10)));
    }

    #[test]
    fn settling_gives_back_what_was_not_used_and_tells_each_line_once() {
        let rng = SeededRng::new(2);
        let root = task(&rng);
        let accounts = Accounts::new();
        accounts.open(root, None, &dollars(100));
        let crossed = |used: i64| {
            let id = hold(&rng);
            accounts.reserve(root, id, ask(used, 0)).unwrap();
            let lines = accounts.settle(id, &Usage::default(), Usd::from_nanos(used));
            lines.into_iter().map(|line| (line.used, line.exhausted)).collect::<Vec<_>>()
        };

        let id = hold(&rng);
        accounts.reserve(root, id, ask(100, 0)).unwrap();
        assert_eq!(accounts.settle(id, &Usage::default(), Usd::from_nanos(10)), []);
        assert_eq!(accounts.remaining(root).usd, Some(Usd::from_nanos(90)));
        assert_eq!(crossed(69), []);
        assert_eq!(crossed(1), [("0.00000008".to_owned(), false)]);
        assert_eq!(crossed(5), []);
        assert_eq!(crossed(15), [("0.0000001".to_owned(), true)]);
        assert_eq!(accounts.settle(id, &Usage::default(), Usd::from_nanos(10)), []);
    }

    #[test]
    fn rounds_tokens_and_tool_calls_are_capped_on_the_whole_path() {
        let rng = SeededRng::new(3);
        let (root, child) = (task(&rng), task(&rng));
        let accounts = Accounts::new();
        let limit =
            Budget { rounds: Some(2), tokens: Some(100), tool_calls: Some(1), ..Budget::default() };
        accounts.open(root, None, &limit);
        accounts.open(child, Some(root), &Budget::default());

        accounts.reserve(child, hold(&rng), ask(0, 90)).unwrap();
        let tokens = accounts.reserve(child, hold(&rng), ask(0, 11)).unwrap_err();
        accounts.reserve(child, hold(&rng), ask(0, 1)).unwrap();
        let rounds = accounts.reserve(child, hold(&rng), ask(0, 0)).unwrap_err();
        accounts.count_tool_call(child).unwrap();
        let tools = accounts.count_tool_call(child).unwrap_err();

        assert_eq!((tokens.task, tokens.cap), (root, Cap::Tokens));
        assert_eq!((rounds.task, rounds.cap), (root, Cap::Rounds));
        assert_eq!((tools.task, tools.cap), (root, Cap::ToolCalls));
    }

    #[test]
    fn tool_calls_are_told_of_at_four_fifths_and_at_the_limit_on_every_account_of_the_path() {
        let rng = SeededRng::new(9);
        let (root, child) = (task(&rng), task(&rng));
        let accounts = Accounts::new();
        let limit = |calls| Budget { tool_calls: Some(calls), ..Budget::default() };
        let free = Budget { on_exhausted: Some(OnExhausted::Unlimited), ..limit(2) };
        accounts.open(root, None, &limit(5));
        accounts.open(child, Some(root), &free);
        let told = || {
            let lines = accounts.count_tool_call(child).unwrap();
            let told = |it: Crossing| (it.task == root, it.to_string(), it.exhausted);
            lines.into_iter().map(told).collect::<Vec<_>>()
        };

        let told: Vec<_> = (0..5).map(|_| told()).collect();
        let refused = accounts.count_tool_call(child).unwrap_err();

        let line = |of_root, text: &str, exhausted| (of_root, text.to_owned(), exhausted);
        let lines = [
            vec![],
            [false, true].map(|over| line(false, "2 of 2 tool calls used", over)).into(),
            vec![],
            vec![line(true, "4 of 5 tool calls used", false)],
            vec![line(true, "5 of 5 tool calls used", true)],
        ];
        assert_eq!(told, lines);
        assert_eq!((refused.task, refused.cap), (root, Cap::ToolCalls));
        assert_eq!(accounts.take_exhausted(), []);
    }

    #[test]
    fn a_policy_decides_what_a_budget_that_is_used_up_means() {
        let rng = SeededRng::new(6);
        let tried = |policy: OnExhausted| {
            let (root, child) = (task(&rng), task(&rng));
            let accounts = Accounts::new();
            accounts.open(root, None, &Budget { on_exhausted: Some(policy), ..dollars(10) });
            accounts.open(child, Some(root), &Budget::default());
            let first = accounts.reserve(child, hold(&rng), ask(11, 0)).is_ok();
            let told = accounts.take_exhausted().len();
            let again = accounts.reserve(child, hold(&rng), ask(11, 0)).is_ok();
            let told_again = accounts.take_exhausted().len();
            accounts.close(root);
            let closed = accounts.reserve(child, hold(&rng), ask(11, 0)).is_ok();
            (first, told, again, told_again, closed)
        };

        assert_eq!(tried(OnExhausted::BlockNew), (false, 0, false, 0, false));
        assert_eq!(tried(OnExhausted::CancelAll), (false, 1, false, 0, false));
        let minute = formwork_protocols::Span::from_secs(60);
        assert_eq!(tried(OnExhausted::Grace(minute)), (true, 1, true, 0, false));
        assert_eq!(tried(OnExhausted::Unlimited), (true, 0, true, 0, true));
    }

    #[test]
    fn the_grace_of_a_child_is_no_licence_to_pass_its_parents_cap() {
        let rng = SeededRng::new(7);
        let (root, child) = (task(&rng), task(&rng));
        let accounts = Accounts::new();
        accounts.open(root, None, &dollars(15));
        let free = Budget { on_exhausted: Some(OnExhausted::Unlimited), ..dollars(10) };
        accounts.open(child, Some(root), &free);

        assert!(accounts.reserve(child, hold(&rng), ask(12, 0)).is_ok());
        assert_eq!(accounts.reserve(child, hold(&rng), ask(4, 0)).unwrap_err().task, root);
    }

    #[test]
    fn a_task_without_an_account_has_nothing_to_spend() {
        let rng = SeededRng::new(4);
        let accounts = Accounts::new();

        assert!(accounts.reserve(task(&rng), hold(&rng), ask(1, 1)).is_err());
        assert!(accounts.count_tool_call(task(&rng)).is_err());
    }

    #[test]
    fn sixty_four_children_at_once_never_overspend_any_ancestor() {
        let seeds = SeededRng::new(5);
        let (root, middle) = (task(&seeds), task(&seeds));
        let accounts = Arc::new(Accounts::new());
        accounts.open(root, None, &dollars(10_000));
        accounts.open(middle, Some(root), &dollars(6_000));
        let barrier = Arc::new(Barrier::new(64));

        let workers: Vec<_> = (0..64_u64)
            .map(|number| {
                let child = task(&seeds);
                let above = if number % 2 == 0 { root } else { middle };
                accounts.open(child, Some(above), &dollars(500));
                let (accounts, barrier) = (Arc::clone(&accounts), Arc::clone(&barrier));
                std::thread::spawn(move || {
                    let rng = SeededRng::new(100 + number);
                    barrier.wait();
                    for _ in 0..200 {
                        let most = i64::try_from(rng.next_u64() % 60).unwrap();
                        let id = hold(&rng);
                        if accounts.reserve(child, id, ask(most, 0)).is_ok() {
                            let used = if most == 0 { 0 } else { most - most / 3 };
                            accounts.settle(id, &Usage::default(), Usd::from_nanos(used));
                        }
                        assert!(accounts.spent(root).usd <= Usd::from_nanos(10_000));
                        assert!(accounts.spent(middle).usd <= Usd::from_nanos(6_000));
                        assert!(accounts.spent(child).usd <= Usd::from_nanos(500));
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }

        assert!(accounts.spent(root).usd > Usd::from_nanos(9_000), "the budget was really used");
        assert_eq!(accounts.unsettled(), []);
    }

    #[test]
    fn a_lost_try_makes_its_reservation_larger_on_the_whole_path_or_not_at_all() {
        let rng = SeededRng::new(8);
        let (root, child) = (task(&rng), task(&rng));
        let accounts = Accounts::new();
        accounts.open(root, None, &Budget { rounds: Some(1), tokens: Some(100), ..dollars(100) });
        accounts.open(child, Some(root), &dollars(90));
        let id = hold(&rng);
        accounts.reserve(child, id, ask(40, 40)).unwrap();

        accounts.extend(child, id, ask(30, 30)).unwrap();
        let own = accounts.extend(child, id, ask(21, 0)).unwrap_err();
        let above = accounts.extend(child, id, ask(0, 31)).unwrap_err();
        let left = accounts.remaining(child);
        accounts.settle(id, &Usage { input: 65, ..Usage::default() }, Usd::from_nanos(65));
        let late = accounts.extend(child, id, ask(1, 1));

        assert_eq!(
            (own.task, own.cap, above.task, above.cap),
            (child, Cap::Usd, root, Cap::Tokens)
        );
        assert_eq!((left.usd, left.tokens), (Some(Usd::from_nanos(20)), Some(30)));
        assert_eq!(accounts.spent(root).rounds, 1);
        assert_eq!(accounts.remaining(child).usd, Some(Usd::from_nanos(25)));
        assert_eq!(accounts.remaining(root).usd, Some(Usd::from_nanos(35)));
        assert!(late.is_err(), "what is settled has no more tries");
    }

    proptest! {
        #[test]
        fn no_series_of_holds_lost_tries_and_settlements_spends_more_than_any_limit(
            steps in prop::collection::vec(
                ((0_usize..7, 0_i64..200, 0_i64..=100, any::<bool>()), prop::collection::vec(0_i64..=100, 0..4)),
                1..200,
            ),
            limits in prop::collection::vec(prop::option::of(0_i64..2_000), 7),
        ) {
            let rng = SeededRng::new(9);
            let accounts = Accounts::new();
            let tasks: Vec<TaskId> = (0..7).map(|_| task(&rng)).collect();
            for (place, limit) in limits.iter().enumerate() {
                let parent = (place > 0).then(|| tasks[(place - 1) / 2]);
                let budget = limit.map(dollars).unwrap_or_default();
                accounts.open(tasks[place], parent, &budget);
            }
            let mut open = Vec::new();
            for ((place, most, percent, settles), tries) in steps {
                let id = hold(&rng);
                if accounts.reserve(tasks[place], id, ask(most, 0)).is_ok() {
                    // Of a call whose try is lost there is another one, where all budgets bear it.
                    let part = |percent: i64| Usd::from_nanos(most).percent(u32::try_from(percent).unwrap());
                    let (mut used, mut last) = (Usd::ZERO, part(percent));
                    for lost in tries.into_iter().map(part) {
                        used = used.saturating_add(lost);
                        let more = Ask { usd: lost, tokens: 0 };
                        if accounts.extend(tasks[place], id, more).is_err() {
                            last = Usd::ZERO;
                            break;
                        }
                    }
                    open.push((id, used.saturating_add(last)));
                }
                if settles && let Some((id, cost)) = open.pop() {
                    accounts.settle(id, &Usage::default(), cost);
                }
                for (task, limit) in tasks.iter().zip(&limits) {
                    if let Some(limit) = limit {
                        prop_assert!(accounts.spent(*task).usd <= Usd::from_nanos(*limit));
                    }
                }
            }
            prop_assert_eq!(accounts.unsettled().len(), open.len());
        }
    }
}
