//! Who may call what, in which order things are recorded, and what a refused call is told.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use formwork_protocols::{
    Cancel, EventBody, Journal, NewEvent, PermissionMode, Replay, Tool, ToolClass, ToolError,
    ToolErrorKind, ToolName, ToolOutput, ToolSpec, Toolbox as _,
    event::Decided,
    message::{Arguments, ToolDefinition},
    tool::{CallContext, Control},
};
use formwork_tool::Around;
use serde_json::{Value, json};

use crate::world::{Setup, World};

#[tokio::test]
async fn behaviour_1_a_call_outside_an_active_task_has_no_effect() {
    let world = World::new();
    world.tasks.active.store(false, Ordering::SeqCst);

    let told = world.fails("fs.write", json!({ "path": "a.txt", "content": "a" })).await;

    let task = world.context.task;
    let wanted =
        format!("error (no_active_task): fs.write was not called: task {task} is not active");
    assert_eq!(told, wanted);
    assert!(!world.path("a.txt").exists());
    assert_eq!(world.log.kinds(), [["tool.requested", "tool.failed"]]);
}

#[tokio::test]
async fn an_unknown_tool_is_answered_with_the_nearest() {
    let world = World::new();

    let near = world.fails("fs.raed", json!({})).await;
    let far = world.fails("Launch Missiles!", json!({})).await;

    assert_eq!(
        near,
        r#"error (unknown_tool): there is no tool "fs.raed" for this task; did you mean fs.read?"#
    );
    assert_eq!(far, r#"error (unknown_tool): there is no tool "Launch Missiles!" for this task"#);
}

#[tokio::test]
async fn a_tool_that_the_mode_cannot_use_is_neither_shown_nor_called() {
    let world = World::with(Setup { mode: PermissionMode::Ask, ..Setup::default() });

    let told = world.fails("fs.write", json!({ "path": "a.txt", "content": "a" })).await;

    let offered: Vec<_> =
        world.pipeline.offered().iter().map(|it| it.definition.name.to_string()).collect();
    assert_eq!(
        offered,
        [
            "end_task",
            "fs.diff",
            "fs.glob",
            "fs.grep",
            "fs.list_dir",
            "fs.read",
            "fs.stat",
            "git",
            "notepad.read",
            "output.read",
            "start_task"
        ]
    );
    assert_eq!(
        told,
        "error (unknown_tool): there is no tool \"fs.write\" for this task: mode ask does not have it. Whoever runs this may \
         pass --mode edit, or say mode = \"edit\" below [permissions]"
    );
    assert!(!world.path("a.txt").exists());
}

#[tokio::test]
async fn arguments_that_are_not_whole_json_are_never_carried_out() {
    let world = World::new();
    let arguments = Arguments::Malformed {
        text: r#"{"path": "a.txt", "content": "a"#.to_owned(),
        error: "EOF while parsing a string".to_owned(),
    };

    let told = world.call_with("fs.write", arguments, &Cancel::new()).await;

    assert_eq!(
        told.text,
        "error (invalid_arguments): fs.write was not called: its arguments are not whole JSON: EOF while parsing a string"
    );
    assert!(!world.path("a.txt").exists());
}

#[tokio::test]
async fn every_fault_of_the_arguments_is_told_with_its_place() {
    let world = World::new();

    let told = world.fails("fs.edit", json!({ "path": 3, "old": "a" })).await;

    assert!(told.starts_with("error (invalid_arguments): the arguments of fs.edit"), "{told}");
    for fault in ["/path: 3 is not of type \"string\"", "\"new\" is a required property"] {
        assert!(told.contains(fault), "{fault} in {told}");
    }
}

#[tokio::test]
async fn an_argument_that_does_not_exist_is_named_with_those_that_do() {
    let world = World::new();

    let arguments = json!({ "path": "a.txt", "old": "a", "new": "b", "every": true });
    let told = world.fails("fs.edit", arguments).await;

    assert_eq!(
        told,
        "error (invalid_arguments): unknown field `every`, expected one of `path`, `old`, `new`, `all`"
    );
}

#[tokio::test]
async fn an_optional_argument_may_be_null() {
    let world = World::new();
    world.put("a.txt", "a\n");

    let arguments = json!({ "path": "a.txt", "from": null, "lines": null });

    assert_eq!(world.done("fs.read", arguments).await, "a\n");
}

#[tokio::test]
async fn a_fault_does_not_repeat_a_long_value() {
    let world = World::new();

    let told = world.fails("fs.read", json!({ "path": ["x".repeat(100_000)] })).await;

    assert!(told.len() < 1_000, "{} bytes", told.len());
}

#[tokio::test]
async fn a_denial_is_recorded_with_its_reason() {
    let world = World::with(Setup { commands: Some(&["cargo test"]), ..Setup::default() });

    let told = world.fails("exec", json!({ "command": ["touch", "a.txt"] })).await;

    assert!(told.starts_with("error (denied): "), "{told}");
    assert!(!world.path("a.txt").exists());
    let [EventBody::ToolRequested(requested), EventBody::ToolFailed(failed)] =
        &world.log.bodies()[..]
    else {
        panic!("{:?}", world.log.bodies());
    };
    assert_eq!(requested.decision, Decided::Refused { reason: failed.message.clone() });
    assert_eq!(format!("error (denied): {}", failed.message), told);
}

#[tokio::test]
async fn a_file_of_the_workspace_does_not_stand_in_for_a_program_of_the_list() {
    let list = &["greet *", "./greet *"];
    let world = World::with(Setup { commands: Some(list), path: &["bin"], ..Setup::default() });
    let greets = |who: &str| format!("#!/bin/sh\necho {who}\n");
    for (place, who) in [("greet", "top"), ("sub/greet", "another"), ("bin/greet", "stand-in")] {
        world.put(place, greets(who));
        fs::set_permissions(world.path(place), PermissionsExt::from_mode(0o755)).unwrap();
    }

    let by_path = world.done("exec", json!({ "command": ["./greet", "x"] })).await;
    let elsewhere = json!({ "command": ["./greet", "x"], "cwd": "sub" });
    let elsewhere = world.fails("exec", elsewhere).await;
    let by_name = world.fails("exec", json!({ "command": ["greet", "x"] })).await;

    assert_eq!(by_path, "exit code 0\ntop\n");
    assert!(elsewhere.contains("may be another file"), "{elsewhere}");
    assert!(by_name.contains("greet is bin/greet here, a file of the workspace"), "{by_name}");
}

#[tokio::test]
async fn what_a_person_would_be_asked_is_denied_where_nobody_is_there() {
    let world = World::with(Setup { mode: PermissionMode::Edit, ..Setup::default() });

    let told = world.fails("exec", json!({ "command": ["true"] })).await;

    assert!(told.contains("nobody is there to approve it") && told.contains("--allow"), "{told}");
}

#[tokio::test]
async fn the_twelfth_denial_ends_the_task_as_refused() {
    let world = World::with(Setup { commands: Some(&["true"]), ..Setup::default() });

    let mut controls = Vec::new();
    for _ in 0..12 {
        controls.push(world.call("exec", json!({ "command": ["false"] })).await.control);
    }

    let last = controls.pop().unwrap();
    assert!(controls.iter().all(|it| *it == Control::Continue), "{controls:?}");
    let Control::Refuse(why) = last else { panic!("{last:?}") };
    assert!(why.starts_with("12 calls were denied, the last because "), "{why}");
}

#[tokio::test]
async fn a_call_beyond_the_budget_is_not_carried_out() {
    let world = World::with(Setup { tool_calls: 2, ..Setup::default() });

    for name in ["a", "b"] {
        world.done("fs.write", json!({ "path": name, "content": name })).await;
    }
    let told = world.fails("fs.write", json!({ "path": "c", "content": "c" })).await;

    assert_eq!(told, "error (over_budget): 0 tool calls are left of 2, and the call may need 1");
    assert!(!world.path("c").exists());
}

#[tokio::test]
async fn a_task_that_has_used_its_last_call_can_still_be_ended() {
    let world = World::with(Setup { tool_calls: 1, ..Setup::default() });

    world.done("fs.write", json!({ "path": "a", "content": "a" })).await;
    let told = world.call("end_task", json!({ "summary": "a is there" })).await;

    assert!(matches!(told.control, Control::End(_)), "{told:?}");
}

#[tokio::test]
async fn a_refused_call_is_not_counted() {
    let world = World::with(Setup { tool_calls: 1, ..Setup::default() });

    world.fails("fs.read", json!({})).await;
    world.fails("fs.raed", json!({})).await;

    world.done("fs.list_dir", json!({})).await;
}

#[tokio::test]
async fn the_intent_of_a_change_is_recorded_before_it_happens() {
    let world = World::new();

    world.done("fs.write", json!({ "path": "a.txt", "content": "a\n" })).await;

    let wanted = [vec!["tool.requested"], vec!["file.changed", "tool.completed"]];
    assert_eq!(world.log.kinds(), wanted);
}

#[tokio::test]
async fn the_intent_of_what_changes_nothing_is_not_waited_for() {
    let world = World::new();
    world.put("a.txt", "one\n");

    world.done("fs.list_dir", json!({})).await;
    let (kinds, posted) = (world.log.kinds(), world.log.posted.load(Ordering::SeqCst));
    world.done("fs.edit", json!({ "path": "a.txt", "old": "one", "new": "two" })).await;

    assert_eq!(kinds, [["tool.requested"], ["tool.completed"]]);
    assert_eq!((posted, world.log.posted.load(Ordering::SeqCst)), (1, 1), "an edit is waited for");
}

#[tokio::test]
async fn a_change_of_a_file_names_the_call_and_what_was_there() {
    let world = World::new();
    world.put("a.txt", "one\ntwo\n");

    world.done("fs.edit", json!({ "path": "a.txt", "old": "two", "new": "three\nfour" })).await;

    let bodies = world.log.bodies();
    let change = bodies.iter().find_map(|body| match body {
        EventBody::FileChanged(change) => Some(change),
        _ => None,
    });
    let change = change.unwrap();
    assert_eq!((change.path.as_str(), change.added, change.removed), ("a.txt", 2, 1));
    assert_eq!(change.call, Some(world.context.call));
    assert_eq!(change.before, Some(formwork_protocols::BlobHash::of(b"one\ntwo\n")));
    assert_eq!(change.after, Some(formwork_protocols::BlobHash::of(b"one\nthree\nfour\n")));
}

#[tokio::test]
async fn long_arguments_are_cut_in_the_record_and_whole_in_the_file() {
    let world = World::new();
    let content = "äöü".repeat(10_000);

    world.done("fs.write", json!({ "path": "a.txt", "content": content })).await;

    assert_eq!(world.content("a.txt"), content);
    let bodies = world.log.bodies();
    let Some(EventBody::ToolRequested(requested)) = bodies.first() else { panic!("{bodies:?}") };
    assert!(requested.arguments.to_string().len() < 3_000);
    assert_eq!(requested.arguments["path"], "a.txt");
}

/// A tool of an embedder that always fails.
struct Broken(ToolSpec);

impl Broken {
    fn new() -> Self {
        Self(ToolSpec {
            definition: ToolDefinition {
                name: ToolName::parse("weather").unwrap(),
                description: "Tell the weather.".to_owned(),
                parameters: json!({ "type": "object" }),
            },
            class: ToolClass::Memory,
            replay: Replay::Once,
            tags: Vec::new(),
        })
    }
}

#[async_trait]
impl Tool for Broken {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: &CallContext, _: Value, _: &Cancel) -> Result<ToolOutput, ToolError> {
        Err(ToolError::new(ToolErrorKind::Failed, "the station is silent"))
    }
}

#[tokio::test]
async fn a_tool_of_an_embedder_goes_the_same_way() {
    let world = World::with(Setup { more: vec![Arc::new(Broken::new())], ..Setup::default() });

    let told = world.fails("weather", json!({})).await;

    assert_eq!(told, "error (failed): the station is silent");
    assert_eq!(world.log.kinds(), [["tool.requested"], ["tool.failed"]]);
}

#[test]
fn no_built_in_tool_takes_many_words() {
    for spec in formwork_tool::builtin::specs() {
        let ToolDefinition { name, description, parameters } = spec.definition;
        let shown = json!({ "name": name, "description": description, "parameters": parameters });

        let size = shown.to_string().len();

        // A task has many sides, and each of them is a choice of the model's.
        let most = match shown["name"].as_str() {
            Some("create_task") => 1_400,
            Some("create_workflow") => 2_100, // Each of its tasks has as many.
            _ => 800,
        };
        assert!(size <= most, "{shown} has {size} bytes");
    }
}

/// Looks around and remembers when.
#[derive(Default)]
struct Looks {
    said: Mutex<Vec<&'static str>>,
    refuses: AtomicBool,
    is_blind: AtomicBool,
}

#[async_trait]
impl Around for Looks {
    async fn before(&self, _: &CallContext, _: &ToolSpec, _: &Journal) -> Result<(), ToolError> {
        if self.refuses.load(Ordering::SeqCst) {
            return Err(ToolError::new(ToolErrorKind::Failed, "it cannot be looked at"));
        }
        self.said.lock().unwrap().push("before");
        Ok(())
    }

    async fn after(&self, _: &CallContext) -> Result<Vec<NewEvent>, ToolError> {
        self.said.lock().unwrap().push("after");
        match self.is_blind.load(Ordering::SeqCst) {
            true => Err(ToolError::new(ToolErrorKind::Failed, "what it changed is not known")),
            false => Ok(Vec::new()),
        }
    }
}

#[tokio::test]
async fn whoever_looks_before_a_call_looks_after_it_however_it_ends() {
    let looks = Arc::new(Looks::default());
    let around: Arc<dyn Around> = Arc::clone(&looks) as _;
    let world = World::with(Setup { around: Some(around), ..Setup::default() });
    let said = || std::mem::take(&mut *looks.said.lock().unwrap());

    world.done("exec", json!({ "command": ["true"] })).await;
    assert_eq!(said(), ["before", "after"]);
    world.fails("exec", json!({ "command": ["there-is-no-such-program"] })).await;
    assert_eq!(said(), ["before", "after"]);

    // No secret of that name is known.
    let told = world.fails("exec", json!({ "command": ["echo", "{{secret:NONE}}"] })).await;
    assert!(told.contains("NONE"), "{told}");
    assert_eq!(said(), [] as [&str; 0]);

    // What cannot be looked at afterwards has not gone well, whatever it said.
    looks.is_blind.store(true, Ordering::SeqCst);
    let told = world.fails("exec", json!({ "command": ["true"] })).await;
    assert_eq!(told, "error (failed): what it changed is not known");
    assert_eq!(world.log.kinds().last().unwrap(), &["tool.failed"]);
    assert_eq!(said(), ["before", "after"]);
    looks.is_blind.store(false, Ordering::SeqCst);

    looks.refuses.store(true, Ordering::SeqCst);
    world.fails("exec", json!({ "command": ["true"] })).await;
    assert_eq!(said(), [] as [&str; 0]);
    looks.refuses.store(false, Ordering::SeqCst);

    world.log.is_closed.store(true, Ordering::SeqCst);
    let told = world.fails("exec", json!({ "command": ["touch", "made"] })).await;
    assert!(told.contains("could not be recorded"), "{told}");
    assert_eq!(said(), ["before", "after"]);
    assert!(!world.path("made").exists());
}
