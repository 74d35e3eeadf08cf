//! What begins with a slash, and what is completed.

use std::path::Path;

/// A command, its arguments as they are shown, and what it does.
pub(crate) const COMMANDS: &[(&str, &str, &str)] = &[
    ("help", "", "show this"),
    ("model", "[PROVIDER/MODEL]", "show or change the model of the next turns"),
    ("permissions", "[ask|edit|auto]", "show or change what the next turns may do"),
    ("context", "", "show how full the window is, and what was left out of it"),
    ("compact", "", "have the conversation made as short as it can be before the next turn"),
    ("tools", "", "list the tools"),
    ("diff", "[all]", "show what the last turn, or the whole chat, has changed"),
    ("undo", "", "take back the last turn: its changes, and what was said"),
    ("rewind", "[N]", "take back every turn behind turn N: changes, and what was said"),
    ("fork", "[N]", "go on from turn N; the later turns stay as a chat of their own"),
    ("find", "TEXT", "find a text in what was said in this workspace"),
    ("agents", "[NAME]", "list the agents, or speak to another one from the next turn on"),
    ("cost", "", "show what the chat has cost"),
    ("new", "", "begin a new conversation"),
    ("resume", "[RUN]", "list the chats of this workspace, or go on with one"),
    ("exit", "", "end the chat; it can be resumed"),
];

/// What a person wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// To say something to the model.
    Say(String),
    /// One of [`COMMANDS`], with what stands behind it.
    Command(&'static str, String),
    /// Something that begins with a slash and is no command; the nearest one.
    Unknown(String, Option<&'static str>),
}

/// Reads what was sent. Two slashes at the beginning are one that is said.
pub(crate) fn read(sent: &str) -> Wanted {
    let sent = sent.trim();
    let Some(rest) = sent.strip_prefix('/') else { return Wanted::Say(sent.to_owned()) };
    if let Some(said) = rest.strip_prefix('/') {
        return Wanted::Say(format!("/{said}"));
    }
    let (word, behind) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    // A path is said, not commanded.
    if word.contains('/') {
        return Wanted::Say(sent.to_owned());
    }
    let word = if word == "quit" || word == "q" { "exit" } else { word };
    let names = || COMMANDS.iter().map(|(name, ..)| *name);
    let begins: Vec<_> =
        names().filter(|name| !word.is_empty() && name.starts_with(word)).collect();
    let only = if let [name] = begins.as_slice() { Some(*name) } else { None };
    match names().find(|name| *name == word).or(only) {
        Some(name) => Wanted::Command(name, behind.trim().to_owned()),
        None => {
            let near = formwork_protocols::document::nearest(word, names());
            Wanted::Unknown(word.to_owned(), names().find(|name| Some(*name) == near))
        }
    }
}

/// Lists the commands.
pub(crate) fn help() -> String {
    let mut text = String::new();
    for (name, arguments, what) in COMMANDS {
        text.push_str(&format!("  {:<28} {what}\n", format!("/{name} {arguments}")));
    }
    text.push_str(
        "  @path                        attach a file of the workspace\n\
         \x20 Enter sends · Alt-Enter or \\ and Enter begins a line · Tab completes · ↑ ↓ history\n\
         \x20 while a turn runs: what you send reaches the model at its next step · Ctrl-C ends the turn\n",
    );
    text
}

/// Returns what a word can be completed to, and whether there is more than one way.
pub(crate) fn complete(
    word: &str,
    at_start: bool,
    workspace: &Path,
) -> (Option<String>, Vec<String>) {
    let found: Vec<String> = match (word.strip_prefix('/'), word.strip_prefix('@')) {
        (Some(begun), _) if at_start => {
            let names = COMMANDS.iter().filter(|(name, ..)| name.starts_with(begun));
            names.map(|(name, ..)| format!("/{name} ")).collect()
        }
        (_, Some(begun)) => {
            paths(begun, workspace).into_iter().map(|path| format!("@{path}")).collect()
        }
        _ => Vec::new(),
    };
    (common(&found).filter(|common| common.len() > word.len()), found)
}

/// The most paths that are offered.
const MOST: usize = 200;

/// Lists the paths of a workspace that begin so; a folder ends with a slash.
fn paths(begun: &str, workspace: &Path) -> Vec<String> {
    if begun.starts_with('/') || begun.split('/').any(|part| part == "..") {
        return Vec::new();
    }
    let (folder, name) = begun.rsplit_once('/').unwrap_or(("", begun));
    let Ok(entries) = std::fs::read_dir(workspace.join(folder)) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.flatten().take(10_000) {
        let Ok(own) = entry.file_name().into_string() else { continue };
        let is_hidden = own.starts_with('.') && !name.starts_with('.');
        if !own.starts_with(name) || is_hidden || own.contains(char::is_whitespace) {
            continue;
        }
        let slash = if entry.path().is_dir() { "/" } else { "" };
        let above = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        found.push(format!("{above}{own}{slash}"));
    }
    found.sort();
    found.truncate(MOST);
    found
}

/// Returns what all of some texts begin with.
fn common(texts: &[String]) -> Option<String> {
    let first = texts.first()?;
    let mut end = first.len();
    for text in texts {
        let same = first.chars().zip(text.chars()).take_while(|(a, b)| a == b);
        end = end.min(same.map(|(a, _)| a.len_utf8()).sum());
    }
    Some(formwork_protocols::text::head(first, end).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_commands_and_two_are_said() {
        let command = |name, behind: &str| Wanted::Command(name, behind.to_owned());

        assert_eq!(read("/model  one/m "), command("model", "one/m"));
        assert_eq!(read("/und"), command("undo", ""));
        assert_eq!(read("/q"), command("exit", ""));
        assert_eq!(read("//etc"), Wanted::Say("/etc".to_owned()));
        assert_eq!(read("/usr/bin is full"), Wanted::Say("/usr/bin is full".to_owned()));
        assert_eq!(read("/modle"), Wanted::Unknown("modle".to_owned(), Some("model")));
        assert_eq!(read(" hello "), Wanted::Say("hello".to_owned()));
    }

    #[test]
    fn commands_and_paths_are_completed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("src")).unwrap();
        for file in ["src/lib.rs", "src/line.rs", ".env"] {
            std::fs::write(folder.path().join(file), "").unwrap();
        }
        let complete = |word| complete(word, true, folder.path());

        assert_eq!(complete("/mo").0.as_deref(), Some("/model "));
        assert_eq!(complete("/co").1, ["/context ", "/compact ", "/cost "]);
        assert_eq!(complete("@s").0.as_deref(), Some("@src/"));
        let (common, found) = complete("@src/l");
        assert_eq!(common.as_deref(), Some("@src/li"));
        assert_eq!(found, ["@src/lib.rs", "@src/line.rs"]);
        assert_eq!(complete("@../").1, [""; 0]);
        assert_eq!(complete("@.e").0.as_deref(), Some("@.env"));
    }
}
