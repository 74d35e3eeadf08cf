use super::*;
use std::{
    os::unix::fs::{PermissionsExt, symlink},
    process::Command,
};

struct Place {
    _keep: tempfile::TempDir,
    ws: PathBuf,
    dir: PathBuf,
    snapshots: Arc<Snapshots>,
}

impl Place {
    /// Makes a workspace of these files.
    fn new(files: &[(&str, &str)]) -> Self {
        let keep = tempfile::tempdir().unwrap();
        let base = keep.path().canonicalize().unwrap();
        fs::create_dir(base.join("ws")).unwrap();
        let snapshots = Arc::new(Snapshots::open(base.join("kept")).unwrap());
        let place = Self { ws: base.join("ws"), dir: base.join("own"), snapshots, _keep: keep };
        files.iter().for_each(|(path, text)| put(&place.ws.join(path), text));
        place
    }

    /// The same as a repository in which it is all committed.
    fn git(files: &[(&str, &str)]) -> Self {
        let place = Self::new(files);
        git(&place.ws, &["init", "-q"]);
        git(&place.ws, &["add", "-A"]);
        git(&place.ws, &["commit", "-q", "-m", "first"]);
        place
    }

    fn root(&self) -> Root {
        Root::open(&self.ws).unwrap()
    }

    fn isolation(&self) -> Isolation {
        Isolation::open(&self.dir, Arc::clone(&self.snapshots)).unwrap()
    }

    fn make(&self, means: Means) -> Isolated {
        self.isolation().make(&self.root(), "one", means, &|_| true).unwrap()
    }

    /// Everything in the workspace but git's folder: path to content.
    fn files(&self) -> Vec<(String, String)> {
        files(&self.ws)
    }
}

fn put(file: &Path, text: &str) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

fn git(dir: &Path, args: &[&str]) -> String {
    let identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
    let output = Command::new("git").args(identity).args(args).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn files(top: &Path) -> Vec<(String, String)> {
    let (mut found, mut todo) = (Vec::new(), vec![top.to_owned()]);
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(top).unwrap().display().to_string();
            if name == ".git" {
                continue;
            }
            if path.is_symlink() {
                found.push((name, format!("-> {}", fs::read_link(&path).unwrap().display())));
            } else if path.is_dir() {
                todo.push(path);
            } else {
                found.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn what_is_too_large_to_be_kept_is_linked_and_is_no_work() {
    let place = Place::new(&[("a", "a\n"), ("large", "")]);
    let large = fs::OpenOptions::new().write(true).open(place.ws.join("large")).unwrap();
    large.set_len(crate::MAX_KEPT + 1).unwrap();
    let mut own = place.make(Means::Snapshot);
    assert_eq!(fs::read_link(own.path().join("large")).unwrap(), place.ws.join("large"));
    assert!(own.changed().unwrap().is_empty());

    fs::write(own.path().join("a"), "b\n").unwrap();
    let Merged::Done(paths) = merge(&place, &mut own) else { panic!("conflicts") };
    assert_eq!(paths, [RelPath::parse("a").unwrap()]);
    assert_eq!(large.metadata().unwrap().len(), crate::MAX_KEPT + 1);

    // One of its own is too large to be brought over.
    fs::rename(own.path().join("large"), own.path().join("link")).unwrap();
    fs::copy(own.path().join("link"), own.path().join("large")).unwrap();
    let own_large = fs::OpenOptions::new().write(true).open(own.path().join("large")).unwrap();
    own_large.set_len(crate::MAX_KEPT + 2).unwrap();
    let Merged::Conflicts(conflicts) = merge(&place, &mut own) else { panic!("merged") };
    assert_eq!(conflicts.len(), 1);
    assert_eq!(
        (conflicts[0].path.to_string(), conflicts[0].why),
        ("large".to_owned(), Clash::TooLarge)
    );
}

#[test]
fn work_that_goes_on_after_a_merge_was_broken_off_is_merged_as_well() {
    let place = Place::new(&[("a", "1\n"), ("b", "1\n"), ("c", "1\n")]);
    let mut own = place.make(Means::Snapshot);
    for path in ["a", "b"] {
        fs::write(own.path().join(path), "2\n").unwrap();
    }
    // What a merge notes that put one of two files in place.
    let work = own.now().unwrap();
    let made = snapshot::part(work.entries().clone());
    let note = format!("{} {}", place.snapshots.keep_part(&made).unwrap(), work.id());
    fs::write(own.place.join(MERGING), note).unwrap();
    fs::write(place.ws.join("a"), "2\n").unwrap();

    fs::write(own.path().join("a"), "3\n").unwrap();
    fs::write(own.path().join("c"), "2\n").unwrap();
    fs::remove_file(place.ws.join("c")).unwrap();
    assert_eq!(merge(&place, &mut own), Merged::Conflicts(conflicts(&[("c", Clash::Removed)])));
    fs::remove_file(own.path().join("c")).unwrap();
    assert!(matches!(merge(&place, &mut own), Merged::Done(_)));
    let has = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    assert_eq!(place.files(), [has("a", "3\n"), has("b", "2\n")]);
}

#[test]
fn what_a_merge_put_in_place_that_was_broken_off_is_told_by_the_one_that_goes_on() {
    let place = Place::new(&[("a", "1\n"), ("b", "1\n"), ("c", "1\n")]);
    let mut own = place.make(Means::Snapshot);
    for path in ["a", "b"] {
        fs::write(own.path().join(path), "2\n").unwrap();
    }
    let work = own.now().unwrap();
    let made = snapshot::part(work.entries().clone());
    let note = format!("{} {}", place.snapshots.keep_part(&made).unwrap(), work.id());
    fs::write(own.place.join(MERGING), note).unwrap();
    fs::write(place.ws.join("a"), "2\n").unwrap();

    assert_eq!(merge(&place, &mut own), done(&["a", "b"]));
}

fn merge(place: &Place, own: &mut Isolated) -> Merged {
    own.merge(&place.root(), &WriteRules::everything()).unwrap()
}

fn done(paths: &[&str]) -> Merged {
    Merged::Done(paths.iter().map(|path| RelPath::parse(path).unwrap()).collect())
}

fn conflicts(list: &[(&str, Clash)]) -> Vec<Conflict> {
    let conflict =
        |(path, why): &(&str, Clash)| Conflict { path: RelPath::parse(path).unwrap(), why: *why };
    list.iter().map(conflict).collect()
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn work_in_a_copy_is_seen_by_nobody_until_it_is_merged_beside_what_others_did() {
    for means in [Means::Snapshot, Means::Worktree] {
        let place =
            Place::git(&[("a", "1\n2\n3\n4\n"), ("b", "b\n"), ("gone", "x\n"), ("d/e", "e\n")]);
        put(&place.ws.join("a"), "1\n2\n3\n4\n5\n"); // Not committed.
        let mut own = place.make(means);
        let work = own.path();

        put(&work.join("a"), "one\n2\n3\n4\n5\n");
        put(&work.join("new/file"), "new\n");
        fs::remove_file(work.join("gone")).unwrap();
        fs::set_permissions(work.join("b"), PermissionsExt::from_mode(0o755)).unwrap();
        symlink("b", work.join("link")).unwrap();
        let before = place.files();
        put(&place.ws.join("a"), "1\n2\n3\n4\nfive\n");
        put(&place.ws.join("d/theirs"), "t\n");
        let merged = merge(&place, &mut own);

        assert_eq!(before[0].1, "1\n2\n3\n4\n5\n");
        assert_eq!(merged, done(&["a", "b", "gone", "link", "new", "new/file"]));
        let mode = place.ws.join("b").metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o755);
        let wanted = [
            ("a", "one\n2\n3\n4\nfive\n"),
            ("b", "b\n"),
            ("d/e", "e\n"),
            ("d/theirs", "t\n"),
            ("link", "-> b"),
            ("new/file", "new\n"),
        ];
        assert_eq!(place.files(), pairs(&wanted));
        assert_eq!(own.changed().unwrap(), []);
        own.remove().unwrap();
        assert_eq!(fs::read_dir(&place.dir).unwrap().count(), 0);
        assert_eq!(git(&place.ws, &["worktree", "list"]).lines().count(), 1);
    }
}

#[test]
fn with_one_conflict_nothing_is_written_and_the_work_is_still_there() {
    let place = Place::new(&[("a", "1\n"), ("b", "b\n"), ("c", "c\n"), ("d", "d\n"), ("f/g", "g")]);
    let mut own = place.make(Means::Snapshot);
    let work = own.path();

    for (path, ours, theirs) in [("a", "ours\n", "theirs\n"), ("n", "our\n", "their\n")] {
        put(&work.join(path), ours);
        put(&place.ws.join(path), theirs);
    }
    put(&work.join("b"), "changed\n");
    fs::remove_file(place.ws.join("b")).unwrap();
    fs::remove_file(work.join("c")).unwrap();
    put(&place.ws.join("c"), "changed\n");
    put(&work.join("d"), "fine\n");
    fs::remove_dir_all(work.join("f")).unwrap();
    put(&work.join("f"), "a file now");
    put(&place.ws.join("f/h"), "h");
    let before = place.files();
    let merged = merge(&place, &mut own);

    let list = [
        ("a", Clash::Lines),
        ("b", Clash::Removed),
        ("c", Clash::Removed),
        ("f", Clash::Kind),
        ("n", Clash::Added),
    ];
    assert_eq!(merged, Merged::Conflicts(conflicts(&list)));
    assert_eq!(place.files(), before);
    let left = own.remove().unwrap_err();
    assert!(matches!(&left, Error::Unmerged { paths, .. } if paths.len() == 7), "{left}");
    let own = place.isolation().find("one").unwrap().unwrap();
    assert_eq!(fs::read_to_string(own.path().join("d")).unwrap(), "fine\n");
}

#[test]
fn what_the_workspace_changed_meanwhile_comes_into_the_work_and_a_conflict_waits_to_be_resolved() {
    let place = Place::new(&[("a", "1\n2\n"), ("b", "b\n"), ("c", "c\n")]);
    let mut own = place.make(Means::Snapshot);
    let work = own.path();
    put(&work.join("a"), "1\nours\n");
    fs::remove_file(work.join("c")).unwrap();
    put(&place.ws.join("a"), "1\ntheirs\n");
    put(&place.ws.join("b"), "B\n");
    put(&place.ws.join("c"), "C\n");

    let met = own.catch_up(&place.root()).unwrap();
    let marked = fs::read_to_string(work.join("a")).unwrap();
    let unresolved = merge(&place, &mut own);
    put(&work.join("a"), "1\nboth\n");
    let merged = merge(&place, &mut own);

    assert_eq!(met, conflicts(&[("a", Clash::Lines), ("c", Clash::Removed)]));
    assert_eq!(marked, "1\n<<<<<<< this work\nours\n=======\ntheirs\n>>>>>>> the workspace\n");
    assert_eq!(unresolved, Merged::Conflicts(conflicts(&[("a", Clash::Unresolved)])));
    assert_eq!(merged, done(&["a"]));
    assert_eq!(place.files(), pairs(&[("a", "1\nboth\n"), ("b", "B\n"), ("c", "C\n")]));
}

#[test]
fn what_git_ignores_is_linked_where_it_is_wanted_and_never_merged() {
    let place = Place::git(&[(".gitignore", "target/\nnode_modules/\n*.o\n"), ("a", "a\n")]);
    put(&place.ws.join("target/out"), "built");
    put(&place.ws.join("node_modules/m"), "fetched");
    let root = place.root();
    let wanted = |path: &RelPath| path.to_string() != "target";
    let own = place.isolation().make(&root, "one", Means::Worktree, &wanted).unwrap();

    put(&own.path().join("target/out"), "built here");
    put(&own.path().join("x.o"), "o");

    assert_eq!(fs::read_to_string(own.path().join("node_modules/m")).unwrap(), "fetched");
    assert_eq!(own.changed().unwrap(), []);
    own.remove().unwrap();
    assert_eq!(fs::read_to_string(place.ws.join("target/out")).unwrap(), "built");
    assert_eq!(fs::read_to_string(place.ws.join("node_modules/m")).unwrap(), "fetched");
}

#[test]
fn only_what_the_rules_let_be_written_is_merged() {
    let place = Place::new(&[("src/a", "a\n"), ("tests/t", "t\n")]);
    let mut own = place.make(Means::Snapshot);
    put(&own.path().join("src/a"), "A\n");
    put(&own.path().join("tests/t"), "T\n");

    let rules = WriteRules::parse(&["**"], &["tests"]).unwrap();
    let refused = own.merge(&place.root(), &rules);

    assert!(
        matches!(&refused, Err(Error::Refused { path, .. }) if path == "tests/t"),
        "{refused:?}"
    );
    assert_eq!(place.files(), pairs(&[("src/a", "a\n"), ("tests/t", "t\n")]));
}

#[test]
fn a_merge_that_was_broken_off_goes_on_and_work_can_go_on_after_it() {
    let place = Place::new(&[("a", "1\n2\n3\n"), ("b", "b\n"), ("c", "c\n")]);
    let mut own = place.make(Means::Snapshot);
    put(&own.path().join("a"), "one\n2\n3\n");
    put(&own.path().join("b"), "B\n");
    put(&own.path().join("c"), "C\n");
    put(&place.ws.join("a"), "1\n2\nthree\n");

    // What the merge makes is noted, one file is in place, another cannot be put there.
    fs::remove_file(place.ws.join("c")).unwrap();
    fs::create_dir(place.ws.join("c")).unwrap();
    let stopped = merge(&place, &mut own);
    fs::remove_dir(place.ws.join("c")).unwrap();
    put(&place.ws.join("c"), "c\n");
    let now = place.snapshots.take_by(&place.root(), own.base()).unwrap();
    let work = own.now().unwrap();
    let plan = place.snapshots.plan(own.base(), [&now, &work], ["", ""]).unwrap();
    let step = place.snapshots.step(&now, plan.wanted);
    let id = place.snapshots.keep_part(&step.after).unwrap();
    fs::write(own.place.join(MERGING), id.to_string()).unwrap();
    put(&place.ws.join("a"), "one\n2\nthree\n");
    drop(own);
    let mut own = place.isolation().find("one").unwrap().unwrap();
    let merged = merge(&place, &mut own);
    put(&own.path().join("b"), "B again\n");
    put(&place.ws.join("c"), "theirs\n");
    let again = merge(&place, &mut own);

    assert_eq!(stopped, Merged::Conflicts(conflicts(&[("c", Clash::Kind)])));
    assert_eq!(merged, done(&["b", "c"]));
    assert_eq!(again, done(&["b"]));
    let wanted = [("a", "one\n2\nthree\n"), ("b", "B again\n"), ("c", "theirs\n")];
    assert_eq!(place.files(), pairs(&wanted));
}

#[test]
fn what_is_given_up_is_kept_and_can_still_be_merged() {
    let place = Place::git(&[("a", "a\n")]);
    let own = place.make(Means::Worktree);
    put(&own.path().join("a"), "work\n");
    git(&own.path(), &["commit", "-q", "-a", "-m", "of its own"]);
    put(&own.path().join("b"), "b\n");

    let kept = own.give_up().unwrap();

    assert_eq!(kept.paths, ["a", "b"].map(|path| RelPath::parse(path).unwrap()));
    assert_eq!(place.files(), pairs(&[("a", "a\n")]));
    assert_eq!(fs::read_dir(&place.dir).unwrap().count(), 0);
    let reference = kept.reference.unwrap();
    assert_eq!(git(&place.ws, &["show", &format!("{reference}:a")]), "work");
    let load = |id: Hash| place.snapshots.load(&id.to_string()).unwrap();
    let (base, work) = (load(kept.base), load(kept.work));
    let merged =
        place.snapshots.merge(&place.root(), &WriteRules::everything(), [&base, &work]).unwrap();
    assert_eq!(merged, done(&["a", "b"]));
    assert_eq!(place.files(), pairs(&[("a", "work\n"), ("b", "b\n")]));
}

#[test]
fn what_a_process_left_that_died_while_it_made_or_removed_one_is_cleared() {
    let place = Place::git(&[("a", "a\n")]);
    let own = place.make(Means::Worktree);
    fs::remove_file(own.place.join(ORIGIN)).unwrap();
    let mut dead = Command::new("true").spawn().unwrap();
    dead.wait().unwrap();

    let isolation = place.isolation();
    let living = isolation.sweep(&place.root()).unwrap();
    fs::write(own.place.join(OWNER), dead.id().to_string()).unwrap();
    let swept = isolation.sweep(&place.root()).unwrap();

    assert_eq!((living, swept), (vec![], vec!["one".to_owned()]));
    assert!(isolation.find("one").unwrap().is_none() && isolation.list().unwrap().is_empty());
    assert_eq!(git(&place.ws, &["worktree", "list"]).lines().count(), 1);
    place.make(Means::Worktree).remove().unwrap();
}

#[test]
fn no_hook_and_no_filter_of_the_repository_is_run() {
    let place = Place::git(&[("a", "a\n"), (".gitattributes", "* filter=evil\n")]);
    let ran = place.dir.with_file_name("ran");
    let evil = format!("sh -c 'touch {}; cat'", ran.display());
    for key in ["filter.evil.smudge", "filter.evil.clean", "core.fsmonitor"] {
        git(&place.ws, &["config", key, &evil]);
    }
    let hook = place.ws.join(".git/hooks/post-checkout");
    put(&hook, &format!("#!/bin/sh\ntouch {}\n", ran.display()));
    fs::set_permissions(&hook, PermissionsExt::from_mode(0o755)).unwrap();
    let _ = fs::remove_file(&ran);

    let mut own = place.make(Means::Worktree);
    put(&own.path().join("a"), "b\n");
    let merged = merge(&place, &mut own);
    own.remove().unwrap();

    assert_eq!(merged, done(&["a"]));
    assert!(!ran.exists());
}

#[test]
fn a_name_that_leads_elsewhere_is_none_and_one_that_is_taken_is_told() {
    let place = Place::new(&[("a", "a")]);
    let isolation = place.isolation();
    let make = |name: &str| {
        isolation.make(&place.root(), name, Means::Snapshot, &|_| true).map(|own| own.path())
    };

    let first = make("one");

    assert!(first.is_ok());
    assert!(matches!(make("one"), Err(Error::Exists { .. })));
    for name in ["", "..", ".x", "a/b", "a b"] {
        assert!(matches!(make(name), Err(Error::Unknown { .. })), "{name}");
    }
    assert_eq!(isolation.list().unwrap(), ["one"]);
}

#[test]
fn what_ran_in_a_copy_that_was_held_leaves_nothing_and_what_is_linked_stays() {
    let place = Place::git(&[(".gitignore", "deps/\n"), ("a.txt", "a\n")]);
    put(&place.ws.join("deps/lib.txt"), "lib\n");
    let own = place.make(Means::Snapshot);
    put(&own.path().join("a.txt"), "work\n");
    own.hold_as_it_is().unwrap();
    put(&own.path().join("a.txt"), "suite\n");
    put(&own.path().join("report/out.txt"), "suite\n");

    // As by the next process, where the one before was killed.
    let own = place.isolation().find("one").unwrap().unwrap();
    let back = own.set_back().unwrap();
    put(&own.path().join("b.txt"), "work\n");
    let again = own.set_back().unwrap();

    let back: Vec<String> = back.iter().map(ToString::to_string).collect();
    assert_eq!(back, ["a.txt", "report", "report/out.txt"]);
    assert_eq!(again, []);
    assert!(own.path().join("deps/lib.txt").exists());
    let changed: Vec<String> =
        own.changed().unwrap().iter().map(|it| it.path.to_string()).collect();
    assert_eq!(changed, ["a.txt", "b.txt"]);
    assert_eq!(fs::read_to_string(own.path().join("a.txt")).unwrap(), "work\n");
}
