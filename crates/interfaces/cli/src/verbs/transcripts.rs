//! `formwork runs transcript` and `formwork runs search`: what was said.

use formwork_protocols::{OutcomeCode, Role, RunId, text};
use formwork_services::{
    Formwork,
    capability::Caller,
    operations::transcripts::{Get, GetParams, Search, SearchParams, Searched, Transcript},
};

use crate::{fault::Fault, terminal::Terminal, view::visible};

/// How many bytes of a message are shown: `formwork blob` has the whole of a result.
const SHOWN_BYTES: usize = 4_000;

/// Shows what was said in a run.
pub(super) async fn show(
    formwork: &Formwork,
    caller: &Caller,
    terminal: &Terminal,
    run: RunId,
) -> Result<OutcomeCode, Fault> {
    let transcript = formwork.call::<Get>(caller, GetParams { run }).await?;
    terminal.result(&transcript, || told(&transcript))?;
    Ok(OutcomeCode::Completed)
}

/// Finds a text in what was said.
pub(super) async fn search(
    formwork: &Formwork,
    caller: &Caller,
    terminal: &Terminal,
    text: String,
    limit: usize,
) -> Result<OutcomeCode, Fault> {
    if text.trim().is_empty() {
        return Err(Fault::usage("there is no text to look for"));
    }
    let searched = formwork.call::<Search>(caller, SearchParams { text, limit }).await?;
    terminal.result(&searched, || found(&searched))?;
    Ok(OutcomeCode::Completed)
}

fn told(transcript: &Transcript) -> String {
    let mut out = String::new();
    for conversation in &transcript.conversations {
        let carried = match conversation.carried {
            0 => String::new(),
            count => format!(
                ", goes on with {} of an earlier one",
                super::counted(count.into(), "message")
            ),
        };
        out.push_str(&format!("{} · {}{carried}\n", conversation.agent, conversation.session));
        for said in &conversation.messages {
            let calls = match said.calls.is_empty() {
                true => String::new(),
                false => format!(" calls {}", visible(&said.calls.join(", "))),
            };
            out.push_str(&format!("\n{:>4} {}{calls}\n", said.index, who(said.role)));
            for line in text::preview(said.text.trim(), SHOWN_BYTES).lines() {
                out.push_str(&format!("     {}\n", visible(line)));
            }
        }
        out.push('\n');
    }
    match out.is_empty() {
        true => "nothing was said in this run\n".to_owned(),
        false => out,
    }
}

/// Lists what was found, a line each.
pub(crate) fn found(searched: &Searched) -> String {
    let mut out = String::new();
    for it in &searched.found {
        out.push_str(&format!(
            "{}  {:>4} {:<6} {}\n",
            it.run,
            it.index,
            who(it.role),
            visible(&it.line)
        ));
    }
    out.push_str(match (searched.found.is_empty(), searched.more) {
        (true, false) => "nothing was found\n",
        (true, true) => "nothing was found in the newest runs; older ones were not looked at\n",
        (false, true) => "there may be more: -n shows more of them\n",
        (false, false) => "",
    });
    out
}

/// Names who spoke, as people know them.
const fn who(role: Role) -> &'static str {
    match role {
        Role::System => "frame",
        Role::User => "person",
        Role::Assistant => "model",
        Role::Tool => "tools",
    }
}
