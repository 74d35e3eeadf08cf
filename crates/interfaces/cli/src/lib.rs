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
mod mentions; // Files that a text names.
mod settings; // Folders, config files and the environment.
mod terminal; // Where output goes.
mod verbs; // What is done.
mod view; // What a run looks like.

use std::{any::Any, ffi::OsString, io, process::ExitCode};

use formwork_protocols::OutcomeCode;

use crate::{fault::Fault, terminal::Terminal};

/// Reads the command line, does what it says, and returns the exit code.
pub fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| terminal::complain(&fault_of_ours(panic))));
    match std::panic::catch_unwind(carried_out) {
        Ok(code) => code,
        // The hook has said why.
        Err(panic) => broken_off(&reason_of(&*panic)),
    }
}

fn carried_out() -> ExitCode {
    if asks_version(std::env::args_os().skip(1)) {
        return version();
    }
    let line: Vec<OsString> = std::env::args_os().collect();
    let cli = match args::Cli::read(&line) {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { OutcomeCode::Usage.exit_code() } else { 0 };
            let printed = match error.use_stderr() && asks_json(std::env::args_os().skip(1)) {
                true => usage(&error),
                false => error.print().and_then(|()| io::Write::flush(&mut io::stdout())),
            };
            return match printed {
                Err(error) if code == 0 && error.kind() != io::ErrorKind::BrokenPipe => {
                    terminal::complain(&format!("formwork: {}\n", terminal::unprinted(&error)));
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
    let what = reason_of(panic.payload());
    let (code, hint) = code_of(&what);
    // Where it came to light says nothing of what the system lacks.
    let place = panic.location().filter(|_| code == OutcomeCode::Failed);
    let place = place.map(|at| format!(" ({at})")).unwrap_or_default();
    format!("formwork: {what}{place}\nhint: {hint}\n")
}

/// Returns the first line of what was said of such a fault.
fn reason_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it gave no reason").lines().next().unwrap_or_default().to_owned()
}

/// Returns the code of a program that ends by such a fault, and what to do.
fn code_of(what: &str) -> (OutcomeCode, &'static str) {
    // What the system did not give, where nobody of those who use it can say so.
    let wants = ["os error 11", "os error 24", "code: 11,", "code: 24,"];
    match wants.iter().any(|want| what.contains(want)) {
        true => (
            OutcomeCode::Setup,
            "the system gave no more threads or files: raise `ulimit -u` and `ulimit -n`, or end other programs",
        ),
        false => (
            OutcomeCode::Failed,
            "this is a fault of Formwork's own; what was recorded is whole, and `formwork runs resume` goes on",
        ),
    }
}

/// Ends the program by such a fault, of which a machine is told as of any other.
fn broken_off(what: &str) -> ExitCode {
    let (code, hint) = code_of(what);
    if asks_json(std::env::args_os().skip(1)) {
        let fault = Fault { code, ..Fault::failed(anyhow::Error::msg(what.to_owned())) };
        // What cannot be printed here cannot be printed anywhere.
        let _ = terminal::document(&fault.hint(hint).document());
    }
    ExitCode::from(code.exit_code())
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
        Err(error) => {
            terminal::complain(&format!("formwork: {error}\n"));
            ExitCode::FAILURE
        }
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
    fn a_fault_that_nobody_has_foreseen_ends_with_a_code_that_scripts_know() {
        let starved = std::panic::catch_unwind(|| {
            panic!("OS can't spawn worker thread: Resource temporarily unavailable (os error 11)")
        });
        let ours = std::panic::catch_unwind(|| std::panic::panic_any(7_u8));

        let [starved, ours] = [starved, ours].map(|it| code_of(&reason_of(&*it.unwrap_err())));

        assert_eq!((starved.0, ours.0), (OutcomeCode::Setup, OutcomeCode::Failed));
        assert!(starved.1.contains("ulimit -u"), "{}", starved.1);
    }

    #[test]
    fn the_short_way_to_the_version_says_what_the_long_one_says() {
        let asks = |arguments: &[&str]| asks_version(arguments.iter().map(OsString::from));

        assert!(asks(&["--version"]) && asks(&["-V"]));
        assert!(!asks(&[]) && !asks(&["runs", "--version"]) && !asks(&["--version", "--json"]));
        let long = args::Cli::command().render_version();
        assert_eq!(long, concat!("formwork ", env!("CARGO_PKG_VERSION"), "\n"));
    }
}
