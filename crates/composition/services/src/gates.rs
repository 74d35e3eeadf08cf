//! The operator's gates: programs that are asked about calls, as the config names them.

use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use formwork_policy::{Answer, Decision, Hashes, Hook, HookCall, Hooks, ToolPatterns};
use formwork_protocols::{Cancel, ToolErrorKind};
use formwork_sandbox::{Command, Protection, Sandbox};
use formwork_tool::Gate;
use tokio_util::sync::CancellationToken;

use crate::{
    Error,
    config::{HookConfig, HookEvent},
    tape::{Gated, Pairs, Talk, lock},
};

/// How long a hook may take, unless its entry says otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Takes those hooks of a config whose event is wanted.
///
/// # Errors
/// [`Error::Rules`] when a hook names no program or a pattern does not parse.
pub(crate) fn of(
    hooks: &[HookConfig],
    is_wanted: impl Fn(HookEvent) -> bool,
) -> Result<Vec<Hook>, Error> {
    let hook = |hook: &HookConfig| {
        let rules = |reason: String| Error::Rules { reason: format!("a hook: {reason}") };
        hook.check().map_err(|(_, why, _)| rules(why))?;
        let tools = hook.tools.as_ref().map(ToolPatterns::parse).transpose();
        Ok(Hook {
            event: hook.event.as_str().to_owned(),
            tools: tools.map_err(|error| rules(error.to_string()))?,
            command: hook.command.clone(),
            timeout: hook.timeout.map_or(TIMEOUT, |span| span.as_duration()),
        })
    };
    hooks.iter().filter(|hook| is_wanted(hook.event)).map(hook).collect()
}

/// Looks for the programs of those hooks whose event is wanted.
///
/// # Errors
/// [`Error::Rules`] names the first that is not to be run here.
pub(crate) fn look_for(
    hooks: &[HookConfig],
    is_wanted: impl Fn(HookEvent) -> bool,
    sandbox: &Sandbox,
    root: &Path,
) -> Result<(), Error> {
    for hook in hooks.iter().filter(|hook| is_wanted(hook.event)) {
        let command = Command::new(&hook.command, root, Protection::None);
        sandbox.look_for(&command).map_err(|error| {
            let event = hook.event.as_str();
            Error::Rules { reason: format!("a hook at {event}: {}", crate::error::chain(&error)) }
        })?;
    }
    Ok(())
}

/// Gates as programs.
pub(crate) struct Gates(Hooks);

impl Gates {
    /// Takes the hooks of a config; nothing where it has none.
    ///
    /// # Errors
    /// [`Error::Rules`] when a hook names no program or a pattern does not parse.
    pub(crate) fn new(
        hooks: &[HookConfig],
        (sandbox, protection): (&Sandbox, Protection),
        (root, since): (&Path, Option<&Hashes>),
    ) -> Result<Option<Self>, Error> {
        let hooks = of(hooks, HookEvent::is_gate)?;
        Ok(match hooks.is_empty() {
            true => None,
            false => {
                let hooks = Hooks::new(sandbox.clone(), root, protection, hooks);
                Some(Self(match since {
                    Some(then) => hooks.since(then),
                    None => hooks,
                }))
            }
        })
    }
}

#[async_trait]
impl Gate for Gates {
    async fn decide(&self, call: &HookCall<'_>, cancel: &Cancel) -> Answer {
        let token = CancellationToken::new();
        let asking = Box::pin(self.0.gate(call, &token));
        tokio::pin!(asking);
        tokio::select! {
            answer = &mut asking => answer,
            () = cancel.cancelled() => {
                token.cancel();
                asking.await
            }
        }
    }
}

/// Answers what the gates answered, in a run that is carried out again without any program.
pub(crate) struct TapedGate {
    pub(crate) talk: Arc<Talk>,
    pub(crate) pairs: Pairs,
}

#[async_trait]
impl Gate for TapedGate {
    async fn decide(&self, call: &HookCall<'_>, _: &Cancel) -> Answer {
        let pair = lock(&self.pairs).get(&call.context.call).cloned().unwrap_or_default();
        if let Some(Gated { decision, arguments }) = self.talk.gated(&pair) {
            return Answer { decision, arguments, said: Vec::new() };
        }
        // A run of a version that did not record what gates answered.
        let decision = match self.talk.failed(&pair) {
            Some((ToolErrorKind::Denied, why)) => Decision::Deny { why },
            _ => Decision::Allow,
        };
        Answer { decision, ..Answer::allow() }
    }
}
