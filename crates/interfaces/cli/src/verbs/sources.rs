//! `formwork sources`: who outside may tell of what happens, and what came from them.

use formwork_protocols::OutcomeCode;
use formwork_services::operations::sources::{
    Detail, Get, GetParams, List, ListParams, Listed, Summary,
};

use crate::{
    args::{Global, Sources},
    fault::Fault,
    settings::Need,
    terminal::Terminal,
    view::visible,
};

pub(super) fn sources(
    global: &Global,
    terminal: &Terminal,
    args: Sources,
) -> Result<OutcomeCode, Fault> {
    super::reading_if(true, global, Need::Look, async |formwork, caller, _| {
        match args {
            Sources::List => {
                let listed = formwork.call::<List>(&caller, ListParams {}).await?;
                terminal.result(&listed, || table(&listed))?;
            }
            Sources::Show { name } => {
                let found = formwork.call::<Get>(&caller, GetParams { name }).await?;
                terminal.result(&found, || shown(&found))?;
            }
        }
        Ok(OutcomeCode::Completed)
    })
}

fn table(listed: &Listed) -> String {
    if listed.sources.is_empty() {
        return "no sources below .formwork/sources\n".to_owned();
    }
    listed.sources.iter().map(|it| stands(it) + "\n").collect()
}

/// Says in a line how a source stands.
fn stands(summary: &Summary) -> String {
    let mut parts = Vec::new();
    match summary.faults {
        0 if !summary.trusted => parts.push("not trusted".to_owned()),
        0 => {}
        count => parts.push(super::counted(count as u64, "fault")),
    }
    parts.push(match &summary.last {
        None => "nothing received yet".to_owned(),
        Some(at) => format!("{} received, the last at {at}", summary.received),
    });
    for (count, what) in [(summary.duplicates, "came again"), (summary.refused, "refused")] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    let description = match summary.description.as_str() {
        "" => String::new(),
        text => format!("  {}", super::cell(text)),
    };
    let name = super::cell(&summary.name);
    format!("{name:<20} {}{description}", visible(&parts.join(", ")))
}

fn shown(found: &Detail) -> String {
    let mut text = format!("{}\n", stands(&found.summary));
    text.push_str(&format!("file  {}\nlog   {}\n", visible(&found.file), found.log));
    if let (Some(path), Some(scheme)) = (&found.summary.path, &found.scheme) {
        text.push_str(&format!("path  {path}\n"));
        let secrets = visible(&found.secrets.join(" or "));
        text.push_str(&format!("signs as {scheme}, with {secrets}\n"));
    }
    for error in &found.errors {
        text.push_str(&format!("fault: {}\n", visible(error)));
    }
    for arrived in &found.lately {
        let delivery = visible(&arrived.delivery);
        text.push_str(&format!(
            "@{} {} {} ({delivery})\n",
            arrived.event, arrived.at, arrived.name
        ));
    }
    for (why, count) in &found.counts {
        text.push_str(&format!("{count} {}\n", told(why)));
    }
    text
}

/// Says why requests were not recorded.
fn told(why: &str) -> String {
    match why {
        "duplicate" => "came again, and were recorded before".to_owned(),
        "unsigned" => "refused: without a signature".to_owned(),
        "signature" => "refused: with the signature of no secret".to_owned(),
        "stale" => "refused: signed at another time".to_owned(),
        "too_large" => "refused: too large".to_owned(),
        "media_type" | "not_json" => "refused: no JSON".to_owned(),
        "unmapped" => "refused: of something that has no name".to_owned(),
        other => format!("refused: {}", visible(other)),
    }
}
