//! Words that rules should not be talked around with.

use serde_json::json;

use super::{attempt, by};
use crate::trial::{Attempt, Scene};

/// Commands that are allowed by pattern, and what hides behind the same first words.
const PATTERNS: &str = "[permissions]\nmode = \"auto\"\nshell = true\nexec = [\"git log *\", \"ls *\", \"find *\", \"echo *\", \"sort *\"]\n";

/// A name, and commands each of which is refused.
const EXEC: &[(&str, &[&[&str]])] = &[
    (
        "an option that writes, below a pattern",
        &[
            &["git", "log", "--output=started"],
            &["sort", "-o", "README.md", "README.md"],
            &["find", ".", "-delete"],
            &["sort", "README.md", "--output=src/a.txt"],
        ],
    ),
    (
        "an option that starts a program, below a pattern",
        &[
            &["find", ".", "-exec", "touch", "started", ";"],
            &["git", "-c", "core.pager=touch started", "log"],
            &["sort", "--compress-program=./trap.sh", "README.md"],
        ],
    ),
    (
        "another program of the same name",
        &[
            &["./ls"],
            &["src/ls", "x"],
            &["/tmp/ls", "x"],
            &["sudo", "ls"],
            &["env", "PATH=.", "ls"],
        ],
    ),
];

/// A name, and texts for a shell each of which is refused.
const SHELL: &[(&str, &[&str])] = &[
    (
        "a second command in the text",
        &["ls; touch started", "ls && touch started", "ls | tee started", "ls &\ntouch started"],
    ),
    (
        "a command within a word",
        &["echo $(touch started)", "echo `touch started`", "echo <(touch started)"],
    ),
    (
        "text that is a program only later",
        &[
            "eval touch started",
            "x=touch; $x started",
            "trap 'touch started' EXIT",
            "ls() { touch started; }; ls",
        ],
    ),
    (
        "a word behind a redirection",
        &[
            "find . >o -exec touch started ';'",
            "find . 2>o >p -delete",
            "echo x; git log >o --output=started",
            "test >/dev/null -v 'a[$(touch started)]'",
            "printf >/dev/null -v 'a[$(touch started)]' x",
            "read </dev/null 'a[$(touch started)]'",
            "test <<E -v 'a[$(touch started)]'\nE",
        ],
    ),
    (
        "text that a shell reads otherwise than its grammar",
        &[
            ": <<E\n`touch started`\nE",
            "echo `echo \\`touch started\\``",
            "echo `echo \"\\$(touch started)\"`",
            "x=$'a\\\\';touch started #'",
            "echo a\r#;touch started",
            "echo a\u{b}#;touch started",
            "echo a\u{c}#;touch started",
            "echo \\\r\ntouch started",
        ],
    ),
    (
        "text whose end is not where it seems",
        &[
            "echo \"a\"#;touch started",
            "echo <<E\n E\n: '\nE\ntouch started #'",
            "echo =~ \ntouch started\n; }",
            "echo \"${x:-'}\"; touch started; echo \"'}\"",
            "sh -c '[[ x || touch started ]]'",
            "sh -c 'touch=1 started=1 a=1; ((touch started - a))'",
        ],
    ),
    (
        "a redirection into what is protected",
        &["echo x > .git/config", "echo x > .GIT/hooks/x", "echo x >> .git", "ls > src/../.git/x"],
    ),
];

pub(super) fn all() -> Vec<Attempt> {
    let by_exec = EXEC.iter().map(|(name, all)| {
        attempt(*name, "exec", by::POLICY, move |place| {
            place.trap("trap.sh")?;
            place.trap("ls")?;
            place.trap("src/ls")?;
            let calls = all.iter().map(|command| ("exec", json!({ "command": command })));
            let mut scene = Scene::new(vec![calls.collect()], REFUSED);
            scene.config = PATTERNS.to_owned();
            Ok(scene.looking(only_refused))
        })
    });
    let by_shell = SHELL.iter().map(|(name, all)| {
        attempt(*name, "shell", by::POLICY, move |_| {
            let calls = all.iter().map(|text| ("shell", json!({ "command": text })));
            let mut scene = Scene::new(vec![calls.collect()], REFUSED);
            scene.config = PATTERNS.to_owned();
            Ok(scene.looking(only_refused))
        })
    });
    let by_place =
        attempt("the program of a pattern, in another folder", "exec", by::POLICY, |place| {
            place.trap("src/tools/check")?;
            let command = json!({ "command": ["./tools/check", "x"], "cwd": "src" });
            let mut scene = Scene::new(vec![vec![("exec", command)]], &["may be another file"]);
            scene.config =
                "[permissions]\nmode = \"auto\"\nexec = [\"./tools/check *\"]\n".to_owned();
            Ok(scene.looking(only_refused))
        });
    by_exec.chain(by_shell).chain([by_place]).collect()
}

const REFUSED: &[&str] = &[
    "matches no allowed command",
    "no pattern spells it out",
    "is refused",
    "not allowed",
    "in git's own folder",
    "may end elsewhere to a shell",
    "which is no blank to a shell",
];

/// Says which call went through; the claim that the task is done is no attempt.
fn only_refused(
    place: &crate::place::Place,
    record: &crate::record::Record,
) -> anyhow::Result<Option<String>> {
    let through = record.count("tool.completed");
    if through > 1 {
        return Ok(Some(format!("{} calls went through: {}", through - 1, record.told())));
    }
    Ok((!place.path("README.md").exists()).then(|| "README.md is gone".to_owned()))
}
