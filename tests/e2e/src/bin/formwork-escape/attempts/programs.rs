//! The same by every way in which a program is started.

use anyhow::Result;
use serde_json::json;

use super::{attempt, by, escapee, owned};
use crate::{
    place::{ESCAPEE, Place},
    trial::{Attempt, Scene},
};

/// A way in which a program is started.
#[derive(Clone, Copy)]
enum Way {
    Exec,
    Shell,
    Task,
    Before,
    Check,
    Fix,
    OnSuccess,
    Gate,
}

const WAYS: [Way; 8] = [
    Way::Exec,
    Way::Shell,
    Way::Task,
    Way::Before,
    Way::Check,
    Way::Fix,
    Way::OnSuccess,
    Way::Gate,
];

/// What is tried by all of them: a name, who refuses, and the words of the hostile program.
type Common = (&'static str, &'static str, fn(&Place) -> Result<Vec<String>>);

const COMMON: [Common; 6] = [
    ("reading outside", by::KERNEL, |it| Ok(owned(&["read", &it.outside("secret")]))),
    ("writing outside", by::KERNEL, |it| Ok(owned(&["write", &it.outside("kept")]))),
    ("writing `.git`", by::KERNEL, |_| Ok(owned(&["write", ".git/config"]))),
    ("the mode of a file outside", by::KERNEL, |it| Ok(owned(&["mode", &it.outside("kept")]))),
    ("a connection by TCP", by::FILTER, |it| Ok(owned(&["tcp", &it.tcp()?]))),
    ("the environment of others", by::KERNEL, |it| {
        Ok(owned(&["environment-of", &it.victim().to_string()]))
    }),
];

pub(super) fn all() -> Vec<Attempt> {
    let by_way = |way: Way| {
        COMMON.into_iter().map(move |(name, by, words)| {
            attempt(name, way.name(), by, move |place| Ok(way.scene(&words(place)?)))
        })
    };
    WAYS.into_iter().flat_map(by_way).chain(beyond()).collect()
}

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Shell => "shell",
            Self::Task => "a task's command",
            Self::Before => "a check before",
            Self::Check => "a check after",
            Self::Fix => "a check's fix",
            Self::OnSuccess => "on_success",
            Self::Gate => "a gate",
        }
    }

    /// Prepares a run that starts the hostile program with `words` this way.
    fn scene(self, words: &[String]) -> Scene {
        let command: Vec<String> =
            std::iter::once(format!("./{ESCAPEE}")).chain(words.iter().cloned()).collect();
        let array = json!(command).to_string();
        let mut scene = Scene::new(Vec::new(), &["refused: "]);
        let bare = "[[tasks]]\nname = \"left\"\nretries = { max = 0 }\n";
        let checked = |rest: &str| format!("{bare}command = [\"true\"]\n{rest}");
        scene.workflow = match self {
            Self::Exec | Self::Shell | Self::Gate => None,
            Self::Task => Some(format!("{bare}command = {array}\n")),
            Self::Before => Some(checked(&format!("prechecks = [{{ command = {array} }}]\n"))),
            Self::Check => Some(checked(&format!("postchecks = [{{ command = {array} }}]\n"))),
            Self::Fix => Some(checked(&format!(
                "[[tasks.postchecks]]\nname = \"no\"\ncommand = [\"false\"]\nfix = {{ command = {array} }}\n"
            ))),
            Self::OnSuccess => Some(checked(&format!(
                "on_success = [{{ name = \"after\", command = {array} }}]\n"
            ))),
        };
        match self {
            Self::Exec => scene.answers = vec![vec![escapee(words)]],
            Self::Shell => {
                scene.config += "shell = true\n";
                let text = command.join(" ");
                scene.answers = vec![vec![("shell", json!({ "command": text }))]];
            }
            Self::Gate => {
                // What a gate says on its standard error is why it denies, and stands in the record.
                let script = format!("{} >&2; exit 2", command.join(" "));
                scene.config += &format!(
                    "[[hooks]]\nevent = \"tool.before\"\ntools = [\"fs.read\"]\ncommand = [\"sh\", \"-c\", {script:?}]\n"
                );
                scene.answers = vec![vec![("fs.read", json!({ "path": "README.md" }))]];
            }
            _ => {}
        }
        scene
    }
}

/// What a program can do to files beyond its own, once more by one way.
fn beyond() -> Vec<Attempt> {
    type Words = fn(&Place) -> Vec<String>;
    const TRIED: [(&str, Words); 18] = [
        ("`..`", |it| owned(&["read", &it.upwards("secret")])),
        ("`/proc/self/root`", |it| {
            owned(&["read", &format!("/proc/self/root{}", it.outside("secret"))])
        }),
        ("`/proc/self/cwd`", |it| {
            owned(&["write", &format!("/proc/self/cwd/{}", it.upwards("kept"))])
        }),
        ("listing outside", |it| owned(&["list", &it.outside("")])),
        ("a new file outside", |it| owned(&["write", &it.outside("new")])),
        ("removing outside", |it| owned(&["remove", &it.outside("folder")])),
        ("running outside", |it| owned(&["run", &it.outside("program")])),
        ("hard link to a file outside", |it| owned(&["link", &it.outside("kept"), "second"])),
        ("moving in from outside", |it| owned(&["rename", &it.outside("kept"), "moved"])),
        ("moving `.git` away", |_| owned(&["rename", ".git", "git"])),
        ("removing `.git`", |_| owned(&["remove", ".git"])),
        ("memory that programs share", |it| owned(&["read", &it.shared()])),
        ("the mode of git's own folder", |_| owned(&["mode", ".git"])),
        ("the times of a file outside", |it| owned(&["times", &it.outside("kept")])),
        ("the mode of a file of the system", |_| owned(&["mode", "/etc/hostname"])),
        ("the temporary files of others, read", |it| owned(&["list", &it.temporary("")])),
        ("the temporary files of others, written", |it| owned(&["write", &it.temporary("new")])),
        ("a device of its own", |_| owned(&["device", "disk"])),
    ];
    let described = |(name, words): (&'static str, Words)| {
        super::exec(name, by::KERNEL, move |place| Ok(words(place)))
    };
    let mut all: Vec<Attempt> = TRIED.into_iter().map(described).collect();
    // Its program may make one, and the work is refused.
    all.extend(["src/.git", "bare", "shared", "named"].map(|path| {
        attempt(
            format!("a repository that starts a program, `{path}`"),
            "exec",
            by::UNASKED,
            move |_| {
                let words = owned(&["repository", path]);
                Ok(Scene::new(vec![vec![escapee(&words)]], &["git would run it unasked"]))
            },
        )
    }));
    // What it writes there is its own and goes with it.
    all.push(attempt("leaving memory to other programs", "exec", by::KERNEL, |place| {
        let words = owned(&["leave", &format!("{}-new", place.shared())]);
        Ok(Scene::new(vec![vec![escapee(&words)]], &["refused: ", "left: "]))
    }));
    all
}
