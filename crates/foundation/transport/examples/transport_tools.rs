//! Lets a model call a tool, gives it the result, and reads what it says then: the loop below every agent.

#![expect(clippy::print_stdout, reason = "an example shows what it made")]

use std::error::Error;

use formwork_protocols::{
    Cancel, Message, ModelRequest, Part, Provider as _, Role, ToolCall, ToolResult,
    message::{Arguments, ToolDefinition},
};
use formwork_transport::{Script, Scripted};
use serde_json::json;

const SCRIPT: &str = r#"
format_version = 1

[[turns]]
text = "I will look at both."
calls = [
    { tool = "weather.now", arguments = { city = "Oslo" } },
    { tool = "weather.now", arguments = { town = "Rome" } },
]

[[turns]]
text = "It is 4 degrees in Oslo; for Rome I was not understood."
"#;

/// Does what a call asks for. What a tool cannot do is told to the model, which may know better.
fn run(call: &ToolCall) -> Result<String, String> {
    match (&*call.name, &call.arguments) {
        ("weather.now", Arguments::Json(arguments)) => match arguments["city"].as_str() {
            Some(city) => Ok(format!("4 degrees in {city}")),
            None => Err("expected a city, as in {\"city\": \"Oslo\"}".to_owned()),
        },
        (name, Arguments::Json(_)) => Err(format!("there is no tool {name:?}")),
        // The answer was cut, or this is no JSON: what such a call asks for is not known, so it is never executed.
        (_, Arguments::Malformed { error, .. }) => Err(error.clone()),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let provider = Scripted::new("demo".parse()?, "demo", Script::parse("demo.toml", SCRIPT)?);
    let question = Message::text(Role::User, "How warm is it in Oslo and in Rome?");
    let mut request = ModelRequest::new("any".parse()?, vec![question]);
    request.tools = vec![ToolDefinition {
        name: "weather.now".parse()?,
        description: "Tell the temperature in a city.".to_owned(),
        parameters: json!({
            "type": "object",
            "properties": { "city": { "type": "string" } },
            "required": ["city"],
        }),
    }];

    let mut results = Vec::new();
    let said = loop {
        let answer = provider.complete(request.clone(), Cancel::new()).await?;
        let calls: Vec<ToolCall> = answer.message.tool_calls().cloned().collect();
        if calls.is_empty() {
            break answer.message.to_text();
        }
        let parts = calls.into_iter().map(|call| {
            let outcome = run(&call);
            println!("{} {:?}: {outcome:?}", call.name, call.arguments);
            results.push(outcome.clone());
            let is_error = outcome.is_err();
            let content = outcome.unwrap_or_else(|reason| reason);
            Part::ToolResult(ToolResult {
                call_id: call.id,
                name: call.name,
                content,
                is_error,
                attached: Vec::new(),
            })
        });
        let parts = parts.collect();
        // The message goes back as it came: a wire may refuse results whose calls it does not see, or reasoning
        // that was changed.
        request.messages.extend([answer.message, Message { role: Role::Tool, parts }]);
    };
    println!("{said}");

    let refused = "expected a city, as in {\"city\": \"Oslo\"}";
    assert_eq!(results, [Ok("4 degrees in Oslo".to_owned()), Err(refused.to_owned())]);
    assert_eq!(said, "It is 4 degrees in Oslo; for Rome I was not understood.");
    Ok(())
}
