//! Prints what the command line knows, as completions and manuals are made from it.
#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use clap::CommandFactory as _;
use formwork_cli::args::Cli;

fn main() {
    let command = Cli::command();
    for verb in command.get_subcommands() {
        let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
        println!("formwork {:<12} {about}", verb.get_name());
    }
}
