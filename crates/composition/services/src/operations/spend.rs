//! `spend.report`: where the money went, by task, agent, model, tool and class of token.

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use formwork_protocols::{
    AgentName, CallId, EventBody, ModelRef, NoSecrets, Position, Price, RunId, SessionId, Span,
    Store, TaskId, Usage, Usd,
    event::{Decided, ModelCompleted},
    store::{RunRow, Selection},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
    models::{Keys, Models},
    operations::{
        runs::{named, recorded},
        tasks,
    },
};

/// How many events, or runs, are read at once.
const PAGE: usize = 1_000;

/// What answers without a call are listed under.
const WORDS: &str = "(words alone)";

/// Of which runs.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReportParams {
    /// Of this run only; of all runs of this workspace where absent.
    pub run: Option<RunId>,
    /// Of the runs of other workspaces as well, where no run is named.
    pub all: bool,
}

/// What model calls came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct Line {
    pub name: String,
    pub calls: u64,
    pub cost: Usd,
    pub usage: Usage,
}

/// What calls of one tool came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolLine {
    /// The tool, or `(words alone)` for answers that called none.
    pub name: String,
    /// How often it was called.
    pub calls: u64,
    /// How many of these were refused.
    pub refused: u64,
    /// How many failed.
    pub failed: u64,
    /// How long they took together.
    pub elapsed: Span,
    /// What the answers cost that made the calls; one that made several is shared out among them evenly.
    pub cost: Usd,
}

/// What tokens of one class came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct ClassLine {
    pub class: String,
    pub tokens: u64,
    pub cost: Usd,
}

/// Where the money went. Every list adds up to the total, the dearest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// How many runs are in it.
    pub runs: u64,
    /// All model calls together.
    pub total: Line,
    /// What calls, and tries of them, cost that brought no answer, because they broke off or their process died: at
    /// most, and in no list.
    pub unanswered: Usd,
    /// By task, as its path in its run.
    pub by_task: Vec<Line>,
    /// By agent.
    pub by_agent: Vec<Line>,
    /// By model.
    pub by_model: Vec<Line>,
    /// By tool.
    pub by_tool: Vec<ToolLine>,
    /// By class of token.
    pub by_class: Vec<ClassLine>,
    /// What is in no class, because the price of a call is not known any more.
    pub unclassed: Usd,
    /// Tokens that a provider had cached for a conversation and that were read anew in its next call.
    pub cache_missed: u64,
    /// What reading them anew cost more than reading them from the cache.
    pub cache_missed_cost: Usd,
}

/// `spend.report`
pub struct Spend;

#[async_trait]
impl Operation for Spend {
    const NAME: &'static str = "spend.report";
    const DOC: &'static str = "Tells what was spent, by task, agent, model, tool and class.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = ReportParams;
    type Output = Report;

    async fn run(formwork: &Formwork, _: &Caller, params: ReportParams) -> Result<Report, Error> {
        let store = &formwork.inner.store;
        let mut book = Book::default();
        if let Some(run) = params.run {
            let row = named(&**store, run).await?;
            book.add(formwork, &row).await?;
            return Ok(book.report());
        }
        let here = formwork.workspace().display().to_string();
        let mut before = None;
        loop {
            let page = store.runs(before, PAGE).await?;
            let Some(last) = page.last() else { return Ok(book.report()) };
            before = Some(last.run);
            for row in page.iter().filter(|row| params.all || row.workspace == here) {
                book.add(formwork, row).await?;
            }
        }
    }
}

/// The sums while they are made.
#[derive(Default)]
struct Book {
    runs: u64,
    total: Line,
    unanswered: Usd,
    tasks: BTreeMap<String, Line>,
    agents: BTreeMap<String, Line>,
    models: BTreeMap<String, Line>,
    tools: BTreeMap<String, ToolLine>,
    classes: [(u64, Usd); 5],
    unclassed: Usd,
    missed: u64,
    missed_cost: Usd,
}

/// What is known of one run while its events are read.
#[derive(Default)]
struct Reading {
    agents: HashMap<SessionId, AgentName>,
    /// The last answer of each conversation, and the tools that it has called so far.
    answers: HashMap<SessionId, (Usd, Vec<String>)>,
    /// How many tokens the provider held of each conversation after its last call.
    cached: HashMap<SessionId, u64>,
    calls: HashMap<CallId, String>,
    settled: HashMap<CallId, Usd>,
    /// What answers cost, without the tries before them.
    answered: HashMap<CallId, Usd>,
    fell_back: HashMap<CallId, ModelRef>,
}

impl Book {
    async fn add(&mut self, formwork: &Formwork, row: &RunRow) -> Result<(), Error> {
        let store = &*formwork.inner.store;
        let prices = Prices::of(formwork, store, row.run).await;
        let paths = tasks::paths(&store.tasks(row.run).await?);
        let kinds =
            ["session.started", "model.completed", "model.fell_back", "tool.", "budget.settled"];
        let kinds = kinds.map(str::to_owned).to_vec();
        let selection = Selection { run: Some(row.run), task: None, kinds };
        let (mut reading, mut after) = (Reading::default(), Position::default());
        loop {
            let events = store.read(after, &selection, PAGE).await?;
            let Some(last) = events.last() else { break };
            after = last.position;
            for event in events {
                self.take(&mut reading, (&paths, &prices), event.task, event.body);
            }
        }
        let answers: Vec<_> = reading.answers.drain().collect();
        for (_, (cost, called)) in answers {
            self.share_out(cost, &called);
        }
        let Reading { settled, answered, .. } = reading;
        for (call, usd) in settled {
            let lost = usd.saturating_sub(answered.get(&call).copied().unwrap_or(Usd::ZERO));
            self.unanswered = self.unanswered.saturating_add(lost.max(Usd::ZERO));
        }
        self.runs += 1;
        Ok(())
    }

    fn take(
        &mut self,
        reading: &mut Reading,
        (paths, prices): (&HashMap<TaskId, String>, &Prices),
        task: Option<TaskId>,
        body: EventBody,
    ) {
        match body {
            EventBody::SessionStarted(started) => {
                reading.agents.insert(started.session, started.agent);
            }
            EventBody::ModelFellBack(fell) => {
                reading.fell_back.insert(fell.call, fell.to);
            }
            EventBody::BudgetSettled(settled) => {
                reading.settled.insert(settled.call, settled.usd);
            }
            EventBody::ModelCompleted(data) => {
                let path = task.and_then(|task| paths.get(&task)).cloned().unwrap_or_default();
                self.called(reading, prices, path, &data);
            }
            EventBody::ToolRequested(asked) => {
                let line = self.tools.entry(asked.tool.clone()).or_default();
                line.calls += 1;
                line.refused += u64::from(asked.decision != Decided::Allowed);
                if let Some((_, called)) = reading.answers.get_mut(&asked.session) {
                    called.push(asked.tool.clone());
                }
                if asked.decision == Decided::Allowed {
                    reading.calls.insert(asked.call, asked.tool);
                }
            }
            EventBody::ToolCompleted(done) => {
                let name = reading.calls.remove(&done.call);
                if let Some(line) = name.and_then(|name| self.tools.get_mut(&name)) {
                    line.elapsed = line.elapsed.saturating_add(done.elapsed);
                }
            }
            EventBody::ToolFailed(failed) => {
                let name = reading.calls.remove(&failed.call);
                if let Some(line) = name.and_then(|name| self.tools.get_mut(&name)) {
                    line.failed += 1;
                    line.elapsed = line.elapsed.saturating_add(failed.elapsed);
                }
            }
            _ => {}
        }
    }

    fn called(
        &mut self,
        reading: &mut Reading,
        prices: &Prices,
        path: String,
        data: &ModelCompleted,
    ) {
        reading.answered.insert(data.call, data.cost);
        let agent = reading.agents.get(&data.session).map(ToString::to_string).unwrap_or_default();
        let billed = reading.fell_back.remove(&data.call).unwrap_or_else(|| data.model.clone());
        for line in [
            &mut self.total,
            self.tasks.entry(path).or_default(),
            self.agents.entry(agent).or_default(),
            self.models.entry(billed.to_string()).or_default(),
        ] {
            line.calls += 1;
            line.cost = line.cost.saturating_add(data.cost);
            line.usage += data.usage;
        }
        let before = reading.answers.insert(data.session, (data.cost, Vec::new()));
        if let Some((cost, called)) = before {
            self.share_out(cost, &called);
        }
        let price = prices.find(&billed).filter(|price| price.cost(&data.usage) == data.cost);
        self.class(price, data);
        let held = data.usage.cache_read.saturating_add(data.usage.cache_write);
        let before = reading.cached.insert(data.session, held).unwrap_or_default();
        let missed = before.saturating_sub(data.usage.cache_read);
        if missed > 0 {
            self.missed = self.missed.saturating_add(missed);
            let dearer = price.map_or(Usd::ZERO, |price| {
                let cached = price.cache_read.unwrap_or(price.input);
                price.input.saturating_sub(cached).max(Usd::ZERO).per_million(missed)
            });
            self.missed_cost = self.missed_cost.saturating_add(dearer);
        }
    }

    /// Adds a call to the classes of its tokens.
    fn class(&mut self, price: Option<Price>, data: &ModelCompleted) {
        let Usage { input, cache_read, cache_write, output, reasoning } = data.usage;
        let tokens = [input, cache_read, cache_write, output, reasoning];
        for (class, tokens) in self.classes.iter_mut().zip(tokens) {
            class.0 = class.0.saturating_add(tokens);
        }
        let Some(price) = price else {
            self.unclassed = self.unclassed.saturating_add(data.cost);
            return;
        };
        let each = [
            price.input,
            price.cache_read.unwrap_or(price.input),
            price.cache_write.unwrap_or(price.input),
            price.output,
            price.reasoning.unwrap_or(price.output),
        ];
        for ((class, price), tokens) in self.classes.iter_mut().zip(each).zip(tokens) {
            class.1 = class.1.saturating_add(price.per_million(tokens));
        }
    }

    /// Shares what an answer cost out among the tools that it called; the first bear what does not divide.
    fn share_out(&mut self, cost: Usd, called: &[String]) {
        if called.is_empty() {
            let line = self.tools.entry(WORDS.to_owned()).or_default();
            line.calls += 1;
            line.cost = line.cost.saturating_add(cost);
            return;
        }
        let count = i64::try_from(called.len()).unwrap_or(i64::MAX);
        let (share, rest) = (cost.as_nanos() / count, cost.as_nanos() % count);
        for (place, tool) in (0_i64..).zip(called) {
            let line = self.tools.entry(tool.clone()).or_default();
            let own = Usd::from_nanos(share + i64::from(place < rest));
            line.cost = line.cost.saturating_add(own);
        }
    }

    fn report(self) -> Report {
        let lines = |map: BTreeMap<String, Line>| {
            let mut lines: Vec<Line> =
                map.into_iter().map(|(name, line)| Line { name, ..line }).collect();
            lines.sort_by_key(|line| std::cmp::Reverse(line.cost));
            lines
        };
        let mut by_tool: Vec<ToolLine> =
            self.tools.into_iter().map(|(name, line)| ToolLine { name, ..line }).collect();
        by_tool.sort_by_key(|line| std::cmp::Reverse(line.cost));
        let classes = ["input", "cache_read", "cache_write", "output", "reasoning"];
        let by_class = classes
            .into_iter()
            .zip(self.classes)
            .map(|(class, (tokens, cost))| ClassLine { class: class.to_owned(), tokens, cost })
            .collect();
        Report {
            runs: self.runs,
            total: Line { name: "total".to_owned(), ..self.total },
            unanswered: self.unanswered,
            by_task: lines(self.tasks),
            by_agent: lines(self.agents),
            by_model: lines(self.models),
            by_tool,
            by_class,
            unclassed: self.unclassed,
            cache_missed: self.missed,
            cache_missed_cost: self.missed_cost,
        }
    }
}

/// What the models of a run cost, as its config and the catalogue say.
struct Prices(Option<Models>);

impl Prices {
    async fn of(formwork: &Formwork, store: &dyn Store, run: RunId) -> Self {
        // A run whose set-up cannot be read any more is reported all the same, without classes.
        let Ok(setup) = recorded(store, run).await else { return Self(None) };
        let inner = &formwork.inner;
        let seams = (
            std::sync::Arc::new(NoSecrets) as _,
            std::sync::Arc::clone(&inner.rng),
            std::sync::Arc::clone(&inner.clock),
        );
        let base = (inner.base.as_path(), None);
        Self(Models::connect(&setup.config, &Keys::none(), base, &inner.providers, seams).ok())
    }

    fn find(&self, model: &ModelRef) -> Option<Price> {
        self.0.as_ref()?.catalog().info(model).ok()?.price
    }
}
