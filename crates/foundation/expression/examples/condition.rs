//! A condition, the names that it refers to, and its value: `cargo run -p formwork-expression --example condition`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use formwork_expression::Expression;
use serde_json::json;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let condition = Expression::parse("tasks.lint.passed && size(tasks.lint.text.lines()) < 3")?;
    for reference in condition.references() {
        println!("it refers to {}", reference.path().join("."));
    }
    let known = json!({ "tasks": { "lint": { "passed": true, "text": "one warning\n" } } });
    let known = known.as_object().ok_or("an object")?;
    println!("{} is {}", condition.source(), condition.test(known)?);
    Ok(())
}
