//! Runs carried out again from what was answered then, without the server that answered.

use formwork_testkit::http::Gate;
use rustix::process::Signal;
use serde_json::json;

use crate::{
    answers::{calls, ending, ends, halted, held, saying},
    workflow::{three, work},
    world::{World, end_of, on_postgres, signal},
};

async fn killed_and_replayed(world: World) {
    let workflow = three(&world);
    let (left, right) = (Gate::new(), Gate::new());
    for (provider, name, gate) in [("one", "left", &left), ("two", "right", &right)] {
        // The first claim is too early, and a check says so.
        world.server.reply(&World::chat(provider), ends("Done already."));
        world.server.reply(&World::chat(provider), calls(&work(name, name)));
        world.server.reply(&World::chat(provider), held(gate, &ending("never heard")));
        world.server.reply(&World::chat(provider), ends(&name.to_uppercase()));
    }
    let open = ("start_task", json!({ "name": "part", "goal": "A part of it." }));
    world.server.reply(&World::chat("three"), calls(&[open]));
    world.server.reply(&World::chat("three"), calls(&work("both", "left right")));
    world.server.reply(&World::chat("three"), ends("The part is done."));
    world.server.reply(&World::chat("three"), ends("BOTH"));
    let program = world.formwork(["run", workflow]).spawn().unwrap();
    left.reached().await;
    right.reached().await;
    signal(&program, Signal::KILL);
    end_of(program).await;
    let resumed = world.run(["runs", "resume"]).await;
    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    let asked = world.server.requests().len();
    std::fs::remove_file(world.path("both.txt")).unwrap();

    let replayed = world.json(["replay"]).await;

    assert_eq!(replayed["divergence"], json!(null), "{replayed:#}");
    assert_eq!(replayed["left"], false);
    assert!(replayed["facts"].as_u64().unwrap() > 60, "{replayed:#}");
    assert_eq!(world.server.requests().len(), asked, "nobody was asked");
    assert!(!world.path("both.txt").exists(), "nothing was written");
    let listed = world.json(["runs", "list"]).await;
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1, "nothing was recorded");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_run_that_was_killed_in_between_is_carried_out_again_without_anybody_to_ask() {
    killed_and_replayed(World::new().await).await;
}

#[tokio::test]
async fn pg_a_run_that_was_killed_in_between_is_carried_out_again_without_anybody_to_ask() {
    on_postgres(killed_and_replayed).await;
}

#[tokio::test]
async fn a_run_that_was_left_is_compared_as_far_as_it_went() {
    let world = World::new().await;
    world.server.reply(&World::chat("one"), calls(&[("fs.read", json!({ "path": "README.md" }))]));
    let gate = Gate::new();
    world.server.reply(&World::chat("one"), halted(&gate, &saying("I think about it.")));
    let program = world.formwork(["run", "-m", "Read it."]).spawn().unwrap();
    gate.reached().await;
    signal(&program, Signal::INT);
    end_of(program).await;

    let replayed = world.run(["replay"]).await;

    assert_eq!(replayed.code, Some(0), "{replayed:#?}");
    assert!(replayed.stdout.contains("went as it did, as far as it went"), "{replayed:#?}");
}
