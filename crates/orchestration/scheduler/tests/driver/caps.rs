//! The lines of caps that are crossed, each told once.

use formwork_protocols::{Cancel, Claim, EventBody, OutcomeCode, RunId, check::CheckKind};
use formwork_scheduler::{AttemptJob, CheckJob, Natives, Signals};

use crate::world::{World, ending, on_both, plan, setup, verdict};

on_both! {
    behaviour_13_the_caps_of_the_tree_are_told_of_at_four_fifths_and_at_the_limit,
    behaviour_13_changed_lines_are_told_of_at_four_fifths_and_at_the_limit,
    behaviour_13_changed_lines_that_stop_nothing_are_told_of,
    behaviour_13_what_is_written_down_counts_into_the_caps_of_its_tree,
}

/// What was told of caps, with `!` for the limit.
async fn told(world: &World, run: RunId) -> Vec<String> {
    let events = world.events(run).await;
    let told = |body: &EventBody| match body {
        EventBody::BudgetWarned(line) => Some(line.to_string()),
        EventBody::BudgetExhausted(found) => Some(format!("! {}", found.detail)),
        _ => None,
    };
    events.iter().filter_map(|event| told(&event.body)).collect()
}

const TREE: &str = r#"
budget = { tree = { depth = 3, fan_out = 5, tasks = 12 } }
variables = { four = { default = [1, 2, 3, 4] }, five = { default = [1, 2, 3, 4, 5] }, six = { default = [1, 2, 3, 4, 5, 6] } }
[[tasks]]
name = "four"
native = "done"
for_each = "vars.four"
[[tasks]]
name = "deep"
native = "deep"
depends_on = ["four"]
[[tasks]]
name = "five"
native = "done"
for_each = "vars.five"
depends_on = ["deep"]
"#;

/// Opens a part of its conversation, a part of that, and one that is too deep.
async fn deep(job: AttemptJob, _: Cancel) -> Result<Claim, String> {
    let name = |text: &str| text.parse().unwrap();
    let one = job.control.start(job.task, name("one"), String::new()).await?;
    let two = job.control.start(one, name("two"), String::new()).await?;
    for _ in 0..2 {
        let refused = job.control.start(two, name("three"), String::new()).await.unwrap_err();
        assert!(refused.contains("allows at most 3 levels of tasks"), "{refused}");
    }
    job.control.end(two, Claim::default()).await?;
    job.control.end(one, Claim::default()).await?;
    Ok(Claim::default())
}

async fn behaviour_13_the_caps_of_the_tree_are_told_of_at_four_fifths_and_at_the_limit(
    world: World,
) {
    let natives = Natives::new().with("done", crate::world::done).with("deep", deep);

    let report = world.run(TREE, natives, crate::world::pass).await;

    // One root, three tasks, four items, two parts: ten, and five more are too many.
    assert_eq!(report.outcome.code, OutcomeCode::Refused);
    assert!(ending(&report, "five").contains("at most 12 tasks altogether"));
    assert_eq!(
        told(&world, report.outcome.run).await,
        [
            "4 of 5 children of one task used",
            "3 of 3 levels of tasks used",
            "! 3 of 3 levels of tasks used",
            "10 of 12 tasks altogether used",
            "! task flow allows at most 12 tasks altogether",
        ]
    );
}

const LINES: &str = r#"
[[tasks]]
name = "only"
native = "done"
retries = { max = 3 }
budget = { diff_lines = 10 }
"#;

async fn behaviour_13_changed_lines_are_told_of_at_four_fifths_and_at_the_limit(world: World) {
    let natives = Natives::new().with("done", crate::world::done);
    let changed = std::sync::Mutex::new(vec![10, 14, 11].into_iter());
    let judge = move |job: &CheckJob| {
        assert!(matches!(job.check.kind, CheckKind::Diff(_)));
        let lines = changed.lock().unwrap().next().unwrap_or(8);
        let mut said = verdict(job, lines <= 8);
        said.evidence.lines = Some(lines);
        said
    };
    let few = |job: &CheckJob| {
        let mut said = verdict(job, true);
        said.evidence.lines = Some(if job.path.to_string().ends_with("only") { 8 } else { 7 });
        said
    };

    let over = world.run(LINES, natives.clone(), judge).await;
    let scheduler = world.scheduler(natives.clone(), few);
    let new = scheduler.create(&plan(LINES, &natives), setup()).await.unwrap();
    let near = scheduler.run(new, &Signals::default()).await.unwrap();

    let both = ["10 of 10 changed lines used", "! 10 of 10 changed lines used"];
    assert_eq!(told(&world, over.outcome.run).await, both);
    assert_eq!(told(&world, near.outcome.run).await, ["8 of 10 changed lines used"]);
}

async fn behaviour_13_changed_lines_that_stop_nothing_are_told_of(world: World) {
    let natives = Natives::new().with("done", crate::world::done);
    let counted = |job: &CheckJob| {
        // Whoever judges it is given no limit.
        let is_free = matches!(&job.check.kind, CheckKind::Diff(diff) if diff.max_lines.is_none());
        let mut said = verdict(job, is_free);
        said.evidence.lines = Some(12);
        said
    };
    let lines = LINES.replace("diff_lines = 10", "diff_lines = 10, on_exhausted = \"unlimited\"");

    let report = world.run(&lines, natives, counted).await;

    assert_eq!(report.outcome.code, OutcomeCode::Completed, "{}", report.outcome);
    let both = ["12 of 10 changed lines used", "! 12 of 10 changed lines used"];
    assert_eq!(told(&world, report.outcome.run).await, both);
}

async fn behaviour_13_what_is_written_down_counts_into_the_caps_of_its_tree(world: World) {
    let natives = Natives::new().with("done", crate::world::done);
    let five = "[[tasks]]\nname = \"tN\"\nnative = \"done\"\n";
    let five: String = (0..5).map(|n| five.replace('N', &n.to_string())).collect();
    let capped = "budget = { tree = { depth = 2, fan_out = 5, tasks = 7 } }\n";

    let said = world.run(&format!("{capped}{five}"), natives.clone(), crate::world::pass).await;
    let unsaid = world.run(&five, natives, crate::world::pass).await;

    assert_eq!(
        told(&world, said.outcome.run).await,
        [
            "5 of 5 children of one task used",
            "! 5 of 5 children of one task used",
            "6 of 7 tasks altogether used",
        ]
    );
    assert_eq!(told(&world, unsaid.outcome.run).await, [""; 0]);
}
