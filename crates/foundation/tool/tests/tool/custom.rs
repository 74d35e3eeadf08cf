//! Tools that are written down as data.

use std::{sync::Arc, time::Duration};

use formwork_policy::HostPatterns;
use formwork_protocols::{
    AgentName, CallId, Cancel, RunId, SeededRng, SessionId, SystemClock, TaskId, Tool as _,
    tool::CallContext,
};
use formwork_sandbox::{Environment, Protection, Sandbox};
use formwork_secrets::{Registry, SecretName};
use formwork_testkit::http::{Reply, Server};
use formwork_tool::{
    HttpRules,
    custom::{CustomTool, Seams, ToolDocument},
};
use serde_json::{Value, json};

/// Makes a tool of a document, beside a secret that it does not name.
fn tool(folder: &std::path::Path, document: &str, hosts: &[String]) -> CustomTool {
    let mut secrets = Registry::default();
    for name in ["KEY", "OTHER"] {
        let value = format!("value-of-{}", name.to_lowercase());
        secrets.insert(SecretName::parse(name).unwrap(), value.into()).unwrap();
    }
    let environment = Environment::new([("PATH", "/usr/bin:/bin")]);
    let seams = Seams {
        root: folder.to_owned(),
        sandbox: Arc::new(Sandbox::new(environment, folder)),
        protection: Protection::None,
        longest: Duration::from_secs(20),
        http: HttpRules {
            hosts: Some(HostPatterns::parse(hosts).unwrap()),
            private: HostPatterns::parse(hosts).unwrap(),
        },
        secrets: Arc::new(secrets),
        since: None,
    };
    CustomTool::new(ToolDocument::parse("t.toml", document).unwrap(), seams).unwrap()
}

async fn call(tool: &CustomTool, arguments: Value) -> Result<String, String> {
    let rng = SeededRng::new(7);
    let context = CallContext {
        run: RunId::generate(&SystemClock, &rng),
        task: TaskId::generate(&SystemClock, &rng),
        session: SessionId::generate(&SystemClock, &rng),
        call: CallId::generate(&SystemClock, &rng),
        agent: AgentName::parse("coder").unwrap(),
    };
    let done = tool.call(&context, arguments, &Cancel::new()).await;
    done.map(|output| output.text).map_err(|error| error.message)
}

#[tokio::test]
async fn what_arguments_make_of_each_other_is_no_place_for_a_secret() {
    let server = Server::start().await.unwrap();
    server.reply_always("/", Reply::text(200, "fine"));
    let host = server.url().trim_start_matches("http://").to_owned();
    let folder = tempfile::tempdir().unwrap();
    let document = format!(
        "format_version = 1\n[tool]\nname = \"custom.it\"\ndescription = \"It.\"\n\
         [params.a]\ntype = \"string\"\ndescription = \"A.\"\n\
         [params.b]\ntype = \"string\"\ndescription = \"B.\"\n\
         [execution.http]\nmethod = \"POST\"\nurl = \"http://{host}/\"\n\
         headers = {{ authorization = \"{{{{secret:KEY}}}} {{{{a}}}}{{{{b}}}}\" }}\n\
         body = {{ whole = \"{{{{a}}}}\", both = \"{{{{a}}}}{{{{b}}}} {{{{secret:KEY}}}}\" }}\n"
    );
    let tool = tool(folder.path(), &document, &[host]);

    let told = call(&tool, json!({ "a": "{{sec", "b": "ret:OTHER}}" })).await;
    let whole = call(&tool, json!({ "a": "{{secret:OTHER}}", "b": "" })).await;

    assert!(told.is_ok(), "{told:?}");
    assert!(whole.is_ok(), "{whole:?}");
    let requests = server.requests();
    let sent = &requests[0];
    assert_eq!(sent.header("authorization"), Some("value-of-key {{secret:OTHER}}"));
    let body: Value = serde_json::from_str(&sent.text()).unwrap();
    assert_eq!(body, json!({ "whole": "{{sec", "both": "{{secret:OTHER}} value-of-key" }));
    assert!(requests.iter().all(|sent| !sent.text().contains("value-of-other")));
}

#[tokio::test]
async fn a_pipe_in_the_place_of_a_program_is_a_change_and_holds_nothing_up() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("it.sh");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    let document = "format_version = 1\n[tool]\nname = \"custom.it\"\ndescription = \"It.\"\n\
         [execution.command]\nargv = [\"./it.sh\"]\n";
    let tool = tool(folder.path(), document, &[]);
    std::fs::remove_file(&program).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&program).status().unwrap();

    let told = call(&tool, json!({})).await;

    assert!(made.success());
    assert!(told.unwrap_err().ends_with("was changed since it was taken up"));
}
