//! What each capability does, one module per noun.

pub mod agents;
pub mod apart;
pub mod approvals;
pub mod audit;
pub mod bundles;
pub mod check;
pub mod credentials;
pub mod db;
pub mod events;
pub mod goals;
pub mod inbox;
pub mod loops;
pub mod models;
pub mod notepad;
pub mod reviews;
pub mod runs;
pub mod sources;
pub mod spend;
pub mod subscriptions;
pub mod tasks;
pub mod tools;
pub mod transcripts;
pub mod trash;
pub mod undo;
pub mod workers;
pub mod workflows;
