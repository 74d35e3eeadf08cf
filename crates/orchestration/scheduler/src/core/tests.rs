//! Whole trees against whole series of inputs.

use std::{
    collections::{HashMap, VecDeque},
    num::NonZeroUsize,
    sync::Arc,
};

use formwork_protocols::{
    Body, Cancellation, Ending, Escalation, Rng as _, SeededRng, ServiceName, Span, SystemClock,
    TaskId, TaskName, TaskSpec, TaskState,
    budget::TreeCaps,
    check::{CheckKind, CheckSpec, DiffCheck, OutputCheck, Phase},
    spec::{ForEach, OnFailure, Retries, ServiceSpec, WaitFor},
};
use proptest::prelude::*;

use super::*;

mod claims; // Tasks that write the same.
mod failures; // What kind a failure is.
mod made; // Tasks that bodies make.

fn name(text: &str) -> TaskName {
    TaskName::parse(text).unwrap()
}

fn leaf(text: &str) -> TaskSpec {
    TaskSpec::new(name(text), Body::Native { function: text.to_owned() })
}

fn after(text: &str, before: &[&str]) -> TaskSpec {
    TaskSpec { depends_on: before.iter().copied().map(name).collect(), ..leaf(text) }
}

fn parent(text: &str, on_failure: OnFailure, tasks: Vec<TaskSpec>) -> TaskSpec {
    TaskSpec { body: Body::Subtasks { tasks, on_failure }, ..leaf(text) }
}

fn check(text: &str) -> CheckSpec {
    CheckSpec::new(text.to_owned(), CheckKind::Diff(DiffCheck::default()), Span::from_secs(1))
}

fn build(spec: TaskSpec, width: usize) -> Result<State, BuildError> {
    let rng = SeededRng::new(7);
    let mut builder = Builder::new(NonZeroUsize::new(width).unwrap());
    for planted in flatten(spec, || TaskId::generate(&SystemClock, &rng)) {
        builder.add(planted.id, planted.parent, planted.spec)?;
    }
    builder.build()
}

#[test]
fn services_are_the_roots_alone_wherever_a_task_is_written_down() {
    let with = |task: TaskSpec| {
        let service = ServiceSpec {
            name: ServiceName::parse("db").unwrap(),
            argv: vec!["serve".to_owned()],
            ready: None,
            restarts: 0,
        };
        TaskSpec { services: vec![service], ..task }
    };
    let policy = OnFailure::Halt;
    let items =
        |task| ForEach { items: "[1]".to_owned(), task, max_concurrency: None, on_failure: policy };
    let of_items = |task| TaskSpec { body: Body::ForEach(Box::new(items(task))), ..leaf("each") };

    let at_the_root = build(with(parent("w", policy, vec![leaf("a")])), 1);
    let below = build(parent("w", policy, vec![leaf("a"), with(leaf("b"))]), 1);
    let of_an_item =
        build(parent("w", policy, vec![of_items(parent("i", policy, vec![with(leaf("c"))]))]), 1);

    assert!(at_the_root.is_ok(), "{at_the_root:?}");
    assert_eq!(below.unwrap_err(), BuildError::Services { task: name("b") });
    assert_eq!(of_an_item.unwrap_err(), BuildError::Services { task: name("c") });
}

/// A tree that is driven by hand, with the record of all its moves.
struct Tree {
    state: State,
    /// `name: state` for each move.
    moves: Vec<String>,
    /// Work that was asked for and has not ended, by name.
    under_way: Vec<(String, Command)>,
    finished: bool,
    paused: bool,
}

impl Tree {
    fn begin(spec: TaskSpec, width: usize) -> Self {
        let mut tree = Self {
            state: build(spec, width).unwrap(),
            moves: Vec::new(),
            under_way: Vec::new(),
            finished: false,
            paused: false,
        };
        tree.input(Input::Start).unwrap();
        tree
    }

    fn input(&mut self, input: Input) -> Result<(), Refusal> {
        let mut out = Vec::new();
        decide(&mut self.state, input, &mut out)?;
        let mut interrupts = VecDeque::new();
        for command in out {
            match &command {
                Command::Move { task, to, .. } => {
                    self.moves.push(format!("{}: {to}", self.state.spec(*task).name));
                }
                Command::Attempt { task, .. }
                | Command::Check { task, .. }
                | Command::Judge { task }
                | Command::Rejoin { task }
                | Command::Rest { task, .. }
                | Command::Oversee { task, .. }
                | Command::Wait { task }
                | Command::Expand { task } => {
                    let name = self.state.spec(*task).name.to_string();
                    self.under_way.push((name, command));
                }
                Command::Interrupt { task } => interrupts.push_back(*task),
                Command::Finish => self.finished = true,
                Command::Paused => self.paused = true,
                Command::Blocked { task, by, path } => {
                    let name = |task: &TaskIndex| self.state.spec(*task).name.clone();
                    self.moves.push(format!(
                        "{} waits for {} to release {path}",
                        name(task),
                        name(by)
                    ));
                }
                Command::Create { .. } | Command::Timer { .. } => {}
            }
        }
        for task in interrupts {
            let name = self.state.spec(task).name.to_string();
            self.take(&name);
            self.input(Input::Interrupted { task })?;
        }
        Ok(())
    }

    fn take(&mut self, name: &str) -> Command {
        let place = self.under_way.iter().position(|(working, _)| working == name);
        self.under_way.remove(place.unwrap_or_else(|| panic!("{name} is not at work"))).1
    }

    fn named(&self, name: &str) -> TaskIndex {
        self.state.tasks().find(|task| self.state.spec(*task).name.as_str() == name).unwrap()
    }

    fn working(&self) -> Vec<&str> {
        self.under_way.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Lets an attempt claim, or checks pass.
    fn pass(&mut self, name: &str) {
        match self.take(name) {
            Command::Attempt { task, .. } => {
                self.input(Input::Ended { task, end: BodyEnd::Claimed }).unwrap();
            }
            Command::Check { task, phase } => {
                self.input(Input::Checked { task, phase, failed: None }).unwrap();
            }
            Command::Judge { task } => {
                self.input(Input::Judged { task, holds: Ok(true) }).unwrap();
            }
            Command::Wait { task } => {
                self.input(Input::Woken { task, end: BodyEnd::Claimed }).unwrap();
            }
            other => panic!("{other:?} is no work"),
        }
    }

    /// Lets an attempt fail, or the first check.
    fn fail(&mut self, name: &str) {
        match self.take(name) {
            Command::Attempt { task, .. } => {
                let why = Escalation::BodyFailed { detail: "exit code 1".to_owned() };
                self.input(Input::Ended { task, end: BodyEnd::Failed(why) }).unwrap();
            }
            Command::Check { task, phase } => {
                self.input(Input::Checked { task, phase, failed: Some(0) }).unwrap();
            }
            Command::Judge { task } => {
                self.input(Input::Judged { task, holds: Ok(false) }).unwrap();
            }
            other => panic!("{other:?} is no work"),
        }
    }

    fn ending(&self, name: &str) -> String {
        self.state.ending(self.named(name)).map_or_else(String::new, |ending| ending.to_string())
    }
}

#[test]
fn depends_on_orders_tasks_and_independent_ones_run_side_by_side() {
    let tasks = vec![leaf("a"), leaf("b"), after("c", &["a", "b"]), after("d", &["c"])];
    let mut tree = Tree::begin(parent("root", OnFailure::default(), tasks), 8);

    assert_eq!(tree.working(), ["a", "b"]);
    tree.pass("b");
    assert_eq!(tree.working(), ["a"]);
    tree.pass("a");
    assert_eq!(tree.working(), ["c"]);
    tree.pass("c");
    tree.pass("d");

    assert!(tree.finished);
    assert_eq!(tree.ending("root"), "completed");
    assert_eq!(
        tree.moves.iter().filter(|line| line.starts_with("a")).collect::<Vec<_>>(),
        ["a: prechecking", "a: active", "a: postchecking", "a: completed"]
    );
}

#[test]
fn no_more_leaves_are_at_work_than_the_width_allows() {
    let tasks = (0..5).map(|number| leaf(&format!("t{number}"))).collect();
    let mut tree = Tree::begin(parent("root", OnFailure::default(), tasks), 2);

    assert_eq!(tree.working(), ["t0", "t1"]);
    tree.pass("t1");
    assert_eq!(tree.working(), ["t0", "t2"]);
}

#[test]
fn behaviour_2_a_failed_entry_check_prevents_entry() {
    let guarded = TaskSpec { prechecks: vec![check("clean")], ..leaf("guarded") };
    let mut tree = Tree::begin(guarded, 1);

    tree.fail("guarded");

    assert!(tree.finished && tree.under_way.is_empty());
    assert_eq!(tree.moves, ["guarded: prechecking", "guarded: precheck_failed"]);
    assert_eq!(tree.ending("guarded"), "entry check \"clean\" failed");
}

#[test]
fn a_failed_exit_check_keeps_the_task_open_until_its_attempts_are_used_up() {
    let retries = Retries { max: 1, ..Retries::default() };
    let checked = TaskSpec { postchecks: vec![check("tests")], retries, ..leaf("fix") };
    let mut tree = Tree::begin(checked, 1);

    tree.pass("fix");
    tree.fail("fix");
    assert_eq!(
        tree.under_way[0].1,
        Command::Attempt { task: tree.named("fix"), number: 2, continues: false }
    );
    tree.pass("fix");
    tree.fail("fix");

    assert!(tree.finished);
    assert_eq!(tree.ending("fix"), "check \"tests\" failed in the last of 2 attempts");
    assert_eq!(
        tree.moves[2..],
        [
            "fix: postchecking",
            "fix: postcheck_failed",
            "fix: active",
            "fix: postchecking",
            "fix: postcheck_failed",
            "fix: escalated"
        ]
    );
}

#[test]
fn a_failed_body_is_an_attempt_and_other_reasons_end_the_task_at_once() {
    let retries = Retries { max: 2, ..Retries::default() };
    let mut tree = Tree::begin(TaskSpec { retries, ..leaf("run") }, 1);

    tree.fail("run");
    tree.fail("run");
    let Command::Attempt { task, number: 3, .. } = tree.take("run") else { panic!("no third") };
    let why = Escalation::ProviderFailed { detail: "status 401".to_owned() };
    tree.input(Input::Ended { task, end: BodyEnd::Failed(why) }).unwrap();

    assert_eq!(tree.ending("run"), "model call failed: status 401");
}

#[test]
fn a_failed_child_cancels_its_dependents_and_escalates_its_parent_at_the_end() {
    let tasks = vec![leaf("a"), after("b", &["a"]), after("c", &["b"]), leaf("d")];
    let mut tree = Tree::begin(parent("root", OnFailure::ContinueIndependent, tasks), 8);

    tree.fail("a");
    assert_eq!(tree.working(), ["d"]);
    assert_eq!(tree.ending("b"), "task a did not complete");
    assert_eq!(tree.ending("c"), "task b did not complete");
    assert_eq!(tree.ending("root"), "");
    tree.pass("d");

    assert!(tree.finished);
    assert_eq!(tree.ending("root"), "task a failed");
}

#[test]
fn halt_lets_what_runs_end_and_begins_nothing_more() {
    let tasks = vec![leaf("a"), leaf("b"), leaf("c"), after("d", &["b"])];
    let mut tree = Tree::begin(parent("root", OnFailure::Halt, tasks), 2);

    tree.fail("a");
    assert_eq!(tree.working(), ["b"]);
    tree.pass("b");

    assert!(tree.finished);
    assert_eq!(tree.ending("b"), "completed");
    assert_eq!(tree.ending("c"), "its parent ended");
    assert_eq!(tree.ending("d"), "its parent ended");
    assert_eq!(tree.ending("root"), "task a failed");
}

#[test]
fn abort_all_cancels_what_runs_with_everything_below_it() {
    let group = parent("group", OnFailure::default(), vec![leaf("x"), leaf("y")]);
    let mut tree =
        Tree::begin(parent("root", OnFailure::AbortAll, vec![leaf("a"), group, leaf("z")]), 3);

    assert_eq!(tree.working(), ["a", "z", "x"]);
    tree.fail("a");

    assert!(tree.finished && tree.under_way.is_empty());
    for task in ["x", "y", "z", "group"] {
        assert_eq!(tree.ending(task), "its parent ended", "{task}");
    }
    let place = |line: &str| tree.moves.iter().position(|moved| moved == line).unwrap();
    assert!(place("x: cancelled") < place("group: cancelled"));
    assert!(place("group: cancelled") < place("root: escalated"));
}

#[test]
fn a_parent_is_checked_itself_once_its_children_are_done() {
    let mut spec = parent("root", OnFailure::default(), vec![leaf("a")]);
    spec.postchecks = vec![check("whole")];
    spec.retries.max = 3;
    let mut tree = Tree::begin(spec, 1);

    tree.pass("a");
    assert_eq!(tree.working(), ["root"]);
    tree.fail("root");

    assert!(tree.finished);
    assert_eq!(tree.ending("root"), "check \"whole\" failed in the only attempt");
}

#[test]
fn a_task_whose_time_is_over_escalates_when_all_below_it_has_ended() {
    let mut group = parent("group", OnFailure::default(), vec![leaf("x"), after("y", &["x"])]);
    group.timeout = Some(Span::from_secs(5));
    let mut tree = Tree::begin(parent("root", OnFailure::default(), vec![group]), 4);

    let (task, why) = (tree.named("group"), Escalation::TimedOut { after: Span::from_secs(5) });
    tree.input(Input::TimedOut { task, why }).unwrap();

    assert!(tree.finished);
    assert_eq!(tree.ending("x"), "its parent ended");
    assert_eq!(tree.ending("group"), "timed out after 5s");
    assert_eq!(tree.ending("root"), "task group failed");
}

#[test]
fn a_part_of_a_conversation_is_a_task_that_its_opener_waits_for() {
    let mut tree = Tree::begin(leaf("agent"), 1);
    let rng = SeededRng::new(3);
    let inline = |text: &str| {
        let body = Body::Inline { goal: "look around".to_owned() };
        Arc::new(TaskSpec { body, ..leaf(text) })
    };
    let open = |tree: &mut Tree, parent, text: &str| {
        let id = TaskId::generate(&SystemClock, &rng);
        tree.input(Input::Open { parent, id, spec: inline(text) })
    };

    let agent = tree.named("agent");
    open(&mut tree, agent, "look").unwrap();
    let look = tree.named("look");
    open(&mut tree, look, "deeper").unwrap();
    let taken = open(&mut tree, agent, "look").unwrap_err();
    let open_children = tree.input(Input::Close { task: look }).unwrap_err();
    let not_inline = tree.input(Input::Close { task: agent }).unwrap_err();
    assert_eq!(taken.to_string(), "task agent has an open task look already");
    assert_eq!(open_children.to_string(), "task look has open tasks: deeper");
    assert_eq!(
        not_inline.to_string(),
        "task agent was not opened by start_task, and ends by its own checks"
    );

    let deeper = tree.named("deeper");
    tree.input(Input::Close { task: deeper }).unwrap();
    tree.pass("agent");
    assert_eq!(tree.ending("agent"), "it ended while its tasks were open: look");
    assert_eq!(tree.ending("look"), "its parent ended");
    assert_eq!(tree.ending("deeper"), "completed");
    assert!(tree.finished);
}

#[test]
fn a_tree_grows_no_further_than_its_caps() {
    let mut spec = leaf("agent");
    spec.budget.tree = Some(TreeCaps { depth: 2, fan_out: 2, tasks: 4 });
    let mut tree = Tree::begin(spec, 1);
    let rng = SeededRng::new(3);
    let mut open = |parent: &str, text: &str| {
        let id = TaskId::generate(&SystemClock, &rng);
        let spec = TaskSpec { body: Body::Inline { goal: String::new() }, ..leaf(text) };
        let parent = tree.named(parent);
        tree.input(Input::Open { parent, id, spec: Arc::new(spec) })
            .map_err(|refusal| refusal.to_string())
    };

    assert_eq!(open("agent", "a"), Ok(()));
    assert_eq!(open("agent", "b"), Ok(()));
    assert_eq!(
        open("agent", "c"),
        Err("task agent allows at most 2 children of one task".to_owned())
    );
    assert_eq!(open("a", "d"), Ok(()));
    assert_eq!(open("d", "e"), Err("task agent allows at most 2 levels of tasks".to_owned()));
    assert_eq!(open("a", "f"), Err("task agent allows at most 4 tasks altogether".to_owned()));
}

#[test]
fn a_pause_keeps_everything_where_it_is_and_a_start_goes_on() {
    let retries = Retries { max: 1, ..Retries::default() };
    let checked = TaskSpec { postchecks: vec![check("tests")], retries, ..leaf("b") };
    let mut tree =
        Tree::begin(parent("root", OnFailure::default(), vec![leaf("a"), checked, leaf("c")]), 2);
    tree.pass("b");

    tree.input(Input::Pause).unwrap();
    assert!(tree.paused && tree.under_way.is_empty());
    assert_eq!(tree.state.state_of(tree.named("a")), TaskState::Active);
    assert_eq!(tree.state.state_of(tree.named("b")), TaskState::Postchecking);

    tree.input(Input::Start).unwrap();
    let a = tree.named("a");
    assert_eq!(tree.take("a"), Command::Attempt { task: a, number: 1, continues: true });
    tree.input(Input::Ended { task: a, end: BodyEnd::Claimed }).unwrap();
    tree.pass("b");
    tree.pass("c");
    assert_eq!(tree.ending("root"), "completed");
}

#[test]
fn what_comes_late_changes_nothing() {
    let mut tree = Tree::begin(leaf("a"), 1);
    let task = tree.named("a");
    tree.pass("a");

    let late = [
        Input::Ended { task, end: BodyEnd::Claimed },
        Input::Checked { task, phase: Phase::Exit, failed: None },
        Input::Interrupted { task },
        Input::Cancel { task },
    ];
    for input in late {
        let refusal = tree.input(input).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "task a is completed, and nothing of that kind is under way"
        );
    }
}

#[test]
fn what_is_no_tree_is_refused() {
    let refused =
        |tasks| build(parent("root", OnFailure::default(), tasks), 1).unwrap_err().to_string();

    assert_eq!(
        refused(vec![after("a", &["c"]), after("b", &["a"]), after("c", &["b"])]),
        "task a waits for itself by way of what it depends on"
    );
    assert_eq!(refused(vec![after("a", &["x"])]), "task a depends on x, which is not beside it");
    assert_eq!(refused(vec![leaf("a"), leaf("a")]), "two tasks beside each other are named a");
}

#[test]
fn a_chain_of_a_hundred_thousand_tasks_neither_overflows_nor_slows() {
    let tasks = (0..100_000)
        .map(|number: u32| match number.checked_sub(1) {
            None => leaf("t0"),
            Some(before) => after(&format!("t{number}"), &[&format!("t{before}")]),
        })
        .collect();
    let mut tree = Tree::begin(parent("root", OnFailure::default(), tasks), 4);

    tree.fail("t0");

    assert!(tree.finished);
    assert_eq!(tree.ending("root"), "task t0 failed");
}

/// What a leaf of a random tree asks for.
#[derive(Debug, Clone)]
struct Shape {
    dependencies: Vec<prop::sample::Index>,
    children: Vec<Shape>,
    prechecks: u32,
    postchecks: u32,
    retries: u32,
    policy: u8,
    timeout: bool,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let numbers = || (0_u32..2, 0_u32..2, 0_u32..3, 0_u8..3, any::<bool>());
    let dependencies = || prop::collection::vec(any::<prop::sample::Index>(), 0..3);
    let leaf = (dependencies(), numbers()).prop_map(|(dependencies, numbers)| {
        let (prechecks, postchecks, retries, policy, timeout) = numbers;
        Shape { dependencies, children: vec![], prechecks, postchecks, retries, policy, timeout }
    });
    leaf.prop_recursive(4, 40, 6, move |inner| {
        let children = prop::collection::vec(inner, 0..6);
        (dependencies(), children, numbers()).prop_map(|(dependencies, children, numbers)| {
            let (prechecks, postchecks, retries, policy, timeout) = numbers;
            Shape { dependencies, children, prechecks, postchecks, retries, policy, timeout }
        })
    })
}

fn plant(shape: &Shape, place: usize, before: usize) -> TaskSpec {
    let own = format!("t{place}");
    let mut spec = if shape.children.is_empty() {
        leaf(&own)
    } else {
        let count = shape.children.len();
        let tasks = (0..count).map(|place| plant(&shape.children[place], place, place)).collect();
        let policy = [OnFailure::ContinueIndependent, OnFailure::Halt, OnFailure::AbortAll];
        parent(&own, policy[usize::from(shape.policy)], tasks)
    };
    spec.prechecks = (0..shape.prechecks).map(|number| check(&format!("in{number}"))).collect();
    spec.postchecks = (0..shape.postchecks).map(|number| check(&format!("out{number}"))).collect();
    spec.retries.max = shape.retries;
    spec.timeout = shape.timeout.then(|| Span::from_secs(9));
    if before > 0 {
        let names = shape.dependencies.iter().map(|any| name(&format!("t{}", any.index(before))));
        spec.depends_on = names.collect();
    }
    spec
}

/// Drives a tree by chance to its end and checks every promise on the way. Returns all commands.
fn drive(
    shape: &Shape,
    width: usize,
    seed: u64,
    hostile: bool,
) -> Result<Vec<Command>, TestCaseError> {
    let mut state = build(plant(shape, 0, 0), width).unwrap();
    let rng = SeededRng::new(seed);
    let mut all = Vec::new();
    let mut out = Vec::new();
    let mut work: Vec<Command> = Vec::new();
    let mut interrupted: Vec<TaskIndex> = Vec::new();
    let mut standing: HashMap<TaskIndex, TaskState> = HashMap::new();
    let mut paused = false;
    let mut finished = false;
    decide(&mut state, Input::Start, &mut out).unwrap();
    for step in 0..10_000 {
        prop_assert!(state.slots_used() <= width);
        for command in out.drain(..) {
            match &command {
                Command::Move { task, from, signal, to, ending } => {
                    prop_assert_eq!(from.after(*signal), Ok(*to));
                    prop_assert_eq!(ending.is_some(), to.is_terminal());
                    prop_assert!(!finished);
                    if to.is_terminal() {
                        let open = |child| !state.state_of(child).is_terminal();
                        prop_assert!(!state.children(*task).any(open), "ended before a child");
                    }
                    standing.insert(*task, *to);
                    if *to == TaskState::Prechecking {
                        for wanted in &state.spec(*task).depends_on {
                            let above = state.parent(*task).unwrap();
                            let before =
                                state.children(above).find(|c| state.spec(*c).name == *wanted);
                            prop_assert!(state.satisfies(before.unwrap()), "began too early");
                        }
                        if let Some(above) = state.parent(*task) {
                            // The state has seen all commands of this step, the parent's end perhaps.
                            prop_assert_eq!(standing.get(&above), Some(&TaskState::Active));
                        }
                    }
                }
                Command::Attempt { .. } | Command::Check { .. } => {
                    prop_assert!(!paused, "work began during a pause");
                    work.push(command.clone());
                }
                Command::Interrupt { task } => interrupted.push(*task),
                Command::Finish => finished = true,
                Command::Paused => prop_assert!(work.is_empty(), "paused with work under way"),
                Command::Wait { .. }
                | Command::Judge { .. }
                | Command::Expand { .. }
                | Command::Blocked { .. }
                | Command::Rejoin { .. }
                | Command::Rest { .. }
                | Command::Oversee { .. }
                | Command::Create { .. }
                | Command::Timer { .. } => {}
            }
            all.push(command);
        }
        if finished {
            break;
        }
        let chance = rng.next_u64() % 100;
        let any = |count: usize| usize::try_from(rng.next_u64()).unwrap() % count;
        let input = if hostile && chance < 4 {
            let tasks: Vec<_> = state.tasks().collect();
            Input::Cancel { task: tasks[any(tasks.len())] }
        } else if hostile && chance < 8 {
            let tasks: Vec<_> =
                state.tasks().filter(|t| state.spec(*t).timeout.is_some()).collect();
            let why = Escalation::TimedOut { after: Span::from_secs(9) };
            match tasks.len() {
                0 => Input::Cancel { task: state.root() },
                count => Input::TimedOut { task: tasks[any(count)], why },
            }
        } else if hostile && chance < 12 {
            paused = true;
            Input::Pause
        } else if work.is_empty() {
            prop_assert!(paused, "nothing is under way, and it has not ended: {:?}", state);
            paused = false;
            Input::Start
        } else {
            let command = work.swap_remove(any(work.len()));
            match command {
                Command::Attempt { task, .. } | Command::Check { task, .. }
                    if interrupted.contains(&task) && !chance.is_multiple_of(4) =>
                {
                    interrupted.retain(|each| *each != task);
                    Input::Interrupted { task }
                }
                Command::Check { task, phase } => {
                    Input::Checked { task, phase, failed: chance.is_multiple_of(4).then_some(0) }
                }
                Command::Attempt { task, .. } => {
                    let detail = "by chance".to_owned();
                    let end = match chance % 8 {
                        0 => BodyEnd::Failed(Escalation::BodyFailed { detail }),
                        1 if hostile => {
                            BodyEnd::Failed(Escalation::Stuck { pattern: None, detail })
                        }
                        _ => BodyEnd::Claimed,
                    };
                    Input::Ended { task, end }
                }
                _ => unreachable!("only work is kept"),
            }
        };
        let is_work = matches!(
            input,
            Input::Ended { .. } | Input::Checked { .. } | Input::Interrupted { .. }
        );
        let result = decide(&mut state, input, &mut out);
        prop_assert!(!is_work || result.is_ok(), "step {step}: {result:?}");
    }
    prop_assert!(finished, "it goes on for ever");
    for task in state.tasks() {
        prop_assert!(state.state_of(task).is_terminal());
        prop_assert!(state.ending(task).is_some());
    }
    prop_assert_eq!(state.slots_used(), 0);
    Ok(all)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn behaviour_15_every_tree_ends_whole_by_legal_moves_in_order_and_within_its_width(
        shape in shapes(), width in 1_usize..5, seed in any::<u64>(), hostile in any::<bool>(),
    ) {
        drive(&shape, width, seed, hostile)?;
    }

    #[test]
    fn the_same_inputs_always_give_the_same_commands(
        shape in shapes(), width in 1_usize..5, seed in any::<u64>(),
    ) {
        prop_assert_eq!(drive(&shape, width, seed, true)?, drive(&shape, width, seed, true)?);
    }
}

#[test]
fn a_task_that_was_cancelled_before_its_parent_began_still_fails_it() {
    let group = TaskSpec {
        prechecks: vec![check("in")],
        ..parent("group", OnFailure::default(), vec![leaf("x")])
    };
    let mut tree = Tree::begin(group, 1);
    let x = tree.named("x");

    tree.input(Input::Cancel { task: x }).unwrap();
    tree.pass("group");

    assert!(tree.finished);
    assert_eq!(
        tree.state.ending(tree.named("x")),
        Some(Ending::Cancelled { why: Cancellation::Requested })
    );
    assert_eq!(tree.ending("group"), "task x failed");
}

#[test]
fn a_cancel_that_a_crash_cut_short_is_carried_on_and_the_parent_does_not_complete() {
    let rng = SeededRng::new(7);
    let mut builder = Builder::new(NonZeroUsize::MIN);
    let spec = parent("root", OnFailure::default(), vec![leaf("a"), leaf("b")]);
    for planted in flatten(spec, || TaskId::generate(&SystemClock, &rng)) {
        builder.add(planted.id, planted.parent, planted.spec).unwrap();
    }
    let standing = |state, attempt, ending| Standing {
        born: 0,
        passing: 0,
        rests: false,
        state,
        ending,
        attempt,
        attempt_open: attempt > 0,
        failed_check: 0,
        repaired: false,
        follows: false,
        granted: 0,
        overseen: None,
    };
    let ended = Ending::Cancelled { why: Cancellation::ParentEnded };
    builder.stand(builder.at(0).unwrap(), standing(TaskState::Active, 0, None));
    builder.stand(builder.at(1).unwrap(), standing(TaskState::Active, 1, None));
    builder.stand(builder.at(2).unwrap(), standing(TaskState::Cancelled, 0, Some(ended.clone())));
    let mut state = builder.build().unwrap();

    let mut out = Vec::new();
    decide(&mut state, Input::Start, &mut out).unwrap();

    let endings: Vec<_> = state.tasks().map(|task| state.ending(task)).collect();
    let root = Ending::Cancelled { why: Cancellation::Requested };
    assert_eq!(endings, [Some(root), Some(ended.clone()), Some(ended)]);
    assert_eq!(out.last(), Some(&Command::Finish));
}

/// Returns a leaf that is done only on a condition.
fn on_condition(text: &str, before: &[&str]) -> TaskSpec {
    TaskSpec { when: Some("vars.wanted".to_owned()), ..after(text, before) }
}

#[test]
fn a_condition_is_asked_once_what_the_task_depends_on_is_done() {
    let tasks = vec![leaf("a"), on_condition("b", &["a"]), leaf("c")];
    let mut tree = Tree::begin(parent("root", OnFailure::default(), tasks), 1);

    assert_eq!(tree.working(), ["a"]);
    tree.pass("a");
    // The question takes no place of the width.
    assert_eq!(tree.working(), ["c", "b"]);
    tree.pass("b");
    tree.pass("c");
    tree.pass("b");

    assert_eq!(tree.ending("root"), "completed");
    assert_eq!(tree.ending("b"), "completed");
}

#[test]
fn a_false_condition_skips_the_task_with_all_below_it_and_what_depends_on_it_goes_on() {
    let group = TaskSpec {
        when: Some("1 > 2".to_owned()),
        ..parent("group", OnFailure::default(), vec![leaf("inner")])
    };
    let tasks = vec![group, after("later", &["group"])];
    let mut tree = Tree::begin(parent("root", OnFailure::AbortAll, tasks), 2);

    tree.fail("group");
    tree.pass("later");

    assert_eq!(tree.ending("group"), "skipped: 1 > 2 is false");
    assert_eq!(tree.ending("inner"), "its parent ended");
    assert_eq!(tree.ending("root"), "completed");
}

#[test]
fn a_condition_that_cannot_be_judged_fails_the_task_and_what_depends_on_it() {
    let tasks = vec![on_condition("a", &[]), after("b", &["a"])];
    let mut tree = Tree::begin(parent("root", OnFailure::default(), tasks), 2);
    let task = tree.named("a");

    let holds = Err("no such key: wanted".to_owned());
    tree.take("a");
    tree.input(Input::Judged { task, holds }).unwrap();

    let why = Escalation::CannotBegin { detail: "no such key: wanted".to_owned() };
    assert_eq!(tree.state.ending(task), Some(Ending::Escalated { why }));
    assert_eq!(tree.ending("b"), "task a did not complete");
    assert_eq!(tree.ending("root"), "task a failed");
}

#[test]
fn an_answer_that_comes_late_changes_nothing() {
    let mut tree = Tree::begin(on_condition("a", &[]), 1);
    let task = tree.named("a");

    tree.input(Input::Cancel { task }).unwrap();
    let late = tree.input(Input::Judged { task, holds: Ok(true) });

    assert!(matches!(late, Err(Refusal::Stale { .. })), "{late:?}");
    assert_eq!(tree.ending("a"), "cancelled on request");
}

#[test]
fn a_condition_that_was_asked_during_a_crash_is_asked_again() {
    let mut tree = Tree::begin(on_condition("a", &[]), 1);

    tree.take("a");
    tree.input(Input::Start).unwrap();

    assert_eq!(tree.working(), ["a"]);
}

fn each(text: &str, limit: u32, on_failure: OnFailure, one: TaskSpec) -> TaskSpec {
    let items = ForEach {
        items: "vars.list".to_owned(),
        task: one,
        max_concurrency: std::num::NonZeroU32::new(limit),
        on_failure,
    };
    TaskSpec { body: Body::ForEach(Box::new(items)), ..leaf(text) }
}

/// Gives a task so many items, each named after its place.
fn give(tree: &mut Tree, text: &str, count: usize) {
    let rng = SeededRng::new(40 + count as u64);
    let task = tree.named(text);
    let spec = Arc::clone(tree.state.spec(task));
    let Body::ForEach(each) = &spec.body else { panic!("{text} has no items") };
    let items = (0..count).flat_map(|place| {
        let one = TaskSpec { name: name(&format!("i{place}")), ..each.task.clone() };
        flatten(one, || TaskId::generate(&SystemClock, &rng))
    });
    let items = Ok(items.collect());
    tree.take(text);
    tree.input(Input::Expanded { task, items }).unwrap();
}

#[test]
fn each_item_is_a_child_and_no_more_are_worked_on_at_once_than_allowed() {
    let mut tree = Tree::begin(each("all", 2, OnFailure::default(), leaf("one")), 8);

    assert_eq!(tree.working(), ["all"]);
    give(&mut tree, "all", 4);
    assert_eq!(tree.working(), ["i0", "i1"]);
    tree.pass("i1");
    assert_eq!(tree.working(), ["i0", "i2"]);
    tree.pass("i0");
    tree.pass("i2");
    tree.pass("i3");

    assert!(tree.finished);
    assert_eq!(tree.ending("all"), "completed");
}

#[test]
fn no_item_at_all_is_done_at_once_and_its_checks_decide() {
    let checked = TaskSpec {
        postchecks: vec![check("out")],
        ..each("all", 1, OnFailure::default(), leaf("x"))
    };
    let mut tree = Tree::begin(checked, 1);

    give(&mut tree, "all", 0);
    tree.pass("all");

    assert_eq!(tree.ending("all"), "completed");
}

#[test]
fn a_failed_item_leaves_the_others_ends_them_or_is_done_without() {
    let ended = |policy: OnFailure| {
        let mut tree = Tree::begin(each("all", 2, policy, leaf("one")), 8);
        give(&mut tree, "all", 3);
        tree.fail("i0");
        while let Some(name) = tree.working().first().map(|name| (*name).to_owned()) {
            tree.pass(&name);
        }
        (tree.ending("all"), tree.ending("i1"), tree.ending("i2"))
    };
    let all = |all: &str, one: &str, two: &str| (all.to_owned(), one.to_owned(), two.to_owned());

    assert_eq!(
        ended(OnFailure::ContinueIndependent),
        all("task i0 failed", "completed", "completed")
    );
    assert_eq!(
        ended(OnFailure::AbortAll),
        all("task i0 failed", "its parent ended", "its parent ended")
    );
    assert_eq!(ended(OnFailure::Ignore), all("completed", "completed", "completed"));
}

#[test]
fn items_with_subtasks_keep_their_order_each_for_itself() {
    let tasks = vec![leaf("a"), after("b", &["a"])];
    let one = parent("one", OnFailure::default(), tasks);
    let mut tree = Tree::begin(each("all", 0, OnFailure::default(), one), 8);

    give(&mut tree, "all", 2);
    assert_eq!(tree.working(), ["a", "a"]);
    tree.pass("a");
    assert_eq!(tree.working(), ["a", "b"]);
    tree.pass("b");
    tree.pass("a");
    tree.pass("b");

    assert_eq!(tree.ending("all"), "completed");
}

#[test]
fn more_items_than_the_caps_allow_are_none_and_the_task_says_why() {
    let mut capped = each("all", 0, OnFailure::default(), leaf("one"));
    capped.budget.tree = Some(TreeCaps { depth: 3, fan_out: 2, tasks: 100 });
    let mut tree = Tree::begin(capped, 8);

    give(&mut tree, "all", 3);

    assert_eq!(
        tree.ending("all"),
        "budget exhausted: task all allows at most 2 children of one task"
    );
    assert_eq!(tree.state.len(), 1);
}

#[test]
fn items_that_cannot_be_had_fail_their_task() {
    let mut tree = Tree::begin(each("all", 0, OnFailure::default(), leaf("one")), 8);
    let task = tree.named("all");

    tree.take("all");
    let why = Escalation::CannotBegin { detail: "it is no list".to_owned() };
    tree.input(Input::Expanded { task, items: Err(why) }).unwrap();

    assert_eq!(tree.ending("all"), "it is no list");
}

#[test]
fn items_that_a_crash_left_are_not_asked_for_again() {
    let rng = SeededRng::new(7);
    let mut builder = Builder::new(NonZeroUsize::new(8).unwrap());
    let spec = each("all", 1, OnFailure::default(), leaf("one"));
    let root = TaskId::generate(&SystemClock, &rng);
    builder.add(root, None, Arc::new(spec)).unwrap();
    for place in 0..3 {
        let one = Arc::new(leaf(&format!("i{place}")));
        builder.add(TaskId::generate(&SystemClock, &rng), Some(root), one).unwrap();
    }
    let standing = |state: TaskState, ending: Option<Ending>| Standing {
        born: 0,
        passing: 0,
        rests: false,
        state,
        ending,
        attempt: 1,
        attempt_open: state == TaskState::Active,
        failed_check: 0,
        repaired: false,
        follows: false,
        granted: 0,
        overseen: None,
    };
    let all = builder.find(root).unwrap();
    builder.stand(
        all,
        Standing { attempt: 0, attempt_open: false, ..standing(TaskState::Active, None) },
    );
    builder.stand(builder.at(1).unwrap(), standing(TaskState::Completed, Some(Ending::Completed)));
    builder.stand(builder.at(2).unwrap(), standing(TaskState::Active, None));
    let mut state = builder.build().unwrap();

    let mut out = Vec::new();
    decide(&mut state, Input::Start, &mut out).unwrap();

    let second = state.find(state.id(TaskIndex(2))).unwrap();
    assert_eq!(out, [Command::Attempt { task: second, number: 1, continues: true }]);
}

#[test]
fn what_follows_success_is_done_before_the_task_has_completed() {
    let spec =
        TaskSpec { postchecks: vec![check("out")], on_success: vec![check("tag")], ..leaf("a") };
    let mut tree = Tree::begin(spec.clone(), 1);
    tree.pass("a");
    tree.pass("a");
    assert_eq!(tree.ending("a"), "");
    tree.pass("a");
    assert_eq!(tree.ending("a"), "completed");

    let mut tree = Tree::begin(spec, 1);
    tree.pass("a");
    tree.pass("a");
    tree.fail("a");
    assert_eq!(tree.ending("a"), "\"tag\" failed, which follows once the task has succeeded");
}

#[test]
fn what_comes_before_another_attempt_is_done_first_and_has_to_succeed() {
    let mut spec = TaskSpec {
        postchecks: vec![check("out")],
        before_retry: vec![check("clean")],
        ..leaf("a")
    };
    spec.retries.max = 2;
    let mut tree = Tree::begin(spec, 1);

    tree.fail("a"); // The body gives up.
    assert!(matches!(tree.under_way[0].1, Command::Check { phase: Phase::Retry, .. }));
    tree.pass("a");
    tree.pass("a");
    tree.fail("a"); // The exit check.
    assert!(matches!(tree.under_way[0].1, Command::Check { phase: Phase::Retry, .. }));
    tree.fail("a");

    assert_eq!(tree.ending("a"), "\"clean\" failed, which comes before another attempt");
    assert_eq!(tree.state.attempts(tree.named("a")), 2);
}

#[test]
fn a_result_of_the_wrong_form_is_put_right_once_without_using_an_attempt() {
    let kind = CheckKind::Output(OutputCheck { schema: true.into() });
    let form = CheckSpec { kind, ..check("output") };
    let spec = TaskSpec { postchecks: vec![form, check("out")], ..leaf("a") };
    let mut tree = Tree::begin(spec, 1);

    tree.pass("a");
    tree.fail("a");
    assert!(tree.state.is_repairing(tree.named("a")));
    tree.pass("a");
    tree.fail("a");

    assert_eq!(tree.ending("a"), "check \"output\" failed in the last of 2 attempts");
}

fn waiting(text: &str) -> TaskSpec {
    let wait = WaitFor { event: "review".parse().unwrap(), filter: None, timeout: None };
    TaskSpec { body: Body::WaitFor(wait), ..leaf(text) }
}

#[test]
fn a_task_that_waits_takes_no_place_and_goes_on_to_its_checks_once_woken() {
    let review = TaskSpec { postchecks: vec![check("out")], ..waiting("review") };
    let tasks = vec![review, leaf("a"), after("b", &["review"])];
    let mut tree = Tree::begin(parent("root", OnFailure::default(), tasks), 1);

    assert_eq!(tree.working(), ["review", "a"]);
    assert_eq!(tree.state.state_of(tree.named("review")), TaskState::Suspended);
    tree.pass("review"); // It is woken, and there is no place for its check.
    assert_eq!(tree.working(), ["a"]);
    tree.pass("a");
    tree.pass("review");
    tree.pass("b");

    assert_eq!(tree.ending("root"), "completed");
}

#[test]
fn a_wait_ends_as_it_is_told_and_with_its_parent_and_is_told_of_again_after_a_pause() {
    let mut tree = Tree::begin(parent("root", OnFailure::default(), vec![waiting("w")]), 1);
    let task = tree.named("w");

    tree.input(Input::Pause).unwrap();
    assert!(tree.paused, "nothing is under way");
    let early = tree.input(Input::Woken { task, end: BodyEnd::Claimed });
    assert!(matches!(early, Err(Refusal::Stale { .. })), "{early:?}");
    tree.take("w");
    tree.input(Input::Start).unwrap();
    assert_eq!(tree.working(), ["w"]);
    let why = Escalation::TimedOut { after: Span::from_secs(9) };
    tree.input(Input::Woken { task, end: BodyEnd::Failed(why) }).unwrap();
    assert_eq!(tree.ending("root"), "task w failed");

    let mut tree = Tree::begin(parent("root", OnFailure::default(), vec![waiting("w")]), 1);
    let task = tree.state.root();
    tree.input(Input::Cancel { task }).unwrap();
    assert_eq!(tree.ending("w"), "its parent ended");
}
