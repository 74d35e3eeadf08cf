//! A terminal to drive a program in, for tests of what a person sees.

use crate::require;

/// Says whether there is a terminal, by how `tmux` began one, or that tests of it are skipped.
///
/// # Panics
/// When `FORMWORK_REQUIRE` names `tmux` and it did not.
pub fn began(started: std::io::Result<std::process::ExitStatus>) -> bool {
    let began = match started {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("it ended with {status}")),
        Err(error) => Err(format!("it cannot be run: {error} (Debian: apt-get install tmux)")),
    };
    require::present_or_skipped("tmux", began).is_some()
}
