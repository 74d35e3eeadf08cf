//! What is sent from outside: let in by its signature, recorded once, told to who waits for it, and read by cursor without loss.

use std::{collections::BTreeSet, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use formwork_protocols::{Clock as _, SystemClock, document};
use formwork_services::{
    Builder, Formwork,
    config::Config,
    sources::{Arrival, Headers, Received, Receiver, Refusal},
    trust::{self, Kind},
};
use ring::hmac;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    flow::suspended,
    world::{World, end_of, on_postgres},
};

const FORGE: &str = r#"
format_version = 1
name = "forge"
description = "Reviews of the forge."
slug = "forge-7f3a"
secrets = ["{{secret:HOOK}}"]
scheme = "hmac"

[signature]
header = "x-forge-signature"
encoding = "base64"
prefix = "v1="

[event]
header = "x-forge-event"
names = { review = "review" }

[delivery]
header = "x-forge-delivery"
"#;

const SECRET: &str = "hook-secret-of-the-forge";

/// A task that waits for a review, and one that does something by it.
const WAITS: &str = r#"
[[tasks]]
name = "review"
wait_for = { event = "review", where = "data.pull.number == 3" }

[[tasks]]
name = "paint"
depends_on = ["review"]
command = ["touch", "{{tasks.review.output.by}}"]
"#;

fn signature(secret: &str, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    STANDARD.encode(hmac::sign(&key, body))
}

/// Who receives, in the place of a server.
struct Hook {
    formwork: Formwork,
    receiver: Receiver,
}

impl Hook {
    /// Opens the address of the forge on a world's own log.
    async fn open(world: &World) -> Self {
        world.repo.write(".formwork/sources/forge.toml", FORGE).unwrap();
        let workspace = world.repo.path().canonicalize().unwrap();
        for file in trust::brought(&workspace, &[]).unwrap() {
            if file.kind == Kind::Source {
                trust::trust(&world.state(), &workspace, &file).unwrap();
            }
        }
        let text = "format_version = 1\n[secrets]\nHOOK = { env = \"HOOK_TOKEN\" }\n";
        let mut config = document::parse::<Config>("config.toml", text).unwrap().value;
        config.database_url = world.database().map(str::to_owned);
        let builder = Builder::new(workspace).state(world.state()).config(config);
        let formwork = builder.environment([("HOOK_TOKEN", SECRET)]).build().await.unwrap();
        let receiver = Receiver::open(&formwork).unwrap();
        assert_eq!(receiver.left_out(), []);
        Self { formwork, receiver }
    }

    async fn sent(&self, delivery: &str, secret: &str, data: Value) -> Result<Received, Refusal> {
        let body = data.to_string();
        let signature = format!("v1={}", signature(secret, body.as_bytes()));
        let headers: Headers<'_> = &[
            ("X-Forge-Event", b"review"),
            ("X-Forge-Delivery", delivery.as_bytes()),
            ("X-Forge-Signature", signature.as_bytes()),
        ];
        let (body, at) = (body.as_bytes(), SystemClock.now());
        self.receiver.receive(Arrival { slug: "forge-7f3a", headers, body, at }).await
    }

    async fn reviewed(&self, delivery: &str, number: u32, by: &str) -> Received {
        let data = json!({ "pull": { "number": number }, "by": by });
        self.sent(delivery, SECRET, data).await.unwrap()
    }
}

async fn wakes(world: World) {
    let hook = Hook::open(&world).await;
    let work = world.workflow(WAITS);
    let program = world.formwork(["run", work]).spawn().unwrap();
    suspended(&world, "review").await;

    let refused = hook.sent("d-0", "another-secret", json!({ "pull": { "number": 3 } })).await;
    let other = hook.reviewed("d-1", 4, "bob").await;
    let meant = hook.reviewed("d-2", 3, "ada").await;
    let ended = end_of(program).await;
    let second = world.formwork(["run", work]).spawn().unwrap();
    suspended(&world, "review").await;
    // Sent once more, since an answer was lost: whoever has begun since waits for what happens from then on.
    let again = hook.reviewed("d-2", 3, "eve").await;
    let next = hook.reviewed("d-3", 3, "cyd").await;
    let later = end_of(second).await;
    hook.receiver.close().await;
    let shown = world.run(["sources", "show", "forge"]).await;

    assert_eq!(refused.unwrap_err().status(), 401);
    assert_eq!((other.runs.len(), meant.runs.len()), (1, 1));
    assert_eq!((ended.code, later.code), (Some(0), Some(0)), "{ended:#?}\n{later:#?}");
    assert!(world.path("ada").exists() && world.path("cyd").exists());
    assert!(!world.path("eve").exists());
    assert_eq!((again.event, again.duplicate, again.runs), (meant.event, true, Vec::new()));
    assert_eq!(next.runs.len(), 1);
    let fired = world.events("external.fired").await;
    assert_eq!((fired.len(), &fired[0]["principal"]), (3, &json!("source:forge")), "{fired:#?}");
    assert_eq!(world.events("external.received").await.len(), 3);
    for line in
        ["3 received", "1 came again", "1 refused", "(d-3)", "with the signature of no secret"]
    {
        assert!(shown.stdout.contains(line), "{line}: {shown:#?}");
    }
    hook.formwork.close().await;
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_38_a_task_that_waits_is_woken_by_what_is_sent_and_not_by_what_is_sent_again() {
    wakes(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_38_a_task_that_waits_is_woken_by_what_is_sent_and_not_by_what_is_sent_again()
{
    on_postgres(wakes).await;
}

/// How many are sent at once, and how many each sends.
const SENDERS: u32 = 4;
const EACH: u32 = 12;

async fn is_read_whole(world: World) {
    let hook = Arc::new(Hook::open(&world).await);
    world.repo.write("tell.sh", "exit 0\n").unwrap();
    let subscription = "format_version = 1\nname = \"reviews\"\nbegin = \"beginning\"\n[filter]\n\
        kinds = [\"external.*\"]\nsources = [\"forge\"]\n[[actions]]\ncommand = [\"sh\", \"tell.sh\"]\n";
    world.repo.write(".formwork/subscriptions/reviews.toml", subscription).unwrap();
    world.run(["trust"]).await;
    let mut senders = JoinSet::new();
    for sender in 0..SENDERS {
        let hook = Arc::clone(&hook);
        senders.spawn(async move {
            for number in 0..EACH {
                // Each is sent twice, as by whoever has missed the answer.
                for _ in 0..2 {
                    hook.reviewed(&format!("{sender}-{number}"), number, "ada").await;
                }
            }
        });
    }

    let (mut cursor, mut seen) = ("0".to_owned(), Vec::new());
    loop {
        let is_over = senders.is_empty();
        // Each page is read by a process of its own, which knows the cursor and nothing else.
        let read = ["events", "--kind", "external.", "--after", &cursor, "--limit", "5"];
        let page = world.json(read).await;
        let events = page["events"].as_array().unwrap();
        seen.extend(events.iter().filter(|it| it["kind"] == "external.received").cloned());
        cursor = page["next"].to_string();
        if is_over && events.is_empty() {
            break;
        }
        while let Some(sent) = senders.try_join_next() {
            sent.unwrap();
        }
    }
    let first = world.json(["dispatch", "--once"]).await;
    hook.reviewed("last", 1, "ada").await;
    let second = world.json(["dispatch", "--once"]).await;

    let deliveries: Vec<&str> =
        seen.iter().map(|event| event["data"]["delivery"].as_str().unwrap()).collect();
    let once: BTreeSet<&str> = deliveries.iter().copied().collect();
    let all = usize::try_from(SENDERS * EACH).unwrap();
    assert_eq!((deliveries.len(), once.len()), (all, all), "{deliveries:?}");
    assert!(seen.is_sorted_by_key(|event| event["position"].as_u64()));
    assert_eq!(first["subscriptions"][0]["delivered"], json!(all), "{first:#}");
    assert_eq!(second["subscriptions"][0]["delivered"], json!(1), "{second:#}");
    hook.formwork.close().await;
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_38_who_dies_and_reads_on_from_a_cursor_sees_each_event_once_while_others_append()
{
    is_read_whole(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_38_who_dies_and_reads_on_from_a_cursor_sees_each_event_once_while_others_append()
 {
    on_postgres(is_read_whole).await;
}

#[tokio::test]
async fn a_source_is_listed_checked_and_shown_to_whoever_trusts_it() {
    let world = World::new().await;
    world.repo.write(".formwork/sources/forge.toml", FORGE).unwrap();

    let before = world.run(["sources", "list"]).await;
    let trusted = world.run(["trust"]).await;
    let after = world.json(["sources", "list"]).await;
    let valid = world.run(["validate"]).await;
    world.repo.write(".formwork/sources/fork.toml", FORGE.replace("forge\"", "fork\"")).unwrap();
    let twice = world.run(["validate"]).await;
    let none = world.run(["sources", "show", "forgd"]).await;

    assert!(before.stdout.contains("not trusted, nothing received yet"), "{before:#?}");
    assert!(
        trusted.stdout.contains("lets whoever has the secret HOOK tell of review"),
        "{trusted:#?}"
    );
    let listed = &after["sources"][0];
    assert_eq!(listed["path"], "/incoming/events/forge-7f3a", "{after:#}");
    assert_eq!((&listed["trusted"], &listed["received"]), (&json!(true), &json!(0)), "{after:#}");
    assert_eq!(valid.code, Some(0), "{valid:#?}");
    assert!(twice.stderr.contains("another source has the slug"), "{twice:#?}");
    assert!(none.stderr.contains("nearest is \"forge\""), "{none:#?}");
}
