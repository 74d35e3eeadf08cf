//! Renders a task from a template and puts it together with what stands around it.

#![expect(clippy::print_stdout, reason = "an example shows what it made")]

use formwork_compose::{Error, Fragment, Library, Priority, Template, compose};
use serde_json::json;

fn main() -> Result<(), Error> {
    let mut library = Library::default();
    library.insert(Template::parse("rules", "Rules:\n{{#each rules}}\n- {{this}}\n{{/each}}")?)?;
    let task = Template::parse("task", "Implement {{spec}}.\n\n{{> rules}}")?;

    let variables = json!({
        "spec": "a reader for {{mustache}} files",
        "rules": ["Run the tests.", "Leave the tests as they are."],
    });
    let text = library.render(&task, variables.as_object().unwrap_or(&Default::default()))?;
    let prompt = compose([
        Fragment::volatile("budget", Priority::FAILURES, "0.42 of 1.50 USD are left."),
        Fragment::stable("task", Priority::PROMPT, text),
        Fragment::stable("preamble", Priority::PREAMBLE, "You write Rust."),
    ])?;
    println!("{}\n", prompt.text());
    for part in prompt.fragments() {
        println!("{:10} {:?} {:?}", part.name, part.kind, part.range);
    }

    // A wrong name is found before anything is sent.
    let typo = Template::parse("typo", "Implement {{spce}}.")?;
    let refused =
        library.render(&typo, json!({ "spec": "x" }).as_object().unwrap_or(&Default::default()));
    println!("\n{}", refused.err().map(|error| error.to_string()).unwrap_or_default());
    Ok(())
}
