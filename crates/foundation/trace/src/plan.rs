//! Where appends go: the place of each event in the log, its hash, and the rows that follow from it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, btree_map::Entry},
    sync::Arc,
};

use formwork_protocols::{
    BlobHash, Event, Position, RunId, Span, StoreError, Timestamp,
    event::{GENESIS, Link},
    store::{Lease, Recorded},
};

use crate::{
    changes::{Changes, Fact, count},
    database::{Arg, Connection, Engine},
    pack::Packed,
    prepare::{Draft, Prepared},
    read,
    tables::{BLOBS, EVENTS, HEADS, Rows},
};

/// How many idempotency keys one statement asks for; SQLite joins at most 500 SELECTs.
const KEYS: usize = 32;

/// How many runs are remembered. More are at work at once on no machine that one process fills.
const REMEMBERED: usize = 4096;

/// Who is named as the owner of a run that was given back, or never taken.
pub const NOBODY: &str = "nobody";

/// What an append came to.
pub(crate) type Answer = Result<Vec<Recorded>, StoreError>;

/// The lease of a run, as it is stored.
#[derive(Debug, Clone, Default)]
pub(crate) struct Held {
    pub(crate) owner: Option<Arc<str>>,
    pub(crate) token: u64,
    pub(crate) until: Timestamp,
}

impl Held {
    /// Returns who owns the run now.
    pub(crate) fn owner_at(&self, now: Timestamp) -> Option<&str> {
        self.owner.as_deref().filter(|_| self.until > now)
    }
}

/// Where a run stands, and who owns it.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) seq: u64,
    pub(crate) hash: BlobHash,
    pub(crate) held: Held,
}

impl Default for Head {
    fn default() -> Self {
        Self { seq: 0, hash: GENESIS, held: Held::default() }
    }
}

/// What the writer remembers of the store from its last commit, so that it need not ask again.
#[derive(Default)]
pub(crate) struct Memory {
    /// Which state of the database this is, as its connection counts them; none where nothing is known.
    pub(crate) version: Option<i64>,
    pub(crate) top: u64,
    heads: HashMap<RunId, Head>,
    /// The leases that this process gave last: their tokens, and for how long each was given.
    spans: HashMap<RunId, (u64, Span)>,
    /// Kinds and principals, each kept once.
    words: HashMap<Box<str>, Arc<str>>,
}

impl Memory {
    /// Takes nothing for granted any more.
    pub(crate) fn forget(&mut self) {
        self.version = None;
        self.heads.clear();
    }

    /// Takes over what a plan came to, once it is durable.
    pub(crate) fn learn(&mut self, top: u64, heads: BTreeMap<RunId, Head>) {
        self.top = top;
        if self.heads.len() + heads.len() > REMEMBERED {
            self.heads.clear();
        }
        self.heads.extend(heads);
    }

    /// Takes note of for how long this process gave a lease.
    pub(crate) fn gave(&mut self, lease: &Lease, span: Span) {
        if self.spans.len() >= REMEMBERED {
            self.spans.clear();
        }
        self.spans.insert(lease.run, (lease.token, span));
    }

    /// Returns for how long this process gave the lease of that token, if it did.
    pub(crate) fn span_of(&self, run: RunId, token: u64) -> Option<Span> {
        self.spans.get(&run).filter(|(given, _)| *given == token).map(|(_, span)| *span)
    }

    /// Takes note of a lease that this process gave or took.
    pub(crate) fn hold(&mut self, run: RunId, held: Option<Held>) {
        match (self.heads.get_mut(&run), held) {
            (Some(head), Some(held)) => head.held = held,
            (Some(_), None) => drop(self.heads.remove(&run)),
            (None, _) => {}
        }
    }

    /// Begins a plan from what is remembered; none where a run is not.
    pub(crate) fn plan(&self, appends: &[Prepared], now: Timestamp) -> Option<Plan> {
        self.version?;
        let mut heads = BTreeMap::new();
        for append in appends {
            if let Entry::Vacant(unknown) = heads.entry(append.run) {
                unknown.insert(self.heads.get(&append.run)?.clone());
            }
        }
        Some(Plan { now, top: self.top, heads, ..Plan::default() })
    }

    fn word(&mut self, text: &str) -> Arc<str> {
        if let Some(word) = self.words.get(text) {
            return Arc::clone(word);
        }
        if self.words.len() >= REMEMBERED {
            self.words.clear();
        }
        let word: Arc<str> = Arc::from(text);
        self.words.insert(text.into(), Arc::clone(&word));
        word
    }
}

/// Where the appends of one transaction go.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) now: Timestamp,
    pub(crate) top: u64,
    pub(crate) heads: BTreeMap<RunId, Head>,
    /// What was recorded under a key, in the store or in this batch.
    known: HashMap<(RunId, Arc<str>), Recorded>,
    events: Vec<Arg>,
    blobs: Vec<Arg>,
    blob_hashes: BTreeSet<BlobHash>,
    moved: BTreeSet<RunId>,
    /// The runs whose owners write on although their leases have lapsed.
    late: BTreeSet<RunId>,
    changes: Changes,
}

/// The time of a PostgreSQL, in microseconds.
macro_rules! server_time {
    () => {
        "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT"
    };
}
pub(crate) use server_time;

/// Writes the statement that reads the heads of `runs` runs; beside each the last position, and on
/// SQLite the state that the database is in, on PostgreSQL the server's time.
pub(crate) fn heads_of(engine: Engine, runs: usize) -> String {
    let (version, places): (_, Vec<_>) = match engine {
        Engine::Sqlite => {
            ("(SELECT data_version FROM pragma_data_version)", vec!["?".to_owned(); runs])
        }
        Engine::Postgres => (server_time!(), (1..=runs).map(|n| format!("${n}")).collect()),
    };
    format!(
        "SELECT p.top, h.run, h.seq, h.hash, h.owner, h.token, h.held_until, {version} \
         FROM (SELECT COALESCE(MAX(position), 0) AS top FROM events) p \
         LEFT JOIN heads h ON h.run IN ({})",
        places.join(", ")
    )
}

/// Writes the statement that looks up `keys` idempotency keys.
pub(crate) fn known_of(engine: Engine, keys: usize) -> String {
    let place = |n: usize| match engine {
        Engine::Sqlite => "?".to_owned(),
        Engine::Postgres => format!("${n}"),
    };
    let selects: Vec<_> = (0..keys)
        .map(|n| {
            format!(
                "SELECT run, idempotency_key, position, seq, hash FROM events \
                 WHERE run = {} AND idempotency_key = {}",
                place(2 * n + 1),
                place(2 * n + 2)
            )
        })
        .collect();
    selects.join(" UNION ALL ")
}

/// Why the heads could not be read.
pub(crate) enum Unread {
    Database(sqlx::Error),
    /// In words, what cannot be what was written.
    Damaged(String),
}

impl From<sqlx::Error> for Unread {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl Plan {
    /// Begins a plan with what the database says, and tells the state that the database is in. Where no time is given, it is the
    /// server's.
    pub(crate) async fn load(
        connection: &mut Connection,
        appends: &[Prepared],
        now: Option<Timestamp>,
    ) -> Result<(Self, i64), Unread> {
        let engine = connection.engine();
        let mut plan = Self { now: now.unwrap_or_default(), ..Self::default() };
        let mut version = 0;
        let runs: BTreeSet<RunId> = appends.iter().map(|append| append.run).collect();
        let mut ids: Vec<Arg> = runs.iter().map(|run| run.as_uuid().into()).collect();
        pad(&mut ids, 1);
        for row in connection.fetch(heads_of(engine, ids.len()), ids).await? {
            plan.top = read::unsigned(row.int(0)?).unwrap_or(0);
            match (engine, now) {
                (Engine::Sqlite, _) => version = row.int(7)?,
                (Engine::Postgres, None) => plan.now = Timestamp::from_micros(row.int(7)?),
                (Engine::Postgres, Some(_)) => {}
            }
            let Some(run) = row.maybe_id(1)? else { continue };
            let hash = read::hash(&row.bytes(3)?).ok_or_else(|| {
                Unread::Damaged(format!("the head of run {run} has no whole hash"))
            })?;
            let held = Held {
                owner: row.maybe_text(4)?.map(Arc::from),
                token: read::unsigned(row.int(5)?).unwrap_or(0),
                until: Timestamp::from_micros(row.int(6)?),
            };
            let seq = read::unsigned(row.int(2)?).unwrap_or(0);
            plan.heads.insert(RunId::from_uuid(run), Head { seq, hash, held });
        }
        for run in runs {
            plan.heads.entry(run).or_default();
        }
        let keys: BTreeSet<(RunId, &Arc<str>)> = appends
            .iter()
            .flat_map(|append| append.events.iter().map(|event| (append.run, &event.key)))
            .filter_map(|(run, key)| key.as_ref().map(|key| (run, key)))
            .collect();
        let keys: Vec<_> = keys.into_iter().collect();
        for keys in keys.chunks(KEYS) {
            let mut args = Vec::new();
            for (run, key) in keys {
                args.extend([run.as_uuid().into(), Arc::clone(key).into()]);
            }
            pad(&mut args, 2);
            for row in connection.fetch(known_of(engine, args.len() / 2), args).await? {
                let recorded = Recorded {
                    position: Position(read::unsigned(row.int(2)?).unwrap_or(0)),
                    seq: read::unsigned(row.int(3)?).unwrap_or(0),
                    hash: read::hash(&row.bytes(4)?).unwrap_or(GENESIS),
                    duplicate: true,
                };
                let key = (RunId::from_uuid(row.id(0)?), Arc::from(row.text(1)?));
                plan.known.insert(key, recorded);
            }
        }
        Ok((plan, version))
    }

    /// Gives an append its place, or refuses the whole of it.
    ///
    /// # Errors
    /// [`StoreError::NotOwner`] where the append is not the owner's; in words, why a view cannot hold it.
    pub(crate) fn place(
        &mut self,
        append: &Prepared,
        memory: &mut Memory,
    ) -> Result<Answer, serde_json::Error> {
        let head = self.heads.entry(append.run).or_default();
        if let Err(refused) = may_write(append, &head.held, self.now) {
            return Ok(Err(refused));
        }
        if append.token.is_some() && head.held.until <= self.now {
            self.late.insert(append.run);
        }
        for blob in &append.blobs {
            self.blob(blob);
        }
        let head = self.heads.entry(append.run).or_default();
        let mut recorded = Vec::with_capacity(append.events.len());
        for draft in &append.events {
            if let Some(key) = &draft.key
                && let Some(first) = self.known.get(&(append.run, Arc::clone(key)))
            {
                recorded.push(*first);
                continue;
            }
            head.seq += 1;
            self.top += 1;
            head.hash = link(append.run, head.seq, draft).hash(&head.hash);
            let place = Recorded {
                position: Position(self.top),
                seq: head.seq,
                hash: head.hash,
                duplicate: false,
            };
            self.events.extend(row_of(append.run, &place, draft, memory));
            self.changes.take_fact(&Fact {
                position: place.position,
                run: append.run,
                task: draft.task,
                at: draft.at,
                body: &draft.body,
            })?;
            if let Some(key) = &draft.key {
                let again = Recorded { duplicate: true, ..place };
                self.known.insert((append.run, Arc::clone(key)), again);
            }
            self.moved.insert(append.run);
            recorded.push(place);
        }
        Ok(Ok(recorded))
    }

    /// Tells whether somebody writes on whose lease has lapsed.
    pub(crate) fn is_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// Gives those who write on their leases anew, from now, and returns them. A lease that another process gave is left as
    /// it is: nobody here knows for how long that is meant.
    pub(crate) fn renew_late(&mut self, memory: &Memory) -> Vec<Lease> {
        let mut renewed = Vec::new();
        for run in std::mem::take(&mut self.late) {
            let Some(Head { held, .. }) = self.heads.get_mut(&run) else { continue };
            let (Some(owner), Some(span)) = (&held.owner, memory.span_of(run, held.token)) else {
                continue;
            };
            held.until = self.now.after(span);
            let (owner, token, until) = ((**owner).to_owned(), held.token, held.until);
            renewed.push(Lease { run, owner, token, until });
        }
        renewed
    }

    /// Tells whether each run gets at least one event.
    pub(crate) fn all_move(&self) -> bool {
        !self.moved.is_empty() && self.heads.keys().all(|run| self.moved.contains(run))
    }

    /// Returns a run that gets events, and where it stands after them.
    pub(crate) fn last_moved(&self) -> Option<(RunId, &Head)> {
        let run = self.moved.last()?;
        Some((*run, self.heads.get(run)?))
    }

    /// Lists who owns the runs that get events, in the order of their heads' rows: owner, token, until when.
    pub(crate) fn held(&self) -> Vec<[Arg; 3]> {
        let heads = self.heads.iter().filter(|(run, _)| self.moved.contains(run));
        heads
            .map(|(_, head)| {
                let held = &head.held;
                let until = held.until.as_micros();
                [held.owner.clone().into(), count(held.token).into(), until.into()]
            })
            .collect()
    }

    fn blob(&mut self, blob: &Packed) {
        if self.blob_hashes.insert(blob.hash) {
            self.blobs.extend(blob.row());
        }
    }

    /// Returns the rows of all tables, the log's first.
    pub(crate) fn rows(&mut self) -> Vec<Rows> {
        let mut heads = Vec::with_capacity(3 * self.moved.len());
        for (run, head) in self.heads.iter().filter(|(run, _)| self.moved.contains(run)) {
            heads.extend([
                run.as_uuid().into(),
                count(head.seq).into(),
                head.hash.as_bytes().to_vec().into(),
            ]);
        }
        let mut all = vec![
            Rows { table: &BLOBS, args: std::mem::take(&mut self.blobs) },
            Rows { table: &EVENTS, args: std::mem::take(&mut self.events) },
            Rows { table: &HEADS, args: heads },
        ];
        all.extend(std::mem::take(&mut self.changes).rows());
        all.retain(|rows| !rows.args.is_empty());
        all
    }
}

/// Checks the token of an append against the run's present lease. What somebody asks of a run needs none.
///
/// The token is the fence, and the time of a lease only says from when on another may take the run: until one does, whoever
/// was held up for longer, on a machine that slept or whose clock was set, has missed nothing and writes on.
fn may_write(append: &Prepared, held: &Held, now: Timestamp) -> Result<(), StoreError> {
    let asks =
        || !append.events.is_empty() && append.events.iter().all(|event| !event.body.needs_lease());
    let allowed = match append.token {
        Some(token) => held.owner.is_some() && token == held.token,
        None => held.owner_at(now).is_none() || asks(),
    };
    if allowed {
        return Ok(());
    }
    let owner = held.owner.as_deref().unwrap_or(NOBODY).to_owned();
    Err(StoreError::NotOwner { run: append.run, owner })
}

/// Repeats the last `width` arguments until their groups are a power of two, so that few
/// statements serve every number of them.
fn pad(args: &mut Vec<Arg>, width: usize) {
    let wanted = (args.len() / width).next_power_of_two() * width;
    while args.len() < wanted {
        let Some(from) = args.len().checked_sub(width) else { return };
        args.extend_from_within(from..);
    }
}

fn link(run: RunId, seq: u64, draft: &Draft) -> Link<'_> {
    Link {
        run,
        seq,
        task: draft.task,
        principal: draft.principal.as_str(),
        at: draft.at,
        kind: draft.body.kind(),
        data: &draft.data,
        idempotency_key: draft.key.as_deref(),
    }
}

fn row_of(run: RunId, place: &Recorded, draft: &Draft, memory: &mut Memory) -> [Arg; 10] {
    [
        count(place.position.0).into(),
        run.as_uuid().into(),
        count(place.seq).into(),
        draft.task.map(|task| task.as_uuid()).into(),
        memory.word(draft.principal.as_str()).into(),
        draft.at.as_micros().into(),
        memory.word(draft.body.kind()).into(),
        Arc::clone(&draft.data).into(),
        draft.key.clone().into(),
        place.hash.as_bytes().to_vec().into(),
    ]
}

/// Returns the events that appends became, in the order of their positions.
pub(crate) fn events(appends: Vec<Prepared>, answers: &[Answer]) -> Vec<Event> {
    let mut events = Vec::new();
    for (append, answer) in appends.into_iter().zip(answers) {
        let Ok(recorded) = answer else { continue };
        for (draft, place) in append.events.into_iter().zip(recorded) {
            if !place.duplicate {
                events.push(Event {
                    position: place.position,
                    run: append.run,
                    seq: place.seq,
                    task: draft.task,
                    principal: draft.principal,
                    at: draft.at,
                    body: draft.body,
                    idempotency_key: draft.key.map(|key| (*key).to_owned()),
                    hash: place.hash,
                });
            }
        }
    }
    events
}
