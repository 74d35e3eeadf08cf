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
    let mut section = String::new();
    for line in text.lines() {
        let mut line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        // Another section, or a setting, may stand behind the bracket.
        while let Some(rest) = line.strip_prefix('[') {
            let Some((name, behind)) = header(rest) else { return false };
            (section, line) = (name, behind.trim());
        }
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        let key = line.split(['=', ' ', '\t']).next().unwrap_or_default().to_ascii_lowercase();
        let known = HARMLESS.iter().find(|(name, _)| *name == section);
        let is_harmless =
            known.is_some_and(|(_, keys)| keys.is_empty() || keys.contains(&key.as_str()));
        // A value may go on in the next line, where it would be taken for a key.
        if !is_harmless || line.ends_with('\\') {
            return false;
        }
    }
    true
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
    use super::starts_nothing;

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
