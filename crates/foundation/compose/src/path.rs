//! The way from the current context to a value.

use std::borrow::Cow;

use handlebars::Path as Parsed;

/// A variable as a template names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Path<'t> {
    /// `a.b`, `../a`, `@root.a`, `this`.
    Value { from: From, steps: Vec<Cow<'t, str>>, raw: &'t str },
    /// `@index`, `@key`, `@first`, `@last`, or one of an outer loop as in `@../index`.
    Loop { up: usize, name: &'t str, raw: &'t str },
}

/// Where a path begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    /// So many loops out.
    Context { up: usize },
    /// The variables as supplied.
    Root,
}

impl<'t> Path<'t> {
    pub(crate) fn of(parsed: &'t Parsed) -> Self {
        match parsed {
            Parsed::Local((up, name, raw)) => Self::Loop { up: *up, name, raw },
            Parsed::Relative((_, raw)) => Self::parse(raw),
        }
    }

    /// Splits `raw`, which the parser has accepted as a path.
    pub(crate) fn parse(raw: &'t str) -> Self {
        let mut rest = raw;
        let mut from = From::Context { up: 0 };
        for current in ["./", "this/", "this."] {
            rest = rest.strip_prefix(current).unwrap_or(rest);
        }
        if let Some(after) = rest.strip_prefix("@root") {
            from = From::Root;
            rest = after.strip_prefix(['.', '/']).unwrap_or(after);
        }
        while let Some(after) = rest.strip_prefix("..") {
            if let From::Context { up } = &mut from {
                *up += 1;
            }
            rest = after.strip_prefix(['.', '/']).unwrap_or(after);
        }
        Self::Value { from, steps: steps(rest), raw }
    }
}

fn steps(raw: &str) -> Vec<Cow<'_, str>> {
    let mut steps = Vec::new();
    let mut rest = raw;
    while !rest.is_empty() {
        let (step, after) = match rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
            Some((quoted, after)) => (quoted, after),
            None => rest.split_at(rest.find(['.', '/']).unwrap_or(rest.len())),
        };
        if step != "this" {
            steps.push(Cow::Borrowed(step));
        }
        rest = after.strip_prefix(['.', '/']).unwrap_or(after);
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_into_its_beginning_and_its_steps() {
        let split = |raw| match Path::parse(raw) {
            Path::Value { from, steps, .. } => (from, steps.join("|")),
            Path::Loop { .. } => panic!("{raw} names no loop"),
        };
        let here = From::Context { up: 0 };

        assert_eq!(split("a.b/c"), (here, "a|b|c".into()));
        assert_eq!(split("this"), (here, String::new()));
        assert_eq!(split("this.a"), (here, "a".into()));
        assert_eq!(split("../../a"), (From::Context { up: 2 }, "a".into()));
        assert_eq!(split("@root.a.b"), (From::Root, "a|b".into()));
        assert_eq!(split("a.[b c].d"), (here, "a|b c|d".into()));
    }
}
