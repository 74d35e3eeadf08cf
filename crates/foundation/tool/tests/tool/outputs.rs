//! What is long is shown in part and kept whole; what is secret is neither shown nor kept.

use std::fmt::Write as _;

use formwork_protocols::{BlobHash, EventBody};
use serde_json::json;

use crate::world::{Setup, World};

const SECRET: &str = "tok_4f9a83b2c7";

fn keeper() -> World {
    let secret_in = &["echo *", "sh count *", "touch *"];
    World::with(Setup { secret: Some(SECRET), secret_in, ..Setup::default() })
}

#[tokio::test]
async fn behaviour_24_a_long_output_is_read_whole_part_by_part() {
    let world = World::new();
    let mut text = String::new();
    for line in 0..4_000 {
        writeln!(text, "{line}: ä → €").unwrap();
    }
    world.put("long.txt", &text);

    let preview = world.done("fs.read", json!({ "path": "long.txt" })).await;

    assert!(preview.len() < 9_000, "{} bytes", preview.len());
    let hash = BlobHash::of(text.as_bytes());
    let last =
        format!("[{} bytes in all; read the rest with output.read and hash {hash}]", text.len());
    assert_eq!(preview.lines().last(), Some(last.as_str()));
    let (mut whole, mut offset) = (String::new(), 0_usize);
    loop {
        let arguments = json!({ "hash": hash, "offset": offset });
        let part = world.done("output.read", arguments).await;
        let (part, more) = part.rsplit_once('\n').unwrap();
        whole.push_str(part);
        offset += part.len();
        if more == "[end]" {
            break;
        }
        let left = text.len() - offset;
        assert_eq!(more, format!("[{left} bytes follow; go on at offset {offset}]"));
    }
    assert!(whole == text, "{} bytes of {}", whole.len(), text.len());
}

#[tokio::test]
async fn an_output_that_fits_is_shown_as_it_is() {
    let world = World::new();
    let text = "x".repeat(formwork_tool::PREVIEW_BYTES);
    world.put("fits.txt", &text);

    assert_eq!(world.done("fs.read", json!({ "path": "fits.txt" })).await, text);
}

#[tokio::test]
async fn an_output_that_is_not_there_is_said_to_be_missing() {
    let world = World::new();
    let hash = BlobHash::of(b"never written");

    let missing = world.fails("output.read", json!({ "hash": hash })).await;
    let malformed = world.fails("output.read", json!({ "hash": "../../etc/passwd" })).await;

    assert_eq!(missing, format!("error (failed): there is no output {hash}"));
    assert!(malformed.starts_with("error (invalid_arguments): "), "{malformed}");
}

#[tokio::test]
async fn an_offset_beyond_the_end_finds_the_end() {
    let world = World::new();
    world.put("a.txt", "short\n");
    world.done("fs.read", json!({ "path": "a.txt" })).await;

    let hash = BlobHash::of(b"short\n");
    let told = world.done("output.read", json!({ "hash": hash, "offset": u64::MAX })).await;

    assert_eq!(told, "\n[end]");
}

#[tokio::test]
async fn a_secret_goes_in_at_the_last_moment_and_never_comes_out() {
    let world = keeper();

    let told = world.done("exec", json!({ "command": ["echo", "{{secret:KEY}}"] })).await;

    assert_eq!(told, "exit code 0\n[secret:KEY]\n");
    let bodies = world.log.bodies();
    let Some(EventBody::ToolRequested(requested)) = bodies.first() else { panic!("{bodies:?}") };
    assert_eq!(requested.arguments, json!({ "command": ["echo", "{{secret:KEY}}"] }));
    assert!(!world.log.text().contains(SECRET));
}

#[tokio::test]
async fn a_secret_really_reaches_the_program() {
    let world = keeper();

    world.put("count", "printf %s \"$1\" | wc -c");
    let command = json!(["sh", "count", "{{secret:KEY}}"]);
    let told = world.done("exec", json!({ "command": command })).await;

    assert_eq!(told.split_whitespace().last(), Some(SECRET.len().to_string().as_str()));
}

#[tokio::test]
async fn a_secret_goes_into_nothing_that_is_kept_and_to_no_program_that_it_is_not_for() {
    let world = keeper();
    world.put("a.txt", "a\n");
    world.done("fs.read", json!({ "path": "a.txt" })).await;
    let secret = "{{secret:KEY}}";
    let python = json!(["python3", "-c", format!("print({secret:?})")]);

    for (tool, arguments) in [
        (
            "exec",
            json!({ "command": ["curl", "-H", format!("X-T: {secret}"), "http://127.0.0.1:1/"] }),
        ),
        ("exec", json!({ "command": python })),
        ("fs.write", json!({ "path": "b.txt", "content": secret })),
        ("fs.edit", json!({ "path": "a.txt", "old": "a", "new": secret })),
        ("fs.delete", json!({ "path": "a.txt", "reason": format!("x {secret}") })),
        ("fs.grep", json!({ "pattern": secret })),
        ("notepad.add", json!({ "text": secret })),
        ("run_tests", json!({ "filter": secret })),
    ] {
        let told = world.call(tool, arguments).await;
        let is_refused = told.is_error
            && (told.text.contains("secret KEY may not") || told.text.contains("there is no tool"));
        assert!(is_refused, "{tool}: {told:?}");
    }

    assert_eq!(world.content("a.txt"), "a\n");
    assert!(!world.path("b.txt").exists());
    assert!(!world.log.text().contains(SECRET));
}

#[tokio::test]
async fn a_secret_that_is_not_there_stops_the_call() {
    let world = keeper();

    let told = world.fails("exec", json!({ "command": ["touch", "{{secret:KYE}}"] })).await;

    assert!(told.starts_with("error (invalid_arguments): "), "{told}");
    assert!(told.contains("KYE") && told.contains("KEY"), "{told}");
    assert_eq!(world.log.kinds(), [["tool.requested", "tool.failed"]]);
}

#[tokio::test]
async fn a_secret_in_a_file_is_not_shown() {
    let world = keeper();
    world.put(".env", format!("TOKEN={SECRET}\n"));

    let read = world.done("fs.read", json!({ "path": ".env" })).await;
    let found = world.done("fs.grep", json!({ "pattern": "TOKEN" })).await;

    assert_eq!(read, "TOKEN=[secret:KEY]\n");
    assert_eq!(found, ".env:1: TOKEN=[secret:KEY]\n");
    assert!(!world.log.text().contains(SECRET));
}

#[tokio::test]
async fn a_secret_that_the_model_has_learnt_is_not_recorded_with_the_call() {
    let world = keeper();
    // Where the record cuts a long text, half of the secret would be left.
    let content = format!("{}{SECRET}{}", "x".repeat(1_020), "y".repeat(5_000));

    world.done("fs.write", json!({ "path": "a.txt", "content": content })).await;
    world.fails(&format!("use_{SECRET}"), json!({ "token": SECRET })).await;

    let text = world.log.text();
    assert!(!text.contains(&SECRET[..4]), "{text}");
}

#[tokio::test]
async fn a_secret_in_a_failure_is_not_shown() {
    let world = keeper();

    let told = world.fails("fs.read", json!({ "path": format!("{SECRET}.txt") })).await;

    assert_eq!(told, r#"error (failed): "[secret:KEY].txt" does not exist"#);
    assert!(!world.log.text().contains(SECRET));
}

#[tokio::test]
async fn the_name_of_a_file_holds_no_secret_and_is_not_recorded_with_one() {
    let world = keeper();
    let write = |path: &str| json!({ "path": path, "content": "x" });

    let filled = world.fails("fs.write", write("a-{{secret:KEY}}.txt")).await;
    let patch = "*** Begin Patch\n*** Add File: {{secret:KEY}}\n+x\n*** End Patch\n";
    let patched = world.fails("fs.apply_patch", json!({ "patch": patch })).await;
    world.done("fs.write", write(&format!("b-{SECRET}.txt"))).await;

    for told in [filled, patched] {
        assert!(told.contains("secret KEY may not stand in a call of fs."), "{told}");
    }
    let changed: Vec<String> = world
        .log
        .bodies()
        .into_iter()
        .filter_map(|body| match body {
            EventBody::FileChanged(change) => Some(change.path),
            _ => None,
        })
        .collect();
    assert_eq!(changed, ["b-[secret:KEY].txt"]);
    assert!(!world.log.text().contains(SECRET));
}
