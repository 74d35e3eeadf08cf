//! The texts that are generated from the table: what cargo-deny reads, and what a reader does.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use cargo_metadata::Metadata;

use super::fault::{Kind, at_home, inside};
use super::table::{Home, Layer, MEMBERS, Member, OUTSIDE, SIDEWAYS};

/// A marked section of a file.
struct Section {
    file: &'static str,
    begin: &'static str,
    end: &'static str,
    text: String,
}

fn sections(metadata: &Metadata) -> Vec<Section> {
    let (begin, end) =
        ("<!-- layers:begin, by `cargo xtask layers --write` -->", "<!-- layers:end -->");
    vec![
        Section {
            file: "deny.toml",
            begin: "    # layers:begin, by `cargo xtask layers --write`",
            end: "    # layers:end",
            text: bans(),
        },
        Section { file: "ARCHITECTURE.md", begin, end, text: tables(metadata) },
    ]
}

/// Brings each generated section up to the table.
pub(crate) fn write() -> Result<()> {
    for section in sections(&crate::manifests()?) {
        let (path, before) = section.read()?;
        let after = section.replaced(&before)?;
        if after == before {
            println!("xtask layers: {} was up to date", section.file);
        } else {
            std::fs::write(&path, after)
                .with_context(|| format!("cannot write {}", path.display()))?;
            println!("xtask layers: {} written", section.file);
        }
    }
    Ok(())
}

/// Fails when a generated section is not what the table says.
pub(crate) fn check(metadata: &Metadata) -> Result<()> {
    for section in sections(metadata) {
        let (_, text) = section.read()?;
        if section.replaced(&text)? != text {
            bail!("{} is out of date: run `cargo xtask layers --write`", section.file);
        }
    }
    Ok(())
}

impl Section {
    fn read(&self) -> Result<(PathBuf, String)> {
        let path = crate::root().join(self.file);
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        Ok((path, text))
    }

    fn replaced(&self, text: &str) -> Result<String> {
        let missing =
            || format!("{} has no section between {:?} and {:?}", self.file, self.begin, self.end);
        let (head, rest) = text.split_once(self.begin).with_context(missing)?;
        let (_, tail) = rest.split_once(self.end).with_context(missing)?;
        Ok(format!("{head}{}\n{}{}{tail}", self.begin, self.text, self.end))
    }
}

/// Writes an entry for each package that somebody may depend on: exactly they are its wrappers.
///
/// Cargo-deny doesn't tell the kinds of dependencies apart; that the test kit is for tests alone
/// is held by the check of the manifests.
fn bans() -> String {
    let mut text = String::new();
    for to in MEMBERS {
        let may = |from: &&'static Member| {
            from.package != to.package
                && [Kind::Normal, Kind::Dev].iter().any(|kind| inside(from, to, *kind).is_none())
        };
        ban(&mut text, to.package, MEMBERS.iter().filter(may), to.layer.name());
    }
    for outside in OUTSIDE.iter().filter(|outside| matches!(outside.home, Home::Alone(_))) {
        let may = |from: &&Member| at_home(from, outside, Kind::Normal);
        ban(&mut text, outside.name, MEMBERS.iter().filter(may), outside.because);
    }
    text
}

fn ban<'a>(
    text: &mut String,
    package: &str,
    wrappers: impl Iterator<Item = &'a Member>,
    reason: &str,
) {
    let wrappers: Vec<String> =
        wrappers.map(|member| format!("        \"{}\",\n", member.package)).collect();
    // Without a wrapper, cargo-deny would refuse the package itself.
    if !wrappers.is_empty() {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "    {{ crate = \"{package}\", reason = \"{reason}\", wrappers = [\n{}    ] }},",
            wrappers.concat()
        );
    }
}

/// Writes a table of the packages and one of the edges within a layer.
fn tables(metadata: &Metadata) -> String {
    let packages = metadata.workspace_packages();
    let description = |member: &Member| {
        packages
            .iter()
            .find(|package| package.name.as_str() == member.package)
            .and_then(|package| package.description.clone())
            .unwrap_or_default()
    };
    let mut text = String::from("\n| layer | crate | what it does |\n|---|---|---|\n");
    for layer in Layer::ALL {
        for member in MEMBERS.iter().filter(|member| member.layer == layer) {
            let name = format!("[`{}`]({})", member.package, member.folder);
            let _ = writeln!(text, "| {} | {name} | {} |", layer.name(), description(member));
        }
    }
    text.push_str("\n| edge within a layer | because |\n|---|---|\n");
    for edge in SIDEWAYS {
        let _ = writeln!(text, "| `{}` → `{}` | {} |", edge.from, edge.to, edge.because);
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::Section;

    #[test]
    fn only_what_stands_between_the_marks_changes() {
        let section = Section { file: "x", begin: "# b", end: "# e", text: "new\n".to_owned() };

        let replaced = section.replaced("keep\n# b\nold\nold\n# e\nkeep\n").unwrap();

        assert_eq!(replaced, "keep\n# b\nnew\n# e\nkeep\n");
    }

    #[test]
    fn a_file_without_marks_is_refused() {
        let section = Section { file: "x", begin: "# b", end: "# e", text: String::new() };

        let error = section.replaced("keep\n# b\n").unwrap_err().to_string();

        assert_eq!(error, r##"x has no section between "# b" and "# e""##);
    }
}
