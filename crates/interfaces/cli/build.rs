//! How the program is linked.
#![expect(clippy::disallowed_methods, reason = "cargo tells a build script by its environment")]

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    if target("OS") == "linux" && target("ENV") == "gnu" {
        // Every start, and each confined process begins with one, would relocate some fifty thousand addresses first,
        // which is half of what a start costs: see docs/adr/0009.
        println!("cargo::rustc-link-arg-bin=formwork=-no-pie");
    }
}
