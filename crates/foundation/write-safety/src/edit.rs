//! Changes to a text as splices of its bytes: what is not named stays as it is.

mod miss; // Why a text was not found, and what comes nearest.

pub use miss::{Miss, Nearest, Reason};
