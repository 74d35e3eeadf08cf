//! The log as a whole: moved, archived, verified, signed.

use std::path::PathBuf;

use formwork_protocols::{
    Append, Clock as _, EventBody, EventStore as _, NewEvent, Principal, RunId, SystemClock,
    SystemRng,
};
use formwork_testkit::postgres::Postgres;
use formwork_trace::{Options, Trace};
use serde_json::{Value, json};

use crate::{
    answers::{calls, ends},
    workflow::{states, three, work},
    world::{World, on_postgres},
};

/// Runs three tasks to their end and returns the run.
async fn ran(world: &World) -> String {
    let workflow = three(world);
    for (provider, name, text) in
        [("one", "left", "left"), ("two", "right", "right"), ("three", "both", "left right")]
    {
        world.server.reply(&World::chat(provider), calls(&work(name, text)));
        world.server.reply(&World::chat(provider), ends(name));
    }
    let ended = world.run(["run", workflow]).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    world.shown().await["run"]["run"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn pg_a_run_moves_from_a_file_to_a_server_and_back_whole() {
    let Some(cluster) = Postgres::shared() else { return };
    let database = cluster.database().unwrap();
    let world = World::new().await;
    let run = ran(&world).await;
    let (file, back) = (world.path("run.jsonl.zst"), world.path("back.jsonl"));
    let (file, back) = (file.to_str().unwrap(), back.to_str().unwrap());

    let there = world.json(["runs", "export", &run, "-o", file]).await;
    let server = ["--database-url", database.url()];
    let on_server = async |arguments: &[&str]| world.json([arguments, &server].concat()).await;
    let imported = on_server(&["runs", "import", file]).await;
    let again = on_server(&["runs", "import", file]).await;

    assert!(there["events"].as_u64().unwrap() > 30 && there["blobs"].as_u64().unwrap() > 5);
    assert_eq!(
        imported,
        json!({ "version": 1, "imported": [run], "restored": [], "identical": [] })
    );
    assert_eq!(again, json!({ "version": 1, "imported": [], "restored": [], "identical": [run] }));
    assert_eq!(on_server(&["runs", "show", &run]).await, world.shown().await);
    let verified = on_server(&["db", "verify"]).await;
    assert_eq!(verified["sound"], true, "{verified:#}");
    assert_eq!(verified["views_digest"], world.json(["db", "verify"]).await["views_digest"]);
    // What comes back is what went, byte for byte.
    on_server(&["runs", "export", &run, "-o", back]).await;
    let printed = world.run(["runs", "export", &run, "-o", "-"]).await;
    assert_eq!(std::fs::read_to_string(back).unwrap(), printed.stdout);
}

#[tokio::test]
async fn a_bundle_that_was_tampered_with_is_refused_and_nothing_is_recorded() {
    let world = World::new().await;
    let run = ran(&world).await;
    let file = world.path("run.jsonl");
    let name = file.to_str().unwrap();
    world.json(["runs", "export", &run, "-o", name]).await;
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("user:ada", "user:eve")).unwrap();
    let other = format!("sqlite://{}", world.path("other.db").display());

    let refused = world.run(["runs", "import", name, "--database-url", &other]).await;
    let over = world.run(["runs", "export", &run, "-o", name]).await;
    let status = world.json(["db", "status", "--database-url", &other]).await;

    assert_eq!(refused.code, Some(2), "{refused:#?}");
    let told =
        format!("formwork: line 3 of the bundle: event 1 of run {run} is not what was written");
    assert!(refused.stderr.starts_with(&told), "{refused:#?}");
    assert_eq!((&status["events"], &status["blobs"]), (&json!(0), &json!(0)));
    assert_eq!(over.code, Some(3), "{over:#?}");
    assert!(over.stderr.contains("it is there already"), "{over:#?}");
}

#[tokio::test]
async fn what_is_no_file_is_not_replaced_by_a_bundle() {
    let world = World::new().await;
    let run = ran(&world).await;
    std::os::unix::fs::symlink("elsewhere", world.path("link")).unwrap();
    std::fs::create_dir(world.path("folder")).unwrap();

    for name in ["link", "folder"] {
        let refused = world.run(["runs", "export", &run, "-o", name, "--force"]).await;

        assert_eq!(refused.code, Some(3), "{refused:#?}");
        assert!(refused.stderr.contains("is no file, and is not replaced"), "{refused:#?}");
    }
    assert!(std::fs::symlink_metadata(world.path("link")).unwrap().is_symlink());
}

async fn looked_after(world: World) {
    let before = world.run(["db", "status"]).await;
    let made = world.json(["db", "init"]).await;
    let migrated = world.json(["db", "migrate"]).await;
    let first = ran(&world).await;
    world.server.reply(&World::chat("one"), ends("nothing"));
    world.run(["run", "-m", "Say something."]).await;
    let sealed = world.json(["audit", "checkpoint"]).await;
    let status = world.json(["db", "status", "--orphans"]).await;
    let rebuilt = world.json(["db", "rebuild"]).await;

    assert_eq!(before.code, Some(3), "{before:#?}");
    assert!(before.stderr.contains("hint: `formwork db init` makes one"), "{before:#?}");
    assert_eq!((&made["state"], &migrated["state"]), (&json!("made"), &json!("present")));
    assert_eq!(sealed["checkpoint"]["runs"], 2);
    assert_eq!(sealed["checkpoint"]["position"], status["head"]);
    assert_eq!(
        status["runs"].as_object().unwrap().values().filter_map(Value::as_u64).sum::<u64>(),
        2
    );
    assert_eq!((&status["waiting"], &status["orphans"]["blobs"]), (&json!(0), &json!(0)));
    assert_eq!(rebuilt["mended"], json!([]));

    // The second holds the last event, so it stays.
    let folder = world.path("away");
    let away = folder.to_str().unwrap();
    let left = world.json(["db", "archive", "--older-than", "0s", "--output", away]).await;
    assert_eq!(left["runs"], json!([first]), "{left:#}");
    assert!(left["pruned"]["blobs"].as_u64().unwrap() > 0, "{left:#}");
    world.json(["db", "vacuum"]).await;
    let verified = world.json(["db", "verify"]).await;
    assert_eq!(verified["sound"], true, "{verified:#}");
    assert_eq!(verified["log"]["archived"][0]["run"], json!(first));
    assert_eq!(world.json(["runs", "list"]).await["runs"].as_array().unwrap().len(), 1);

    // Where the archive is not what was written, or is not there, nobody knows of its runs.
    let file = PathBuf::from(left["file"].as_str().unwrap());
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, b"another").unwrap();
    let changed = world.run(["audit", "verify"]).await;
    std::fs::remove_file(&file).unwrap();
    let gone = world.run(["audit", "verify"]).await;
    let moved = world.path("moved");
    std::fs::create_dir(&moved).unwrap();
    std::fs::write(moved.join(file.file_name().unwrap()), &bytes).unwrap();
    let found = world.run(["audit", "verify", "--archives", moved.to_str().unwrap()]).await;
    std::fs::write(&file, &bytes).unwrap();
    assert_eq!((changed.code, gone.code, found.code), (Some(2), Some(2), Some(0)), "{found:#?}");
    assert!(changed.stdout.contains("is said to be in the archive"), "{changed:#?}");
    assert!(gone.stdout.contains("cannot be read: No such file"), "{gone:#?}");

    let back = world.json(["runs", "import", left["file"].as_str().unwrap()]).await;
    assert_eq!((&back["restored"], &back["imported"]), (&json!([first]), &json!([])));
    let shown = world.json(["runs", "show", &first]).await;
    assert!(states(&shown).contains(&("both", "completed")), "{shown:#}");
    let audit = world.json(["audit", "verify"]).await;
    assert_eq!(audit["sound"], true, "{audit:#}");
    assert_eq!((&audit["checkpoints"][0]["known"], &audit["archived"]), (&json!(true), &json!([])));
}

#[tokio::test]
async fn a_store_is_made_measured_archived_and_verified() {
    looked_after(World::new().await).await;
}

#[tokio::test]
async fn pg_a_store_is_made_measured_archived_and_verified() {
    on_postgres(looked_after).await;
}

#[tokio::test]
async fn a_store_that_was_put_back_to_an_older_copy_is_found_by_the_checkpoint_beside_it() {
    let world = World::new().await;
    ran(&world).await;
    let file = world.state().join("formwork.db");
    let older = std::fs::read(&file).unwrap();
    world.server.reply(&World::chat("one"), ends("nothing"));
    world.run(["run", "-m", "Say something."]).await;
    let sealed = world.run(["audit", "checkpoint", "--json"]).await;
    let kept = world.path("kept.json");
    std::fs::write(&kept, &sealed.stdout).unwrap();
    std::fs::write(&file, older).unwrap();

    let beside = world.run(["audit", "verify"]).await;
    std::fs::remove_file(world.state().join("checkpoints.jsonl")).unwrap();
    let without = world.run(["audit", "verify"]).await;
    let elsewhere = world.run(["audit", "verify", "--checkpoint", kept.to_str().unwrap()]).await;

    assert_eq!(without.code, Some(0), "{without:#?}");
    for found in [beside, elsewhere] {
        assert_eq!(found.code, Some(2), "{found:#?}");
        assert!(
            found.stdout.contains("the log ends before it: events are missing at the end"),
            "{found:#?}"
        );
    }
}

#[cfg(unix)]
#[tokio::test]
async fn the_key_of_checkpoints_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new().await;
    ran(&world).await;
    let first = world.json(["audit", "checkpoint"]).await;
    let key = world.state().join("audit.key");
    let mode = std::fs::metadata(&key).unwrap().permissions().mode() & 0o777;
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();

    let refused = world.run(["audit", "checkpoint"]).await;

    assert_eq!((mode, &first["key_made"]), (0o600, &json!(true)));
    assert_eq!(refused.code, Some(3), "{refused:#?}");
    assert!(refused.stderr.contains("others can read or write it"), "{refused:#?}");
}

#[tokio::test]
async fn so_many_events_as_are_asked_for_are_told_however_many_a_page_has() {
    let world = World::new().await;
    world.json(["db", "init"]).await;
    let url = format!("sqlite://{}", world.state().join("formwork.db").display());
    let trace = Trace::open(&url, Options::default()).await.unwrap();
    let run = RunId::generate(&SystemClock, &SystemRng);
    for _ in 0..21 {
        let note = |_| NewEvent {
            task: None,
            principal: Principal::system("test"),
            at: SystemClock.now(),
            body: EventBody::Unknown { kind: "test.note".to_owned(), data: json!({}) },
            idempotency_key: None,
        };
        let events = (0..500).map(note).collect();
        trace.append(Append { run, token: None, events, blobs: vec![] }).await.unwrap();
    }
    trace.close().await;

    let many = world.run(["events", "-n", "10400"]).await;
    let all = world.run(["events", "-n", "20000", "--jsonl"]).await;
    let page = world.json(["events", "-n", "20000"]).await;

    assert_eq!(many.stdout.lines().count(), 10_400);
    assert_eq!(many.stderr, "there are more: --after 10400 goes on\n");
    assert_eq!((all.stdout.lines().count(), all.stderr.as_str()), (10_500, ""));
    assert_eq!(page["events"].as_array().unwrap().len(), 10_500);
    assert_eq!((&page["more"], &page["next"]), (&json!(false), &json!(10_500)));
    // All of a run, and a page of the log, where nobody says how many.
    let run = run.to_string();
    let whole = world.json(["events", &run]).await;
    let some = world.json(["events"]).await;
    let len = |page: &serde_json::Value| page["events"].as_array().unwrap().len();
    assert_eq!((len(&whole), &whole["more"]), (10_500, &json!(false)));
    assert_eq!((len(&some), &some["more"]), (1_000, &json!(true)));
}

#[tokio::test]
async fn one_document_is_not_printed_as_things_happen() {
    let world = World::new().await;

    let refused = world.run(["events", "--json", "--follow"]).await;

    assert_eq!(refused.code, Some(64), "{refused:#?}");
    assert!(refused.stdout.contains("--jsonl prints each event"), "{refused:#?}");
}
