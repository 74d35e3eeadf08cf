//! How many tokens a request is thought to have, never to be short of the truth.

use formwork_protocols::{Message, Part, message::ToolDefinition};

/// Bytes of text for one token, at the least. Code has some three, dense text and digits two.
const BYTES_PER_TOKEN: u64 = 2;

/// Tokens of one image, at the most. Providers scale large ones down to fewer.
const IMAGE_TOKENS: u64 = 3_000;

/// Tokens with which a message is framed, at the most, besides its own bytes.
const FRAME_TOKENS: u64 = 8;

/// Returns how many tokens so many bytes have at the most.
pub(crate) const fn tokens_of(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN)
}

/// Returns how many tokens a message is thought to have.
pub(crate) fn message_tokens(message: &Message) -> u64 {
    let parts = message.parts.iter().map(|part| match part {
        Part::Image { .. } => IMAGE_TOKENS,
        other => tokens_of(json_bytes(other)),
    });
    FRAME_TOKENS.saturating_add(parts.fold(0, u64::saturating_add))
}

/// Returns how many tokens the description of the tools is thought to have.
pub(crate) fn tool_tokens(tools: &[ToolDefinition]) -> u64 {
    tools.iter().map(|tool| tokens_of(json_bytes(tool))).fold(0, u64::saturating_add)
}

/// Counts the bytes that a value has as JSON, without keeping them.
fn json_bytes<T: serde::Serialize>(value: &T) -> u64 {
    let mut counter = Counter(0);
    // A value that cannot be JSON cannot be sent either; its size is then nobody's concern.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

struct Counter(u64);

impl std::io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Estimates the input of requests that each begin with the one before.
#[derive(Debug, Default)]
pub(crate) struct Estimator {
    /// What the last request was thought to have, and what its provider counted.
    last: Option<(u64, u64)>,
}

impl Estimator {
    /// Returns how many tokens a request has at the most, of which `raw` is the bare estimate.
    ///
    /// What the provider has counted before is taken from its report, what is new from the estimate.
    pub(crate) fn input(&self, raw: u64) -> u64 {
        match self.last {
            Some((thought, counted)) if thought <= raw => counted.saturating_add(raw - thought),
            _ => raw,
        }
    }

    /// Learns what the provider counted for the request whose bare estimate was `raw`.
    pub(crate) fn learn(&mut self, raw: u64, counted: u64) {
        if counted > 0 {
            self.last = Some((raw, counted));
        }
    }
}

#[cfg(test)]
mod tests {
    use formwork_protocols::Role;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_the_provider_has_counted_is_believed_and_only_the_rest_estimated() {
        let mut estimator = Estimator::default();
        assert_eq!(estimator.input(1_000), 1_000);

        estimator.learn(1_000, 400);

        assert_eq!(estimator.input(1_250), 650);
    }

    #[test]
    fn a_shorter_request_than_the_last_is_estimated_anew() {
        let mut estimator = Estimator::default();

        estimator.learn(1_000, 400);
        estimator.learn(1_000, 0);

        assert_eq!(estimator.input(900), 900);
        assert_eq!(estimator.input(1_000), 400);
    }

    #[test]
    fn an_image_is_counted_by_the_piece_and_not_by_its_bytes() {
        let parts = vec![Part::Image { media_type: "image/png".into(), data: "A".repeat(1 << 20) }];

        assert_eq!(message_tokens(&Message { role: Role::User, parts }), 3_008);
    }

    proptest! {
        #[test]
        fn a_text_is_never_thought_shorter_than_half_its_bytes(text in ".{0,200}") {
            let tokens = message_tokens(&Message::text(Role::User, text.clone()));
            prop_assert!(tokens >= tokens_of(u64::try_from(text.len()).unwrap()));
        }
    }
}
