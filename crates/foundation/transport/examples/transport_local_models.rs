//! Looks for servers of models on this machine and asks what they serve.

#![expect(clippy::print_stdout, reason = "an example shows what it made")]

use std::error::Error;

use formwork_protocols::{ModelRef, Price};
use formwork_testkit::http::{Reply, Server};
use formwork_transport::{
    Catalog, LOOPBACK_PORTS, ModelOverride, ProviderKind, Seams, discover_at,
};

const MODELS: &str = r#"{"object":"list","data":[{"id":"qwen2.5-coder","object":"model","owned_by":"llamacpp",
    "meta":{"n_ctx":32768,"n_ctx_train":131072,"n_params":7615616512}}]}"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::start().await?;
    server.reply_always("/v1/models", Reply::json(200, MODELS));
    let url = server.url();
    let port = url.rsplit(':').next().ok_or("an address has a port")?.parse()?;

    // `discover` asks the usual ports; here it is the port of the server above.
    println!("usually at {LOOPBACK_PORTS:?}");
    let seams = Seams::default();
    let mut found = discover_at(&[port], &seams).await;
    let server_found = found.pop().ok_or("the server answers")?;
    let [model] = &*server_found.models else { return Err("it lists one model".into()) };
    println!(
        "{} at {}: {}, {:?} tokens, {:?} parameters",
        server_found.endpoint.kind,
        server_found.endpoint.base_url,
        model.name,
        model.context_tokens,
        model.parameters
    );

    // What it is was told by what it answers; the window is the one that is loaded, not the one it was trained with.
    assert_eq!(server_found.endpoint.kind, ProviderKind::LlamaCpp);
    assert_eq!((model.context_tokens, model.parameters), (Some(32_768), Some(7_615_616_512)));

    // It is ready to be called once the operator says that it costs nothing.
    let name = ModelRef { provider: server_found.endpoint.name.clone(), model: model.name.clone() };
    let word = ModelOverride { price: Some(Price::LOCAL), ..ModelOverride::default() };
    let catalog = Catalog::new(vec![server_found.endpoint], &seams)?.with_model(name.clone(), word);
    let ready = catalog.model(&name)?;
    println!("{} is ready", ready.info.model);
    assert_eq!(ready.info.model.to_string(), "llama-cpp/qwen2.5-coder");
    Ok(())
}
