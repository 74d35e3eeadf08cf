//! Which settings of a repository start nothing: those that are known not to.

/// Sections, each with the keys that are fine in it; an empty list means all. Source: `git help config`.
const HARMLESS: [(&str, &[&str]); 16] = [
    (
        "core",
        &[
            "abbrev",
            "autocrlf",
            "bare",
            "bigfilethreshold",
            "compression",
            "eol",
            "filemode",
            "ignorecase",
            "logallrefupdates",
            "precomposeunicode",
            "protecthfs",
            "protectntfs",
            "quotepath",
            "repositoryformatversion",
            "safecrlf",
            "sharedrepository",
            "symlinks",
            "trustctime",
            "untrackedcache",
            "worktree",
        ],
    ),
    ("advice", &[]),
    ("branch", &["merge", "rebase", "remote", "description"]),
    ("color", &[]),
    ("extensions", &[]),
    ("fetch", &["prune", "prunetags", "writecommitgraph"]),
    ("gc", &["auto", "autodetach", "pruneexpire", "reflogexpire"]),
    ("init", &["defaultbranch", "defaultobjectformat", "defaultrefformat"]),
    ("index", &[]),
    ("maintenance", &["auto"]),
    ("pack", &["threads", "windowmemory", "depth", "window"]),
    ("pull", &["ff", "rebase"]),
    ("push", &["default", "autosetupremote", "followtags"]),
    ("remote", &["fetch", "push", "url", "pushurl", "mirror", "prune", "tagopt", "promisor"]),
    ("submodule", &["active", "branch", "ignore", "url"]),
    ("user", &["email", "name", "useconfigonly"]),
];

/// Says whether nothing that a config sets makes git start another program, or read what it was not given. What is not
/// known to be harmless is not.
pub(super) fn starts_nothing(text: &str) -> bool {
    starting(text).is_empty()
}

/// A setting that may start something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    /// The header of its section and the setting as they are written.
    text: String,
    /// Whether git goes by it only where it is asked for an editor.
    pub(super) is_editor: bool,
}

impl Setting {
    fn new(text: String) -> Self {
        Self { text, is_editor: false }
    }
}

/// Returns the settings that are not known to start nothing; what cannot be parted into settings is one, to its end.
pub(super) fn starting(text: &str) -> Vec<Setting> {
    let mut found = Vec::new();
    let (mut section, mut rest) = (String::new(), text);
    let mut head = "";
    while !rest.is_empty() {
        let (whole, next) = rest.split_once('\n').unwrap_or((rest, ""));
        let mut line = whole.trim();
        // Another section, or a setting, may stand behind the bracket.
        while let Some(behind) = line.strip_prefix('[') {
            let Some((name, after)) = header(behind) else {
                found.push(Setting::new(rest.to_owned()));
                return found;
            };
            head = &line[..line.len() - after.len()];
            (section, line) = (name, after.trim());
        }
        if !(line.is_empty() || line.starts_with(['#', ';'])) {
            let key = line.split(['=', ' ', '\t']).next().unwrap_or_default().to_ascii_lowercase();
            let known = HARMLESS.iter().find(|(name, _)| *name == section);
            let is_harmless =
                known.is_some_and(|(_, keys)| keys.is_empty() || keys.contains(&key.as_str()));
            // A value may go on in the next line, where it would be taken for a key.
            if line.ends_with('\\') {
                found.push(Setting::new(format!("{head}\n{rest}")));
                return found;
            }
            if !is_harmless {
                let is_editor = key == "editor" && matches!(&*section, "core" | "sequence");
                found.push(Setting { text: format!("{head}\n{line}"), is_editor });
            }
        }
        rest = next;
    }
    found
}

/// Parts what stands behind an opening bracket into the name of the section and what follows the closing one.
fn header(text: &str) -> Option<(String, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '.')))?;
    let (name, rest) = text.split_at_checked(end)?;
    // The old way to write a subsection.
    let name = name.split('.').next().unwrap_or(name).to_ascii_lowercase();
    if let Some(behind) = rest.strip_prefix(']') {
        return Some((name, behind));
    }
    let quoted = rest.trim_start().strip_prefix('"')?;
    let mut is_escaped = false;
    for (at, letter) in quoted.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return Some((name, quoted.get(at + 1..)?.strip_prefix(']')?)),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{starting, starts_nothing};

    #[test]
    fn what_starts_something_is_named_with_its_section_and_the_rest_is_left_out() {
        let text = "[user]\n\tname = a\n[core]\n\tbare = false\n\teditor = vim\n\
            [remote \"o\"] url = x\n\tuploadpack = evil\n[alias] st = !evil\n";

        let texts =
            |text| -> Vec<String> { starting(text).into_iter().map(|it| it.text).collect() };

        let found = texts(text);

        let wanted =
            ["[core]\neditor = vim", "[remote \"o\"]\nuploadpack = evil", "[alias]\nst = !evil"];
        assert_eq!(found, wanted);
        assert_eq!(starting(text).iter().filter(|it| it.is_editor).count(), 1);
        // What goes on in the next line is one with all that follows.
        assert_eq!(texts("[user]\nname = a\\\nb\n"), ["[user]\nname = a\\\nb\n"]);
        assert_eq!(texts("[user\nname = a"), ["[user\nname = a"]);
    }

    #[test]
    fn what_git_init_and_clone_write_starts_nothing() {
        let text = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\
            \tlogallrefupdates = true\n[remote \"origin\"]\n\turl = https://example.com/a.git\n\
            \tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\n\tremote = origin\n\
            # said\n\tmerge = refs/heads/main\n[user]\n\temail = a@example.com\n";

        assert!(starts_nothing(text) && starts_nothing(""));
    }

    #[test]
    fn what_names_a_program_or_another_file_does() {
        for text in [
            "[core]\nfsmonitor = evil",
            "[CORE] sshCommand = evil",
            "[core \"]\"] pager = evil",
            "[core] fsmonitor = evil ] bare = a",
            "[core \"\\\"] bare = \"] pager = evil",
            "[alias]\nst = !evil",
            "[advice][core]\nfsmonitor = evil",
            "[color] [alias] st = !evil",
            "[filter \"x\"]\nclean = evil",
            "[include]\npath = evil",
            "[includeIf \"gitdir:/\"]\npath = evil",
            "[diff \"x\"]\ntextconv = evil",
            "[remote \"x\"]\nuploadpack = evil",
            "[user]\nname = a\\\nfsmonitor = b",
            "[core",
            "[gpg]\nprogram = evil",
            "[submodule \"x\"]\nupdate = !evil",
        ] {
            assert!(!starts_nothing(text), "{text}");
        }
    }
}
