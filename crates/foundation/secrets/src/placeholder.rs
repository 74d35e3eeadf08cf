//! `{{secret:NAME}}` within a text.

const OPEN: &str = "{{secret:";
const CLOSE: &str = "}}";

/// A piece of a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// Stands as it is.
    Text(&'a str),
    /// Stands for the secret of this name.
    Secret(&'a str),
}

/// Splits `text` at its placeholders; one that is never closed is text.
pub(crate) fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(OPEN) {
        let Some((name, behind)) = after.split_once(CLOSE) else { break };
        pieces.push(Piece::Text(before));
        pieces.push(Piece::Secret(name));
        rest = behind;
    }
    pieces.push(Piece::Text(rest));
    pieces
}

#[cfg(test)]
mod tests {
    use super::{Piece::*, *};

    #[test]
    fn a_text_is_split_at_its_placeholders() {
        assert_eq!(
            pieces("a {{secret:K}}{{secret:L}} {{secret:M"),
            [Text("a "), Secret("K"), Text(""), Secret("L"), Text(" {{secret:M")]
        );
        assert_eq!(pieces("{{x}} }}"), [Text("{{x}} }}")]);
    }
}
