//! Programs that run while the tasks of a run work: held as a task's own command is, and watched.

use std::time::Duration;

use formwork_protocols::{Blob, Cancel, PermissionMode, TaskSpec, text};
use formwork_sandbox::{Caps, Command, Error as SandboxError, Exit, Finished, Protection};
use formwork_scheduler::{ServiceEnd, ServiceJob};
use tokio_util::sync::CancellationToken;

use crate::{Error, error::chain, executor::Workshop};

/// How long one may run at most: longer than any run, since nothing is without an end.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// How long one that is no more needed has to put its things in order before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// How much of its output is kept: its beginning, where it says how it is set up, and its end. What lies between is nowhere, not
/// even on the disk, since one may talk for days.
const CAPS: Caps = Caps { head: 16 << 10, tail: 48 << 10, whole: 64 << 10 };

/// How much of the end of its output is told.
const EXCERPT: usize = 4 * 1024;

impl Workshop {
    /// Looks whether the programs of services are there, before a run is begun for which they are needed.
    ///
    /// # Errors
    /// [`Error::Service`] names the first that is not.
    pub(crate) fn check_services(&self, root: &TaskSpec) -> Result<(), Error> {
        for service in &root.services {
            let looks = service.ready.as_ref().map(|ready| &ready.argv);
            for argv in [&service.argv].into_iter().chain(looks) {
                // Which program one is that has a variable in its name is known once it is put in.
                if argv.first().is_none_or(|program| program.contains("{{")) {
                    continue;
                }
                let command = Command::new(argv.clone(), self.root.path(), Protection::None);
                self.sandbox.look_for(&command).map_err(|source| Error::Service {
                    service: service.name.clone(),
                    reason: chain(&source),
                })?;
            }
        }
        Ok(())
    }

    /// Runs a service until it ends by itself or is no more needed.
    pub(crate) async fn serve_until(&self, job: &ServiceJob, cancel: &Cancel) -> ServiceEnd {
        let argv = &job.service.argv;
        let (caps, grace) = (CAPS, GRACE);
        let ended = match self.as_confined(job, argv).await {
            Ok(command) => {
                let command = Command { timeout: LONGEST, caps, grace, ..command };
                let ended = Box::pin(self.until_cancelled(command, cancel)).await;
                ended.map_err(|error| unseen(&error))
            }
            Err(error) => Err(format!("cannot be started: {}", chain(&error))),
        };
        match ended {
            Ok(finished) => {
                let output = self.words(&finished);
                let excerpt = text::tail(&output, EXCERPT).to_owned();
                let how = match finished.exit {
                    Exit::Cancelled => "ended as asked".to_owned(),
                    exit => exit.to_string(),
                };
                ServiceEnd { how, excerpt, output: Some(Blob::new(output.into_bytes())) }
            }
            Err(why) => {
                let how = self.scrub.scrub_text(&why).into_owned();
                ServiceEnd { how, excerpt: String::new(), output: None }
            }
        }
    }

    /// Looks once whether a service is ready.
    ///
    /// # Errors
    /// What the look said, in a few words.
    pub(crate) async fn looks_ready(&self, job: &ServiceJob) -> Result<(), String> {
        let Some(ready) = &job.service.ready else { return Ok(()) };
        let told = self.scrub.scrub_text(&ready.argv.join(" ")).into_owned();
        let command = self.as_confined(job, &ready.argv).await.map_err(|error| chain(&error))?;
        let command = Command { timeout: ready.timeout.as_duration(), caps: CAPS, ..command };
        let finished = Box::pin(self.until_cancelled(command, &Cancel::new())).await;
        let finished =
            finished.map_err(|error| format!("{told} cannot be run: {}", chain(&error)))?;
        if finished.succeeded() {
            return Ok(());
        }
        let said = self.words(&finished);
        let said = text::tail(said.trim_end(), 200);
        let colon = if said.is_empty() { "" } else { ": " };
        Err(format!("{told} ended with {}{colon}{said}", finished.exit))
    }

    /// Puts a program of a service together, held to what a command of the tasks that need it is held to.
    async fn as_confined(&self, job: &ServiceJob, argv: &[String]) -> Result<Command, Error> {
        let mode = self.setup.mode();
        if mode < PermissionMode::Edit {
            // A run that was begun in a wider mode.
            let what = format!("service {} runs {}", job.service.name, argv.join(" "));
            return Err(Error::ReadOnly { what, mode });
        }
        let whose = self.of_task((job.run, job.task), &job.spec)?;
        let bounds = self.bounds(&self.program_rules(&job.spec)?, whose).await?;
        Ok(Command::new(argv.to_vec(), self.root.path(), bounds.protection))
    }

    async fn until_cancelled(
        &self,
        command: Command,
        cancel: &Cancel,
    ) -> Result<Finished, SandboxError> {
        let token = CancellationToken::new();
        let running = self.sandbox.run(command, token.clone(), None);
        tokio::pin!(running);
        tokio::select! {
            finished = &mut running => finished,
            () = cancel.cancelled() => {
                token.cancel();
                running.await
            }
        }
    }

    /// Returns what a program said, without secrets, and what was refused to it.
    fn words(&self, finished: &Finished) -> String {
        let mut output = finished.combined.preview();
        for refusal in &finished.refused {
            output.push_str(&format!("\n[{refusal}]"));
        }
        self.scrub.scrub_text(&output).into_owned()
    }
}

/// Says why nobody saw a service end: it never began, or whoever was to tell was lost.
fn unseen(error: &SandboxError) -> String {
    let why = chain(error);
    match error {
        SandboxError::LauncherLost { .. } | SandboxError::Watch { .. } => why,
        _ => format!("cannot be started: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_was_lost_is_not_told_as_one_that_never_began() {
        let program = || "db".to_owned();
        let lost = SandboxError::LauncherLost { program: program() };
        let searched = "/usr/bin".to_owned();
        let missing = SandboxError::ProgramNotFound { program: program(), searched };

        let told = [unseen(&lost), unseen(&missing)];

        assert_eq!(
            told,
            [
                "the launcher of db ended without saying how the command ended",
                "cannot be started: program db was not found in /usr/bin",
            ]
        );
    }
}
