//! A run that came from a file says what its maker wanted it to say.

use serde_json::{Value, json};

use crate::{answers::ends, world::World};

#[tokio::test]
async fn what_came_from_a_file_is_read_and_never_acted_on() {
    let world = World::new().await;
    world.server.reply(&World::chat("one"), ends("nothing"));
    world.run(["run", "-m", "Say something."]).await;
    let ended = world.shown().await["run"]["run"].as_str().unwrap().to_owned();
    let forked = world.json(["runs", "fork", &ended]).await;
    let open = forked["run"].as_str().unwrap().to_owned();
    let there = format!("sqlite://{}", world.path("there.db").display());
    let on = async |arguments: &[&str]| {
        world.run([arguments, &["--database-url", &there]].concat()).await
    };
    for run in [&ended, &open] {
        let file = world.path(format!("{run}.jsonl"));
        let file = file.to_str().unwrap();
        world.json(["runs", "export", run, "-o", file]).await;
        assert_eq!(on(&["runs", "import", file]).await.code, Some(0));
    }
    let asked = world.server.requests().len();

    let refused = [
        (on(&["runs", "resume", &open]).await, "resumed"),
        (on(&["runs", "fork", &ended]).await, "forked"),
        (on(&["runs", "rewind", &ended, "--to", "3"]).await, "rewound"),
        (on(&["undo", &ended]).await, "taken back"),
    ];
    let unnamed = on(&["runs", "resume"]).await;
    let list = on(&["runs", "list", "--json"]).await;
    let first = on(&["runs", "list", "-n", "1", "--json"]).await.json();
    let replayed = on(&["replay", &ended]).await;

    for (ended, verb) in refused {
        assert_eq!(ended.code, Some(2), "{ended:#?}");
        assert!(ended.stderr.contains(&format!("was imported and cannot be {verb}")), "{ended:#?}");
    }
    assert_eq!(unnamed.code, Some(1), "{unnamed:#?}");
    assert!(unnamed.stderr.contains("waits to be resumed"), "{unnamed:#?}");
    let list: Value = serde_json::from_str(&list.stdout).unwrap();
    assert_eq!((&list["imported"], &list["more"]), (&json!([open, ended]), &json!(false)));
    assert_eq!((&first["imported"], &first["more"]), (&json!([open]), &json!(true)));
    assert_eq!(replayed.code, Some(0), "{replayed:#?}");
    assert_eq!(world.server.requests().len(), asked, "nobody was asked anything");
}
