//! How many tokens a request has: a bare measure by its bytes, corrected by what the provider counts.

use formwork_protocols::{Attachment, Message, Part, message::ToolDefinition};

/// Bytes of text for one token, at the least. Code has some three, dense text and digits two.
const BYTES_PER_TOKEN: u64 = 2;

/// Tokens of one image, at the most. Providers scale large ones down to fewer.
const IMAGE_TOKENS: u64 = 3_000;

/// Bytes of a page of a document, at the least; pages of words alone have some more, and those with pictures many.
const PAGE_BYTES: u64 = 20 * 1024;

/// Tokens with which a message is framed, at the most, besides its own bytes.
const FRAME_TOKENS: u64 = 8;

/// Returns how many tokens so many bytes have at the most.
pub const fn tokens_of(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN)
}

/// Returns the measure of a message: the tokens that it has at the most.
pub fn message_tokens(message: &Message) -> u64 {
    let parts = message.parts.iter().map(|part| match part {
        Part::Image { .. } => IMAGE_TOKENS,
        Part::Attached(attachment) => attached_tokens(attachment),
        Part::ToolResult(result) => {
            let shown = result.attached.iter().map(attached_tokens).fold(0, u64::saturating_add);
            tokens_of(json_bytes(part)).saturating_add(shown)
        }
        other => tokens_of(json_bytes(other)),
    });
    FRAME_TOKENS.saturating_add(parts.fold(0, u64::saturating_add))
}

/// Returns the measure of an image or a document that is kept.
fn attached_tokens(attachment: &Attachment) -> u64 {
    match attachment.is_image() {
        true => IMAGE_TOKENS,
        // Nobody says how many pages it has: one is shown as an image, with its text.
        false => IMAGE_TOKENS.saturating_mul(attachment.bytes.div_ceil(PAGE_BYTES).max(1)),
    }
}

/// Returns the measure of the description of the tools.
pub fn tool_tokens(tools: &[ToolDefinition]) -> u64 {
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

/// Tells how many tokens requests have, of which each begins with the one before or is made from it.
///
/// What goes in is the bare measure of [`message_tokens`] and [`tool_tokens`], which is never short of the
/// truth and for prose twice as much. The provider's own count of the last request corrects it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Meter {
    /// What the last request was measured at, and what its provider counted.
    last: Option<(u64, u64)>,
    /// The measure of the least request that a server refused as too long.
    refused: Option<u64>,
}

impl Meter {
    /// Returns how many tokens a request has at the most, of which `measure` is the bare measure.
    ///
    /// What the provider has counted before is taken from its report, what is new from the measure.
    pub fn worst(&self, measure: u64) -> u64 {
        match self.last {
            Some((before, counted)) if before <= measure => {
                counted.saturating_add(measure - before)
            }
            _ => measure,
        }
    }

    /// Returns how many tokens a request probably has: what is new, and what is left of a longer one, is
    /// taken to be as dense as the last request.
    pub fn likely(&self, measure: u64) -> u64 {
        let Some((before, counted)) = self.last else { return scaled(measure, 2, 3) };
        if before <= measure {
            // What is new may be code where what stands there is prose.
            let new = scaled(measure - before, counted, before).max(scaled(measure - before, 2, 3));
            return counted.saturating_add(new);
        }
        // A server that counts next to nothing is not believed for what it has not seen.
        scaled(measure, counted, before).max(measure / 4)
    }

    /// Learns what the provider counted for the request of that measure.
    pub const fn learn(&mut self, measure: u64, counted: u64) {
        if counted > 0 && measure > 0 {
            self.last = Some((measure, counted));
        }
    }

    /// Returns what was learnt last: the measure of a request, and what its provider counted.
    pub const fn counted(&self) -> Option<(u64, u64)> {
        self.last
    }

    /// Learns that a server refused the request of that measure as too long.
    pub fn refuse(&mut self, measure: u64) {
        self.refused = Some(self.refused.map_or(measure, |before| before.min(measure)));
    }

    /// Returns how many tokens the least request probably had that a server refused as too long, by what
    /// is known now.
    pub fn refused(&self) -> Option<u64> {
        self.refused.map(|measure| self.likely(measure))
    }
}

/// Returns `of` times `times` by `by`, rounded up.
fn scaled(of: u64, times: u64, by: u64) -> u64 {
    let product = u128::from(of).saturating_mul(u128::from(times));
    u64::try_from(product.div_ceil(u128::from(by.max(1)))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use formwork_protocols::Role;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_the_provider_has_counted_is_believed_and_only_the_rest_estimated() {
        let mut meter = Meter::default();
        assert_eq!((meter.worst(1_000), meter.likely(900)), (1_000, 600));

        meter.learn(1_000, 400);

        assert_eq!((meter.worst(1_250), meter.likely(1_250)), (650, 567));
        assert_eq!((meter.worst(900), meter.likely(900)), (900, 360));
    }

    #[test]
    fn a_provider_that_counts_nothing_is_not_believed() {
        let mut meter = Meter::default();

        meter.learn(1_000, 400);
        meter.learn(1_000, 0);
        assert_eq!(meter.worst(1_000), 400);

        meter.learn(1_000, 1);
        assert_eq!(meter.likely(900), 225);
    }

    #[test]
    fn an_image_is_counted_by_the_piece_and_not_by_its_bytes() {
        let parts = vec![Part::Image { media_type: "image/png".into(), data: "A".repeat(1 << 20) }];

        assert_eq!(message_tokens(&Message { role: Role::User, parts }), 3_008);
    }

    #[test]
    fn what_is_attached_is_counted_by_its_kind_wherever_it_stands() {
        let of = |media_type: &str, bytes| Attachment {
            blob: formwork_protocols::BlobHash::of(b"one"),
            media_type: media_type.to_owned(),
            bytes,
            pixels: None,
            name: "one".to_owned(),
            content: None,
        };
        let tokens = |part| message_tokens(&Message { role: Role::User, parts: vec![part] });
        let result = |attached| {
            Part::ToolResult(formwork_protocols::ToolResult {
                call_id: "a".to_owned(),
                name: "read".to_owned(),
                content: String::new(),
                is_error: false,
                attached,
            })
        };
        let image = of("image/png", 1 << 20);

        assert_eq!(tokens(Part::Attached(image.clone())), 3_008);
        assert_eq!(tokens(Part::Attached(of("application/pdf", 50 * 1_024))), 9_008);
        let shown = tokens(result(vec![image])) - tokens(result(Vec::new()));
        assert!((3_000..3_200).contains(&shown), "{shown}");
    }

    proptest! {
        #[test]
        fn a_text_is_never_thought_shorter_than_half_its_bytes(text in ".{0,200}") {
            let tokens = message_tokens(&Message::text(Role::User, text.clone()));
            prop_assert!(tokens >= tokens_of(u64::try_from(text.len()).unwrap()));
        }

        #[test]
        fn no_count_is_more_than_the_worst_case_or_panics(
            measured in any::<u64>(), counted in any::<u64>(), measure in any::<u64>(),
        ) {
            let mut meter = Meter::default();
            meter.learn(measured, counted);
            let _ = (meter.worst(measure), meter.likely(measure));
            meter.refuse(measure);
            prop_assert_eq!(meter.refused(), Some(meter.likely(measure)));
        }
    }
}
