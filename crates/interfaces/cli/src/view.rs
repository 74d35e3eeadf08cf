//! What a person sees of a run while it goes on.

mod live; // Draws it, on a terminal or line by line.
mod tree; // Folds events into the tree of tasks.

pub(crate) use {
    live::{Live, Style, columns, visible, wide},
    tree::describe,
};

#[cfg(test)]
mod tests;
