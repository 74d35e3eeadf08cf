//! `formwork models`: what can be asked, what it is and can do, and how one is fetched.

use std::io::{self, Write as _};

use formwork_protocols::{OutcomeCode, Price};
use formwork_services::{
    ToolProbe,
    operations::models::{
        EndpointModels, List, ListParams, ModelRow, Probe, ProbeParams, Probed, PullParams,
    },
};
use serde_json::json;

use crate::{
    args::{Global, Models, ModelsAction},
    fault::Fault,
    settings::Need,
    terminal::{Format, Progress, Terminal},
    view::visible,
};

pub(super) fn models(
    global: &Global,
    terminal: &Terminal,
    args: Models,
) -> Result<OutcomeCode, Fault> {
    match args.action {
        None | Some(ModelsAction::List) => list(global, terminal),
        Some(ModelsAction::Probe { target }) => probe(global, terminal, ProbeParams { target }),
        Some(ModelsAction::Pull { model }) => pull(global, terminal, PullParams { model }),
    }
}

fn list(global: &Global, terminal: &Terminal) -> Result<OutcomeCode, Fault> {
    super::reading(global, Need::Effect, async |formwork, caller, _| {
        let found = formwork.call::<List>(&caller, ListParams::default()).await?;
        terminal.result(&found, || {
            let mut out: String = found.endpoints.iter().map(|it| endpoint(it, row)).collect();
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

fn probe(global: &Global, terminal: &Terminal, params: ProbeParams) -> Result<OutcomeCode, Fault> {
    super::reading(global, Need::Effect, async |formwork, caller, _| {
        let found = formwork.call::<Probe>(&caller, params).await?;
        terminal.result(&found, || probed(&found))?;
        let is_sound = found.endpoints.iter().all(|it| it.error.is_none())
            && found.tools.as_ref().is_none_or(|tools| tools.outcome.is_sound());
        Ok(if is_sound { OutcomeCode::Completed } else { OutcomeCode::Setup })
    })
}

fn probed(found: &Probed) -> String {
    let mut out: String = found.endpoints.iter().map(|it| endpoint(it, closely)).collect();
    if found.endpoints.is_empty() {
        out.push_str("no provider is configured; an address can be named in its place\n");
    }
    if let [one] = found.endpoints.as_slice()
        && !one.configured
        && one.error.is_none()
    {
        out.push_str(&format!(
            "to use it, write into the config:\n  [providers.{kind}]\n  kind = \"{kind}\"\n  base_url = \"{}\"\n",
            one.base_url,
            kind = one.kind,
        ));
    }
    if let Some(ToolProbe { outcome, found, advice, cost, .. }) = &found.tools {
        let mark = if outcome.is_sound() { "✓" } else { "✗" };
        out.push_str(&format!("{mark} {}, for ${cost}\n", visible(found)));
        if let Some(advice) = advice {
            out.push_str(&format!("  → {advice}\n"));
        }
    }
    out
}

fn pull(global: &Global, terminal: &Terminal, params: PullParams) -> Result<OutcomeCode, Fault> {
    super::reading(global, Need::Effect, async |formwork, caller, _| {
        let mut shown = Shown::new(terminal);
        let pulled = formwork
            .pull(&caller, params, |step| {
                let (done, total) = (step.completed.unwrap_or(0), step.total);
                // A screen that cannot be written to does not end the pull.
                let _ = match terminal.format {
                    Format::Jsonl => crate::terminal::document(&json!({ "progress": step })),
                    Format::Json | Format::Quiet => Ok(()),
                    Format::Text => shown.step(&step.status, done, total),
                };
            })
            .await;
        shown.end()?;
        let pulled = pulled?;
        terminal.result(&json!({ "pulled": pulled }), || {
            format!("{} is there: {}\n", pulled.model, size(pulled.bytes))
        })?;
        Ok(OutcomeCode::Completed)
    })
}

/// How far something has come, on standard error: in place on a terminal, else a line for each part.
struct Shown {
    out: Progress,
    live: bool,
    /// What was shown last, and how far it had come, in hundredths.
    last: Option<(String, u64)>,
}

impl Shown {
    fn new(terminal: &Terminal) -> Self {
        Self { out: Progress::default(), live: terminal.style().live, last: None }
    }

    fn step(&mut self, status: &str, done: u64, total: Option<u64>) -> io::Result<()> {
        let share =
            total.map_or(0, |total| done.saturating_mul(100).checked_div(total).unwrap_or(0));
        let is_new = self.last.as_ref().is_none_or(|(last, _)| last != status);
        let has_moved = self.last.as_ref().is_none_or(|(_, last)| *last != share);
        self.last = Some((status.to_owned(), share));
        let told = match total {
            Some(total) => format!("{} {share}% of {}", visible(status), size(total)),
            None => visible(status),
        };
        match self.live {
            // Back to the line's beginning, and away with the rest of it.
            true if is_new || has_moved => write!(self.out, "\r\x1b[K{told}")?,
            false if is_new => writeln!(self.out, "{told}")?,
            _ => return Ok(()),
        }
        self.out.flush()
    }

    fn end(&mut self) -> io::Result<()> {
        if self.live && self.last.is_some() {
            writeln!(self.out)?;
        }
        self.out.flush()
    }
}

fn endpoint(endpoint: &EndpointModels, row: fn(&ModelRow) -> String) -> String {
    let version = endpoint.version.as_deref().map(|it| format!(" {}", visible(it)));
    let mut out = format!(
        "{} ({}{}) {}",
        endpoint.provider,
        endpoint.kind,
        version.unwrap_or_default(),
        visible(&endpoint.base_url)
    );
    match &endpoint.error {
        Some(error) => out.push_str(&format!("\n  ✗ {}\n", visible(error))),
        None => {
            let models = super::counted(endpoint.models.len() as u64, "model");
            out.push_str(&format!(": {models}\n"));
        }
    }
    if let Some(other) = endpoint.answers_as {
        out.push_str(&format!("  · it answers as {other}\n"));
    }
    out.extend(endpoint.models.iter().map(row));
    out
}

fn row(model: &ModelRow) -> String {
    let window = model.context_tokens.map_or_else(|| "?".to_owned(), |tokens| tokens.to_string());
    let name = super::cell(&model.model.to_string());
    format!("  {name:<44} {window:>9} tokens  {}\n", price(model.price))
}

/// The same, with all that its server says of it.
fn closely(model: &ModelRow) -> String {
    let mut told = Vec::new();
    if let Some(parameters) = model.parameters {
        told.push(format!("{} parameters", count(parameters)));
    }
    told.extend(model.quantisation.as_deref().map(visible));
    told.extend(
        model.loaded.map(
            |loaded| {
                if loaded { "in memory".to_owned() } else { "not in memory".to_owned() }
            },
        ),
    );
    if !model.capabilities.is_empty() {
        told.push(visible(&model.capabilities.join(", ")));
    }
    told.extend(model.cache_bytes.map(|bytes| format!("{} for its whole window", size(bytes))));
    let mut out = row(model);
    if !told.is_empty() {
        out.push_str(&format!("    {}\n", told.join(" · ")));
    }
    out
}

fn price(price: Option<Price>) -> String {
    match price {
        None => "no price: is not called before one is configured".to_owned(),
        Some(price) if price == Price::LOCAL => "local".to_owned(),
        Some(price) => format!("${} in, ${} out per million", price.input, price.output),
    }
}

/// Writes a number of bytes in the largest unit of which there is one, to a tenth.
fn size(bytes: u64) -> String {
    scaled(bytes, &[(1_000_000_000, " GB"), (1_000_000, " MB"), (1_000, " kB"), (1, " B")])
}

fn count(number: u64) -> String {
    scaled(number, &[(1_000_000_000, "B"), (1_000_000, "M"), (1_000, "K"), (1, "")])
}

fn scaled(number: u64, units: &[(u64, &str)]) -> String {
    let unit = units.iter().find(|(size, _)| number >= *size);
    match unit {
        None | Some((1, _)) => format!("{number}{}", unit.or(units.last()).map_or("", |it| it.1)),
        Some((size, name)) => {
            let tenths = number / (size / 10);
            format!("{}.{}{name}", tenths / 10, tenths % 10)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_told_in_the_largest_unit_that_it_fills() {
        for (bytes, told) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (5_225_374_496, "5.2 GB"),
            (241_970, "241.9 kB"),
        ] {
            assert_eq!(size(bytes), told);
        }
        assert_eq!((count(8_190_735_360).as_str(), count(12).as_str()), ("8.1B", "12"));
    }
}
