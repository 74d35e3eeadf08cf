//! What a conversation hears besides its task: instructions on the way to a file, and people.

use std::sync::Arc;

use async_trait::async_trait;
use formwork_context::Instruction;
use formwork_protocols::{Principal, StoreError};

/// Finds the instructions of a repository that hold for the files that a conversation comes to.
pub trait Guide: Send + Sync {
    /// Returns those on the way to any of these paths that it has not returned before.
    fn on_the_way(&self, paths: &[String]) -> Vec<Instruction>;

    /// Notes that the instructions of this file are known already.
    fn known(&self, path: &str);

    /// Forgets what it has returned: the conversation was made shorter, and what was said there may be left out.
    fn forget(&self);
}

/// What somebody says to a conversation while it goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steering {
    /// The event by which it was said, by its place in the run.
    pub seq: u64,
    /// Who says it.
    pub by: Principal,
    /// What is said.
    pub text: String,
}

/// Where people leave word for a conversation that goes on.
#[async_trait]
pub trait Inbox: Send + Sync {
    /// Returns what was said after the event `after`, the oldest first. `next` is the place in the conversation at
    /// which it will stand.
    ///
    /// # Errors
    /// What the log says.
    async fn take(&self, after: u64, next: u32) -> Result<Vec<Steering>, StoreError>;
}

/// Nobody gives instructions, and nobody says anything.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

impl Guide for Alone {
    fn on_the_way(&self, _: &[String]) -> Vec<Instruction> {
        Vec::new()
    }

    fn known(&self, _: &str) {}

    fn forget(&self) {}
}

#[async_trait]
impl Inbox for Alone {
    async fn take(&self, _: u64, _: u32) -> Result<Vec<Steering>, StoreError> {
        Ok(Vec::new())
    }
}

/// Both, as a session holds them.
#[derive(Clone)]
pub struct Heard {
    /// The instructions of the repository.
    pub guide: Arc<dyn Guide>,
    /// The word of people.
    pub inbox: Arc<dyn Inbox>,
}

impl Default for Heard {
    /// Nothing is heard.
    fn default() -> Self {
        Self { guide: Arc::new(Alone), inbox: Arc::new(Alone) }
    }
}
