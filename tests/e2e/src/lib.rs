//! What only the whole can show.
