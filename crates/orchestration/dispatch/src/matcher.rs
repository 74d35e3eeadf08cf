//! Which of many subscriptions an event is for, without asking all of them.

use std::{collections::HashMap, sync::Arc};

use formwork_protocols::{Event, RunId};

use crate::{Filter, Occurrence, Subscription, subscription::OWN};

/// Subscriptions, found by the most selective of what each of them asks for: one run, else who caused it, else the kind.
#[derive(Debug, Default)]
pub struct Matcher {
    subscriptions: Vec<Arc<Subscription>>,
    by_run: HashMap<RunId, Vec<Entry>>,
    by_principal: HashMap<Box<str>, Vec<Entry>>,
    by_kind: HashMap<Box<str>, Vec<Entry>>,
    /// By what a kind begins with, up to its first dot and with it.
    by_family: HashMap<Box<str>, Vec<Entry>>,
    /// Those that have to be asked each time.
    others: Vec<Entry>,
}

/// A subscription where it is found, and what it asks for besides. Where that is nothing, it is not looked at: one of many is
/// seldom in the cache of the processor.
#[derive(Debug, Clone, Copy)]
struct Entry {
    at: u32,
    /// Whether it asks for more of the event than it is found by.
    asks_event: bool,
    /// Whether it asks for more than the event itself says.
    asks_rest: bool,
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
        let asks_rest =
            filter.when.is_some() || !filter.workflows.is_empty() || !filter.sources.is_empty();
        let any_kind = filter.kinds.iter().any(|pattern| pattern.as_str() == "*");
        let anybody = filter.principals.is_empty();
        let entry = |is_found_whole: bool| Entry { at, asks_event: !is_found_whole, asks_rest };
        let literal: Option<Vec<&str>> =
            filter.principals.iter().map(|pattern| pattern.literal()).collect();
        if let Some(run) = filter.run {
            self.by_run.entry(run).or_default().push(entry(any_kind && anybody));
        } else if let Some(principals) = literal.filter(|all| !all.is_empty()) {
            for principal in principals {
                self.by_principal.entry(principal.into()).or_default().push(entry(any_kind));
            }
        } else if filter
            .kinds
            .iter()
            .any(|it| it.literal().is_none() && !it.beginning().contains('.'))
        {
            self.others.push(entry(any_kind && anybody));
        } else {
            for kind in &filter.kinds {
                if let Some(kind) = kind.literal() {
                    self.by_kind.entry(kind.into()).or_default().push(entry(anybody));
                    continue;
                }
                let family = family(kind.beginning());
                let is_whole = kind.as_str().strip_prefix(family) == Some("*");
                self.by_family.entry(family.into()).or_default().push(entry(is_whole && anybody));
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
        self.found(event).into_iter().map(|entry| place(entry.at)).collect()
    }

    /// Returns those that an event is for, in their order.
    pub fn matching(&self, seen: &Occurrence<'_>) -> Vec<usize> {
        let found = self.found(seen.event()).into_iter();
        found
            .filter(|entry| {
                !entry.asks_rest
                    || self.filter(*entry).is_some_and(|filter| filter.holds_for_the_rest(seen))
            })
            .map(|entry| place(entry.at))
            .collect()
    }

    fn filter(&self, entry: Entry) -> Option<&Filter> {
        self.subscriptions.get(place(entry.at)).map(|subscription| &subscription.filter)
    }

    fn found(&self, event: &Event) -> Vec<Entry> {
        let kind = event.body.kind();
        if kind.starts_with(OWN) {
            return Vec::new();
        }
        let principal = event.principal.as_str();
        let tables = [
            self.by_run.get(&event.run),
            self.by_principal.get(principal),
            self.by_kind.get(kind),
            self.by_family.get(family(kind)),
            Some(&self.others),
        ];
        let mut found = Vec::new();
        for table in tables.into_iter().flatten() {
            found.extend(table.iter().copied().filter(|entry| {
                !entry.asks_event
                    || self
                        .filter(*entry)
                        .is_some_and(|filter| filter.is_of_kind(kind) && filter.is_by(principal))
            }));
        }
        // Each table is in order, and one that names a kind in two ways is found twice.
        found.sort_by_key(|entry| entry.at);
        found.dedup_by_key(|entry| entry.at);
        found
    }
}

fn place(at: u32) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

/// Returns what a kind begins with, up to its first dot and with it.
fn family(kind: &str) -> &str {
    kind.find('.').and_then(|dot| kind.get(..=dot)).unwrap_or(kind)
}
