//! Finds out what a call may cost and did cost, and that a model nobody has priced is not called.

#![expect(clippy::print_stdout, reason = "an example shows what it made")]

use std::error::Error;

use formwork_protocols::{Cancel, Message, ModelRef, ModelRequest, Price, Role, Usage};
use formwork_testkit::http::{Reply, Server};
use formwork_transport::{
    Catalog, Endpoint, Error as SetUp, ModelOverride, Prices, ProviderKind, Seams, Vendor, usage,
};

const ANSWER: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"house-model",
    "content":[{"type":"text","text":"Done."}],"stop_reason":"end_turn",
    "usage":{"input_tokens":1000,"cache_read_input_tokens":50000,"cache_creation_input_tokens":2000,"output_tokens":300}}"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // The prices that the makers publish come with the crate, each with its source and month.
    let built_in = Prices::built_in()?;
    let known = built_in.get(Vendor::Anthropic, "claude-sonnet-4-5-20250929");
    let known = known.ok_or("it is in the catalogue")?;
    println!(
        "{}: {} and {} USD a million, as of {}",
        known.name, known.input, known.output, known.as_of
    );

    let server = Server::start().await?;
    server.reply("/v1/messages", Reply::json(200, ANSWER));
    let endpoint = Endpoint::new("house".parse()?, ProviderKind::Anthropic, server.url());
    let name: ModelRef = "house/house-model".parse()?;
    let catalog = Catalog::new(vec![endpoint], &Seams::default())?;

    // Nobody says what this one costs, so there is no way to call it.
    let refused = catalog.model(&name).expect_err("it has no price");
    println!("{refused}");
    assert!(matches!(refused, SetUp::NoPrice { .. }));

    let price = Price {
        input: "3".parse()?,
        output: "15".parse()?,
        cache_read: Some("0.30".parse()?),
        cache_write: Some("3.75".parse()?),
        reasoning: None,
    };
    let word = ModelOverride { price: Some(price), ..ModelOverride::default() };
    let model = catalog.with_model(name.clone(), word).model(&name)?;

    let rules = Message::text(Role::System, "This is a rule of the house. ".repeat(6_000));
    let question = Message::text(Role::User, "Do it.");
    let mut request = ModelRequest::new(name.model.clone(), vec![rules, question]);
    request.max_output_tokens = Some(1_000);
    let before =
        Usage { input: usage::estimate_input(&request), output: 1_000, ..Usage::default() };
    println!("about {} USD if nothing is cached and all is answered", model.cost(&before));

    let answer = model.provider.complete(request, Cancel::new()).await?;
    println!("{} USD for {:?}", model.cost(&answer.usage), answer.usage);

    // The classes are disjoint: cached input is not counted again as input.
    let told =
        Usage { input: 1_000, cache_read: 50_000, cache_write: 2_000, output: 300, reasoning: 0 };
    assert_eq!((answer.usage, answer.usage_estimated), (told, false));
    // 0.003 + 0.015 + 0.0075 + 0.0045
    assert_eq!(model.cost(&answer.usage), "0.03".parse()?);
    assert!(model.cost(&answer.usage) <= model.cost(&before));
    Ok(())
}
