//! Keys and secrets: where they may be, and where they never are.

use std::path::{Path, PathBuf};

use formwork_testkit::http::Reply;
use serde_json::json;

use crate::{
    answers::{calls, ends},
    world::{World, end_of, on_postgres},
};

const KEY: &str = "sk-formwork-4f1d9c7e2b";
const TOKEN: &str = "tok-deploy-88aa77bb66\"quoted";

/// The key of a provider and a secret of the tools, both from the environment.
const NAMED: &str = "[secrets]\nDEPLOY = { env = \"DEPLOY_TOKEN\" }\n[permissions]\nmode = \"auto\"\nexec_secrets = { DEPLOY = [\"sh deploy.sh *\"] }\n";

/// Notes how long the secret is that it was given, and says it aloud.
const DEPLOY: &str = "printf '%s' \"$1\" | wc -c > length\necho \"used $1\"\n";

async fn secrets_stay_where_they_belong(world: World) {
    let config = std::fs::read_to_string(world.config_file()).unwrap();
    let config = config
        .replace("[providers.one]\n", "[providers.one]\napi_key = { env = \"ONE_KEY\" }\n")
        .replace("[permissions]\nmode = \"auto\"\n", NAMED);
    std::fs::write(world.config_file(), config).unwrap();
    world.repo.write("deploy.sh", DEPLOY).unwrap();
    let says_the_key =
        json!({ "error": { "message": format!("the key {KEY} is fine, I am not") } });
    world.server.reply(&World::chat("one"), Reply::json(500, &says_the_key.to_string()));
    let uses = json!({ "command": ["sh", "deploy.sh", "{{secret:DEPLOY}}"] });
    world.server.reply(&World::chat("one"), calls(&[("exec", uses)]));
    world.server.reply(&World::chat("one"), ends(&format!("The key is {KEY}, is it not?")));

    let mut command = world.formwork(["run", "-m", "Deploy with {{secret:DEPLOY}}.", "--jsonl"]);
    command.env("ONE_KEY", KEY).env("DEPLOY_TOKEN", TOKEN);
    let ended = end_of(command.spawn().unwrap()).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    // The program had the secret, and the provider its key.
    assert_eq!(world.repo.read("length").unwrap().trim(), TOKEN.len().to_string());
    let asked = world.server.requests();
    assert_eq!(asked.len(), 3);
    for request in &asked {
        assert_eq!(request.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
        assert_holds_no_secret("a request", &request.body);
    }
    // The model is shown what the program said, with the secret's name in its place.
    assert!(asked[2].text().contains("used [secret:DEPLOY]"), "{}", asked[2].text());
    assert_holds_no_secret("standard output", ended.stdout.as_bytes());
    assert_holds_no_secret("standard error", ended.stderr.as_bytes());
    for verb in [&["events"][..], &["events", "--jsonl"], &["runs", "show"], &["config", "show"]] {
        let told = world.run(verb).await;
        assert_holds_no_secret(&verb.join(" "), told.stdout.as_bytes());
    }
    let files = files(&world.state());
    assert!(!files.is_empty());
    for file in files {
        assert_holds_no_secret(&file.display().to_string(), &std::fs::read(&file).unwrap());
    }
    world.assert_sound().await;
}

#[tokio::test]
async fn a_key_that_could_not_be_kept_out_of_the_log_or_sent_is_refused_with_where_it_comes_from() {
    let world = World::new().await;
    let config = std::fs::read_to_string(world.config_file()).unwrap();
    let keyed = "[providers.one]\napi_key = { env = \"ONE_KEY\" }\n";
    std::fs::write(world.config_file(), config.replace("[providers.one]\n", keyed)).unwrap();
    let run = async |key: &str| {
        let mut command = world.formwork(["run", "-m", "Think about it."]);
        command.env("ONE_KEY", key);
        end_of(command.spawn().unwrap()).await
    };

    for (key, why) in [
        ("zq7", "has 3 bytes"),
        ("", "has 0 bytes"),
        (" sk-zq7zq7zq7", "a blank at its beginning or end"),
        ("sk-zq7\nzq7zq7", "a line break"),
    ] {
        let ended = run(key).await;

        assert_eq!(ended.code, Some(3), "{ended:#?}");
        let told = &ended.stderr;
        assert!(
            told.contains("the environment variable \"ONE_KEY\"") && told.contains(why),
            "{told}"
        );
        assert!(!told.contains("zq7") && !ended.stdout.contains("zq7"), "{ended:#?}");
    }
    assert_eq!(world.server.requests().len(), 0);

    // A newline at its end is no part of it, where it is sent and where it is looked for.
    world.server.reply(&World::chat("one"), ends(&format!("The key is {KEY}, is it not?")));
    let ended = run(&format!("{KEY}\n")).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let asked = world.server.requests();
    assert_eq!(asked[0].header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_holds_no_secret("standard output", ended.stdout.as_bytes());
    for file in files(&world.state()) {
        assert_holds_no_secret(&file.display().to_string(), &std::fs::read(&file).unwrap());
    }
}

#[tokio::test]
async fn a_secret_that_cannot_be_had_is_told_with_where_the_config_says_it_comes_from() {
    let world = World::new().await;
    let config = std::fs::read_to_string(world.config_file()).unwrap();
    let told = async |secret: &str| {
        let secrets = format!("[secrets]\nDEPLOY = {secret}\n[permissions]\n");
        let config = config.replace("[permissions]\n", &secrets);
        std::fs::write(world.config_file(), config).unwrap();
        world.run(["run", "-m", "Deploy."]).await.stderr
    };

    let unset = told("{ env = \"FORMWORK_TEST_UNSET\" }").await;
    let both = told("{ keyring = \"formwork/api\", env = \"A\" }").await;
    let number = told("{ keyring = 3 }").await;

    assert!(unset.contains("a secret cannot be had: secret DEPLOY comes from"), "{unset}");
    assert!(unset.contains("set it where [secrets] in the config says it comes from"), "{unset}");
    let keys = "secrets.DEPLOY: wanted one of the keys \"env\", \"file\", \"keyring\", \"command\", \
                found \"env\" and \"keyring\"";
    assert!(both.contains(keys), "{both}");
    assert!(!both.contains("unknown key"), "{both}");
    assert!(
        number.contains("secrets.DEPLOY.keyring: wanted a string, found an integer"),
        "{number}"
    );
    assert!(!number.contains("missing one of the keys"), "{number}");
    assert!(world.server.requests().is_empty());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_key_comes_from_the_keyring_of_the_kernel() {
    let Some(entry) = formwork_testkit::keyring::Entry::holding(KEY.as_bytes()) else { return };
    let world = World::new().await;
    let config = std::fs::read_to_string(world.config_file()).unwrap();
    let keyed = format!("[providers.one]\napi_key = {{ keyring = {:?} }}\n", entry.name());
    std::fs::write(world.config_file(), config.replace("[providers.one]\n", &keyed)).unwrap();
    world.server.reply(&World::chat("one"), ends(&format!("The key is {KEY}, is it not?")));
    let name = entry.name().to_owned();

    let ended = world.run(["run", "-m", "Think about it."]).await;
    drop(entry);
    let gone = world.run(["run", "-m", "Think again."]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let asked = world.server.requests();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_holds_no_secret("standard output", ended.stdout.as_bytes());
    for file in files(&world.state()) {
        assert_holds_no_secret(&file.display().to_string(), &std::fs::read(&file).unwrap());
    }
    assert_eq!(gone.code, Some(3), "{gone:#?}");
    let told = format!(
        "the entry {name:?} of the keyring, which cannot be read: neither the session's keyring nor the"
    );
    assert!(gone.stderr.contains(&told), "{}", gone.stderr);
}

#[track_caller]
fn assert_holds_no_secret(place: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let json = serde_json::to_string(TOKEN).unwrap();
    for secret in [KEY, TOKEN, json.trim_matches('"')] {
        assert!(!text.contains(secret), "{place} holds {secret}: {text}");
    }
}

/// Lists the files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(files(&entry.path()));
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    found
}

#[tokio::test]
async fn behaviour_23_a_key_and_a_secret_reach_their_use_and_nothing_that_is_kept_or_said() {
    secrets_stay_where_they_belong(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_23_a_key_and_a_secret_reach_their_use_and_nothing_that_is_kept_or_said() {
    on_postgres(secrets_stay_where_they_belong).await;
}
