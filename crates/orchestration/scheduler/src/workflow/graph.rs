//! What depends on what, and whether in a circle.

use std::collections::{HashMap, HashSet};

/// Returns each circle once, as the names on it in order, the first one repeated at its end.
///
/// Names that lead nowhere are left out: they are a fault of their own.
pub(super) fn cycles<'a>(edges: &[(&'a str, Vec<&'a str>)]) -> Vec<Vec<&'a str>> {
    let mut graph: HashMap<&str, Vec<&'a str>> = HashMap::new();
    for (name, to) in edges {
        // A name that is given twice is a fault of its own, and hides no circle.
        graph.entry(name).or_default().extend(to);
    }
    let mut done: HashSet<&str> = HashSet::new();
    let mut found = Vec::new();
    for (start, _) in edges {
        // The way from `start` to where the walk stands, each name with the next of its edges to take.
        let mut way: Vec<(&'a str, usize)> = vec![(*start, 0)];
        while let Some((name, next)) = way.last_mut() {
            let name = *name;
            let to = graph.get(name).and_then(|to| to.get(*next)).copied();
            *next += 1;
            let Some(to) = to else {
                done.insert(name);
                way.pop();
                continue;
            };
            if let Some(at) = way.iter().position(|(seen, _)| *seen == to) {
                let mut circle: Vec<&str> = way.iter().skip(at).map(|(name, _)| *name).collect();
                circle.push(to);
                found.push(circle);
            } else if !done.contains(to) && graph.contains_key(to) {
                way.push((to, 0));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_found_once_with_its_way() {
        let edges =
            [("a", vec!["b"]), ("b", vec!["c"]), ("c", vec!["b"]), ("d", vec!["a", "gone"])];

        assert_eq!(cycles(&edges), [["b", "c", "b"]]);
    }

    #[test]
    fn what_depends_on_itself_is_a_circle() {
        assert_eq!(cycles(&[("a", vec!["a"])]), [["a", "a"]]);
    }

    #[test]
    fn a_long_chain_needs_no_deep_stack() {
        let names: Vec<String> = (0..100_000).map(|at| at.to_string()).collect();
        let edges: Vec<(&str, Vec<&str>)> =
            names.windows(2).map(|pair| (pair[0].as_str(), vec![pair[1].as_str()])).collect();

        // The way is searched for each name on it, so a long chain is started at its end.
        let reversed: Vec<_> = edges.into_iter().rev().collect();
        assert_eq!(cycles(&reversed), Vec::<Vec<&str>>::new());
    }
}
