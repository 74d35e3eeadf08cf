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

/// Ways to set a variable `N` to a value `V`, to have it read again, and to reckon with it.
const WAYS: [&str; 34] = [
    "N=V",
    "N=V",
    "N+=V",
    "N=1",
    "N=1",
    "N=(1)",
    "N=(V)",
    "N[0]=V",
    "N=V ls",
    "N=V :",
    "declare N=V",
    "declare -a N=V",
    "declare -A N=V",
    "declare -a N",
    "export N=V",
    "readonly N=V",
    "f() { local N=V; }; f",
    "command declare N=V",
    "printf -v N %s V",
    "read N <<< V",
    "read <<< V",
    "read -a N <<< V",
    "for N in V; do :; done",
    "getopts a: N -a V",
    "getopts a: y -a V",
    ": ${N:=V}",
    ": V",
    "cd . V",
    "echo $((N))",
    "((N))",
    "((N = N + 1))",
    "echo ${N} ${y[N]} ${y:N}",
    "[[ N -eq 1 ]]",
    "echo $\"V\"",
];

const NAMES: [&str; 12] = [
    "x", "x", "x", "y", "RANDOM", "SECONDS", "OPTIND", "REPLY", "OPTARG", "LINENO", "DIRSTACK", "_",
];

const VALUES: [&str; 7] =
    ["'a[$(hid)]'", "'a[$(hid)]'", "'($(hid))'", "'$(hid)'", "1", "\"$x\"", "x"];

proptest::proptest! {
    /// Whatever variables are set to, and however: nothing of it is run.
    #[test]
    fn what_variables_hold_is_not_run(
        pieces in proptest::collection::vec((0..WAYS.len(), 0..NAMES.len(), 0..VALUES.len()), 1..6),
    ) {
        let pieces = pieces.into_iter().map(|(way, name, value)| {
            WAYS[way].replace('V', VALUES[value]).replace('N', NAMES[name])
        });
        let hidden = pieces.collect::<Vec<_>>().join("; ");
        if hidden.contains("hid") && text(&["ls *", "echo *"], &hidden).is_ok() {
            proptest::prop_assert!(!runs_hidden(&hidden), "{:?}", hidden);
        }
    }
}
