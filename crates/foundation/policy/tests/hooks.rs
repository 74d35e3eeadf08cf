//! Gates and observers as real programs.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{path::Path, time::Duration};

use formwork_policy::{Answer, Decision, Hashes, Hook, HookCall, Hooks, ToolPatterns, TrustStore};
use formwork_protocols::{
    AgentName, CallId, RunId, SessionId, TaskId, ToolClass, ToolName, tool::CallContext,
};
use formwork_sandbox::{Environment, Protection, Sandbox};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn hook(script: &str) -> Hook {
    Hook {
        event: "tool.before".into(),
        tools: None,
        command: ["sh", "-c", script].map(Into::into).into(),
        timeout: Duration::from_secs(20),
    }
}

fn hooks(dir: &Path, hooks: Vec<Hook>) -> Hooks {
    let environment = Environment::new([("PATH", "/usr/bin:/bin")]);
    Hooks::new(Sandbox::new(environment, dir), dir, Protection::None, hooks)
}

async fn ask(dir: &Path, list: Vec<Hook>, arguments: &Value) -> Answer {
    asked(&hooks(dir, list), arguments).await
}

async fn asked(hooks: &Hooks, arguments: &Value) -> Answer {
    let id = uuid::Uuid::from_u128;
    let context = CallContext {
        run: RunId::from_uuid(id(1)),
        task: TaskId::from_uuid(id(2)),
        session: SessionId::from_uuid(id(3)),
        call: CallId::from_uuid(id(4)),
        agent: AgentName::parse("coder").unwrap(),
    };
    let tool = ToolName::parse("fs.write").unwrap();
    let call = HookCall {
        event: "tool.before",
        context: &context,
        tool: &tool,
        tags: &["files".to_owned()],
        class: ToolClass::Write,
        arguments,
    };
    hooks.gate(&call, &CancellationToken::new()).await
}

#[tokio::test]
async fn a_pipe_in_the_place_of_a_gates_script_denies_and_holds_nothing_up() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("gate.sh");
    std::fs::write(&script, "exit 0\n").unwrap();
    let gate = Hook { command: ["sh", "gate.sh"].map(Into::into).into(), ..hook("") };
    let gates = hooks(dir.path(), vec![gate]);
    let before = asked(&gates, &json!({})).await.decision;
    std::fs::remove_file(&script).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&script).status().unwrap();

    let after = asked(&gates, &json!({})).await.decision;

    assert!(made.success());
    assert_eq!(before, Decision::Allow);
    let Decision::Deny { why } = after else { panic!("{after:?}") };
    assert!(why.ends_with("gate.sh was changed since it was taken up"), "{why}");
}

#[tokio::test]
async fn a_gates_script_that_has_come_since_is_not_asked() {
    let dir = tempfile::tempdir().unwrap();
    let gate = Hook { command: ["sh", "gate.sh"].map(Into::into).into(), ..hook("") };
    let gates = hooks(dir.path(), vec![gate]);
    std::fs::write(dir.path().join("gate.sh"), "exit 0\n").unwrap();

    let Decision::Deny { why } = asked(&gates, &json!({})).await.decision else {
        panic!("it was asked")
    };

    assert!(why.ends_with("gate.sh was changed since it was taken up"), "{why}");
}

#[tokio::test]
async fn a_module_of_a_gate_is_what_it_was_whatever_has_come_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let put = |file: &str, text: &str| {
        let path = dir.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    put("gatemod.py", "import sys\nsys.exit(0)\n");
    let gates = hooks(dir.path(), gates_of("gatemod"));
    let then =
        Hashes::from([("gatemod.py".to_owned(), TrustStore::hash(b"import sys\nsys.exit(0)\n"))]);
    let since = gates.clone().since(&then);
    let why = async |gates: &Hooks| match asked(gates, &json!({})).await.decision {
        Decision::Deny { why } => why,
        other => format!("{other:?}"),
    };

    let before = why(&since).await;
    put("gatemod/__init__.py", "");
    let beside = why(&since).await;
    std::fs::remove_dir_all(dir.path().join("gatemod")).unwrap();
    put("gatemod.py", "import sys\nsys.exit(1)\n");
    let changed = [why(&since).await, why(&gates).await];
    let anew = why(&hooks(dir.path(), gates_of("gatemod")).since(&then)).await;

    assert_eq!(before, "Allow");
    assert!(beside.ends_with("gatemod/__init__.py was changed since it was taken up"), "{beside}");
    for why in changed.into_iter().chain([anew]) {
        assert!(why.ends_with("gatemod.py was changed since it was taken up"), "{why}");
    }
}

fn gates_of(module: &str) -> Vec<Hook> {
    vec![Hook { command: ["python3", "-m", module].map(Into::into).into(), ..hook("") }]
}

async fn answer(script: &str) -> Answer {
    let dir = tempfile::tempdir().unwrap();
    ask(dir.path(), vec![hook(script)], &json!({})).await
}

#[tokio::test]
async fn a_gate_answers_by_exit_code_or_json() {
    let deny = |why: &str| Decision::Deny { why: why.into() };

    assert_eq!(answer("exit 0").await.decision, Decision::Allow);
    assert_eq!(answer("echo not here >&2; exit 2").await.decision, deny("not here"));
    assert_eq!(answer("exit 2").await.decision, deny("a gate denied it"));
    assert_eq!(answer(r#"echo '{"decision":"allow"}'"#).await.decision, Decision::Allow);
    let said = answer(r#"echo '{"decision":"deny","reason":"no"}'"#).await;
    assert_eq!(said.decision, deny("no"));
    let said = answer(r#"echo '{"decision":"ask","reason":"sure?"}'"#).await;
    assert_eq!(said.decision, Decision::Ask { why: "sure?".into() });
    let said = answer(r#"echo '{"decision":"replace","arguments":{"path":"b"}}'"#).await;
    assert_eq!((said.decision, said.arguments), (Decision::Allow, Some(json!({"path": "b"}))));
    assert_eq!(said.said.len(), 1);
    assert!(said.said[0].gate.starts_with("sh -c"));
}

#[tokio::test]
async fn a_gate_that_crashes_hangs_or_babbles_denies() {
    let dir = tempfile::tempdir().unwrap();
    let mut slow = hook("sleep 1000");
    slow.timeout = Duration::from_millis(100);
    let mut missing = hook("");
    missing.command = vec!["./no-such-gate".into()];
    let mut nothing = hook("");
    nothing.command = vec![];
    let scripts = [
        "exit 1",
        "kill -SEGV $$",
        "echo yes",
        r#"echo '{"decision":"allow"} {"decision":"allow"}'"#,
        r#"echo '{"decision":"ALLOW"}'"#,
        r#"echo '{"decision":"allow","arguments":{}}'"#,
        r#"echo '{"decision":"deny"}'"#,
        r#"echo '{"decision":"replace","arguments":[1]}'"#,
        r#"echo '{"decision":"allow","verdict":1}'"#,
        r#"echo '{}'; echo rubbish"#,
        r#"echo '{"decision":"allow"}'; exit 3"#,
        "head -c 2000000 /dev/zero | tr '\\0' ' '",
    ];

    for hook in scripts.map(hook).into_iter().chain([slow, missing, nothing]) {
        let command = hook.command.join(" ");
        let answer = ask(dir.path(), vec![hook], &json!({})).await;

        let Decision::Deny { why } = answer.decision else { panic!("{command}") };
        assert!(why.contains("failed, which denies"), "{command}: {why}");
    }
}

#[tokio::test]
async fn a_gate_reads_one_document_about_the_call() {
    let dir = tempfile::tempdir().unwrap();

    let answer = ask(dir.path(), vec![hook("cat > document")], &json!({"path": "a"})).await;

    assert_eq!(answer.decision, Decision::Allow);
    let text = std::fs::read(dir.path().join("document")).unwrap();
    let mut document: Value = serde_json::from_slice(&text).unwrap();
    for id in ["run", "task", "session", "call"] {
        assert!(document[id].take().is_string(), "{id}");
    }
    let wanted = json!({
        "format_version": 1, "event": "tool.before", "run": null, "task": null, "session": null,
        "call": null, "agent": "coder", "tool": "fs.write", "class": "write",
        "arguments": {"path": "a"},
    });
    assert_eq!(document, wanted);
}

#[tokio::test]
async fn gates_go_in_order_and_the_first_denial_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    let list = vec![
        hook(r#"echo '{"decision":"replace","arguments":{"path":"b"}}'"#),
        hook(r#"echo '{"decision":"ask","reason":"sure?"}'"#),
        hook("cat > second; echo no >&2; exit 2"),
        hook("touch third"),
    ];

    let answer = ask(dir.path(), list, &json!({"path": "a"})).await;

    assert_eq!(answer.decision, Decision::Deny { why: "no".into() });
    assert!(
        std::fs::read_to_string(dir.path().join("second")).unwrap().contains(r#"{"path":"b"}"#)
    );
    assert!(!dir.path().join("third").exists());
}

#[tokio::test]
async fn a_gate_is_asked_only_about_its_event_and_its_tools() {
    let dir = tempfile::tempdir().unwrap();
    let with = |event: &str, tools: &[&str]| Hook {
        event: event.into(),
        tools: Some(ToolPatterns::parse(tools).unwrap()),
        ..hook("exit 2")
    };
    let others = vec![with("tool.after", &["*"]), with("tool.before", &["exec", "#readonly"])];

    let by_others = ask(dir.path(), others, &json!({})).await;
    let by_tag = ask(dir.path(), vec![with("tool.before", &["#files"])], &json!({})).await;

    assert_eq!(by_others.decision, Decision::Allow);
    assert!(matches!(by_tag.decision, Decision::Deny { .. }));
}

#[tokio::test]
async fn an_observer_that_fails_is_reported_and_holds_nothing_up() {
    let dir = tempfile::tempdir().unwrap();
    let observer = |script: &str| Hook { event: "run.after".into(), ..hook(script) };
    let list = vec![observer("exit 3"), observer("cat > seen"), hook("touch not-mine")];

    let faults = hooks(dir.path(), list)
        .observe(("run.after", None), &json!({"outcome": "done"}), &CancellationToken::new())
        .await;

    let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(faults, ["hook sh -c exit 3 failed: exit code 3"]);
    assert_eq!(std::fs::read_to_string(dir.path().join("seen")).unwrap(), r#"{"outcome":"done"}"#);
    assert!(!dir.path().join("not-mine").exists());
}
