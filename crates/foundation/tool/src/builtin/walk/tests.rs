use std::{fs, os::unix::fs::symlink, panic::AssertUnwindSafe};

use ignore::WalkBuilder;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

/// Something in a tree: where it stands, and what it is.
#[derive(Debug, Clone)]
enum Thing {
    File,
    Says(&'static str, Vec<&'static str>),
    Excludes(Vec<&'static str>),
    Worktree(Vec<&'static str>),
    Link(&'static str),
}

/// Names that sort differently with and without what stands behind them.
fn a_folder() -> impl Strategy<Value = PathBuf> {
    let name = prop::sample::select(vec!["a", "b", "a.c", "target", ".hid", "B"]);
    prop::collection::vec(name, 0..4).prop_map(|names| names.into_iter().collect())
}

fn some_lines() -> impl Strategy<Value = Vec<&'static str>> {
    let line = prop::sample::select(vec![
        "*.rs",
        "!c.rs",
        "/a",
        "a/",
        "**/b",
        "b/*",
        "!b/",
        "target",
        "a/b",
        "*.log",
        "!d.log",
        "*",
        "!*/",
        "[",
        "#",
        "/**/c.rs",
        "!/a/c.rs",
        "\u{feff}a.c",
        "B/c.rs ",
        ".hid",
    ]);
    prop::collection::vec(line, 0..4)
}

fn a_thing() -> impl Strategy<Value = Thing> {
    prop_oneof![
        6 => Just(Thing::File),
        2 => (prop::sample::select(vec![".gitignore", ".ignore"]), some_lines())
            .prop_map(|(name, lines)| Thing::Says(name, lines)),
        1 => some_lines().prop_map(Thing::Excludes),
        1 => some_lines().prop_map(Thing::Worktree),
        1 => prop::sample::select(vec!["..", "a", "c.rs", "nowhere"]).prop_map(Thing::Link),
    ]
}

fn a_tree() -> impl Strategy<Value = Vec<(PathBuf, &'static str, Thing)>> {
    let name = prop::sample::select(vec!["c.rs", "d.log", "a", "b.rs", "a.b"]);
    prop::collection::vec((a_folder(), name, a_thing()), 0..24)
}

/// Makes what can be made: where something else stands by then, nothing. It stands so deep in its folder that no row of links
/// leads out of that, into what all tests share.
fn made(things: &[(PathBuf, &'static str, Thing)]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let top = folder.path().join("one/two/three/four/five/six");
    fs::create_dir_all(&top).unwrap();
    for (below, name, thing) in things {
        let at = top.join(below);
        let _ = fs::create_dir_all(&at);
        match thing {
            Thing::File => drop(fs::write(at.join(name), "")),
            Thing::Says(name, lines) => drop(fs::write(at.join(name), lines.join("\n"))),
            Thing::Excludes(lines) => {
                let _ = fs::create_dir_all(at.join(".git/info"));
                let _ = fs::write(at.join(".git/info/exclude"), lines.join("\r\n"));
            }
            Thing::Worktree(lines) => {
                let git = at.join("b");
                let _ = fs::create_dir_all(git.join("info"));
                let _ = fs::write(git.join("commondir"), ".\n");
                let _ = fs::write(git.join("info/exclude"), lines.join("\n"));
                let _ = fs::write(at.join(".git"), format!("gitdir: {}\n", git.display()));
            }
            Thing::Link(to) => drop(symlink(to, at.join(name))),
        }
    }
    (folder, top)
}

/// What the `ignore` crate finds in one thread.
fn by_one(from: &Path) -> Vec<PathBuf> {
    let mut walker = WalkBuilder::new(from);
    walker.hidden(false).follow_links(false).require_git(false).git_global(false);
    walker.filter_entry(|entry| entry.file_name() != ".git").sort_by_file_name(Ord::cmp);
    let all = walker.build().flatten();
    let files = all.filter(|entry| !entry.file_type().is_some_and(|kind| kind.is_dir()));
    files.map(ignore::DirEntry::into_path).collect()
}

fn walk<'a>(root: &'a Root, from: &'a Path, wanted: usize) -> Walk<'a> {
    let (chosen, is_over) = (&|_: &Path, _| true, &|| false);
    Walk { root, from, chosen, wanted, beyond: Beyond::GivenUp, is_over }
}

fn found(met: &Met<'_>) -> Option<Find<PathBuf>> {
    Some(Find { what: met.path(), counts: 1 })
}

/// How many are found in a file of this name in these tests: in some none, and in some that is told.
fn count(path: &Path) -> Option<usize> {
    let name = path.as_os_str().as_bytes();
    let sum = name.iter().map(|&it| usize::from(it)).sum::<usize>() + name.len();
    (!sum.is_multiple_of(3)).then_some(sum % 4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn many_find_what_one_finds_and_in_its_order(things in a_tree(), below in a_folder()) {
        let (_folder, top) = made(&things);
        let top = top.canonicalize().unwrap();
        let root = Root::open(&top).unwrap();
        for from in [top.clone(), top.join(below)] {
            let Ok(from) = from.canonicalize() else { continue };
            prop_assume!(from.starts_with(&top));

            let all = walk(&root, &from, usize::MAX).look(|| found);

            let wanted = by_one(&from);
            prop_assert_eq!((all.met, all.all), (wanted.len(), wanted));
        }
    }

    #[test]
    fn enough_is_the_first_of_all(things in a_tree(), wanted in 1_usize..12) {
        let (_folder, top) = made(&things);
        let top = top.canonicalize().unwrap();
        let root = Root::open(&top).unwrap();
        let look = |met: &Met<'_>| {
            let path = met.path();
            let counts = count(path.strip_prefix(&top).unwrap())?;
            Some(Find { what: path, counts })
        };
        let (mut first, mut sum, mut counted) = (Vec::new(), 0, 0);
        for path in by_one(&top) {
            counted += 1;
            if let Some(counts) = count(path.strip_prefix(&top).unwrap())
                && sum < wanted
            {
                sum += counts;
                first.push(path);
            }
        }

        let given_up = walk(&root, &top, wanted).look(|| look);
        let whole = Walk { beyond: Beyond::Counted, ..walk(&root, &top, wanted) }.look(|| look);

        prop_assert_eq!(&given_up.all, &first);
        prop_assert_eq!(whole, Found { all: first, met: counted });
    }
}

/// A tree of `folders` with `files` each.
fn wide(folders: usize, files: usize) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..folders {
        let within = folder.path().join(format!("{number:03}"));
        fs::create_dir(&within).unwrap();
        for number in 0..files {
            fs::write(within.join(format!("{number:03}")), "").unwrap();
        }
    }
    folder
}

#[test]
fn what_is_found_comes_in_order_however_many_look() {
    let folder = wide(20, 40);
    let top = folder.path().canonicalize().unwrap();
    let root = Root::open(&top).unwrap();
    let wanted = by_one(&top);

    for _ in 0..50 {
        let all = walk(&root, &top, usize::MAX).look(|| found);

        assert_eq!(all, Found { all: wanted.clone(), met: 800 });
    }
}

#[test]
fn once_there_is_enough_no_more_is_met() {
    let folder = wide(200, 20);
    let top = folder.path().canonicalize().unwrap();
    let root = Root::open(&top).unwrap();

    let all = walk(&root, &top, 3).look(|| found);

    let names = ["000/000", "000/001", "000/002"];
    assert_eq!(all.all, names.map(|name| top.join(name)));
    assert!(all.met < 2_000, "{}", all.met);
}

#[test]
fn nothing_is_looked_at_once_it_is_over() {
    let folder = wide(2, 2);
    let top = folder.path().canonicalize().unwrap();
    let root = Root::open(&top).unwrap();

    let all = Walk { is_over: &|| true, ..walk(&root, &top, 1) }.look(|| found);

    assert_eq!(all.all, [] as [PathBuf; 0]);
}

#[test]
fn who_panics_is_not_waited_for() {
    let folder = wide(20, 20);
    let top = folder.path().canonicalize().unwrap();
    let root = Root::open(&top).unwrap();
    let look = |met: &Met<'_>| match met.name.as_bytes() {
        b"007" => panic!("of this file"),
        _ => found(met),
    };

    let panicked = std::panic::catch_unwind(AssertUnwindSafe(|| {
        walk(&root, &top, usize::MAX).look(|| look);
    }));

    assert!(panicked.is_err());
}

#[test]
fn one_file_is_met_whatever_is_ignored() {
    let folder = wide(1, 2);
    let top = folder.path().canonicalize().unwrap();
    fs::write(top.join(".gitignore"), "*\n").unwrap();
    let root = Root::open(&top).unwrap();
    let from = top.join("000/001");

    let all = walk(&root, &from, usize::MAX).look(|| found);

    assert_eq!((all.met, all.all), (1, vec![from]));
}
