//! Asks for an answer that follows a JSON Schema. The first one does not; the model is told why, and asked once more.

#![expect(clippy::print_stdout, reason = "an example shows what it made")]

use std::error::Error;

use formwork_protocols::{Cancel, Message, ModelRequest, Role};
use formwork_transport::{Script, Scripted, structured::OutputSchema};
use serde_json::json;

const SCRIPT: &str = r#"
format_version = 1

[[turns]]
text = '{"name": "Ada", "born": "1815"}'

[[turns]]
text = '''
Here it is:
```json
{"name": "Ada", "born": 1815}
```
'''
"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let provider = Scripted::new("demo".parse()?, "demo", Script::parse("demo.toml", SCRIPT)?);
    let schema = OutputSchema::new(
        "person",
        json!({
            "type": "object",
            "properties": { "name": { "type": "string" }, "born": { "type": "integer" } },
            "required": ["name", "born"],
            "additionalProperties": false,
        }),
    )?;

    let question = Message::text(Role::User, "Who wrote the first program?");
    let request = ModelRequest::new("any".parse()?, vec![question]);
    let answered = schema.complete(&provider, request, Cancel::new()).await?;

    println!("{} after {} answers", answered.value, answered.answers.len());
    let refused = schema.read(&answered.answers[0]).expect_err("the year was a text");
    println!("the first was refused: {refused}");

    assert_eq!(answered.value, json!({ "name": "Ada", "born": 1815 }));
    // Each of them is paid for.
    assert_eq!(answered.answers.len(), 2);
    assert_eq!(
        refused.to_string(),
        "schema \"person\": at /born: \"1815\" is not of type \"integer\""
    );
    Ok(())
}
