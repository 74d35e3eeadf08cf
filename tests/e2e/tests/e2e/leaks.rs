//! Secrets planted in arguments, files, outputs, errors and variables are nowhere that anybody looks.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose};
use formwork_testkit::http::{Gate, Reply};
use serde_json::{Value, json};

use crate::{
    answers::{calls, ending, held},
    world::{World, end_of, on_postgres},
};

/// Longer than what `base64` puts on one line, with characters that encodings change.
const TOKEN: &str =
    "tok-deploy-88aa77bb66\"quoted/and+long-enough-to-be-broken-over-lines-0123456789-abcdefghijk";

/// Whole base64 of the secret, wherever it begins within the encoded text.
fn encoded() -> Vec<String> {
    (0..3).map(|padding| general_purpose::STANDARD.encode("x".repeat(padding) + TOKEN)).collect()
}

/// The forms in which a secret could be found: in none of them is it to be anywhere.
fn forms() -> Vec<String> {
    let json = serde_json::to_string(TOKEN).unwrap();
    let hex: String = TOKEN.bytes().map(|byte| format!("{byte:02x}")).collect();
    let url: String = TOKEN
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect();
    let mut forms = vec![
        TOKEN.to_owned(),
        json.trim_matches('"').to_owned(),
        hex.to_uppercase(),
        hex,
        url.to_lowercase(),
        url,
    ];
    // As a program that speaks UTF-16 says it, in either order of bytes.
    forms.push(TOKEN.chars().map(String::from).collect::<Vec<_>>().join("\0"));
    // The first and the last characters also hold bits of the neighbours.
    forms.extend(encoded().into_iter().map(|it| it[4..it.len() - 4].to_owned()));
    forms
}

/// Parts of a secret that was broken over lines: no line of it is to be anywhere either.
fn lines() -> Vec<String> {
    let encoded = general_purpose::STANDARD.encode(TOKEN);
    encoded.as_bytes().chunks(76).map(|line| String::from_utf8_lossy(line).into_owned()).collect()
}

#[track_caller]
fn assert_holds_none(place: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for secret in forms().into_iter().chain(lines().into_iter().take(1)) {
        assert!(!text.contains(&secret), "{place} holds {secret}: {text}");
    }
}

/// A script that says the secret that it was given in every way, in two pieces too, and fails.
const LEAK: &str = "printf '%s' \"$1\" | base64\nprintf '%s\\n' \"$1\" >&2\nhalf=${1%????????????????}\n\
                    printf '%s' \"$half\"\nprintf '%s\\n' \"${1#\"$half\"}\"\nenv\n\
                    printf '%s' \"$1\" | iconv -f UTF-8 -t UTF-16\nprintf '%s' \"$1\" | iconv -f UTF-8 -t UTF-16BE\n\
                    printf '%s' \"$1\" | iconv -f UTF-8 -t UTF-32\ncat planted.txt\nexit 3\n";

fn plant(world: &World) {
    let planted = forms().into_iter().take(6).chain(encoded()).chain([lines().join("\n")]);
    let planted: Vec<String> = planted.collect();
    world.repo.write("planted.txt", planted.join("\n") + "\nPLACE\n").unwrap();
    world.repo.write("AGENTS.md", format!("Never say {TOKEN} aloud.\n")).unwrap();
    world.repo.write("leak.sh", LEAK).unwrap();
    let config = std::fs::read_to_string(world.config_file()).unwrap();
    let named = "[secrets]\nDEPLOY = { env = \"DEPLOY_TOKEN\" }\n[permissions]\nmode = \"auto\"\n\
                 exec_secrets = { DEPLOY = [\"*\"] }\n";
    let config = config.replace("[permissions]\nmode = \"auto\"\n", named);
    std::fs::write(world.config_file(), config).unwrap();
}

fn uses() -> Vec<(&'static str, Value)> {
    let secret = "{{secret:DEPLOY}}";
    vec![
        ("fs.read", json!({ "path": "planted.txt" })),
        // Not one line of a form that was broken over several: a part of a secret is nothing that anybody could know.
        ("fs.grep", json!({ "pattern": "tok-|746f6b" })),
        ("fs.edit", json!({ "path": "planted.txt", "old": "PLACE", "new": TOKEN })),
        ("fs.write", json!({ "path": "filled.txt", "content": secret })),
        ("fs.delete", json!({ "path": "leak.sh", "reason": secret })),
        ("fs.read", json!({ "path": format!("no-such-{TOKEN}") })),
        (
            "fs.edit",
            json!({ "path": "planted.txt", "old": format!("{TOKEN} is not there"), "new": "x" }),
        ),
        ("exec", json!({ "command": ["sh", "leak.sh", secret] })),
        ("exec", json!({ "command": [format!("no-such-{secret}")] })),
        ("git", json!({ "arguments": ["grep", TOKEN] })),
        ("git", json!({ "arguments": ["log", format!("--no-such={TOKEN}")] })),
        (TOKEN, json!({ "unknown": TOKEN })),
        ("fs.read", json!({ "path": TOKEN, "unknown": TOKEN })),
    ]
}

async fn planted_secrets_are_nowhere(world: World) {
    plant(&world);
    let echo = json!({ "error": { "message": format!("no {TOKEN} here"), "code": TOKEN } });
    world.server.reply(&World::chat("one"), Reply::json(500, &echo.to_string()));
    world.server.reply(&World::chat("one"), calls(&uses()));
    let gate = Gate::new();
    world.server.reply(&World::chat("one"), held(&gate, &ending(&format!("I used {TOKEN}."))));
    let message = format!("Deploy with {{{{secret:DEPLOY}}}}, which is {TOKEN}.");

    let mut command =
        world.formwork(["run", "-m", &message, "--check", "cat planted.txt", "--jsonl"]);
    command.env("DEPLOY_TOKEN", TOKEN);
    let program = command.spawn().unwrap();
    gate.reached().await;
    // While it runs, what is not yet in its place is there as well: SQLite's log among it.
    let meanwhile = kept(&world.state());
    gate.open();
    let ended = end_of(program).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    // What a model says of a secret is its name by the time that anything is done with it.
    assert!(world.repo.read("planted.txt").unwrap().ends_with("[secret:DEPLOY]\n"));
    // What is kept takes no secret in.
    assert!(!world.path("filled.txt").exists() && world.path("leak.sh").exists());
    let asked = world.server.requests();
    assert_eq!(asked.len(), 3);
    for request in &asked {
        assert_holds_none("a request", &request.body);
    }
    assert!(asked[2].text().contains("[secret:DEPLOY]"), "{}", asked[2].text());
    assert_holds_none("standard output", ended.stdout.as_bytes());
    assert_holds_none("standard error", ended.stderr.as_bytes());
    let events = world.events("").await;
    for verb in [
        &["events"][..],
        &["events", "--jsonl"],
        &["events", "--json", "--limit", "1000"],
        &["runs", "list"],
        &["runs", "show"],
        &["runs", "show", "--json"],
        &["runs", "export", "-o", "-"],
        &["tasks"],
        &["spend"],
        &["config", "show"],
        &["audit", "verify"],
    ] {
        let told = world.run(verb).await;
        assert_holds_none(&verb.join(" "), told.stdout.as_bytes());
        assert_holds_none(&verb.join(" "), told.stderr.as_bytes());
    }
    // What is kept compressed is looked at as it is.
    let hashes: Vec<&str> = events.iter().filter_map(|it| it["data"]["output"].as_str()).collect();
    assert!(hashes.len() > 3, "{events:#?}");
    for hash in hashes {
        let told = world.run(["blob", hash]).await;
        assert_holds_none(&format!("blob {hash}"), told.stdout.as_bytes());
    }
    for (file, bytes) in meanwhile.into_iter().chain(kept(&world.state())) {
        assert_holds_none(&file.display().to_string(), &bytes);
    }
    world.assert_sound().await;
}

/// Returns the files below a folder of state, but for copies of the workspace's own files, which undo needs.
fn kept(state: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![state.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            let is_copy = [state.join("snapshots"), state.join("trash")].contains(&path);
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && !is_copy => open.push(path),
                // Temporary files come and go.
                Ok(kind) if kind.is_file() => {
                    found.extend(std::fs::read(&path).ok().map(|bytes| (path, bytes)));
                }
                _ => {}
            }
        }
    }
    found
}

#[tokio::test]
async fn secrets_planted_anywhere_appear_nowhere() {
    planted_secrets_are_nowhere(World::new().await).await;
}

#[tokio::test]
async fn pg_secrets_planted_anywhere_appear_nowhere() {
    on_postgres(planted_secrets_are_nowhere).await;
}
