//! How large an answer may become before it is read no further.
//!
//! A server that streams for ever would fill the memory, and hold a run up for as long as its words keep coming: no clock
//! ends it, because there is progress. Honest servers stop at the cap of tokens that the request names, so a multiple
//! of what these take tells the two apart: [`BYTES_PER_WORD`] for what the model says, and [`BYTES_PER_TOKEN`] for all that
//! comes over the wire.

use formwork_protocols::{ModelRequest, ProviderFault};

use crate::{draft::Draft, fault::Fault, usage};

/// What any answer may have in bytes: comments and pings of a long wait, signatures, reasoning that only its provider
/// can read.
pub const ANSWER_BYTES: u64 = 4 * 1024 * 1024;

/// What each token of an answer may take in bytes. Servers send 150 to 800 for one, with its counts and padding, and some
/// repeat the whole at the end; a whole event for each byte of a long token still fits.
pub const BYTES_PER_TOKEN: u64 = 4 * 1024;

/// For how many tokens that is where a request names no limit: more than all but the longest answers of any model.
pub const TOKENS: u32 = 64 * 1024;

/// What each token of the request may take in bytes: OpenAI's Responses repeats its rules and tools three times.
const BYTES_PER_INPUT_TOKEN: u64 = 16;

/// What each token of what a model says may have in bytes before the answer is past its cap: words, reasoning and calls.
/// Prose has 4 to 5, the scripts for which tokens are longest have 9, so that an answer which keeps to its cap stays below.
pub const BYTES_PER_WORD: u64 = 16;

/// What any answer may say besides, in bytes: runs of blanks and lines of dashes are a token for up to a hundred.
pub const SLACK: u64 = 4 * 1024;

/// Returns how many bytes of words, reasoning and calls are read of an answer whose tokens are capped.
pub(crate) fn said(request: &ModelRequest) -> usize {
    let Some(cap) = request.max_output_tokens else { return usize::MAX };
    let most = u64::from(cap).saturating_mul(BYTES_PER_WORD).saturating_add(SLACK);
    usize::try_from(most).unwrap_or(usize::MAX)
}

/// Says that an answer went on past the cap of its tokens, if it did, and that what its server counts is not believed.
pub(crate) fn overrun(draft: &mut Draft, request: &ModelRequest) -> Result<(), Fault> {
    let most = said(request);
    if draft.bytes() <= most {
        return Ok(());
    }
    draft.overrun();
    let cap = request.max_output_tokens.unwrap_or_default();
    let message = format!(
        "the server does not keep to the cap of {cap} output tokens: more than {most} bytes of words came, and no more was read"
    );
    Err(Fault::new(ProviderFault::Overrun, message))
}

/// Returns how many of the next bytes of an answer are read, of which so many came before: fewer than there are only where
/// it passes its limit, which it does at the same byte however it was cut.
#[inline]
pub(crate) fn room(received: u64, next: usize, request: &ModelRequest) -> usize {
    // Hardly an answer gets further, so that what a request may have is not counted for each.
    if received.saturating_add(next as u64) <= ANSWER_BYTES {
        return next;
    }
    let left = most(request).saturating_sub(received);
    next.min(usize::try_from(left).unwrap_or(usize::MAX))
}

/// Says that an answer passed its limit.
pub(crate) fn passed(request: &ModelRequest) -> Fault {
    let (most, tokens) = (most(request), tokens(request));
    let message = format!(
        "the answer has no end: more than {most} bytes came, which is the most for {tokens} tokens"
    );
    Fault::new(ProviderFault::Endless, message)
}

fn tokens(request: &ModelRequest) -> u32 {
    request.max_output_tokens.unwrap_or(TOKENS)
}

fn most(request: &ModelRequest) -> u64 {
    ANSWER_BYTES
        .saturating_add(u64::from(tokens(request)).saturating_mul(BYTES_PER_TOKEN))
        .saturating_add(usage::estimate_input(request).saturating_mul(BYTES_PER_INPUT_TOKEN))
}

#[cfg(test)]
mod tests {
    use formwork_protocols::{Message, Role};

    use super::*;

    fn limited(tokens: Option<u32>, text: &str) -> ModelRequest {
        let messages = vec![Message::text(Role::User, text)];
        ModelRequest {
            max_output_tokens: tokens,
            ..ModelRequest::new("m".parse().unwrap(), messages)
        }
    }

    #[test]
    fn the_limit_of_an_answer_follows_from_its_tokens_and_its_request() {
        let short = limited(Some(1_000), "hi");
        let long = limited(Some(1_000), &"x".repeat(3_000_000));
        let open = limited(None, "hi");

        assert_eq!(most(&short), 4_194_304 + 4_096_000 + 16 * 5);
        assert!(most(&long) > most(&short) + 10_000_000);
        assert!((256..512).contains(&(most(&open) / 1_048_576)));
        assert_eq!(room(0, 100, &short), 100);
        assert_eq!(room(8_290_380, 4, &short), 4);
        assert_eq!(room(8_290_380, 5, &short), 4);
        assert_eq!(room(8_290_384, 5, &short), 0);
        assert_eq!(
            passed(&short).message,
            "the answer has no end: more than 8290384 bytes came, which is the most for 1000 tokens"
        );
    }
}
