//! Documents: written, validated, described; and the config that comes of them.

use insta::assert_snapshot;

use crate::world::World;

#[test]
fn every_fault_of_a_workflow_is_shown_at_its_place() {
    let world = World::new();
    world.put(
        ".formwork/workflows/release.toml",
        r#"format_version = 1
name = "release"

[[tasks]]
name = "build"
command = ["make"]
depends_on = ["tset"]

[[tasks]]
name = "test"
agent = "codr"
prompt = "Test {{verson}}."
depends_on = ["build"]
"#,
    );

    assert_snapshot!(world.run(&["validate"]));
}

#[test]
fn a_key_that_does_not_exist_is_not_passed_over() {
    let world = World::new();
    let faulty = "format_version = 1\nproviderz = {}\n\n[budget]\nusd = 5.0\nround = 3\n";
    world.put("formwork.toml", faulty);

    assert_snapshot!(world.run(&["validate", "formwork.toml"]));
}

#[test]
fn a_workflow_that_waits_for_itself_is_at_fault() {
    let world = World::new();
    world.put(
        "loop.toml",
        r#"format_version = 1
name = "loop"

[[tasks]]
name = "egg"
command = ["true"]
depends_on = ["hen"]

[[tasks]]
name = "hen"
command = ["true"]
depends_on = ["egg"]
"#,
    );

    assert_snapshot!(world.run(&["validate", "loop.toml"]));
}

#[test]
fn models_that_documents_name_are_held_to_as_a_run_would() {
    let world = World::new();
    // It is not trusted, and held to its rules all the same: nothing is sent by it and no key is read.
    world.put(
        "formwork.toml",
        r#"format_version = 1

[providers.local]
kind = "ollama"
base_url = "http://127.0.0.1:1"
api_key = { env = "NOT_SET" }

[models."local/good"]
price = "local"

[models."local/chained"]
price = "local"
fallback = ["local/good", "cloud/none"]

[categories]
default = "local/dear"
small = "local/good"
"#,
    );
    let agent = |name: &str, model: &str| {
        let text = format!(
            "format_version = 1\nname = \"{name}\"\n{model}\nprompt = \"{name}.md\"\n[tools]\nallow = [\"fs.read\"]\n"
        );
        world.put(&format!(".formwork/agents/{name}.toml"), &text);
        world.put(&format!(".formwork/agents/{name}.md"), "You read.\n");
    };
    agent("fine", "category = \"small\"");
    agent("lost", "category = \"reasoning\"");
    agent("far", "model = \"cluod/m\"");
    world.put(
        ".formwork/workflows/read.toml",
        "format_version = 1\nname = \"read\"\n[[tasks]]\nname = \"a\"\nagent = \"far\"\nprompt = \"Read.\"\n",
    );

    assert_snapshot!(world.run(&["validate"]));
}

#[test]
fn the_starting_set_is_valid() {
    let world = World::new();

    let init = world.run(&["init"]);
    let again = world.run(&["init"]);
    let validate = world.run(&["validate"]);

    assert_snapshot!("init", init);
    assert_snapshot!("init_again", again);
    assert_eq!((validate.code, validate.stdout.as_str()), (0, "3 documents are valid\n"));
}

#[test]
fn a_workspace_without_documents_says_how_to_begin() {
    assert_snapshot!(World::new().run(&["validate"]));
}

#[test]
fn the_config_says_where_each_value_came_from() {
    let world = World::new().set("FORMWORK_SANDBOX", "auto");
    world.put("formwork.toml", "format_version = 1\n[budget]\nusd = \"2.50\"\nrounds = 40\n");
    world.put("../config/config.toml", "format_version = 1\n[budget]\nusd = \"9\"\n");

    let ran = world.run(&["config", "show", "--origin", "--database-url", "sqlite:///tmp/a.db"]);

    assert_snapshot!(ran);
}

#[test]
fn the_config_is_shown_without_the_credentials_in_its_addresses() {
    let world = World::new().set("FORMWORK_DATABASE_URL", "postgres://ada:geheimnis@127.0.0.1:1/x");
    world.put(
        "given.toml",
        "format_version = 1\n[providers.p]\nkind = \"openai\"\nbase_url = \"http://u:pw1@h/v1?key=pw2\"\n",
    );

    for json in [&[][..], &["--json"][..]] {
        let ran = world.run(&[&["config", "show", "--config", "given.toml"][..], json].concat());

        assert_eq!(ran.code, 0, "{ran}");
        assert!(ran.stdout.contains("…@127.0.0.1:1/x") && ran.stdout.contains("…@h/v1?…"), "{ran}");
        for secret in ["geheimnis", "pw1", "pw2"] {
            assert!(!ran.stdout.contains(secret) && !ran.stderr.contains(secret), "{ran}");
        }
    }
}

#[test]
fn a_config_that_reaches_out_has_no_effect_before_it_is_trusted() {
    let world = World::new();
    world.put("formwork.toml", "format_version = 1\n[permissions]\nmode = \"auto\"\n");

    let before = world.run(&["config", "show"]);
    let trust = world.run(&["trust"]);
    let after = world.run(&["config", "show"]);
    world.put("formwork.toml", "format_version = 1\n[permissions]\nmode = \"edit\"\n");
    let changed = world.run(&["config", "show"]);

    assert_snapshot!("untrusted", before);
    assert_eq!(trust.code, 0, "{trust}");
    assert!(after.stdout.contains("permissions.mode = \"auto\"\n"), "{after}");
    assert!(changed.stdout.contains("permissions.mode = \"ask\"\n"), "{changed}");
}

#[test]
fn each_document_has_a_schema_that_is_one() {
    let world = World::new();

    for document in ["config", "agent", "workflow", "script", "event"] {
        let ran = world.run(&["schema", document]);

        let schema: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{document}");
        let dialect = "https://json-schema.org/draft/2020-12/schema";
        assert_eq!(schema["$schema"], dialect, "{document}");
    }
}

#[test]
fn the_schema_of_a_workflow_names_its_keys() {
    let ran = World::new().run(&["schema", "workflow"]);

    let schema: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let keys: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    assert_snapshot!(format!("{}\nrequired: {}", serde_json::json!(keys), schema["required"]));
}
