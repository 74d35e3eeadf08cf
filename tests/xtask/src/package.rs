//! What each crate needs to be published alone.

use std::fs;

use anyhow::{Context, Result, bail};
use cargo_metadata::Package;

use crate::process;

/// Fails with every publishable package that lacks what a stranger needs to use it alone.
pub(crate) fn run() -> Result<()> {
    let metadata = crate::manifests()?;
    let (published, kept): (Vec<&Package>, Vec<&Package>) = metadata
        .workspace_packages()
        .into_iter()
        .partition(|package| package.publish.as_ref().is_none_or(|places| !places.is_empty()));

    let mut faults = Vec::new();
    for package in &published {
        faults.extend(lacks(package)?.into_iter().map(|lack| format!("  {} {lack}", package.name)));
    }
    if !faults.is_empty() {
        bail!("{} things keep crates from being published\n{}", faults.len(), faults.join("\n"));
    }

    // One by one: together, one crate's features would make up for what another forgot to ask for.
    for package in &published {
        process::run(&mut process::cargo(&[
            "check",
            "--quiet",
            "--package",
            package.name.as_str(),
        ]))?;
    }

    // Without a build, which was done above: here it is that nothing is missing from the archive.
    let mut cargo =
        process::cargo(&["package", "--workspace", "--no-verify", "--allow-dirty", "--quiet"]);
    for package in kept {
        cargo.args(["--exclude", package.name.as_str()]);
    }
    process::run(&mut cargo)?;
    println!("xtask package: {} crates can be published", published.len());
    Ok(())
}

fn lacks(package: &Package) -> Result<Vec<&'static str>> {
    let mut lacks = Vec::new();
    if package.description.as_ref().is_none_or(|text| text.trim().is_empty()) {
        lacks.push("has no description");
    }
    if package.license.is_none() && package.license_file.is_none() {
        lacks.push("has no licence");
    }
    if package.repository.is_none() {
        lacks.push("names no repository");
    }
    if let Some(library) = package.targets.iter().find(|target| target.is_lib()) {
        let code = fs::read_to_string(&library.src_path)
            .with_context(|| format!("cannot read {}", library.src_path))?;
        if !code.starts_with("//!") {
            lacks.push("has no crate documentation");
        }
        if !package.targets.iter().any(|target| target.is_example()) {
            lacks.push("has no example");
        }
    }
    Ok(lacks)
}
