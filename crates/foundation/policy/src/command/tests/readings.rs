//! What the judgement accepts is given to a real bash, which must run nothing that was not allowed.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Command, sync::LazyLock};

use super::*;

/// A folder of programs: two that are allowed, and one that is not, which leaves a mark where it runs.
static PROGRAMS: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    for (name, body) in [("ls", ":"), ("hid", "> \"$MARK\"")] {
        let path = folder.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
});

/// Runs a text in an empty folder, and says whether what is not allowed was run by it.
fn runs_hidden(text: &str) -> bool {
    let place = tempfile::tempdir().unwrap();
    let mark = place.path().join("mark");
    let work = place.path().join("work");
    fs::create_dir(&work).unwrap();
    let status = Command::new("timeout")
        .args(["5", "bash", "-c", text])
        .current_dir(&work)
        .env_clear()
        .env("PATH", format!("{}:/usr/bin:/bin", PROGRAMS.path().display()))
        .env("MARK", &mark)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status();
    status.is_ok() && mark.exists()
}

/// Pieces of shell text by which a program can be hidden.
const PIECES: [&str; 59] = [
    "hid",
    "hid",
    "hid",
    ";hid",
    "\nhid\n",
    "; hid #",
    "echo ",
    "ls ",
    ": ",
    "x=",
    "x",
    " ",
    "\n",
    ";",
    "&",
    "|",
    "&&",
    "||",
    "#",
    " # ",
    "'",
    "\"",
    "`",
    "\\",
    "$",
    "$(",
    ")",
    "(",
    "${x",
    "${x:-",
    "}",
    "{ ",
    "; }",
    "$'",
    "$\"",
    "[[ ",
    " ]]",
    "((",
    "))",
    "$((",
    "<<E\n",
    "<<'E'\n",
    "<<-E\n",
    "\nE\n",
    "E",
    "\t",
    "<<< ",
    ">o ",
    "2>&1 ",
    "<",
    ">",
    "case x in ",
    ";; esac",
    "if ls; then ",
    "; fi",
    "! ",
    "=~ ",
    "a",
    "$(<o ",
];

proptest::proptest! {
    /// A text that is let through runs nothing but what is allowed, whatever it is made of.
    #[test]
    fn what_is_let_through_runs_nothing_hidden(pieces in proptest::collection::vec(0..PIECES.len(), 1..14)) {
        let hidden: String = pieces.into_iter().map(|piece| PIECES[piece]).collect();
        if hidden.contains("hid") && text(&["ls *", "echo *"], &hidden).is_ok() {
            proptest::prop_assert!(!runs_hidden(&hidden), "{:?}", hidden);
        }
    }
}
