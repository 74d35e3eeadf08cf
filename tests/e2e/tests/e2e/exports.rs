//! What others can use of a workspace: whether it is still there, and still what it was.

use serde_json::{Value, json};

use crate::{
    answers::{calls, ends},
    world::{World, on_postgres},
};

/// A task of one agent that is held to both.
const HELD: &str = "[[tasks]]\nname = \"write\"\nagent = \"left\"\nprompt = \"Tidy up.\"\nretries = { max = 2 }\n\
     [[tasks.postchecks]]\nconstraint = \"no_removed_exports\"\n\
     [[tasks.postchecks]]\nconstraint = \"no_changed_signatures\"\n";

const BEFORE: &str =
    "pub fn area(r: f64) -> f64 {\n    inner(r)\n}\n\nfn inner(r: f64) -> f64 {\n    r\n}\n";

/// Returns the verdicts of the last run, in order.
async fn verdicts(world: &World) -> Vec<Value> {
    let shown = world.shown().await;
    let checks = shown["checks"].as_array().unwrap();
    checks.iter().map(|check| check["verdict"].clone()).collect()
}

fn writes(path: &str, text: &str) -> (&'static str, Value) {
    ("fs.write", json!({ "path": path, "content": text }))
}

async fn what_is_removed_is_found(world: World) {
    world.agent("left", "one");
    world.repo.write("src/lib.rs", BEFORE).unwrap();
    world.repo.write("notes.txt", "one\n").unwrap();
    let workflow = world.workflow(HELD);
    let chat = World::chat("one");
    let read = |path| ("fs.read", json!({ "path": path }));
    world.server.reply(&chat, calls(&[read("src/lib.rs"), read("notes.txt")]));
    // Gone first, then there with another type, then elsewhere as it was.
    let gone = BEFORE.replace("pub fn area", "pub fn size");
    world.server.reply(&chat, calls(&[writes("src/lib.rs", &gone), writes("notes.txt", "two\n")]));
    world.server.reply(&chat, ends("Done."));
    let other = BEFORE.replace("area(r: f64)", "area(r: f32)");
    world.server.reply(&chat, calls(&[writes("src/lib.rs", &other)]));
    world.server.reply(&chat, ends("It is back."));
    let moved = "// Elsewhere.\npub fn area( r: f64, ) -> f64 { r }\n";
    world.server.reply(
        &chat,
        calls(&[writes("src/shapes.rs", moved), writes("src/lib.rs", "pub mod shapes;\n")]),
    );
    world.server.reply(&chat, ends("It is as it was."));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let found = verdicts(&world).await;
    let told: Vec<(&str, bool, &str)> = found
        .iter()
        .map(|it| {
            let text = |key: &str| it[key].as_str().unwrap();
            (text("check"), it["passed"] == true, text("reason"))
        })
        .collect();
    assert_eq!(
        told,
        [
            (
                "no removed exports",
                false,
                "src/lib.rs:1: function `area` is gone: was `pub fn area(r: f64) -> f64`, line 1 when the task began"
            ),
            ("no removed exports", true, "nothing is gone of 1 exports in 1 changed file"),
            (
                "no changed signatures",
                false,
                "src/lib.rs:1: function `area` has changed: was `pub fn area(r: f64) -> f64`, \
                 now `pub fn area(r: f32) -> f64`"
            ),
            ("no removed exports", true, "nothing is gone of 1 exports in 2 changed files"),
            (
                "no changed signatures",
                true,
                "nothing is other than it was of 1 exports in 2 changed files"
            ),
        ]
    );
    let issue = &found[0]["issues"][0];
    assert_eq!((&issue["file"], &issue["line"]), (&json!("src/lib.rs"), &json!(1)));
    let evidence = found[0]["evidence"]["excerpt"].as_str().unwrap();
    assert!(
        evidence.ends_with("not judged: notes.txt (its language is not known)\n"),
        "{evidence}"
    );
    // What was found has reached the agent.
    let asked: Vec<String> = world.server.requests().iter().map(|request| request.text()).collect();
    assert!(asked.iter().any(|text| text.contains("function `area` is gone")), "{asked:#?}");
    let replayed = world.run(["replay"]).await;
    assert_eq!(replayed.code, Some(0), "{replayed:#?}");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_task_that_removes_an_export_or_changes_its_signature_is_sent_back_until_it_is_mended() {
    what_is_removed_is_found(World::new().await).await;
}

#[tokio::test]
async fn pg_a_task_that_removes_an_export_or_changes_its_signature_is_sent_back_until_it_is_mended()
{
    on_postgres(what_is_removed_is_found).await;
}

/// Each language: a file with an export that stays, one that is removed and one that changes, and what is nobody else's.
const LANGUAGES: [(&str, &str, &str); 7] = [
    (
        "a.rs",
        "pub fn stays(a: u8) {}\npub fn goes() {}\npub fn turns(a: u8) {}\nfn own() {}\n",
        "pub fn stays(\n    a: u8, // Why.\n) { todo!() }\npub fn turns(a: u16) {}\n",
    ),
    (
        "a.py",
        "def stays(a): pass\ndef goes(): pass\ndef turns(a): pass\ndef _own(): pass\n",
        "def stays(\n    a,\n): return 1\ndef turns(a, b=1): pass\n",
    ),
    (
        "a.js",
        "export const stays = (a) => 1;\nexport function goes() {}\nexport function turns(a) {}\nfunction own() {}\n",
        "export const stays = ( a ) => { return 2 };\nexport function turns(a, b) {}\n",
    ),
    (
        "a.ts",
        "export function stays(a: 'x') {}\nexport type goes = 1;\nexport function turns(a: number) {}\ntype Own = 1;\n",
        "export function stays(a: \"x\") { return }\nexport function turns(a: string) {}\n",
    ),
    (
        "a.go",
        "package a\nfunc Stays(a int) {}\nfunc Goes() {}\nfunc Turns(a int) {}\nfunc own() {}\n",
        "package a\nfunc Stays(a int) { return }\nfunc Turns(a int) error { return nil }\n",
    ),
    (
        "A.java",
        "public class A {\n  public void stays(int a) {}\n  public void goes() {}\n  public void turns(int a) {}\n  private void own() {}\n}\n",
        "public class A {\n  @Deprecated public void stays( int a ) { return; }\n  public void turns(long a) {}\n}\n",
    ),
    (
        "a.c",
        "int stays(int *a) { return 1; }\nint goes(void) { return 1; }\nint turns(int a) { return 1; }\nstatic int own(void) { return 1; }\n",
        "int stays(int* a) { return 2; }\nint turns(long a) { return 1; }\n",
    ),
];

#[tokio::test]
async fn in_each_language_what_is_removed_and_what_is_changed_is_found_and_nothing_else() {
    let world = World::new().await;
    for (path, before, after) in LANGUAGES {
        world.repo.write(format!("src/{path}"), before).unwrap();
        world.repo.write(format!("to/{path}"), after).unwrap();
    }
    let held = |constraint: &str| {
        format!(
            "[[tasks]]\nname = \"write\"\nretries = {{ max = 0 }}\n\
             command = [\"cp\", \"-r\", \"to/.\", \"src\"]\n\
             [[tasks.postchecks]]\nconstraint = \"{constraint}\"\n"
        )
    };
    let found = async |constraint: &str| {
        let workflow = world.workflow(&held(constraint));
        let ended = world.run(["run", workflow]).await;
        assert_eq!(ended.code, Some(2), "{ended:#?}");
        let found = verdicts(&world).await;
        for (path, before, _) in LANGUAGES {
            world.repo.write(format!("src/{path}"), before).unwrap();
        }
        found[0]["evidence"]["excerpt"].as_str().unwrap().to_owned()
    };

    let removed = found("no_removed_exports").await;
    let changed = found("no_changed_signatures").await;

    insta::assert_snapshot!(format!("{removed}\n{changed}"));
}

#[tokio::test]
async fn what_cannot_be_read_any_more_does_not_pass_and_what_never_could_is_named() {
    let world = World::new().await;
    world.repo.write("src/a.rs", BEFORE).unwrap();
    world.repo.write("src/b.rs", "this was never Rust\n").unwrap();
    let held = |script: &str| {
        format!(
            "[[tasks]]\nname = \"write\"\nretries = {{ max = 0 }}\ncommand = [\"sh\", \"-c\", \"{script}\"]\n\
             [[tasks.postchecks]]\nconstraint = \"no_removed_exports\"\n"
        )
    };
    let told = async |script: &str| {
        let workflow = world.workflow(&held(script));
        world.run(["run", workflow]).await;
        let found = verdicts(&world).await;
        // It may be a link by now.
        std::fs::remove_file(world.path("src/a.rs")).unwrap();
        world.repo.write("src/a.rs", BEFORE).unwrap();
        (found[0]["passed"] == true, found[0]["reason"].as_str().unwrap().to_owned())
    };

    let broken = told("echo 'pub fn (' >> src/a.rs").await;
    let large = told("head -c 1100000 /dev/zero | tr '\\\\\\\\0' ' ' >> src/a.rs").await;
    let link = told("ln -sf b.rs src/a.rs").await;
    let never = told("echo 'nor now' >> src/b.rs").await;

    let cannot = "src/a.rs: what it exports cannot be told any more: ";
    assert_eq!(broken, (false, format!("{cannot}line 8 is not understood as Rust")));
    assert_eq!(
        (large.0, large.1.contains(" bytes, and 524288 are read")),
        (false, true),
        "{large:?}"
    );
    assert_eq!((link.0, link.1.contains("function `area` is gone")), (false, true), "{link:?}");
    let unsure =
        "nothing is gone of 0 exports in 1 changed file, but 1 of them could not be judged";
    assert_eq!(never, (true, unsure.to_owned()));
}
