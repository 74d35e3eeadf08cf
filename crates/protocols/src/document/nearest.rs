//! The valid name that a wrong one was probably meant to be.

/// Longer names are nobody's typing error, and comparing them costs their product.
const LONGEST_COMPARED: usize = 64;

/// As many valid names are listed when none is near; more would bury the message.
const MOST_LISTED: usize = 12;

/// Returns the candidate closest to `wrong`, or nothing when none is close enough to be what was meant.
///
/// Close is a third of the longer name's characters, and at least one edit; a swap of neighbours is one edit, and
/// case is free. Ties go to the alphabetically first.
#[must_use]
pub fn nearest<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = wrong.chars().count();
    if length > LONGEST_COMPARED {
        return None;
    }
    let folded = wrong.to_lowercase();
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= LONGEST_COMPARED)
        .filter_map(|candidate| {
            let allowed = (length.max(candidate.chars().count()) / 3).max(1);
            let distance = strsim::damerau_levenshtein(&folded, &candidate.to_lowercase());
            let extends = length >= 3 && candidate.starts_with(wrong);
            (distance <= allowed || extends).then_some((distance, candidate))
        })
        .min()
        .map(|(_, candidate)| candidate)
}

/// Words what was probably meant by `wrong`: the nearest candidate, or all of them when none is near.
#[must_use]
pub fn nearest_hint<'a>(
    wrong: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    let mut names: Vec<&str> = candidates.into_iter().collect();
    names.sort_unstable();
    names.dedup();
    if let Some(name) = nearest(wrong, names.iter().copied()) {
        return Some(format!("nearest is {name:?}"));
    }
    let (listed, rest) = names.split_at(names.len().min(MOST_LISTED));
    let quoted: Vec<String> = listed.iter().map(|name| format!("{name:?}")).collect();
    match (quoted.as_slice(), rest.len()) {
        ([], _) => None,
        ([one], _) => Some(format!("the only valid one is {one}")),
        (all, 0) => Some(format!("valid are {}", all.join(", "))),
        (all, more) => Some(format!("valid are {} and {more} more", all.join(", "))),
    }
}
