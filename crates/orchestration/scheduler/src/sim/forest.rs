//! Trees by chance, and how kind the world is to each.

use std::num::{NonZeroU32, NonZeroUsize};

use formwork_protocols::{
    Body, Budget, Span, TaskName, TaskSpec, Usd,
    budget::TreeCaps,
    check::{CheckKind, CheckSpec, DiffCheck, OutputCheck},
    spec::{ForEach, OnFailure, Retries, WaitFor},
};

use super::chance::Chance;

/// The children of a wide tree: more than a width, and as many as one budget has to bear at once.
const WIDE: u32 = 64;

/// How often things go wrong, in thousandths; the first three of steps, the others of cases.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mood {
    pub(super) crash: u32,
    pub(super) pause: u32,
    pub(super) cancel: u32,
    pub(super) body_fails: u32,
    pub(super) check_fails: u32,
    pub(super) opens_parts: u32,
    pub(super) makes: u32,
    /// How many crashes, pauses and cancels there are at most, so that the rest can come to an end.
    pub(super) whims: u32,
}

impl Mood {
    pub(super) fn by(chance: &Chance) -> Self {
        Self {
            crash: chance.one_of([0, 2, 10, 40]),
            pause: chance.one_of([0, 0, 2, 10]),
            cancel: chance.one_of([0, 0, 2, 10]),
            body_fails: chance.one_of([0, 0, 20, 200]),
            check_fails: chance.one_of([0, 20, 100, 300]),
            opens_parts: chance.one_of([0, 0, 100, 300]),
            makes: chance.one_of([0, 0, 100, 300]),
            whims: chance.below(30),
        }
    }
}

pub(super) fn width(chance: &Chance) -> NonZeroUsize {
    let width = chance.one_of([1, 2, 3, 4, 8, 64]);
    NonZeroUsize::new(width).unwrap_or(NonZeroUsize::MIN)
}

/// Grows a tree.
pub(super) fn tree(chance: &Chance) -> TaskSpec {
    let mut root = match chance.below(8) {
        0 => wide(chance),
        1 => {
            let length = 2 + chance.below(30);
            let mut links: Vec<TaskSpec> =
                (0..length).map(|place| task(chance, place, leaf())).collect();
            for (place, link) in (1..).zip(links.iter_mut().skip(1)) {
                link.depends_on = vec![name(place - 1)];
            }
            task(chance, 0, parent(chance, links))
        }
        _ => nested(chance, 0, 4),
    };
    if chance.happens(500) {
        root.budget.usd = Some(dollars(chance, 10_000));
    }
    root
}

/// Grows a tree of many children beside each other, all within one budget.
pub(super) fn wide(chance: &Chance) -> TaskSpec {
    let leaves = (0..WIDE).map(|place| task(chance, place, leaf())).collect();
    let mut root = task(chance, 0, parent(chance, leaves));
    root.budget.usd = Some(dollars(chance, 10_000));
    root
}

fn nested(chance: &Chance, place: u32, levels: u32) -> TaskSpec {
    if levels == 0 || (levels < 4 && chance.happens(600)) {
        let body = leaf_or_wait(chance);
        return task(chance, place, body);
    }
    let count = chance.below(7);
    let mut tasks: Vec<TaskSpec> =
        (0..count).map(|place| nested(chance, place, levels - 1)).collect();
    // A dependency may stand before or behind what depends on it.
    let is_backwards = chance.happens(300);
    for (own, task) in (0..count).zip(&mut tasks) {
        let others = if is_backwards { own + 1..count } else { 0..own };
        task.depends_on = others.filter(|_| chance.happens(250)).map(name).collect();
    }
    if chance.happens(200)
        && let Some(one) = tasks.pop()
    {
        return task(chance, place, each(chance, one));
    }
    task(chance, place, parent(chance, tasks))
}

fn each(chance: &Chance, one: TaskSpec) -> Body {
    let one = TaskSpec { depends_on: Vec::new(), ..one };
    Body::ForEach(Box::new(ForEach {
        items: "by chance".to_owned(),
        task: one,
        max_concurrency: NonZeroU32::new(chance.below(4)),
        on_failure: policy(chance),
    }))
}

fn policy(chance: &Chance) -> OnFailure {
    chance.one_of([
        OnFailure::ContinueIndependent,
        OnFailure::Halt,
        OnFailure::AbortAll,
        OnFailure::Ignore,
    ])
}

fn task(chance: &Chance, place: u32, body: Body) -> TaskSpec {
    let checks =
        |what: &str, count: u32| (0..count).map(|n| check(&format!("{what}{n}"))).collect();
    TaskSpec {
        when: chance.happens(100).then(|| "by chance".to_owned()),
        prechecks: checks("in", chance.one_of([0, 0, 0, 1, 2])),
        postchecks: (0..chance.one_of([0, 0, 1, 2])).map(|n| exit_check(chance, n)).collect(),
        on_success: checks("done", chance.one_of([0, 0, 0, 0, 1])),
        before_retry: checks("again", chance.one_of([0, 0, 0, 1, 2])),
        retries: Retries {
            max: chance.below(4),
            outage: chance.happens(300).then(|| Span::from_secs(u64::from(chance.below(20)))),
            ..Retries::default()
        },
        timeout: chance.happens(60).then(|| span(chance)),
        budget: budget(chance),
        write_paths: chance.happens(150).then(|| vec![glob(chance)]),
        ..TaskSpec::new(name(place), body)
    }
}

fn leaf_or_wait(chance: &Chance) -> Body {
    if chance.happens(60) {
        let event = "simulated".parse().expect("letters are a name");
        return Body::WaitFor(WaitFor { event, filter: None, timeout: None });
    }
    leaf()
}

fn leaf() -> Body {
    Body::Native { function: "simulated".to_owned() }
}

fn parent(chance: &Chance, tasks: Vec<TaskSpec>) -> Body {
    Body::Subtasks { tasks, on_failure: policy(chance) }
}

fn budget(chance: &Chance) -> Budget {
    Budget {
        usd: chance.happens(100).then(|| dollars(chance, 2_000)),
        tokens: chance.happens(50).then(|| u64::from(chance.below(10_000))),
        rounds: chance.happens(50).then(|| chance.below(30)),
        tool_calls: chance.happens(50).then(|| chance.below(15)),
        wall: chance.happens(20).then(|| span(chance)),
        tree: chance.happens(100).then(|| TreeCaps {
            depth: chance.below(4),
            fan_out: chance.below(5),
            tasks: chance.below(12),
        }),
        ..Budget::default()
    }
}

fn glob(chance: &Chance) -> String {
    let globs = ["src/**", "src/core/**", "src/a.rs", "docs/**", "docs/*.md", "**"];
    globs.get(chance.place(globs.len())).copied().unwrap_or("**").to_owned()
}

fn dollars(chance: &Chance, end: u32) -> Usd {
    Usd::from_nanos(i64::from(chance.below(end)))
}

fn span(chance: &Chance) -> Span {
    Span::from_millis(u64::from(1 + chance.below(60_000)))
}

fn check(name: &str) -> CheckSpec {
    CheckSpec::new(name.to_owned(), CheckKind::Diff(DiffCheck::default()), Span::from_secs(1))
}

fn exit_check(chance: &Chance, number: u32) -> CheckSpec {
    let check = check(&format!("out{number}"));
    if chance.happens(300) {
        let kind = CheckKind::Output(OutputCheck { schema: serde_json::Value::Bool(true) });
        return CheckSpec { kind, ..check };
    }
    check
}

/// Returns the name of the task at that place among its siblings.
pub(super) fn name(place: u32) -> TaskName {
    TaskName::parse(format!("t{place}")).expect("a letter and digits are a name")
}

/// Returns what is asked of a part of a conversation.
pub(super) fn part(place: u32) -> TaskSpec {
    let name = TaskName::parse(format!("part{place}")).expect("letters and digits are a name");
    TaskSpec::new(name, Body::Inline { goal: String::new() })
}

/// Returns a task that a body makes, which may wait for others that it has made, and may be a tree of its own.
pub(super) fn made(chance: &Chance) -> TaskSpec {
    let named = |place: u32| {
        TaskName::parse(format!("made{place}")).expect("a letter and digits are a name")
    };
    let place = chance.below(6);
    let depends_on = (0..place).filter(|_| chance.happens(150)).map(named).collect();
    let body = match chance.happens(200) {
        true => {
            let below = 0..=chance.below(3);
            let tasks = below.map(|place| {
                let before = (0..place).filter(|_| chance.happens(300)).map(named).collect();
                let body = leaf();
                let own = task(chance, place, body);
                TaskSpec { name: named(place), depends_on: before, when: None, ..own }
            });
            Body::Subtasks { tasks: tasks.collect(), on_failure: OnFailure::ContinueIndependent }
        }
        false => leaf(),
    };
    TaskSpec { name: named(place), depends_on, when: None, ..task(chance, place, body) }
}
