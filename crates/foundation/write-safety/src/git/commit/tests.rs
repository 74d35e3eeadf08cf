use super::*;
use std::fs;

/// A repository, and the folder of contents.
struct Place {
    _keep: tempfile::TempDir,
    base: std::path::PathBuf,
    kept: Snapshots,
}

impl Place {
    fn new() -> Self {
        let keep = tempfile::tempdir().unwrap();
        let base = keep.path().canonicalize().unwrap();
        fs::create_dir(base.join("ws")).unwrap();
        let kept = Snapshots::open(base.join("kept")).unwrap();
        let place = Self { _keep: keep, base, kept };
        place.git(&["init", "-q", "-b", "main"]);
        place
    }

    /// Writes files and commits them as the user does.
    fn with(self, files: &[(&str, &str)]) -> Self {
        for (file, text) in files {
            self.put(file, text);
        }
        self.git(&["add", "."]);
        self.git(&["commit", "-qm", "theirs"]);
        self
    }

    fn put(&self, file: &str, text: &str) {
        let file = self.base.join("ws").join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    fn git(&self, args: &[&str]) -> String {
        let output = Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@localhost"])
            .args(args)
            .current_dir(self.base.join("ws"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Does a piece of work: changes a file from one text to another, in the worktree too.
    fn work(&self, file: &str, before: Option<&str>, after: Option<&str>) -> Delta {
        match after {
            Some(text) => self.put(file, text),
            None => fs::remove_file(self.base.join("ws").join(file)).unwrap(),
        }
        let state = |text: &str| {
            let hash = Some(self.kept.keep(text.as_bytes()).unwrap());
            State { hash, mode: 0o100_644 }
        };
        let path = RelPath::parse(file).unwrap();
        Delta { path, before: before.map(state), after: after.map(state) }
    }

    fn commit(&self, deltas: &[Delta]) -> Result<Committed, Error> {
        self.commit_if(deltas, &|_, _, _| Ok(()))
    }

    fn commit_if(&self, deltas: &[Delta], scan: Scan<'_>) -> Result<Committed, Error> {
        let git = ReadOnlyGit::open(self.base.join("ws")).unwrap();
        let message = Message {
            text: "parser: read it\n\nBecause.".to_owned(),
            trailers: vec![("Formwork-Run".to_owned(), "r".to_owned())],
            identity: ("Ada".to_owned(), "ada@example.org".to_owned()),
            at: 1_700_000_000,
        };
        git.commit(&self.kept, deltas, &message, scan).map(|(done, _)| done)
    }
}

fn names(paths: &[RelPath]) -> Vec<String> {
    paths.iter().map(ToString::to_string).collect()
}

#[test]
fn a_commit_has_the_works_own_changes_and_leaves_the_rest_as_it_was() {
    let place =
        Place::new().with(&[("a", "1\n"), ("gone", "1\n"), ("mine", "1\n"), ("staged", "1\n")]);
    place.put("mine", "1\nmore\n");
    place.put("staged", "2\n");
    place.git(&["add", "staged"]);
    place.put("untracked", "x\n");
    let deltas = [
        place.work("a", Some("1\n"), Some("2\n")),
        place.work("d/new", None, Some("new\n")),
        place.work("gone", Some("1\n"), None),
    ];

    let done = place.commit(&deltas).unwrap();

    assert_eq!(names(&done.paths), ["a", "d/new", "gone"]);
    assert_eq!((done.left.as_slice(), done.index_left), ([].as_slice(), None));
    let shown = place.git(&["show", "--format=%an <%ae> %at%n%B", "--name-status", "HEAD"]);
    let expected = "Ada <ada@example.org> 1700000000\nparser: read it\n\nBecause.\n\nFormwork-Run: r\n\n\n\
                    M\ta\nA\td/new\nD\tgone\n";
    assert_eq!(shown, expected);
    assert_eq!(place.git(&["status", "--porcelain"]), " M mine\nM  staged\n?? untracked\n");
    assert_eq!(place.git(&["rev-parse", "HEAD"]).trim(), done.id);
    assert!(
        !fs::read_dir(place.base.join("ws/.git"))
            .unwrap()
            .any(|entry| { entry.unwrap().file_name().to_string_lossy().starts_with("formwork") })
    );
}

#[test]
fn what_git_was_told_not_to_look_at_stays_so_once_it_is_committed() {
    let text = "one\ntwo\nthree\nfour\nfive\nsix\n";
    let names = ["assumed", "both", "gone", "plain", "skipped"];
    let place = Place::new().with(&names.map(|name| (name, text)));
    for name in ["assumed", "both", "gone"] {
        place.git(&["update-index", "--assume-unchanged", name]);
    }
    for name in ["skipped", "both"] {
        place.git(&["update-index", "--skip-worktree", name]);
    }
    let private = format!("{text}private\n");
    let worked = private.replace("one", "1");
    let mut deltas: Vec<Delta> = ["assumed", "both", "plain", "skipped"]
        .map(|name| place.work(name, Some(&private), Some(&worked)))
        .into();
    deltas.push(place.work("gone", Some(text), None));

    let done = place.commit(&deltas).unwrap();

    assert_eq!((done.paths.len(), done.left.as_slice(), done.index_left), (5, [].as_slice(), None));
    assert_eq!(place.git(&["ls-files", "-v"]), "h assumed\ns both\nH plain\nS skipped\n");
    assert_eq!(place.git(&["status", "--porcelain"]), " M plain\n");
    assert_eq!(place.git(&["show", "HEAD:skipped"]), text.replace("one", "1"));
    // Nor does a second one find anything changed by the first.
    let again =
        place.commit(&[place.work("both", Some(&worked), Some(&worked.replace("three", "3")))]);
    assert_eq!(again.unwrap().index_left, None);
    assert_eq!(place.git(&["ls-files", "-v", "both"]), "s both\n");
}

#[test]
fn a_file_with_uncommitted_changes_is_committed_without_them_or_left_out() {
    let text = "one\ntwo\nthree\nfour\nfive\nsix\n";
    let place = Place::new().with(&[("apart", text), ("same", "one\n"), ("part", text)]);
    let mine = text.replace("one", "one, mine");
    place.put("part", &mine);
    place.git(&["add", "part"]);
    let deltas = [
        place.work("apart", Some(&mine), Some(&mine.replace("six", "6"))),
        place.work("same", Some("one, mine\n"), Some("one, theirs\n")),
        place.work("part", Some(&mine), Some(&mine.replace("six", "6"))),
        place.work("fresh", Some("not committed\n"), Some("changed\n")),
    ];

    let done = place.commit(&deltas).unwrap();

    assert_eq!(names(&done.paths), ["apart", "part"]);
    let left: Vec<_> = done.left.iter().map(|(path, _)| path.to_string()).collect();
    assert_eq!(left, ["same", "fresh"]);
    assert_eq!(place.git(&["show", "HEAD:apart"]), text.replace("six", "6"));
    assert_eq!(place.git(&["show", "HEAD:part"]), text.replace("six", "6"));
    // What the user had staged of it is still staged, on top of what was committed.
    assert_eq!(place.git(&["show", ":part"]), mine.replace("six", "6"));
    assert_eq!(done.index_left, None);
}

#[test]
fn nothing_of_the_repository_runs_and_what_a_filter_would_change_is_left_out() {
    let place = Place::new().with(&[("a", "1\n"), (".gitattributes", "*.big filter=big\n")]);
    let mark = place.base.join("mark");
    let script = format!("#!/bin/sh\ntouch {}\ncat\n", mark.display());
    for hook in
        ["pre-commit", "commit-msg", "post-commit", "reference-transaction", "post-index-change"]
    {
        let hook = place.base.join("ws/.git/hooks").join(hook);
        fs::write(&hook, &script).unwrap();
        fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let program = place.base.join("ws/.git/hooks/pre-commit").display().to_string();
    place.git(&["config", "filter.big.clean", &program]);
    place.git(&["config", "commit.gpgSign", "true"]);
    place.git(&["config", "gpg.program", &program]);
    let _ = fs::remove_file(&mark);
    let deltas =
        [place.work("a", Some("1\n"), Some("2\n")), place.work("x.big", None, Some("big\n"))];

    let done = place.commit(&deltas).unwrap();

    assert!(!mark.exists());
    assert_eq!(names(&done.paths), ["a"]);
    assert!(done.left[0].1.contains("the filter big, which is not run"), "{:?}", done.left);
}

#[test]
fn what_is_ignored_is_not_committed_and_nothing_is_no_commit() {
    let place = Place::new().with(&[(".gitignore", "*.log\n")]);
    let deltas = [place.work("x.log", None, Some("x\n"))];

    let nothing = place.commit(&deltas);

    let Err(Error::NothingToCommit { left }) = nothing else { panic!("{nothing:?}") };
    assert_eq!(left, "; x.log: it is ignored");
}

#[test]
fn the_first_commit_and_one_on_no_branch_are_made_as_well() {
    let place = Place::new();

    let first = place.commit(&[place.work("a", None, Some("1\n"))]).unwrap();
    place.git(&["checkout", "-q", "--detach"]);
    let second = place.commit(&[place.work("a", Some("1\n"), Some("2\n"))]).unwrap();

    assert_eq!(place.git(&["rev-parse", "HEAD"]).trim(), second.id);
    assert_eq!(place.git(&["rev-parse", "main"]).trim(), first.id);
    assert_eq!(place.git(&["status", "--porcelain"]), "");
}

#[test]
fn a_content_that_the_scan_objects_to_stops_all() {
    let place = Place::new().with(&[("a", "1\n"), ("b", "1\n")]);
    let before = place.git(&["rev-parse", "HEAD"]);
    let deltas = [
        place.work("a", Some("1\n"), Some("2\n")),
        place.work("b", Some("1\n"), Some("a secret\n")),
    ];

    let stopped = place.commit_if(&deltas, &|_, _, bytes| match bytes.starts_with(b"a secret") {
        true => Err("it holds a secret".to_owned()),
        false => Ok(()),
    });

    assert!(matches!(&stopped, Err(Error::Unclean { path, .. }) if path == "b"), "{stopped:?}");
    assert_eq!(place.git(&["rev-parse", "HEAD"]), before);
}

#[test]
fn another_git_that_holds_a_lock_or_a_merge_is_not_broken_into() {
    let place = Place::new().with(&[("a", "1\n")]);
    let before = place.git(&["rev-parse", "HEAD"]);
    let delta = place.work("a", Some("1\n"), Some("2\n"));
    let git = place.base.join("ws/.git");

    fs::write(git.join("refs/heads/main.lock"), "").unwrap();
    let held = place.commit(std::slice::from_ref(&delta));
    fs::remove_file(git.join("refs/heads/main.lock")).unwrap();
    fs::write(git.join("MERGE_HEAD"), &before).unwrap();
    let merging = place.commit(std::slice::from_ref(&delta));
    fs::remove_file(git.join("MERGE_HEAD")).unwrap();

    assert!(
        matches!(&held, Err(Error::Git { command, .. }) if command == "update-ref"),
        "{held:?}"
    );
    assert!(matches!(merging, Err(Error::UnderWay { .. })), "{merging:?}");
    assert_eq!(place.git(&["rev-parse", "HEAD"]), before);
}

#[test]
fn a_folder_that_became_a_link_is_committed_as_one() {
    let place = Place::new().with(&[("d/f", "1\n"), ("d/g", "1\n"), ("e", "1\n")]);
    let deltas = [
        place.work("d/f", Some("1\n"), None),
        place.work("d/g", Some("1\n"), None),
        place.work("d/new", None, Some("1\n")),
    ];
    let link = State { hash: Some(place.kept.keep(b"/usr").unwrap()), mode: 0o120_000 };
    let link = Delta { path: RelPath::parse("d").unwrap(), before: None, after: Some(link) };
    fs::remove_dir_all(place.base.join("ws/d")).unwrap();
    std::os::unix::fs::symlink("/usr", place.base.join("ws/d")).unwrap();

    let done = place.commit(&[&[link], deltas.as_slice()].concat()).unwrap();

    assert_eq!(names(&done.paths), ["d", "d/f", "d/g"]);
    assert!(done.left[0].1.contains("a link stands"), "{:?}", done.left);
    assert_eq!(place.git(&["ls-tree", "-r", "--name-only", "HEAD"]), "d\ne\n");
    assert_eq!(place.git(&["status", "--porcelain"]), "");
}

#[test]
fn an_index_that_another_git_holds_is_left_and_told_of() {
    let place = Place::new().with(&[("a", "1\n")]);
    let lock = place.base.join("ws/.git/index.lock");
    fs::write(&lock, "").unwrap();

    let done = place.commit(&[place.work("a", Some("1\n"), Some("2\n"))]).unwrap();

    let why = done.index_left.unwrap();
    assert!(why.contains("another git holds") && why.contains("index.lock"), "{why}");
    fs::remove_file(&lock).unwrap();
    assert_eq!(place.git(&["show", "HEAD:a"]), "2\n");
    assert_eq!(place.git(&["show", ":a"]), "1\n");
}

#[test]
fn commits_made_at_once_follow_each_other_and_lose_nothing() {
    let place = Place::new().with(&[("a", "1\n")]);
    let deltas: Vec<_> =
        (0..6).map(|index| place.work(&format!("f{index}"), None, Some("x\n"))).collect();

    let done = std::thread::scope(|scope| {
        let works: Vec<_> = deltas
            .chunks(2)
            .map(|both| {
                let place = &place;
                scope.spawn(move || {
                    both.iter().filter(|one| place.commit(&[(*one).clone()]).is_ok()).count()
                })
            })
            .collect();
        works.into_iter().map(|work| work.join().unwrap()).sum::<usize>()
    });

    // One that met another's lock was told so, and made nothing.
    let commits = place.git(&["rev-list", "--count", "HEAD"]).trim().parse::<usize>().unwrap();
    assert_eq!(commits, done + 1);
    let committed = place.git(&["ls-tree", "--name-only", "HEAD"]);
    assert_eq!(committed.lines().filter(|name| name.starts_with('f')).count(), done);
    assert!(done > 0);
}

/// Does what a process does that dies once the branch has moved.
fn dies_before_the_index(place: &Place, deltas: &[Delta], run: &str) -> String {
    let index = place.base.join("ws/.git/index");
    let before = fs::read(&index).unwrap();
    let git = ReadOnlyGit::open(place.base.join("ws")).unwrap();
    let scratch = Scratch::new(&git.git_dir).unwrap();
    let message = Message {
        text: "work: half done".to_owned(),
        trailers: vec![("Formwork-Run".to_owned(), run.to_owned())],
        identity: ("Ada".to_owned(), "ada@example.org".to_owned()),
        at: 1_700_000_000,
    };
    let done = git.try_commit(&scratch, &place.kept, deltas, &message, &|_, _, _| Ok(()));
    fs::write(&index, before).unwrap();
    scratch.stays_behind();
    done.unwrap().unwrap().id
}

#[test]
fn what_a_process_committed_that_died_before_the_index_followed_is_brought_along() {
    let place = Place::new().with(&[("a", "1\n"), ("gone", "1\n"), ("staged", "1\n")]);
    place.put("staged", "2\n");
    place.git(&["add", "staged"]);
    let deltas = [
        place.work("a", Some("1\n"), Some("2\n")),
        place.work("new\tone", None, Some("new\n")),
        place.work("gone", Some("1\n"), None),
    ];
    let id = dies_before_the_index(&place, &deltas, "mine");
    let status = || place.git(&["status", "--porcelain"]);
    let left = status();
    let git = ReadOnlyGit::open(place.base.join("ws")).unwrap();

    let finish = |run: &str| {
        let finished = git.finish_commits(("Formwork-Run", run)).unwrap();
        finished.into_iter().map(|(done, _)| done).collect::<Vec<_>>()
    };
    let others = finish("another");
    let followed = status();
    let mine = finish("mine");
    let again = finish("mine");

    assert!(left.contains("D  \"new\\tone\"") && left.contains("?? \"new\\tone\""), "{left}");
    assert_eq!((others, followed.as_str()), (Vec::new(), "M  staged\n"));
    let finished = Committed {
        id,
        paths: deltas.iter().map(|delta| delta.path.clone()).collect(),
        left: Vec::new(),
        index_left: None,
    };
    assert_eq!((mine, again), (vec![finished], Vec::new()));
    assert_eq!(status(), "M  staged\n");
    // What it committed is no reason to leave anything out.
    assert!(
        matches!(place.commit(&deltas), Err(Error::NothingToCommit { left }) if left.is_empty())
    );
}

#[test]
fn what_somebody_has_committed_since_is_not_staged_back_by_a_late_index() {
    let place = Place::new().with(&[("a", "1\n")]);
    dies_before_the_index(&place, &[place.work("a", Some("1\n"), Some("2\n"))], "mine");
    // The user commits what the index held.
    place.git(&["commit", "-qm", "back"]);
    let git = ReadOnlyGit::open(place.base.join("ws")).unwrap();

    git.finish_commits(("Formwork-Run", "mine")).unwrap();

    assert_eq!(place.git(&["diff", "--cached", "--name-only"]), "");
    assert_eq!(place.git(&["show", "HEAD:a"]), "1\n");
}

#[test]
fn a_commit_that_never_came_to_be_and_one_that_is_under_way_are_left_alone() {
    let place = Place::new().with(&[("a", "1\n")]);
    dies_before_the_index(&place, &[place.work("a", Some("1\n"), Some("2\n"))], "mine");
    place.git(&["reset", "-q", "--soft", "HEAD~"]);
    let git = ReadOnlyGit::open(place.base.join("ws")).unwrap();
    let under_way = Scratch::new(&git.git_dir).unwrap();

    let finished = git.finish_commits(("Formwork-Run", "mine")).unwrap();

    assert!(finished.is_empty(), "{finished:?}");
    assert_eq!(place.git(&["diff", "--cached", "--name-only"]), "");
    assert!(under_way.dir.exists());
}
