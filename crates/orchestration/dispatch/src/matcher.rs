//! Which of many subscriptions an event is for, without asking all of them.

use std::{collections::HashMap, sync::Arc};

use formwork_protocols::{Event, RunId};

use crate::{Occurrence, Subscription};

/// Subscriptions, found by the most selective of what each of them asks for: one run, else who caused it, else the kind.
#[derive(Debug, Default)]
pub struct Matcher {
    subscriptions: Vec<Arc<Subscription>>,
    by_run: HashMap<RunId, Vec<u32>>,
    by_principal: HashMap<Box<str>, Vec<u32>>,
    by_kind: HashMap<Box<str>, Vec<u32>>,
    /// By what a kind begins with, up to its first dot and with it.
    by_family: HashMap<Box<str>, Vec<u32>>,
    /// Those that have to be asked each time.
    others: Vec<u32>,
}

impl Matcher {
    /// Takes subscriptions. They are told apart by their place in this order.
    pub fn new(subscriptions: impl IntoIterator<Item = Arc<Subscription>>) -> Self {
        let mut matcher = Self::default();
        for subscription in subscriptions {
            matcher.add(subscription);
        }
        matcher
    }

    fn add(&mut self, subscription: Arc<Subscription>) {
        let at = u32::try_from(self.subscriptions.len()).unwrap_or(u32::MAX);
        let filter = &subscription.filter;
        let principals: Option<Vec<&str>> =
            filter.principals.iter().map(|pattern| pattern.literal()).collect();
        if let Some(run) = filter.run {
            self.by_run.entry(run).or_default().push(at);
        } else if let Some(principals) = principals.filter(|all| !all.is_empty()) {
            for principal in principals {
                self.by_principal.entry(principal.into()).or_default().push(at);
            }
        } else if filter
            .kinds
            .iter()
            .any(|it| it.literal().is_none() && !it.beginning().contains('.'))
        {
            self.others.push(at);
        } else {
            for kind in &filter.kinds {
                match kind.literal() {
                    Some(kind) => self.by_kind.entry(kind.into()).or_default().push(at),
                    None => {
                        let family = family(kind.beginning());
                        self.by_family.entry(family.into()).or_default().push(at);
                    }
                }
            }
        }
        self.subscriptions.push(subscription);
    }

    /// Returns the subscriptions that it tells apart.
    pub fn subscriptions(&self) -> &[Arc<Subscription>] {
        &self.subscriptions
    }

    /// Returns those that an event may be for, by all that the event itself says of its run, its kind and who caused it, in
    /// their order.
    pub fn candidates(&self, event: &Event) -> Vec<usize> {
        let kind = event.body.kind();
        let principal = event.principal.as_str();
        let found = [
            self.by_run.get(&event.run),
            self.by_principal.get(principal),
            self.by_kind.get(kind),
            self.by_family.get(family(kind)),
            Some(&self.others),
        ];
        let mut candidates: Vec<usize> = found
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|at| usize::try_from(*at).ok())
            .filter(|at| {
                self.subscriptions.get(*at).is_some_and(|subscription| {
                    let filter = &subscription.filter;
                    filter.is_of_kind(kind) && filter.is_by(principal)
                })
            })
            .collect();
        // One that names a kind in two ways is found twice.
        candidates.sort_unstable();
        candidates.dedup();
        candidates
    }

    /// Returns those that an event is for, in their order.
    pub fn matching(&self, seen: &Occurrence<'_>) -> Vec<usize> {
        let mut found = self.candidates(seen.event());
        found.retain(|at| {
            let subscription = self.subscriptions.get(*at);
            subscription.is_some_and(|it| it.filter.holds_for_the_rest(seen))
        });
        found
    }
}

/// Returns what a kind begins with, up to its first dot and with it.
fn family(kind: &str) -> &str {
    kind.find('.').and_then(|dot| kind.get(..=dot)).unwrap_or(kind)
}
