//! What a person sees of a run while it goes on.

mod live; // Draws it, on a terminal or line by line.
mod tree; // Folds events into the tree of tasks.

pub(crate) use {
    live::{Live, Style, columns, visible, wide},
    tree::describe,
};

#[cfg(test)]
mod tests;

/// Says that a run waits for its log, and why, or that the log is there again.
pub(crate) fn told_of_the_log(away: Option<&str>) -> String {
    match away {
        Some(why) => {
            format!("{why}; the run waits for it, and Ctrl-C leaves it to `formwork runs resume`\n")
        }
        None => "the log is there again; the run goes on\n".to_owned(),
    }
}
