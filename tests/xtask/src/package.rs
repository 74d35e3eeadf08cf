//! What each crate needs to be published alone.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, bail};
use cargo_metadata::{Package, camino::Utf8PathBuf};

use crate::process;

/// Fails with every publishable package that lacks what a stranger needs to use it alone.
pub(crate) fn run() -> Result<()> {
    let metadata = crate::manifests()?;
    let (published, kept): (Vec<&Package>, Vec<&Package>) =
        metadata.workspace_packages().into_iter().partition(|package| is_published(package));

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

/// Brings the README of each crate up to its manifest and its examples.
pub(crate) fn write() -> Result<()> {
    let metadata = crate::manifests()?;
    for package in metadata.workspace_packages() {
        let (path, text) = (readme_path(package), readme(package)?);
        if is_published(package) && fs::read_to_string(&path).ok() != Some(text.clone()) {
            fs::write(&path, text).with_context(|| format!("cannot write {path}"))?;
            println!("xtask package: {path} written");
        }
    }
    Ok(())
}

fn is_published(package: &Package) -> bool {
    package.publish.as_ref().is_none_or(|places| !places.is_empty())
}

fn readme_path(package: &Package) -> Utf8PathBuf {
    package.manifest_path.with_file_name("README.md")
}

/// Writes what a stranger reads of a crate who has found it alone.
fn readme(package: &Package) -> Result<String> {
    let (name, repository) = (&package.name, package.repository.as_deref().unwrap_or_default());
    let about = package.description.as_deref().unwrap_or_default();
    let mut text = format!(
        "# {name}\n\n{about}\n\nA part of [Formwork]({repository}), structured programming for AI agents. Its \
         documentation says where to start.\n\n```sh\ncargo {} {name}\n```\n",
        if package.targets.iter().any(|target| target.is_bin() && target.name == "formwork") {
            "install"
        } else {
            "add"
        },
    );
    let mut examples: Vec<_> = package.targets.iter().filter(|it| it.is_example()).collect();
    examples.sort_by(|a, b| a.name.cmp(&b.name));
    if !examples.is_empty() {
        text.push_str("\n| example | |\n|---|---|\n");
    }
    for example in examples {
        let code = fs::read_to_string(&example.src_path)
            .with_context(|| format!("cannot read {}", example.src_path))?;
        let _ = writeln!(text, "| `cargo run --example {}` | {} |", example.name, shows(&code));
    }
    text.push_str("\nLicensed under Apache-2.0 or MIT, as you like.\n");
    Ok(text)
}

/// Returns what an example says of itself first, for a page where its links lead nowhere.
fn shows(code: &str) -> String {
    let first = code.lines().next().unwrap_or_default();
    let said = first.strip_prefix("//!").unwrap_or_default().trim();
    // How it is run stands beside it.
    let said = said.split_once(": `cargo run").map_or(said, |(said, _)| said);
    let said = said.replace("[`", "`").replace("`]", "`");
    if said.ends_with('.') { said } else { format!("{said}.") }
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
    if fs::read_to_string(readme_path(package)).ok() != Some(readme(package)?) {
        lacks.push("has no README as `cargo xtask package --write` makes it");
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

#[cfg(test)]
mod tests {
    use super::shows;

    #[test]
    fn an_example_is_told_by_its_first_line() {
        let code = "//! Takes another [`Endpoint`], and says so\n\nfn main() {}\n";

        assert_eq!(shows(code), "Takes another `Endpoint`, and says so.");
        assert_eq!(shows("//! A condition: `cargo run -p x --example y`.\n"), "A condition.");
    }
}
