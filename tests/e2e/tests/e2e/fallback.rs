//! A chain of models, from the config to the bill in the log.

use formwork_protocols::{Price, Usage, Usd};
use formwork_testkit::http::Reply;

use crate::{answers, world::World};

/// A world whose first model, the dearer one, is followed by that of `two`.
async fn world() -> World {
    let world = World::new().await;
    let config = std::fs::read_to_string(world.config_file()).unwrap();
    let first = "[models.\"one/m\"]\nprice = { input = \"1\", output = \"2\" }\n";
    assert!(config.contains(first));
    let chained = "[models.\"one/m\"]\nprice = { input = \"50\", output = \"100\" }\nfallback = [\"two/m\"]\n";
    std::fs::write(world.config_file(), config.replace(first, chained)).unwrap();
    world
}

#[tokio::test]
async fn another_model_answers_and_its_price_is_paid() {
    let world = world().await;
    world
        .server
        .reply(&World::chat("one"), Reply::json(404, r#"{"error":{"message":"no such model"}}"#));
    world.server.reply_always(&World::chat("two"), answers::says("A README."));

    let ended = world.run(["ask", "What is there?"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let fell = &world.events("model.fell_back").await[0]["data"];
    assert_eq!((&fell["from"], &fell["to"]), (&"one/m".into(), &"two/m".into()));
    assert_eq!(fell["error"]["fault"], "model_not_found");
    let reserved = &world.events("budget.reserved").await[0]["data"];
    let completed = &world.events("model.completed").await[0]["data"];
    assert_eq!(
        (&completed["model"], &completed["served_by"]["provider"]),
        (&"one/m".into(), &"two".into())
    );
    let usage: Usage = serde_json::from_value(completed["usage"].clone()).unwrap();
    let cheap =
        Price { input: "1".parse().unwrap(), output: "2".parse().unwrap(), ..Price::default() };
    assert_eq!(completed["cost"], cheap.cost(&usage).to_string());
    // The reservation covers a thousand tokens of the dearer model's output.
    let reserved: Usd = reserved["usd"].as_str().unwrap().parse().unwrap();
    assert!(reserved > "0.1".parse().unwrap(), "{reserved}");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_chain_in_a_circle_is_told_before_anything_is_sent() {
    let world = world().await;
    let config = std::fs::read_to_string(world.config_file()).unwrap();
    let circle = config.replace("[\"two/m\"]", "[\"two/m\", \"one/m\"]");
    std::fs::write(world.config_file(), circle).unwrap();

    let ended = world.run(["ask", "What is there?"]).await;

    assert_eq!(ended.code, Some(3), "{ended:#?}");
    assert!(ended.stderr.contains("its chain of fallbacks names one/m twice"), "{ended:#?}");
    assert_eq!(world.server.requests().len(), 0);
}
