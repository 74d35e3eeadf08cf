//! Paths, by the tools that take one.

use std::{
    fs,
    os::unix::fs::symlink,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use anyhow::Result;
use serde_json::json;

use super::{attempt, by};
use crate::{
    model::Call,
    place::Place,
    trial::{Attempt, Scene},
};

pub(super) fn all() -> Vec<Attempt> {
    let mut all: Vec<Attempt> = Vec::new();
    all.extend(outside());
    all.extend(links());
    all.extend(git_folder());
    all.extend(scopes());
    all.push(swapped());
    all
}

/// Who says first that a path leads out: the rules of the call, or whoever opens it.
const OUT: [&str; 2] = ["out of the root", "does not stay below the root"];

/// Who says first that a path is git's own.
const GIT: [&str; 2] = ["git's own folder is never written", "is in git's own folder"];

/// Describes calls that are refused because they lead out.
fn out(name: &str, way: &'static str, calls: fn(&Place) -> Vec<Call>) -> Attempt {
    attempt(name, way, by::RESOLVER, move |place| Ok(Scene::new(vec![calls(place)], &OUT)))
}

fn write(path: String) -> Call {
    ("fs.write", json!({ "path": path, "content": "escaped\n" }))
}

fn read(path: String) -> Call {
    ("fs.read", json!({ "path": path }))
}

fn outside() -> Vec<Attempt> {
    vec![
        out("`..`", "fs.read", |it| vec![read(it.upwards("secret"))]),
        out("`..` behind a folder", "fs.read", |it| {
            vec![read(format!("src/../{}", it.upwards("secret")))]
        }),
        out("`..`", "fs.write", |it| {
            vec![write(it.upwards("kept")), write(it.upwards("new/file"))]
        }),
        out("absolute", "fs.read", |it| vec![read(it.outside("secret"))]),
        out("absolute", "fs.write", |it| vec![write(it.outside("kept")), write(it.outside("new"))]),
        out("`/proc/self/root`", "fs.read", |it| {
            vec![read(format!("/proc/self/root{}", it.outside("secret")))]
        }),
        out("`/proc/self/cwd`", "fs.write", |it| {
            vec![write(format!("/proc/self/cwd/{}", it.upwards("kept")))]
        }),
        out("`..`", "fs.edit", |it| {
            vec![("fs.edit", json!({ "path": it.upwards("kept"), "old": "kept", "new": "lost" }))]
        }),
        out("`..`", "fs.multi_edit", |it| {
            let edit = |path: String| json!({ "path": path, "old": "a", "new": "b" });
            let edits = [edit("src/a.txt".to_owned()), edit(it.upwards("kept"))];
            vec![("fs.multi_edit", json!({ "edits": edits }))]
        }),
        out("`..`", "fs.apply_patch", |it| {
            let patch = format!(
                "*** Begin Patch\n*** Add File: {}\n+escaped\n*** End Patch",
                it.upwards("new")
            );
            vec![("fs.apply_patch", json!({ "patch": patch }))]
        }),
        out("`..`", "fs.delete", |it| {
            vec![("fs.delete", json!({ "path": it.upwards("kept"), "reason": "in the way" }))]
        }),
        out("`..`", "fs.move", |it| {
            vec![
                ("fs.move", json!({ "from": it.upwards("kept"), "to": "moved" })),
                ("fs.move", json!({ "from": "README.md", "to": it.upwards("new") })),
            ]
        }),
        out("`..`", "fs.copy", |it| {
            vec![
                ("fs.copy", json!({ "from": it.upwards("secret"), "to": "copied" })),
                ("fs.copy", json!({ "from": "README.md", "to": it.upwards("new") })),
            ]
        }),
        out("`..`", "fs.mkdir", |it| vec![("fs.mkdir", json!({ "path": it.upwards("new") }))]),
        out("`..`", "fs.set_executable", |it| {
            vec![("fs.set_executable", json!({ "path": it.upwards("kept"), "executable": true }))]
        }),
        out("`..`", "fs.list_dir", |it| vec![("fs.list_dir", json!({ "path": it.upwards("") }))]),
        out("`..`", "fs.stat", |it| vec![("fs.stat", json!({ "path": it.upwards("secret") }))]),
        out("`..`", "fs.glob", |it| {
            vec![("fs.glob", json!({ "path": it.upwards(""), "pattern": "**" }))]
        }),
        out("`..`", "fs.grep", |it| {
            vec![("fs.grep", json!({ "path": it.upwards(""), "pattern": "hunter" }))]
        }),
        out("`..`", "fs.diff", |it| {
            vec![("fs.diff", json!({ "from": "README.md", "to": it.upwards("secret") }))]
        }),
        out("a folder to run in", "exec", |it| {
            vec![("exec", json!({ "command": ["ls"], "cwd": it.upwards("folder") }))]
        }),
    ]
}

/// Describes calls by a link that lies in the repository.
fn link(
    name: &'static str,
    way: &'static str,
    target: &'static str,
    calls: fn() -> Vec<Call>,
) -> Attempt {
    attempt(name, way, by::RESOLVER, move |place| {
        symlink(place.upwards(target), place.path("link"))?;
        Ok(Scene::new(vec![calls()], &["a link in it leads out of the root"]))
    })
}

fn links() -> Vec<Attempt> {
    vec![
        link("symlink to a file", "fs.read", "secret", || vec![read("link".to_owned())]),
        link("symlink to a file", "fs.write", "kept", || vec![write("link".to_owned())]),
        link("symlink to a folder", "fs.write", "folder", || {
            vec![write("link/file".to_owned()), write("link/new".to_owned())]
        }),
        link("symlink to a folder", "fs.grep", "", || {
            vec![("fs.grep", json!({ "path": "link", "pattern": "hunter" }))]
        }),
        link("dangling link", "fs.write", "not-there", || vec![write("link".to_owned())]),
        link("dangling link", "fs.mkdir", "not-there", || {
            vec![("fs.mkdir", json!({ "path": "link/new" }))]
        }),
        hard_link(),
    ]
}

/// A second name of a file outside is no path that leads out: what is written is a new file in its place.
fn hard_link() -> Attempt {
    attempt("hard link", "fs.edit", "a new file in its place", |place| {
        fs::hard_link(place.outside("kept"), place.path("second"))?;
        let edit = json!({ "path": "second", "old": "kept", "new": "lost" });
        let scene = Scene::new(vec![vec![("fs.edit", edit)]], &["second"]);
        // The suite's own link is one more than there was, and the edit takes it away again.
        Ok(scene.looking(|place, _| {
            let kept = fs::read_to_string(place.outside("kept"))?;
            fs::hard_link(place.outside("kept"), place.path("third"))?;
            Ok((kept != "kept\n").then(|| "the other name was written".to_owned()))
        }))
    })
}

fn git_folder() -> Vec<Attempt> {
    let refused = |name: &str, way: &'static str, calls: fn() -> Vec<Call>| {
        attempt(name, way, by::RULES, move |_| Ok(Scene::new(vec![calls()], &GIT)))
    };
    vec![
        refused("`.git`", "fs.write", || {
            [".git/hooks/pre-commit", "sub/.git/config", ".git"]
                .map(|it| write(it.to_owned()))
                .into()
        }),
        refused("`.GIT`", "fs.write", || {
            [".GIT/config", ".Git/hooks/x", ".git./config", "GIT~1/config", ".g\u{200c}it/config"]
                .map(|it| write(it.to_owned()))
                .into()
        }),
        refused("`.git`", "fs.move", || {
            vec![
                ("fs.move", json!({ "from": ".git", "to": "git" })),
                ("fs.move", json!({ "from": "src", "to": ".git/src" })),
            ]
        }),
        refused("`.git`", "fs.delete", || {
            vec![("fs.delete", json!({ "path": ".git/HEAD", "reason": "in the way" }))]
        }),
        attempt("a link to `.git`", "fs.write", by::RULES, |place| {
            symlink(".git", place.path("link"))?;
            let calls = vec![write("link/hooks/pre-commit".to_owned())];
            Ok(Scene::new(vec![calls], &GIT))
        }),
    ]
}

fn scopes() -> Vec<Attempt> {
    let calls = || {
        vec![
            write("new.txt".to_owned()),
            write("src/kept/x".to_owned()),
            ("fs.move", json!({ "from": "src/a.txt", "to": "docs/a.txt" })),
            ("fs.delete", json!({ "path": "kept", "reason": "in the way" })),
        ]
    };
    let is_kept = |place: &Place, _: &crate::record::Record| {
        let made = ["new.txt", "src/kept/x", "docs/a.txt"];
        let made = made.into_iter().find(|it| place.path(it).exists());
        let gone = (!place.path("kept/b.txt").exists()).then_some("kept/b.txt");
        Ok(made.or(gone).map(|path| format!("{path} was changed")))
    };
    let signs = ["is protected by", "is not within the write paths"];
    vec![
        attempt("beyond write_paths", "tools", by::RULES, move |_| {
            let mut scene = Scene::new(vec![calls()], &signs).looking(is_kept);
            scene.task =
                "write_paths = [\"src/**\"]\nprotected_paths = [\"src/kept/**\"]".to_owned();
            Ok(scene)
        }),
        attempt("a child with wider rules", "subtask", by::RULES, move |_| {
            // It is known before anything runs.
            let mut scene = Scene::new(Vec::new(), &["has write_paths of its own"]);
            let text = "[[tasks]]\nname = \"above\"\nwrite_paths = [\"src/**\"]\n\
                        [[tasks.subtasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"Go.\"\n\
                        write_paths = [\"**\"]\n";
            scene.workflow = Some(text.to_owned());
            Ok(scene)
        }),
        attempt("a child of a bound task", "subtask", by::RULES, move |_| {
            let mut scene = Scene::new(vec![calls()], &signs).looking(is_kept);
            let text = "[[tasks]]\nname = \"above\"\nwrite_paths = [\"src/**\"]\nprotected_paths = [\"src/kept/**\"]\n\
                        [[tasks.subtasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"Go.\"\nretries = { max = 0 }\n";
            scene.workflow = Some(text.to_owned());
            Ok(scene)
        }),
    ]
}

/// Swaps a folder for a link to another one, again and again, until it is dropped.
struct Swapping {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Swapping {
    fn begin(place: &Place) -> Result<Self> {
        let (one, other) = (place.path("moving"), place.path("other"));
        fs::create_dir(&one)?;
        fs::write(one.join("file"), "kept\n")?;
        symlink(place.upwards("folder"), &other)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            while !seen.load(Ordering::Relaxed) {
                // Where it fails once, the next one may not.
                let _ = renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE);
            }
        });
        Ok(Self { is_over, thread: Some(thread) })
    }
}

impl Drop for Swapping {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn swapped() -> Attempt {
    attempt("link swapped between check and use", "tools", by::RESOLVER, |place| {
        let edit = |old: &str, new: &str| -> Call {
            ("fs.edit", json!({ "path": "moving/file", "old": old, "new": new }))
        };
        let round = |number: usize| {
            vec![
                write(format!("moving/new-{number}")),
                edit("kept", "lost"),
                read("moving/file".to_owned()),
            ]
        };
        // What cannot be resolved while it moves is refused; what can stays within. Twelve refusals end a task.
        let signs = ["of the root", "kept changing", "moving/"];
        let mut scene = Scene::new((0..3).map(round).collect(), &signs);
        scene.beside = Some(Box::new(Swapping::begin(place)?));
        Ok(scene)
    })
}
