//! The `formwork` program: a command line over the capabilities, and nothing more.
//!
//! Start at [`main`]. Each verb asks [`formwork_services`] for what it needs and prints what it gets;
//! no ability lives here that another interface could not have. This is the only crate that reads the
//! environment and the only one that prints.
//!
//! ```
//! use clap::Parser as _;
//! use formwork_cli::args::{Cli, Verb};
//!
//! let cli = Cli::parse_from(["formwork", "validate", "workflow.toml"]);
//! assert!(matches!(cli.verb, Some(Verb::Validate(_))));
//! ```

pub mod args; // What may be written.
mod asking; // What a person is asked.
mod chat; // A conversation at the terminal.
mod fault; // How a verb fails.
mod settings; // Folders, config files and the environment.
mod terminal; // Where output goes.
mod verbs; // What is done.
mod view; // What a run looks like.

use std::{ffi::OsString, io, process::ExitCode};

use clap::Parser as _;
use formwork_protocols::OutcomeCode;

use crate::{fault::Fault, terminal::Terminal};

/// Reads the command line, does what it says, and returns the exit code.
pub fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| terminal::complain(&fault_of_ours(panic))));
    if asks_version(std::env::args_os().skip(1)) {
        return version();
    }
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { OutcomeCode::Usage.exit_code() } else { 0 };
            let printed = match error.use_stderr() && asks_json(std::env::args_os().skip(1)) {
                true => usage(&error),
                false => error.print().and_then(|()| io::Write::flush(&mut io::stdout())),
            };
            return match printed {
                Err(error) if code == 0 && error.kind() != io::ErrorKind::BrokenPipe => {
                    terminal::complain(&format!("formwork: cannot print: {error}\n"));
                    ExitCode::from(OutcomeCode::Failed.exit_code())
                }
                // What cannot be printed here cannot be printed anywhere.
                _ => ExitCode::from(code),
            };
        }
    };
    let terminal = Terminal::new(&cli.global);
    match verbs::run(cli, &terminal) {
        Ok(code) => ExitCode::from(code.exit_code()),
        Err(fault) => report(&fault, &terminal),
    }
}

/// Tells in a line of a fault that nothing of ours has foreseen.
fn fault_of_ours(panic: &std::panic::PanicHookInfo<'_>) -> String {
    let what = panic.payload();
    let what = what
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| what.downcast_ref::<String>().map(String::as_str));
    let what = what.unwrap_or("it gave no reason").lines().next().unwrap_or_default();
    let place = panic.location().map(|at| format!(" ({at})")).unwrap_or_default();
    // What the system did not give, where nobody of those who use it can say so.
    let wants = ["os error 11", "os error 24", "code: 11,", "code: 24,"];
    let hint = match wants.iter().any(|want| what.contains(want)) {
        true => {
            "the system gave no more threads or files: raise `ulimit -u` and `ulimit -n`, or end other programs"
        }
        false => {
            "this is a fault of Formwork's own; what was recorded is whole, and `formwork runs resume` goes on"
        }
    };
    format!("formwork: {what}{place}\nhint: {hint}\n")
}

/// Tells whether all that is asked for is the version: then the other verbs need not be put together.
fn asks_version(mut arguments: impl Iterator<Item = OsString>) -> bool {
    let (first, second) = (arguments.next(), arguments.next());
    second.is_none() && first.is_some_and(|first| first == "--version" || first == "-V")
}

fn version() -> ExitCode {
    let line = concat!("formwork ", env!("CARGO_PKG_VERSION"), "\n");
    match terminal::bytes(line.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE, // There is nowhere to say why.
    }
}

/// Tells whether a machine reads, of a command line that cannot be read whole.
fn asks_json(arguments: impl Iterator<Item = OsString>) -> bool {
    let mut options = arguments.take_while(|argument| argument != "--");
    options.any(|argument| argument == "--json" || argument == "--jsonl")
}

/// Tells a machine what is wrong with the command line: the document that every other fault makes.
fn usage(error: &clap::Error) -> io::Result<()> {
    let told = error.to_string();
    let told = told.trim_end();
    let fault = Fault::usage(told.strip_prefix("error: ").unwrap_or(told));
    terminal::document(&fault.document())
}

/// Tells what is wrong and returns the exit code.
fn report(fault: &Fault, terminal: &Terminal) -> ExitCode {
    if fault.is_broken_pipe() {
        return ExitCode::SUCCESS;
    }
    match terminal.format {
        terminal::Format::Json | terminal::Format::Jsonl => {
            if terminal::document(&fault.document()).is_err() {
                terminal::complain(&fault.render(false));
            }
        }
        terminal::Format::Text | terminal::Format::Quiet => {
            terminal::complain(&fault.render(terminal.color_errors));
        }
    }
    ExitCode::from(fault.code.exit_code())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_short_way_to_the_version_says_what_the_long_one_says() {
        let asks = |arguments: &[&str]| asks_version(arguments.iter().map(OsString::from));

        assert!(asks(&["--version"]) && asks(&["-V"]));
        assert!(!asks(&[]) && !asks(&["runs", "--version"]) && !asks(&["--version", "--json"]));
        let long = args::Cli::command().render_version();
        assert_eq!(long, concat!("formwork ", env!("CARGO_PKG_VERSION"), "\n"));
    }
}
