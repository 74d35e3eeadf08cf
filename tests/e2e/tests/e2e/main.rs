//! What only the whole can show: real parts together, the model's words scripted.

mod session; // A conversation over the real pipeline and the real log.
