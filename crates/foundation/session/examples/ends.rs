//! What a session is held to, and what each way of its ending means to whoever runs it.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use formwork_protocols::{Claim, Span, StuckPattern};
use formwork_session::{Limits, SessionEnd, Via};

/// Says what comes next: only a claim is worth a check, and no end is a proof.
fn next(end: &SessionEnd) -> &'static str {
    match end {
        SessionEnd::Claimed { via: Via::EndTask, .. } => {
            "run the exit checks and answer the open call"
        }
        SessionEnd::Claimed { via: Via::Text, .. } => {
            "ask once whether it is done, then run the checks"
        }
        SessionEnd::Cancelled => "nothing: it can be resumed from the log",
        SessionEnd::RoundsExhausted { .. } | SessionEnd::TimedOut { .. } => "the attempt failed",
        _ => "the attempt failed, and its reason is in the record",
    }
}

fn main() {
    let limits =
        Limits { max_rounds: Some(3), wall: Some(Span::from_secs(60)), ..Limits::default() };
    println!("at most {} tokens an answer", limits.max_output_tokens);

    let claim = Claim { summary: "the tests pass".to_owned(), output: None };
    for end in [
        SessionEnd::Claimed { claim, via: Via::EndTask },
        SessionEnd::RoundsExhausted { rounds: limits.max_rounds.unwrap_or_default() },
        SessionEnd::Stuck {
            pattern: StuckPattern::RepeatedCall,
            detail: "the same call for the fourth time".to_owned(),
        },
        SessionEnd::Cancelled,
    ] {
        println!("{end:?}: {}", next(&end));
    }
}
