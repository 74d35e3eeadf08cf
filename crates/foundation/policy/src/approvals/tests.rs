use formwork_protocols::ToolName;
use serde_json::json;

use super::*;

fn words(command: &[&str]) -> Vec<String> {
    command.iter().map(ToString::to_string).collect()
}

/// Does something with a call of `exec`.
fn with<T>(command: &[&str], work: impl FnOnce(&Call<'_>, &Value) -> T) -> T {
    let (argv, tool) = (words(command), ToolName::parse("exec").unwrap());
    let call = Call { argv: Some(&argv), ..Call::new(&tool, ToolClass::Exec) };
    work(&call, &json!({ "command": command }))
}

fn offered(command: &[&str]) -> Option<String> {
    match with(command, alike) {
        Some(Cover::Commands { pattern }) => Some(pattern),
        _ => None,
    }
}

#[test]
fn an_approval_of_one_call_covers_that_call_and_no_other() {
    let grants = Grants::default();
    grants.add(with(&["cargo", "test"], exact));
    let covers = |command: &[&str]| with(command, |call, arguments| grants.cover(call, arguments));

    assert!(covers(&["cargo", "test"]));
    assert!(!covers(&["cargo", "test", "--all"]));
    let (argv, tool) = (words(&["cargo", "test"]), ToolName::parse("exec").unwrap());
    let call = Call { argv: Some(&argv), ..Call::new(&tool, ToolClass::Exec) };
    let elsewhere = json!({ "command": ["cargo", "test"], "cwd": "vendor" });
    assert!(!grants.cover(&call, &elsewhere));
}

#[test]
fn an_approval_of_a_prefix_covers_no_program_behind_another() {
    let grants = Grants::new([Cover::Commands { pattern: "git push *".into() }]);
    let covers = |command: &[&str]| with(command, |call, arguments| grants.cover(call, arguments));

    assert!(covers(&["git", "push", "origin", "main"]));
    assert!(!covers(&["git", "pull"]));
    assert!(!covers(&["sudo", "git", "push"]));
    assert!(!covers(&["git", "push", "--receive-pack=rm"]));
}

#[test]
fn a_prefix_is_offered_where_it_bounds_something() {
    assert_eq!(offered(&["cargo", "test", "--lib"]).as_deref(), Some("cargo test *"));
    assert_eq!(offered(&["python3", "tools/gen.py"]).as_deref(), Some("python3 tools/gen.py *"));
    assert_eq!(offered(&["cat", "a file"]).as_deref(), Some("cat 'a file' *"));
    for bare in [&["ls"][..], &["rm", "-rf", "x"], &["timeout", "5", "rm", "x"], &["a*", "b"]] {
        assert_eq!(offered(bare), None, "{bare:?}");
    }
}

#[test]
fn no_prefix_is_offered_that_would_cover_every_program() {
    for launcher in [
        "uv run pytest",
        "uvx ruff x",
        "npx jest x",
        "npm exec jest",
        "npm x jest",
        "pnpm dlx jest",
        "poetry run pytest",
        "bundle exec rake",
        "docker run image",
        "ssh host ls",
        "kubectl exec pod",
        "/usr/bin/uv run pytest",
        "go run ./x",
    ] {
        let words: Vec<&str> = launcher.split(' ').collect();
        assert_eq!(offered(&words), None, "{launcher}");
    }
    assert_eq!(offered(&["npm", "test"]).as_deref(), Some("npm test *"));
}

#[test]
fn a_prefix_covers_no_call_in_another_folder() {
    let grants = Grants::new([Cover::Commands { pattern: "sh test.sh *".into() }]);
    let (argv, tool) = (words(&["sh", "test.sh"]), ToolName::parse("exec").unwrap());
    let call = Call { argv: Some(&argv), ..Call::new(&tool, ToolClass::Exec) };

    assert!(grants.cover(&call, &json!({ "command": ["sh", "test.sh"] })));
    assert!(grants.cover(&call, &json!({ "command": ["sh", "test.sh"], "cwd": null })));
    let elsewhere = json!({ "command": ["sh", "test.sh"], "cwd": "vendor" });
    assert!(!grants.cover(&call, &elsewhere));
    assert_eq!(alike(&call, &elsewhere), None);
}

#[test]
fn rules_are_kept_by_workspace_and_can_be_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    std::fs::create_dir(&one).unwrap();
    std::fs::create_dir(&two).unwrap();
    let book = |workspace: &Path| ApprovalBook::new(dir.path().join("approvals.json"), workspace);
    let cover = |pattern: &str| Cover::Commands { pattern: pattern.into() };

    book(&one).unwrap().add(&cover("cargo test *")).unwrap();
    book(&one).unwrap().add(&cover("cargo test *")).unwrap();
    book(&one).unwrap().add(&cover("npm test *")).unwrap();

    assert_eq!(book(&one).unwrap().covers().unwrap(), [cover("cargo test *"), cover("npm test *")]);
    assert_eq!(book(&two).unwrap().covers().unwrap(), []);
    assert_eq!(book(&one).unwrap().revoke(Some(&cover("cargo test *"))).unwrap(), 1);
    assert_eq!(book(&one).unwrap().covers().unwrap(), [cover("npm test *")]);
    assert_eq!(book(&one).unwrap().revoke(None).unwrap(), 1);
    assert_eq!(book(&one).unwrap().covers().unwrap(), []);
}

#[test]
fn a_book_within_its_workspace_is_refused() {
    let dir = tempfile::tempdir().unwrap();

    let refused = ApprovalBook::new(dir.path().join("approvals.json"), dir.path()).unwrap_err();

    assert!(matches!(refused, Error::StoreInside { .. }), "{refused}");
}
