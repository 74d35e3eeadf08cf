//! Every rule holds for every way in: a program meets the same bounds, whoever starts it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::{
    answers::{calls, ends},
    world::{World, end_of},
};

/// Tries what no program may, and writes down what it could do where programs may write. It says nothing and ends
/// well, so that it also passes for a gate and for a check.
const ATTEMPT: &str = r#"
import json, os, pathlib, socket, sys
way, outside, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
could = []
def attempt(what, work):
    try:
        work()
        could.append(what)
    except OSError:
        pass
def write(path):
    return lambda: open(path, "a").write(way)
attempt("scope", write("kept/a.txt"))
attempt("hooks", write(".git/hooks/pre-commit"))
attempt("config", write(".git/config"))
attempt("outside", write(outside + "/made-" + way))
attempt("parent", write("../made-" + way))
attempt("link", write("out/link/made-" + way))
attempt("delete", lambda: os.remove("kept/b.txt"))
attempt("home", lambda: open(outside + "/secret.txt").read())
attempt("network", lambda: socket.create_connection(("127.0.0.1", port), 5))
attempt("listen", lambda: socket.socket(socket.AF_UNIX).connect("/var/run/docker.sock"))
if os.environ.get("API_TOKEN"):
    could.append("environment")
pathlib.Path("out/" + way + ".json").write_text(json.dumps(could))
"#;

/// The ways by which a program is started, beside agents' own calls.
const WAYS: [&str; 10] =
    ["check", "child", "command", "custom", "entry", "exec", "fix", "gate", "observer", "shell"];

#[tokio::test]
async fn every_rule_holds_for_every_way_in() {
    let world = World::new().await;
    let outside = world.state().parent().unwrap().join("elsewhere");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret.txt"), "s").unwrap();
    let port = world.server.url().rsplit(':').next().unwrap().to_owned();
    let words = |way: &str| -> Vec<String> {
        let words = ["python3", "attempt.py", way, outside.to_str().unwrap(), &port];
        words.map(str::to_owned).into()
    };
    let argv = |way: &str| json!(words(way)).to_string();
    world.repo.write("attempt.py", ATTEMPT).unwrap();
    world.repo.write("kept/a.txt", "a\n").unwrap();
    world.repo.write("kept/b.txt", "b\n").unwrap();
    world.repo.write("out/.keep", "").unwrap();
    std::os::unix::fs::symlink(&outside, world.path("out/link")).unwrap();
    world.repo.commit("all: begin").unwrap();
    let config = world.providers(&world.server.url());
    let hook =
        |event: &str, way: &str| format!("[[hooks]]\nevent = {event:?}\ncommand = {}\n", argv(way));
    let config = format!(
        "{config}[permissions]\nmode = \"auto\"\nscope = [\"out/**\"]\nshell = true\nexec = [\"python3 attempt.py *\"]\n{}{}",
        hook("tool.before", "gate"),
        hook("tool.after", "observer"),
    );
    std::fs::write(world.config_file(), config).unwrap();
    let tool = format!(
        "format_version = 1\n[tool]\nname = \"custom.attempt\"\ndescription = \"Try.\"\n\
         [execution.command]\nargv = {}\n",
        argv("custom")
    );
    world.repo.write(".formwork/tools/attempt.toml", &tool).unwrap();
    let other = "format_version = 1\n[tool]\nname = \"custom.other\"\ndescription = \"Try.\"\n\
                 [execution.command]\nargv = [\"touch\", \"out/other\"]\n";
    world.repo.write(".formwork/tools/other.toml", other).unwrap();
    world.agent("left", "one");
    world.agent("right", "two");
    world.workflow(&format!(
        "[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"Go.\"\n\
         [[tasks.prechecks]]\ncommand = {}\n\
         [[tasks.postchecks]]\ncommand = {}\n\
         [[tasks.postchecks]]\ncommand = [\"test\", \"-e\", \"out/fix.json\"]\nfix = {{ command = {} }}\n\
         [[tasks]]\nname = \"command\"\ncommand = {}\ndepends_on = [\"left\"]\n\
         [[tasks]]\nname = \"parent\"\ndepends_on = [\"command\"]\nsubtasks = [\n\
         {{ name = \"child\", agent = \"right\", prompt = \"Go.\" }},\n]\n",
        argv("entry"),
        argv("check"),
        argv("fix"),
        argv("command"),
    ));
    let run = |way: &str| ("exec", json!({ "command": words(way) }));
    let text = words("shell").join(" ");
    let made = [
        run("exec"),
        ("shell", json!({ "command": text })),
        ("custom.attempt", json!({})),
        // What the list of commands does not name is not run by any of them.
        ("exec", json!({ "command": ["touch", "out/other"] })),
        ("shell", json!({ "command": "true && touch out/other" })),
        ("custom.other", json!({})),
        // Nor is anything written elsewhere by what writes without a program.
        ("fs.write", json!({ "path": "kept/new.txt", "content": "x" })),
        ("fs.write", json!({ "path": ".git/hooks/pre-commit", "content": "x" })),
        ("fs.write", json!({ "path": "out/link/new", "content": "x" })),
        ("fs.write", json!({ "path": "../new", "content": "x" })),
        ("fs.move", json!({ "from": "kept/b.txt", "to": "out/b.txt" })),
        ("fs.delete", json!({ "path": "kept/b.txt", "reason": "told to" })),
        ("http", json!({ "url": world.server.url() })),
    ];
    world.server.reply(&World::chat("one"), calls(&made));
    world.server.reply(&World::chat("one"), ends("Tried."));
    world.server.reply(&World::chat("two"), calls(&[run("child")]));
    world.server.reply(&World::chat("two"), ends("Tried."));
    let go = async |words: &[&str]| {
        let mut command = world.formwork(words);
        command.env("API_TOKEN", "hunter2-hunter2");
        end_of(command.spawn().unwrap()).await
    };

    let trusted = go(&["trust"]).await;
    let ended = go(&["run", "work", "--sandbox", "on"]).await;

    assert_eq!((trusted.code, ended.code), (Some(0), Some(0)), "{trusted:#?} {ended:#?}");
    let could: BTreeMap<&str, Vec<String>> = WAYS
        .into_iter()
        .map(|way| {
            let said = world.repo.read(format!("out/{way}.json"));
            let said = said.unwrap_or_else(|error| panic!("{way} did not run: {error}"));
            (way, serde_json::from_str(&said).unwrap())
        })
        .collect();
    let bound: BTreeSet<_> = could.iter().filter(|(_, could)| !could.is_empty()).collect();
    assert!(bound.is_empty(), "{bound:#?}");
    let refused = world.server.requests();
    let refused: Value = serde_json::from_str(&refused[1].text()).unwrap();
    let results = refused["messages"].as_array().unwrap().iter().filter(|it| it["role"] == "tool");
    let results: Vec<_> = results.map(|it| it["content"].as_str().unwrap()).collect();
    assert_eq!(results.len(), made.len(), "{results:#?}");
    for (call, result) in made.iter().zip(&results).skip(3) {
        assert!(result.starts_with("error (denied)"), "{call:?}: {result}");
    }
    for path in ["kept/new.txt", "out/b.txt", "out/other", "../new"] {
        assert!(!world.path(path).exists(), "{path}");
    }
    assert_eq!(world.repo.read("kept/a.txt").unwrap(), "a\n");
    let left: Vec<_> =
        std::fs::read_dir(&outside).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["secret.txt"]);
}
