//! Tasks that bodies make, and bodies that wait for them.

use formwork_protocols::spec::{CheckPlace, Made};

use super::*;

fn make(tree: &mut Tree, above: &str, spec: TaskSpec) -> Result<(), Refusal> {
    let rng = SeededRng::new(tree.state.len() as u64 + 90);
    let parent = tree.named(above);
    let made = flatten(spec, || TaskId::generate(&SystemClock, &rng));
    tree.input(Input::Make { parent, tree: made })
}

fn wait(tree: &mut Tree, name: &str) -> Result<(), Refusal> {
    let task = tree.named(name);
    let on = tree.state.made(task).collect();
    tree.input(Input::Await { task, on })
}

fn rejoined(tree: &mut Tree, name: &str) -> bool {
    let place = tree.under_way.iter().position(|(working, command)| {
        working == name && matches!(command, Command::Rejoin { .. })
    });
    place.map(|place| tree.under_way.remove(place)).is_some()
}

#[test]
fn behaviour_12_a_body_that_waits_for_what_it_has_made_takes_no_place_of_the_width() {
    let mut tree = Tree::begin(leaf("lead"), 1);

    make(&mut tree, "lead", leaf("first")).unwrap();
    make(&mut tree, "lead", after("second", &["first"])).unwrap();
    assert_eq!(tree.working(), ["lead"]);
    wait(&mut tree, "lead").unwrap();
    assert_eq!(tree.working(), ["lead", "first"]);
    tree.pass("first");
    tree.pass("second");

    assert!(rejoined(&mut tree, "lead"));
    assert_eq!(tree.state.slots_used(), 1);
    tree.pass("lead");
    assert!(tree.finished);
    assert_eq!(tree.ending("lead"), "completed");
}

#[test]
fn behaviour_12_what_is_made_is_bound_by_the_caps_of_every_task_above() {
    let mut capped = leaf("lead");
    capped.budget.tree = Some(TreeCaps { depth: 2, fan_out: 2, tasks: 4 });
    let mut tree = Tree::begin(capped, 4);

    make(&mut tree, "lead", leaf("a")).unwrap();
    make(&mut tree, "a", leaf("b")).unwrap();
    let deep = make(&mut tree, "b", leaf("c")).unwrap_err();
    make(&mut tree, "lead", leaf("d")).unwrap();
    let wide = make(&mut tree, "lead", leaf("e")).unwrap_err();
    let many = make(&mut tree, "a", leaf("f")).unwrap_err();

    assert_eq!(deep.to_string(), "task lead allows at most 2 levels of tasks");
    assert_eq!(wide.to_string(), "task lead allows at most 2 children of one task");
    assert_eq!(many.to_string(), "task lead allows at most 4 tasks altogether");
}

#[test]
fn a_task_waits_only_for_what_it_has_made_itself() {
    let mut tree = Tree::begin(leaf("lead"), 4);
    make(&mut tree, "lead", leaf("one")).unwrap();

    let (lead, one) = (tree.named("lead"), tree.named("one"));
    let above = tree.input(Input::Await { task: one, on: vec![lead] }).unwrap_err();
    let itself = tree.input(Input::Await { task: one, on: vec![one] }).unwrap_err();
    let later = make(&mut tree, "lead", after("two", &["three"])).unwrap_err();
    let own = make(&mut tree, "lead", after("two", &["two"])).unwrap_err();

    assert_eq!(above.to_string(), "task one has made no task lead");
    assert_eq!(itself.to_string(), "task one has made no task one");
    assert_eq!(later.to_string(), "task lead has made no task three");
    assert_eq!(own.to_string(), "task lead has made no task two");
}

#[test]
fn no_attempt_begins_before_what_the_one_before_it_has_made_is_over() {
    let retried = TaskSpec { retries: Retries { max: 1, ..Retries::default() }, ..leaf("lead") };
    let mut tree = Tree::begin(retried, 4);
    make(&mut tree, "lead", leaf("slow")).unwrap();
    let (lead, slow) = (tree.named("lead"), tree.named("slow"));
    tree.take("lead");

    let mut out = Vec::new();
    decide(&mut tree.state, Input::Ended { task: lead, end: BodyEnd::Claimed }, &mut out).unwrap();
    assert_eq!(out, [Command::Interrupt { task: slow }]);
    out.clear();
    decide(&mut tree.state, Input::Interrupted { task: slow }, &mut out).unwrap();

    assert_eq!(out.last(), Some(&Command::Attempt { task: lead, number: 2, continues: false }));
    assert_eq!(tree.ending("slow"), "its parent ended");
    assert!(tree.state.made(lead).next().is_none(), "the second attempt has made nothing yet");
}

/// Has a tree decide the exit check of a task, which waits for it.
fn probe(tree: &mut Tree, name: &str, tasks: Vec<TaskSpec>) -> Result<(), Refusal> {
    let decides = Some(CheckPlace { phase: Phase::Exit, index: 0 });
    let spec = TaskSpec {
        made: Some(Box::new(Made { decides, ..Made::default() })),
        ..parent("decides", OnFailure::ContinueIndependent, tasks)
    };
    let rng = SeededRng::new(tree.state.len() as u64 + 50);
    let planted = flatten(spec, || TaskId::generate(&SystemClock, &rng));
    let task = tree.named(name);
    tree.input(Input::Probe { parent: task, tree: planted })?;
    let on = vec![tree.named("decides")];
    tree.input(Input::Await { task, on })
}

fn checked() -> TaskSpec {
    let whole = parent("whole", OnFailure::AbortAll, vec![leaf("part")]);
    TaskSpec { postchecks: vec![check("looks")], ..whole }
}

#[test]
fn behaviour_6_what_decides_a_check_takes_no_place_and_is_no_child_of_its_task() {
    let mut tree = Tree::begin(checked(), 1);

    let early = probe(&mut tree, "whole", vec![leaf("look")]).unwrap_err();
    tree.pass("part");
    probe(&mut tree, "whole", vec![leaf("look"), after("then", &["look"])]).unwrap();
    assert_eq!(tree.working(), ["whole", "look"]);
    let Command::Attempt { task, .. } = tree.take("look") else { panic!("it is tried") };
    let why = Escalation::BodyFailed { detail: "no".to_owned() };
    tree.input(Input::Ended { task, end: BodyEnd::Failed(why) }).unwrap();

    assert!(early.to_string().contains("nothing of that kind is under way"), "{early}");
    assert!(rejoined(&mut tree, "whole"));
    assert_eq!(tree.state.slots_used(), 1);
    assert_ne!(tree.ending("decides"), "completed");
    // What the check makes of it is the check's to say.
    tree.pass("whole");
    assert!(tree.finished);
    assert_eq!(tree.ending("whole"), "completed");
}

#[test]
fn what_decides_a_check_ends_with_its_task() {
    let mut tree = Tree::begin(checked(), 2);
    tree.pass("part");
    probe(&mut tree, "whole", vec![leaf("look"), leaf("beside")]).unwrap();

    let task = tree.named("whole");
    tree.input(Input::Cancel { task }).unwrap();

    assert!(tree.finished);
    assert_eq!(tree.state.slots_used(), 0);
    let ends = ["look", "beside", "decides"].map(|name| tree.ending(name));
    assert_eq!(ends, ["its parent ended"; 3]);
}
