//! What only the whole can show: real parts together, the model's words scripted.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod journal; // Facts on their way into the log.
mod session; // A conversation over the real pipeline and the real log.
mod watched; // A log that tells what reaches it together.

mod answers;
mod apart; // Tasks that work in a workspace of their own.
mod approvals; // What a model says, in the bytes of a real server.
mod away; // A log that cannot be written for a moment.
mod world; // A workspace, a provider and the real program.

mod bounds; // What programs may write.
mod budget; // What is set aside and spent.
mod by_hand; // Calls of tools that a person makes.
mod by_workflow; // Checks that a tree of tasks decides.
mod chat; // A chat in a real terminal.
mod check; // Keys, found before they are committed.
mod checks; // Checks that cannot be talked out of failing.
mod claims; // Tasks that may write the same.
mod commit; // What is committed, and what is not.
mod consult; // One question to another agent.
mod contract; // Requirements that a task is held to.
mod control; // Runs paused, ended, forked and rewound from outside.
mod crash; // A process killed in the middle of a run.
mod demo; // What the demonstrations show, and what machines read.
mod documents; // Faults of documents, all told and nothing begun.
mod endpoint; // Endpoints that refuse, break off or fall silent.
mod escalation; // What nobody was there to be asked.
mod evidence; // What a run left behind, and what it cost.
mod exports; // What others can use of the work.
mod failures; // Outages that pass.
mod fallback; // Another model in the place of one that gave up.
mod faults; // What a machine does to the log in the middle of a run.
mod fleet; // Many runs, and processes that come and go.
mod flow; // Conditions, items and commands, without any model.
mod gates; // Programs that are asked about calls.
mod goal; // A plan, its tasks done apart and merged.
mod heard; // Instructions, skills, and people who speak up.
mod imported; // A run that came from a file.
mod interrupt; // Ctrl-C, and the run taken up again.
mod leaks; // Secrets planted wherever they could be.
mod log; // The log as a whole: moved, archived, verified.
mod lost; // Tries that broke off after they had cost something.
mod made; // Tasks that agents make while they work.
mod mcp; // A client of MCP, and the program as its server.
mod models; // Servers of models: looked at closely, and given one.
mod modes; // What agents may change.
mod network; // Where programs may connect to.
mod outside; // What comes from outside: shown, and masked.
mod pages; // Pages that agents open, read and click.
mod pathologies; // Models that go wrong.
mod pictures; // Pictures, from a file or a tool to the model.
mod plan; // What a workflow would cost, and what budgets do.
mod prefix; // What the cache of a provider holds.
mod proofs; // Checks that are not got around.
mod recorded; // A run carried out again without its server.
mod replay; // Runs carried out again without anybody to ask.
mod review; // A change judged before it is taken.
mod roles; // Sub-agents by their roles, beside each other.
mod rounds; // Edit, test, lint, review, until all of it passes.
mod rules; // What agents are held to.
mod secrets; // Where keys never are.
mod served; // A workspace served over HTTP.
mod services; // Programs that run while tasks work.
mod sources; // What is sent from outside.
mod subscriptions; // What is done by events.
mod text_calls; // Calls in words, reminders, and models without tools.
mod told; // What a person is told.
mod tools; // Tools that reach further than a file, and those that a workspace brings along.
mod trust; // What a project may say.
mod undo; // Back to what was there, however a run ended.
mod ways; // Every rule, by every way in.
mod window; // Conversations longer than a window.
mod workers;
mod workflow; // Three tasks from the command line to the log. // Tasks that work elsewhere.
