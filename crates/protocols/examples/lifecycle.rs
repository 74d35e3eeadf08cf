//! Leads a task through its states and prices a model call.
#![expect(clippy::print_stdout, reason = "an example shows its result")]

use formwork_protocols::{Price, TaskSignal, TaskState, Usage};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut state = TaskState::Created;
    let signals = [
        TaskSignal::Start,
        TaskSignal::Pass,
        TaskSignal::End,
        TaskSignal::Fail,
        TaskSignal::Retry,
        TaskSignal::End,
        TaskSignal::Pass,
    ];
    for signal in signals {
        let next = state.after(signal)?;
        println!("{} --{signal:?}--> {}", state.as_str(), next.as_str());
        state = next;
    }
    // There is no way out of an end, and the error says so.
    if let Err(illegal) = state.after(TaskSignal::End) {
        println!("{illegal}");
    }

    let price = Price { input: "3".parse()?, output: "15".parse()?, ..Price::LOCAL };
    let usage = Usage { input: 12_000, output: 800, ..Usage::default() };
    println!("{} tokens cost ${}", usage.total(), price.cost(&usage));
    Ok(())
}
