//! Where programs of a run may connect to, and the record of what they may not.

use std::{net::SocketAddr, sync::Arc};

use async_trait::async_trait;
use formwork_agent::Agent;
use formwork_protocols::{
    Append, Clock, EventBody, NewEvent, Principal, RunId, Scrub, Store, TaskId, TaskSpec,
    event::NetworkRefused,
};
use formwork_sandbox::{Gateway, Network, NoRoute, Protection, Refusal, Routes, Status};
use formwork_tool::Ways;

use crate::{Error, executor::Workshop, setup};

/// Whose programs they are.
pub(crate) struct Whose<'a> {
    pub(crate) run: RunId,
    /// The task that they run for, if it is for one.
    pub(crate) task: Option<TaskId>,
    /// The agents in whose name they run, each of which may have narrowed what they reach.
    pub(crate) agents: Vec<&'a Agent>,
}

impl Workshop {
    /// Names whose the checks of a task are, and what else is run for it and not by its agent: whoever made the task may not
    /// have them reach more than it reaches itself.
    ///
    /// # Errors
    /// [`Error::NoSuchAgent`] when one of those is none of the run.
    pub(crate) fn of_task(
        &self,
        (run, task): (RunId, TaskId),
        spec: &TaskSpec,
    ) -> Result<Whose<'_>, Error> {
        Ok(Whose { run, task: Some(task), agents: self.makers(spec)? })
    }

    /// Returns the agents that have made a task, one for another.
    ///
    /// # Errors
    /// [`Error::NoSuchAgent`] when one of those is none of the run.
    pub(crate) fn makers(&self, spec: &TaskSpec) -> Result<Vec<&Agent>, Error> {
        let by = spec.made.iter().flat_map(|made| &made.by);
        by.map(|name| self.agent(name).map(|own| &own.agent)).collect()
    }

    /// Returns the network of programs, and the same in words.
    ///
    /// # Errors
    /// [`Error::Rules`] when a pattern does not parse.
    pub(crate) fn network(&self, whose: Whose<'_>) -> Result<(Network, String), Error> {
        let Some(ways) = setup::ways(&self.setup.config, whose.agents)? else {
            return Ok((Network::Off, "opens no connection".to_owned()));
        };
        let lists: Vec<String> = ways.hosts.iter().map(ToString::to_string).collect();
        let told = format!(
            "connects to {} over HTTP by the proxy that HTTPS_PROXY names, opens no other connection",
            lists.join(", and of these to ")
        );
        let routes = Recorded {
            ways,
            run: whose.run,
            task: whose.task,
            store: Arc::clone(&self.store),
            clock: Arc::clone(&self.clock),
            scrub: Arc::clone(&self.scrub),
        };
        Ok((Network::Through(Gateway::new(routes)), told))
    }

    /// Checks that programs can be held to the hosts that the config lists, where it lists some, before anything is spent.
    ///
    /// # Errors
    /// [`Error::Network`] when this machine cannot; [`Error::Rules`] when a pattern does not parse.
    pub(crate) async fn check_network(&self) -> Result<(), Error> {
        if self.protection == Protection::None || setup::ways(&self.setup.config, [])?.is_none() {
            return Ok(());
        }
        match self.sandbox.gateways().await {
            Status::Missing(reason) => Err(Error::Network { reason }),
            Status::Active(_) | Status::Weak(_) => Ok(()),
        }
    }
}

/// Routes that leave a record of what they refuse.
struct Recorded {
    ways: Ways,
    run: RunId,
    task: Option<TaskId>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    scrub: Arc<dyn Scrub>,
}

#[async_trait]
impl Routes for Recorded {
    async fn addresses(&self, to: &str) -> Result<Vec<SocketAddr>, NoRoute> {
        self.ways.addresses(to).await
    }

    async fn refused(&self, refusal: &Refusal) {
        let scrubbed = |text: &str| self.scrub.scrub_text(text).into_owned();
        let refused = NetworkRefused {
            program: scrubbed(&refusal.program),
            to: scrubbed(&refusal.to),
            reason: scrubbed(&refusal.why),
        };
        let fact = NewEvent {
            task: self.task,
            principal: Principal::system("sandbox"),
            at: self.clock.now(),
            body: EventBody::NetworkRefused(refused),
            idempotency_key: None,
        };
        let batch = Append { run: self.run, token: None, events: vec![fact], blobs: Vec::new() };
        // Where it cannot be recorded it is refused all the same.
        let _ = self.store.append(batch).await;
    }
}
