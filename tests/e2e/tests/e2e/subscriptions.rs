//! What is done by events: real programs, workflows and requests, whatever happens to whoever does it.

use formwork_testkit::http::{Reply, Server};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::world::{World, end_of, on_postgres, signal};

/// Takes the end of every run, from the beginning of the log.
const ENDED: &str = "format_version = 1\nname = \"ended\"\nbegin = \"beginning\"\n\
    [filter]\nkinds = [\"run.finished\"]\n";

/// A workflow that leaves what it was told in a file.
const AFTER: &str = "format_version = 1\nname = \"after\"\nvariables = { why = { required = true } }\n\
    [[tasks]]\nname = \"left\"\ncommand = [\"sh\", \"-c\", \"echo \\\"$0\\\" >> made\", \"{{why}}\"]\n";

fn subscribe(world: &World, name: &str, more: &str) {
    let text = format!("{}{more}", ENDED.replace("\"ended\"", &format!("{name:?}")));
    world.repo.write(format!(".formwork/subscriptions/{name}.toml"), text).unwrap();
}

async fn once(world: &World) -> (Option<i32>, Value) {
    let ended = world.run(["dispatch", "--once", "--json"]).await;
    (ended.code, ended.json()["subscriptions"].clone())
}

async fn follows(world: World) {
    world.repo.write("tell.sh", "echo \"$FORMWORK_DISPATCH_KEY\"\ngrep -c run.finished\n").unwrap();
    world.repo.write(".formwork/workflows/after.toml", AFTER).unwrap();
    subscribe(
        &world,
        "ended",
        "[[actions]]\ncommand = [\"sh\", \"tell.sh\"]\n\
         [[actions]]\nworkflow = \"after\"\nvars = { why = \"workflow + ' ' + data.outcome.code\" }\n",
    );
    let work = world.workflow("[[tasks]]\nname = \"one\"\ncommand = [\"true\"]\n");
    world.run(["run", work]).await;

    let before = world.run(["dispatch", "--once"]).await;
    let listed = world.run(["subscriptions", "list"]).await;
    let trusted = world.run(["trust"]).await;
    let (code, lanes) = once(&world).await;
    let again = once(&world).await;
    let shown = world.json(["subscriptions", "show", "ended"]).await;

    assert_eq!(before.code, Some(3), "{before:#?}");
    assert!(before.stderr.contains("ended.toml is not trusted"), "{before:#?}");
    assert!(listed.stdout.contains("not trusted, nothing looked at yet"), "{listed:#?}");
    assert!(trusted.stdout.contains("runs sh tell.sh by events of run.finished"), "{trusted:#?}");
    assert_eq!((code, &lanes[0]["delivered"]), (Some(0), &json!(1)), "{lanes:#}");
    // The run that it has begun has ended too, and that is no news to it.
    assert_eq!(world.repo.read("made").unwrap(), "work completed\n");
    assert_eq!((again.0, &again.1[0]["delivered"]), (Some(0), &json!(0)), "{:#}", again.1);
    let done = world.events("dispatch.done").await;
    let delivery = done[0]["data"]["delivery"].as_u64().unwrap();
    let log = shown["log"].as_str().unwrap();
    assert_eq!(done[0]["data"]["said"], format!("{log}-{delivery}-0\n1"), "{done:#?}");
    assert_eq!(done[0]["principal"], "subscription:ended");
    let begun = world.events("dispatch.started").await[1]["data"]["run"].clone();
    let run = world.shown().await["run"].clone();
    assert_eq!((&run["run"], &run["name"]), (&begun, &json!("after")));
    let created = &world.events("run.created").await[1];
    assert_eq!(created["principal"], "subscription:ended");
    assert_eq!(created["data"]["setup"]["caused_by"], json!(["ended"]));
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_36_a_program_and_a_workflow_follow_the_end_of_a_run_once() {
    follows(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_36_a_program_and_a_workflow_follow_the_end_of_a_run_once() {
    on_postgres(follows).await;
}

#[tokio::test]
async fn behaviour_36_what_fails_is_given_up_and_taken_up_again_once_it_is_mended() {
    let world = World::new().await;
    world.repo.write("tell.sh", "echo nobody is there\nexit 3\n").unwrap();
    subscribe(
        &world,
        "ended",
        "[[actions]]\ncommand = [\"sh\", \"tell.sh\"]\nretry = { attempts = 2, delay = \"0s\" }\n\
         [[actions]]\ncommand = [\"echo\", \"told\"]\n",
    );
    let work = world.workflow("[[tasks]]\nname = \"one\"\ncommand = [\"true\"]\n");
    world.run(["run", work]).await;
    world.run(["trust"]).await;

    let failed = world.run(["dispatch", "--once"]).await;
    let shown = world.run(["subscriptions", "show", "ended"]).await;
    world.repo.write("tell.sh", "exit 0\n").unwrap();
    let retried = world.run(["subscriptions", "retry", "ended"]).await;
    let untrusted = world.run(["dispatch", "--once"]).await;
    world.run(["trust"]).await;
    let (code, lanes) = once(&world).await;
    let nothing = world.run(["subscriptions", "retry", "ended", "--delivery", "1"]).await;
    let other = world.run(["subscriptions", "show", "endet"]).await;

    assert_eq!(failed.code, Some(1), "{failed:#?}");
    let told = "sh tell.sh ended with exit code 3: nobody is there";
    assert_eq!(failed.stdout.matches(told).count(), 2, "{failed:#?}");
    assert!(failed.stdout.contains("0 done, 1 given up"), "{failed:#?}");
    assert!(shown.stdout.contains("given up: @") && shown.stdout.contains(told), "{shown:#?}");
    assert_eq!(retried.code, Some(0), "{retried:#?}");
    assert_eq!(untrusted.code, Some(3), "{untrusted:#?}");
    assert_eq!((code, &lanes[0]["delivered"]), (Some(0), &json!(1)), "{lanes:#}");
    assert_eq!(world.events("dispatch.retried").await[0]["principal"], "user:ada");
    assert_eq!(nothing.code, Some(1), "{nothing:#?}");
    assert!(other.stderr.contains("nearest is \"ended\""), "{other:#?}");
}

#[tokio::test]
async fn a_command_of_a_subscription_writes_nothing_and_its_program_is_trusted_each_time() {
    let world = World::new().await;
    world.repo.write("tell.sh", "touch PWN\n").unwrap();
    subscribe(
        &world,
        "ended",
        "[[actions]]\ncommand = [\"sh\", \"tell.sh\"]\nretry = { attempts = 1 }\n",
    );
    // It waits, and so does what follows: by then its program is another one.
    let work = world.workflow("[[tasks]]\nname = \"one\"\ncommand = [\"true\"]\n");
    world.run(["run", work]).await;
    world.run(["trust"]).await;

    let (code, lanes) = once(&world).await;

    assert_eq!((code, &lanes[0]["dead"]), (Some(1), &json!(1)), "{lanes:#}");
    assert!(!world.path("PWN").exists());
}

#[tokio::test]
async fn behaviour_36_a_request_is_sent_with_its_key_and_its_secret_where_they_may_go() {
    let hook = Server::start().await.unwrap();
    hook.reply("/told", Reply::text(503, "not now"));
    hook.reply("/told", Reply::text(202, "thanks"));
    let host = hook.url().trim_start_matches("http://").to_owned();
    let world = World::with(&format!(
        "[secrets]\nHOOK = {{ env = \"HOOK_TOKEN\" }}\nOTHER = {{ env = \"HOOK_TOKEN\" }}\n\
         [permissions]\nmode = \"auto\"\n[permissions.http]\nhosts = [{host:?}]\nallow_private = [{host:?}]\n\
         secrets = {{ HOOK = [{host:?}] }}\n"
    ))
    .await;
    let action = |url: &str, secret: &str| {
        format!(
            "[[actions]]\nwebhook = {{ url = \"{url}\", headers = {{ authorization = \"Bearer {{{{secret:{secret}}}}}\" }} }}\n\
             retry = {{ attempts = 2, delay = \"0s\" }}\n"
        )
    };
    subscribe(&world, "ended", &action(&format!("http://{host}/told"), "HOOK"));
    subscribe(&world, "other", &action(&format!("http://{host}/told"), "OTHER"));
    subscribe(&world, "beyond", &action("http://docs.rs/told", "HOOK"));
    let work = world.workflow("[[tasks]]\nname = \"one\"\ncommand = [\"true\"]\n");
    let with_key = |arguments: &[&str]| {
        let mut command = world.formwork(arguments);
        command.env("HOOK_TOKEN", "a-very-secret-token");
        end_of(command.spawn().unwrap())
    };
    with_key(&["run", work]).await;
    world.run(["trust"]).await;

    let ended = with_key(&["dispatch", "--once", "--json"]).await;

    let lanes = ended.json()["subscriptions"].clone();
    let of = |name: &str| {
        lanes.as_array().unwrap().iter().find(|it| it["name"] == name).unwrap().clone()
    };
    assert_eq!(
        (&of("ended")["delivered"], &of("ended")["failed"]),
        (&json!(1), &json!(1)),
        "{lanes:#}"
    );
    let requests = hook.requests();
    assert_eq!(requests.len(), 2, "{requests:#?}");
    assert_eq!(requests[0].header("authorization"), Some("Bearer a-very-secret-token"));
    let body: Value = serde_json::from_slice(&requests[1].body).unwrap();
    assert_eq!((&body["attempt"], &body["event"]["kind"]), (&json!(2), &json!("run.finished")));
    assert_eq!(requests[0].header("idempotency-key"), body["key"].as_str());
    let dead = world.events("dispatch.dead").await;
    let mut why: Vec<_> = dead.iter().map(|it| it["data"]["reason"].as_str().unwrap()).collect();
    why.sort_unstable();
    assert!(why[0].starts_with("secret HOOK may not be sent to docs.rs:80"), "{why:#?}");
    assert!(why[1].starts_with(&format!("secret OTHER may not be sent to {host}")), "{why:#?}");
    let whole = world.run(["events", "--limit", "1000", "--jsonl"]).await.stdout;
    assert!(!whole.contains("a-very-secret-token"));
}

async fn survives_a_kill(world: World) {
    let waits = "format_version = 1\nname = \"after\"\n[[tasks]]\nname = \"left\"\n\
        wait_for = { event = \"go\", timeout = \"1h\" }\n";
    world.repo.write(".formwork/workflows/after.toml", waits).unwrap();
    subscribe(&world, "ended", "[[actions]]\nworkflow = \"after\"\n");
    let work = world.workflow("[[tasks]]\nname = \"one\"\ncommand = [\"true\"]\n");
    world.run(["run", work]).await;
    world.run(["trust"]).await;
    let first = world.formwork(["dispatch"]).spawn().unwrap();
    while world.events("task.suspended").await.is_empty() {}

    let beside = once(&world).await;
    signal(&first, Signal::KILL);
    end_of(first).await;
    let fired = world.run(["events", "fire", "go"]).await;
    let (code, lanes) = once(&world).await;

    assert!(beside.1[0]["held_by"].is_string(), "{:#}", beside.1);
    assert_eq!(fired.code, Some(0), "{fired:#?}");
    assert_eq!((code, &lanes[0]["delivered"]), (Some(0), &json!(1)), "{lanes:#}");
    let runs = world.json(["runs", "list"]).await;
    let named = runs["runs"].as_array().unwrap().iter().filter(|run| run["name"] == "after");
    let states: Vec<_> = named.map(|run| run["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["completed"], "one run, taken up where it was left");
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_36_a_workflow_whose_dispatcher_was_killed_is_taken_up_and_not_begun_again() {
    survives_a_kill(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_36_a_workflow_whose_dispatcher_was_killed_is_taken_up_and_not_begun_again() {
    on_postgres(survives_a_kill).await;
}

#[tokio::test]
async fn every_fault_of_a_subscription_is_told_by_validate_and_nothing_is_dispatched() {
    let world = World::new().await;
    subscribe(
        &world,
        "wrong",
        "when = \"dat.x\"\n[[actions]]\nwebhook = { url = \"http://x/\", headers = { host = \"y\" } }\n\
         [[actions]]\nworkflow = \"nothing\"\n",
    );
    let text = world.repo.read(".formwork/subscriptions/wrong.toml").unwrap();
    let path = ".formwork/subscriptions/wrong.toml";
    world.repo.write(path, text.replace("name = \"wrong\"", "name = \"right\"")).unwrap();

    let told = world.run(["validate"]).await;
    let dispatched = world.run(["dispatch", "--once"]).await;
    let schema = world.run(["schema", "subscription"]).await;

    assert_eq!((told.code, dispatched.code), (Some(3), Some(3)), "{told:#?}");
    for fault in [
        "a subscription stands in the file of its name, right.toml",
        "nothing is known as \"dat\" of an event",
        "\"host\" is set by the connection itself",
        "there is no workflow nothing",
    ] {
        assert!(told.stderr.contains(fault), "{fault}: {told:#?}");
        assert!(dispatched.stderr.contains(fault), "{fault}: {dispatched:#?}");
    }
    assert!(schema.stdout.contains("\"accumulate\""), "{schema:#?}");
}
