//! Puts a secret into a call and takes it out of what comes back.

#![expect(clippy::print_stdout, reason = "an example shows what it made")]

use std::path::Path;

use formwork_protocols::Scrub;
use formwork_secrets::{Environment, Registry, SecretName, Source};
use serde_json::json;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The program's outermost layer would look into the real environment here.
    let environment = |name: &str| (name == "DEMO_TOKEN").then(|| "tok_4f9a/83\"b2".to_owned());
    let name = SecretName::parse("DEMO")?;
    let source = Source::Env("DEMO_TOKEN".to_owned());
    let value = source.resolve(&name, &environment as &dyn Environment, Path::new("."))?;
    let mut registry = Registry::default();
    registry.insert(name, value)?;

    let mut arguments = json!({ "url": "https://example.com", "token": "{{secret:DEMO}}" });
    registry.substitute(&mut arguments)?;
    let answer = format!("called with {arguments} and tok_4f9a%2F83%22b2");

    let scrubber = registry.scrubber();
    println!("{}", scrubber.scrub_text(&answer));
    let mut stream = scrubber.stream();
    for piece in ["so the token tok", "_4f9a/83\"", "b2 was cut, ", "and is not shown"] {
        println!("{:?}", stream.push_text(piece));
    }
    Ok(())
}
