//! Streams an answer of a scripted model and tells what it cost; a real one takes only another [`Endpoint`].

use std::{error::Error, sync::Arc};

use formwork_protocols::{Cancel, Message, ModelEvent, ModelRequest, Role};
use formwork_transport::{Catalog, Endpoint, ModelOverride, ProviderKind, Script, Scripted, Seams};
use futures::StreamExt as _;

const SCRIPT: &str = r#"
format_version = 1

[[turns]]
text = "The capital of France is Paris."
usage = { input = 14, output = 8 }
"#;

fn main() -> Result<(), Box<dyn Error>> {
    let script = Scripted::new("demo".parse()?, "demo", Script::parse("demo.toml", SCRIPT)?);
    let word = ModelOverride {
        price: Some(formwork_protocols::Price {
            input: "3".parse()?,
            output: "15".parse()?,
            ..formwork_protocols::Price::LOCAL
        }),
        ..ModelOverride::default()
    };
    // Nothing listens there and nothing is sent: an endpoint is only reached by a call.
    let local = Endpoint::new("local".parse()?, ProviderKind::LlamaCpp, "http://127.0.0.1:8080");
    let catalog = Catalog::new(vec![local], &Seams::default())?
        .with_provider(ProviderKind::Scripted, Arc::new(script))
        .with_model("demo/any".parse()?, word);
    let model = catalog.model(&"demo/any".parse()?)?;

    let question = Message::text(Role::User, "What is the capital of France?");
    let request = ModelRequest::new(model.info.model.model.clone(), vec![question]);
    let mut events = model.provider.stream(request, Cancel::new());
    let (mut text, mut cost) = (String::new(), None);
    while let Some(event) = futures::executor::block_on(events.next()) {
        match event? {
            ModelEvent::Text { text: more } => text += &more,
            ModelEvent::Retrying { .. } => text.clear(), // What was streamed before is void.
            ModelEvent::Done(answer) => cost = Some(model.cost(&answer.usage)),
            _ => {}
        }
    }

    assert_eq!(text, "The capital of France is Paris.");
    assert_eq!(cost, Some("0.000162".parse()?));
    Ok(())
}
