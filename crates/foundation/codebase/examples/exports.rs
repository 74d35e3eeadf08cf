//! What a file declares, and what of it others can use: `cargo run -p formwork-codebase --example exports`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use formwork_codebase::Codebase;
use formwork_protocols::source::Symbols as _;

const TEXT: &str = "\
pub struct Circle { radius: f64 }
impl Circle {
    pub fn area(&self) -> f64 { square(self.radius) * 3.14 }
}
fn square(a: f64) -> f64 { a * a }
";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for symbol in Codebase.symbols("src/circle.rs", TEXT.as_bytes())? {
        let to_whom = if symbol.exported { "exported" } else { "own" };
        println!("{:>2} {to_whom:<8} {}: {}", symbol.line, symbol.name, symbol.signature);
    }
    Ok(())
}
