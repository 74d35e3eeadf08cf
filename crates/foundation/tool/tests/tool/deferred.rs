//! Tools that are listed by name, and can be called once they are loaded.

use formwork_protocols::{PermissionMode, Toolbox as _};
use serde_json::json;

use crate::world::{Setup, World};

const DEFERRED: &[&str] = &["fs.copy", "fs.move", "fs.diff"];

fn offered(world: &World) -> Vec<String> {
    let offered = world.pipeline.offered().into_iter();
    offered.map(|spec| spec.definition.name.to_string()).collect()
}

#[tokio::test]
async fn behaviour_29_a_deferred_tool_is_listed_by_name_and_usable_once_it_is_loaded() {
    let world = World::with(Setup { deferred: DEFERRED, ..Setup::default() });
    world.put("a.txt", "a\n");
    let before = offered(&world);
    let copy = || json!({ "from": "a.txt", "to": "b.txt" });

    let early = world.fails("fs.copy", copy()).await;
    let loaded = world.done("load_tools", json!({ "names": ["fs_move", "fs.copy"] })).await;
    world.done("fs.copy", copy()).await;

    assert_eq!(
        early,
        "error (unknown_tool): fs.copy was not called: load it with load_tools first"
    );
    assert_eq!(loaded, "loaded fs.move, fs.copy");
    assert_eq!(world.content("b.txt"), "a\n");
    assert!(before.iter().all(|name| !DEFERRED.contains(&name.as_str())), "{before:?}");
    let load =
        world.pipeline.offered().into_iter().find(|it| it.definition.name.as_str() == "load_tools");
    let told = load.unwrap().definition.description;
    assert_eq!(told, "Load more tools, to be called from then on: fs.copy, fs.diff, fs.move.");
    // What was sent before stays as it was, and what is new stands behind it.
    let after = offered(&world);
    assert_eq!(after[..before.len()], before[..]);
    assert_eq!(after[before.len()..], ["fs.move", "fs.copy"]);
}

#[tokio::test]
async fn a_tool_that_is_none_is_not_loaded_and_the_nearest_is_told() {
    let world = World::with(Setup { deferred: DEFERRED, ..Setup::default() });

    let told = world.fails("load_tools", json!({ "names": ["fs.diff", "fs.cpy"] })).await;

    let expected =
        r#"error (invalid_arguments): there is no tool "fs.cpy" to load; did you mean fs.copy?"#;
    assert_eq!(told, expected);
    assert!(!offered(&world).contains(&"fs.diff".to_owned()));
}

#[tokio::test]
async fn what_the_mode_cannot_use_is_not_listed_either() {
    let mode = PermissionMode::Ask;
    let reads = World::with(Setup { deferred: DEFERRED, mode, ..Setup::default() });
    let none = World::with(Setup { deferred: &["fs.copy"], mode, ..Setup::default() });

    let told = reads.fails("load_tools", json!({ "names": ["fs.copy"] })).await;

    assert!(told.contains("there is no tool"), "{told}");
    reads.done("load_tools", json!({ "names": ["fs.diff"] })).await;
    assert!(!offered(&none).contains(&"load_tools".to_owned()));
}
