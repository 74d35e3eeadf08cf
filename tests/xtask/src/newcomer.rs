//! README's two commands on an empty machine: a fresh clone, an empty home, nothing else.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::process;

/// The marks in README.md; the fenced block after each is what a newcomer types.
const MARKS: [&str; 2] = ["<!-- newcomer:run -->", "<!-- newcomer:test -->"];

/// Variables that say where the machine keeps its compiler and how it reaches the network.
const KEPT: &[&str] = &[
    "PATH",
    "TERM",
    "LANG",
    "FORMWORK_REQUIRE",
    "http_proxy",
    "https_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "RUSTUP_AUTO_INSTALL",
    "RUSTUP_DIST_SERVER",
    "RUSTUP_UPDATE_ROOT",
];

/// The beginnings of further such variables.
const KEPT_FAMILIES: &[&str] =
    &["CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTRIES_", "CARGO_SOURCE_", "PIP_", "SSL_CERT"];

/// Clones HEAD and runs the commands of its README in turn.
pub(crate) fn run() -> Result<()> {
    let began = Instant::now();
    let folder = tempfile::Builder::new().prefix("formwork-newcomer-").tempdir()?;
    let (clone, home) = (folder.path().join("formwork"), folder.path().join("home"));
    fs::create_dir(&home)?;
    let mut git = Command::new("git");
    // The checkout may belong to another user than the one who tests it.
    git.args(["clone", "--quiet", "--upload-pack", "git -c safe.directory='*' upload-pack"]);
    git.args(["--no-hardlinks", "--no-local"]).arg(crate::root()).arg(&clone);
    process::run(&mut git)?;
    let readme = fs::read_to_string(clone.join("README.md")).context("HEAD has no README.md")?;

    let mut figures = Vec::new();
    for mark in MARKS {
        let commands = block_after(&readme, mark)
            .with_context(|| format!("README.md has no fenced block after {mark}"))?;
        let step_began = Instant::now();
        let mut shell = Command::new("sh");
        shell.args(["-euc", &commands]).current_dir(&clone);
        empty_environment(&mut shell, &home);
        process::run(&mut shell)?;
        let figure = format!(
            "`{}` {} s, {:.2} GB",
            commands.trim(),
            step_began.elapsed().as_secs(),
            gigabytes(&clone.join("target"))?
        );
        println!("{figure}");
        figures.push(figure);
    }
    println!(
        "xtask clean-clone: {} commands passed in {} s ({})",
        figures.len(),
        began.elapsed().as_secs(),
        figures.join("; ")
    );
    Ok(())
}

/// Gives `command` an empty home and no variable but those that a compiler needs.
///
/// Compiler and registry lie below the real home by default, so their places are told.
pub(crate) fn empty_environment(command: &mut Command, home: &Path) {
    command.env_clear().env("HOME", home);
    for (name, value) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let kept = KEPT.contains(&text.as_ref())
            || KEPT_FAMILIES.iter().any(|family| text.starts_with(family));
        if kept {
            command.env(name, value);
        }
    }
    let real_home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    for (name, folder) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
        let place = std::env::var_os(name).map_or_else(|| real_home.join(folder), PathBuf::from);
        command.env(name, place);
    }
}

/// Returns the lines of the first fenced block after `mark`, if the block follows at once.
fn block_after(text: &str, mark: &str) -> Option<String> {
    let (_, rest) = text.split_once(mark)?;
    let fenced = rest.trim_start().strip_prefix("```")?;
    let (_language, lines) = fenced.split_once('\n')?;
    let (lines, _) = lines.split_once("\n```")?;
    Some(format!("{lines}\n"))
}

/// Returns what `folder` takes on the disk, each file once, however many names it has.
fn gigabytes(folder: &Path) -> Result<f64> {
    let (mut blocks, mut seen, mut folders) = (0, HashSet::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                folders.push(entry.path());
            } else if seen.insert((metadata.dev(), metadata.ino())) {
                blocks += metadata.blocks();
            }
        }
    }
    // A block of `stat` is 512 bytes on every system; a figure for people needs no more digits.
    Ok(f64::from(u32::try_from(blocks / 2048).unwrap_or(u32::MAX)) / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::{MARKS, block_after};

    #[test]
    fn a_marked_block_gives_its_lines() {
        let readme = "# Title\n\n<!-- newcomer:run -->\n```sh\ncargo run -- demo\n```\nmore\n";

        assert_eq!(block_after(readme, MARKS[0]), Some("cargo run -- demo\n".to_owned()));
        assert_eq!(block_after(readme, MARKS[1]), None);
    }

    #[test]
    fn a_block_elsewhere_is_not_the_marked_one() {
        let readme = "<!-- newcomer:run -->\nSome words.\n```sh\nrm x\n```\n";

        assert_eq!(block_after(readme, MARKS[0]), None);
    }
}
