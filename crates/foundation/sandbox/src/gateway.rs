//! Where a confined command may connect to, as somebody else decides it.

use std::{fmt, net::SocketAddr, sync::Arc};

use async_trait::async_trait;

/// Decides where confined commands may connect to, one connection at a time. Calls may overlap.
#[async_trait]
pub trait Routes: Send + Sync {
    /// Returns the addresses at which `to`, written as `host:port`, is to be connected to. The command is connected to one
    /// of these and to no other: whoever answers has judged each of them, and resolves names only after it has decided.
    ///
    /// Cancel safe: the command has ended meanwhile.
    ///
    /// # Errors
    /// [`NoRoute`] says why it is connected to none.
    async fn addresses(&self, to: &str) -> Result<Vec<SocketAddr>, NoRoute>;

    /// Is told what was refused to a command, before the command is. The same is told once for each command, and no more
    /// than [`Refusal::MOST`] are.
    async fn refused(&self, refusal: &Refusal);
}

/// Why a command is not connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoRoute {
    /// It may not be, for this reason.
    Refused(String),
    /// It may be, and there is no way: the name is not known.
    Failed(String),
}

/// What was refused to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The program that was run, as it was named. What it started is part of it.
    pub program: String,
    /// Where it wanted to connect to, as `host:port`; empty where it did not say.
    pub to: String,
    /// Why it could not.
    pub why: String,
}

impl Refusal {
    /// How many different refusals of one command are told. Who meets more is looking for a way out, which it has not.
    pub const MOST: usize = 50;
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to.as_str() {
            "" => write!(f, "a connection was refused: {}", self.why),
            to => write!(f, "a connection to {to} was refused: {}", self.why),
        }
    }
}

/// Routes that commands are held to. Clones share them, and are equal only to each other.
#[derive(Clone)]
pub struct Gateway(Arc<dyn Routes>);

impl Gateway {
    /// Holds commands to `routes`.
    pub fn new(routes: impl Routes + 'static) -> Self {
        Self(Arc::new(routes))
    }

    pub(crate) fn routes(&self) -> &dyn Routes {
        &*self.0
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").finish_non_exhaustive()
    }
}

impl PartialEq for Gateway {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Gateway {}
