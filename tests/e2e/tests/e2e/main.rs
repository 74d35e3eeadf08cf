//! What only the whole can show: real parts together, the model's words scripted.

mod session; // A conversation over the real pipeline and the real log.

mod answers; // What a model says, in the bytes of a real server.
mod world; // A workspace, a provider and the real program.

mod crash; // A process killed in the middle of a run.
mod fallback; // Another model in the place of one that gave up.
mod documents; // Faults of documents, all told and nothing begun.
mod interrupt; // Ctrl-C, and the run taken up again.
mod workflow; // Three tasks from the command line to the log.
