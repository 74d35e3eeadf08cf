//! What `cfg` says, as far as it says the same whatever is built.

/// How deep conditions are looked into.
const MAX_DEPTH: usize = 32;

/// Tells whether an attribute is a condition that never holds, or in tests alone.
pub(super) fn is_never(attribute: &str) -> bool {
    let text: String = attribute.split_whitespace().collect();
    let text = text.trim_start_matches(['#', '!']);
    let inner = text.strip_prefix("[cfg(").and_then(|text| text.strip_suffix(")]"));
    inner.is_some_and(|text| holds(text, 0) == Some(false))
}

/// Returns whether a condition holds in what is built for others; nothing where that depends.
fn holds(text: &str, depth: usize) -> Option<bool> {
    let text = text.strip_suffix(',').unwrap_or(text);
    match text {
        "test" | "false" => return Some(false),
        "true" => return Some(true),
        _ if depth > MAX_DEPTH => return None,
        _ => {}
    }
    let (word, inner) = text.strip_suffix(')')?.split_once('(')?;
    let inner: Vec<Option<bool>> =
        parts(inner).into_iter().map(|part| holds(part, depth + 1)).collect();
    // What decides, whatever the others say.
    let decides = match word {
        "not" => return inner.first().copied().flatten().map(|holds| !holds),
        "all" => false,
        "any" => true,
        _ => return None,
    };
    if inner.contains(&Some(decides)) {
        return Some(decides);
    }
    (!inner.contains(&None)).then_some(!decides)
}

/// Takes a list apart at its commas.
fn parts(list: &str) -> Vec<&str> {
    let (mut depth, mut is_quoted, mut start) = (0_usize, false, 0);
    let mut found = Vec::new();
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'(' if !is_quoted => depth += 1,
            b')' if !is_quoted => depth = depth.saturating_sub(1),
            b',' if !is_quoted && depth == 0 => {
                found.extend(list.get(start..at));
                start = at + 1;
            }
            _ => {}
        }
    }
    found.extend(list.get(start..).filter(|rest| !rest.is_empty()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_never_holds_where_no_build_for_others_makes_it_hold() {
        for never in [
            "#[cfg(test)]",
            "#[cfg(any())]",
            "#[cfg( all( unix , any( ) ) )]",
            "#![cfg(not(all()))]",
            "#[cfg(all(test, feature = \"a)\"))]",
            "#[cfg(false)]",
            "#[cfg(any(test, false,))]",
        ] {
            assert!(is_never(never), "{never}");
        }
        let deep = format!("#[cfg({}any(){})]", "all(".repeat(100), ")".repeat(100));
        for other in [
            "#[cfg(unix)]",
            "#[cfg(not(test))]",
            "#[cfg(any(test, feature = \"a\"))]",
            "#[cfg(all())]",
            "#[cfg(not(any(unix, test)))]",
            "#[cfg_attr(any(), inline)]",
            "#[test]",
            &deep,
        ] {
            assert!(!is_never(other), "{other}");
        }
    }
}
