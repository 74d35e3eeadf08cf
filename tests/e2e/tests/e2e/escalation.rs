//! What nobody was there to be asked: assumed, gone on with, and answered later.

use std::sync::{Arc, Mutex};

use formwork_protocols::{
    Cancel, Claim, Principal, Span,
    check::Verdict,
    overseer::{Action, Choice, Decided, Escalated, Overseer},
};
use formwork_scheduler::{AttemptJob, Natives};
use formwork_services::{
    Builder,
    capability::Caller,
    config::{Layer, Layers, Origin},
};
use formwork_testkit::postgres::Postgres;
use serde_json::{Value, json};

use crate::world::{World, on_postgres};

async fn an_escalation_is_asked_about(world: World) {
    let workflow = world.workflow(
        "[[tasks]]\nname = \"fails\"\ncommand = [\"false\"]\nretries = { max = 0 }\n\
         [[tasks]]\nname = \"beside\"\ncommand = [\"true\"]\n",
    );

    let ended = world.run(["run", workflow, "--headless"]).await;
    let waiting = world.json(["inbox", "list"]).await;
    let shown = world.run(["inbox", "list"]).await;
    let item = waiting["items"][0]["item"].as_str().unwrap().to_owned();
    let answered = world.json(["inbox", "answer", &item, "try again"]).await;
    let again = world.run(["inbox", "answer", &item, "leave it"]).await;
    let left = world.json(["inbox", "list"]).await;

    assert_eq!(ended.code, Some(1), "{ended:#?}");
    let asked = &waiting["items"].as_array().unwrap()[..];
    assert_eq!(asked.len(), 1, "{asked:#?}");
    let question = asked[0]["question"].as_str().unwrap();
    assert!(question.starts_with("task fails was given up: "), "{question}");
    assert_eq!(asked[0]["assume"], "leave it");
    assert!(shown.stdout.contains("leave it; the run has gone on"), "{shown:#?}");
    assert_eq!(answered["item"]["state"], "answered");
    assert_ne!(again.code, Some(0), "{again:#?}");
    assert_eq!(left["items"], json!([]));
    let said: Vec<Value> = world.events("inbox.answered").await;
    assert_eq!(said.len(), 1);
    assert_eq!(said[0]["principal"], "user:ada");
    assert_eq!(said[0]["data"]["answer"], "try again");
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_5_an_escalation_that_nobody_watches_is_asked_about_and_answered_later() {
    an_escalation_is_asked_about(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_5_an_escalation_that_nobody_watches_is_asked_about_and_answered_later() {
    on_postgres(an_escalation_is_asked_about).await;
}

async fn what_no_run_waits_for_is_counted_and_closed_together(world: World) {
    let fails = |number: usize| {
        format!("[[tasks]]\nname = \"t{number}\"\ncommand = [\"false\"]\nretries = {{ max = 0 }}\n")
    };
    let workflow = world.workflow(&(0..12).map(fails).collect::<String>());

    let ended = world.run(["run", workflow, "--headless"]).await;
    let asked = world.events("inbox.asked").await.len();
    let newest = world.json(["inbox", "list"]).await;
    let shown = world.run(["inbox", "list"]).await;
    let all = world.json(["inbox", "list", "--all"]).await;
    let skipped = world.run(["inbox", "skip", "--given-up", "--reason", "seen"]).await;
    let left = world.json(["inbox", "list", "--all"]).await;

    assert!(asked > 10, "{asked}: {ended:#?}");
    let items = |listed: &Value| listed["items"].as_array().unwrap().len();
    assert_eq!((items(&newest), &newest["left_out"]), (10, &json!(asked - 10)));
    assert_eq!(newest["items"][9], all["items"][asked - 1]);
    let more = format!("{} about tasks that were given up, which no run waits for", asked - 10);
    assert!(shown.stderr.contains(&more.replace(" about", " older items about")), "{shown:#?}");
    assert_eq!((items(&all), &all["left_out"]), (asked, &json!(0)));
    assert_eq!(skipped.stdout, format!("skipped {asked} items\n"));
    assert_eq!(left["items"], json!([]));
    assert_eq!(world.events("inbox.skipped").await.len(), asked);
    world.assert_sound().await;
}

#[tokio::test]
async fn items_that_no_run_waits_for_are_counted_and_closed_together() {
    what_no_run_waits_for_is_counted_and_closed_together(World::new().await).await;
}

#[tokio::test]
async fn pg_items_that_no_run_waits_for_are_counted_and_closed_together() {
    on_postgres(what_no_run_waits_for_is_counted_and_closed_together).await;
}

/// Decides by what the evidence says.
struct Chief;

#[async_trait::async_trait]
impl Overseer for Chief {
    async fn decide(&self, escalated: &Escalated, _: &Cancel) -> Decided {
        let by = Principal::parse("agent:chief").unwrap();
        let evidence = escalated.verdicts.last().map(|verdict| verdict.reason.clone());
        let action = match (escalated.attempts, escalated.left.usd) {
            // It is offered what it may decide alone.
            (1, Some(_)) if !escalated.options.contains(&Choice::Fail) => {
                Action::Retry { advice: format!("think of {evidence:?}") }
            }
            _ => Action::Accept { reason: "it will do".to_owned() },
        };
        Decided { action, by }
    }
}

async fn whoever_governs_decides(database: Option<&str>) {
    use formwork_services::operations::{
        inbox::{List, ListParams},
        runs::{Get, GetParams, Replay, ReplayParams, Start, StartParams, Work},
    };
    let repo = formwork_testkit::repo::Repo::new().unwrap();
    let state = tempfile::tempdir().unwrap();
    let heard: Arc<Mutex<Vec<usize>>> = Arc::default();
    let hears = Arc::clone(&heard);
    let natives = Natives::new()
        .with("work", move |job: AttemptJob, _| {
            hears.lock().unwrap().push(job.evidence.len());
            async { Ok(Claim { summary: "forty".to_owned(), output: None }) }
        })
        .with_check("fine", |job, _| async move {
            let said = job.claim.map(|claim| claim.summary).unwrap_or_default();
            Verdict::bare("fine", false, format!("it says {said}"))
        });
    let at = database.map(|url| format!("database_url = {url:?}\n")).unwrap_or_default();
    let text = format!("format_version = 1\nsandbox = \"off\"\n{at}[budget]\nusd = \"1\"\n");
    let mut layers = Layers::new();
    layers.push(Layer::parse(Origin::Flag { flag: "the test".to_owned() }, &text).unwrap());
    let builder = Builder::new(repo.path()).state(state.path()).natives(natives);
    let builder = builder.overseer(Arc::new(Chief), Span::from_secs(60));
    let builder = builder.overseer_may([Choice::Retry, Choice::Accept]);
    let formwork = builder.config(layers.merge().unwrap().config).build().await.unwrap();
    let caller = Caller::owner(Principal::parse("user:ada").unwrap());
    let text = "format_version = 1\nname = \"w\"\n[[tasks]]\nname = \"t\"\nnative = \"work\"\n\
                retries = { max = 0, inject_failure = true }\npostchecks = [{ native = \"fine\" }]\n";
    let params = StartParams {
        work: Work::Workflow { source: "w.toml".to_owned(), text: text.to_owned() },
        vars: serde_json::Map::new(),
        model: None,
        width: None,
        commit: false,
        headless: false,
        mode: None,
    };

    let run = formwork.call::<Start>(&caller, params).await.unwrap().run;
    let outcome = formwork.wait(run).await.unwrap();
    let detail = formwork.call::<Get>(&caller, GetParams { run }).await.unwrap();
    let waiting = formwork.call::<List>(&caller, ListParams::default()).await.unwrap();
    let replayed = formwork.call::<Replay>(&caller, ReplayParams { run }).await.unwrap();

    assert_eq!(outcome.code.exit_code(), 0, "{outcome}");
    // The advice comes behind what the check had found.
    assert_eq!(*heard.lock().unwrap(), [0, 2]);
    assert_eq!(detail.attempts.len(), 2);
    assert!(detail.checks.iter().all(|check| !check.verdict.passed));
    assert!(waiting.items.is_empty(), "{waiting:?}");
    assert_eq!(replayed.divergence, None);
    formwork.close().await;
}

#[tokio::test]
async fn behaviour_5_whoever_governs_a_run_has_a_task_tried_again_and_then_accepts_it() {
    whoever_governs_decides(None).await;
}

#[tokio::test]
async fn pg_behaviour_5_whoever_governs_a_run_has_a_task_tried_again_and_then_accepts_it() {
    let Some(cluster) = Postgres::shared() else { return };
    let database = cluster.database().unwrap();
    whoever_governs_decides(Some(database.url())).await;
}
