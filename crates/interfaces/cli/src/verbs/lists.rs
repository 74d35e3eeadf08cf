//! `formwork models`, `agents` and `tools`: what there is.

use formwork_protocols::{OutcomeCode, Price, text};
use formwork_services::operations::{agents, models, tools};

use crate::{args::Global, fault::Fault, settings::Need, terminal::Terminal, view::visible};

pub(super) fn models(global: &Global, terminal: &Terminal) -> Result<OutcomeCode, Fault> {
    super::with(global, Vec::new(), Need::Effect, async |formwork, caller, _| {
        let found = formwork.call::<models::List>(&caller, models::ListParams::default()).await?;
        terminal.result(&found, || {
            let mut out = String::new();
            for endpoint in &found.endpoints {
                out.push_str(&format!(
                    "{} ({}) {}",
                    endpoint.provider, endpoint.kind, endpoint.base_url
                ));
                match &endpoint.error {
                    Some(error) => out.push_str(&format!("\n  ✗ {error}\n")),
                    None => out.push_str(&format!(": {} models\n", endpoint.models.len())),
                }
                for model in &endpoint.models {
                    let window = model
                        .context_tokens
                        .map_or_else(|| "?".to_owned(), |tokens| tokens.to_string());
                    out.push_str(&format!(
                        "  {:<44} {:>9} tokens  {}\n",
                        model.model.to_string(),
                        window,
                        price(model.price)
                    ));
                }
            }
            if found.endpoints.is_empty() {
                out.push_str("no provider is configured and none was found on this machine\n");
                out.push_str("`formwork init` writes a config that shows how to name one\n");
            }
            if !found.categories.is_empty() {
                out.push_str("categories\n");
                for (category, model) in &found.categories {
                    out.push_str(&format!("  {category} = {model}\n"));
                }
            }
            out
        })?;
        Ok(OutcomeCode::Completed)
    })
}

fn price(price: Option<Price>) -> String {
    match price {
        None => "no price: is not called before one is configured".to_owned(),
        Some(price) if price == Price::LOCAL => "local".to_owned(),
        Some(price) => format!("${} in, ${} out per million", price.input, price.output),
    }
}

pub(super) fn agents(global: &Global, terminal: &Terminal) -> Result<OutcomeCode, Fault> {
    super::with(global, Vec::new(), Need::Look, async |formwork, caller, _| {
        let found = formwork.call::<agents::List>(&caller, agents::ListParams::default()).await?;
        terminal.result(&found, || {
            let mut out = String::new();
            for agent in &found.agents {
                out.push_str(&format!(
                    "{:<16} {:<12} {}\n{:<16} {}\n",
                    agent.name,
                    agent.source,
                    agent.asks_for,
                    "",
                    visible(&agent.description)
                ));
            }
            out
        })?;
        Ok(OutcomeCode::Completed)
    })
}

pub(super) fn tools(global: &Global, terminal: &Terminal) -> Result<OutcomeCode, Fault> {
    super::with(global, Vec::new(), Need::Look, async |formwork, caller, _| {
        let found = formwork.call::<tools::List>(&caller, tools::ListParams::default()).await?;
        terminal.result(&found, || {
            let mut out = String::new();
            for tool in &found.tools {
                let first = tool.definition.description.lines().next().unwrap_or_default();
                out.push_str(&format!(
                    "{:<14} {:<10} {}\n",
                    tool.definition.name,
                    tool.class.as_str(),
                    text::head(first, 90)
                ));
            }
            out
        })?;
        Ok(OutcomeCode::Completed)
    })
}
