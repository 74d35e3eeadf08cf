use super::*;
use crate::RelPath;
use std::{fs, os::unix::fs::PermissionsExt};

/// A repository with one commit of `a.txt`, and a program that leaves a mark when it runs.
struct Place {
    _keep: tempfile::TempDir,
    base: PathBuf,
}

impl Place {
    fn new() -> Self {
        let keep = tempfile::tempdir().unwrap();
        let base = keep.path().canonicalize().unwrap();
        fs::create_dir(base.join("ws")).unwrap();
        let place = Self { _keep: keep, base };
        place.git(&["init", "-q", "-b", "main"]);
        fs::write(place.file("a.txt"), "one\n").unwrap();
        place.git(&["add", "."]);
        place.git(&["commit", "-qm", "first"]);
        let program = place.base.join("evil");
        fs::write(
            &program,
            format!("#!/bin/sh\ntouch {}\ncat\n", place.base.join("mark").display()),
        )
        .unwrap();
        fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        place
    }

    fn file(&self, name: &str) -> PathBuf {
        self.base.join("ws").join(name)
    }

    fn evil(&self) -> String {
        self.base.join("evil").display().to_string()
    }

    /// Runs git as a person would, with what the repository brings.
    fn git(&self, args: &[&str]) {
        let status = Command::new("git")
            .args([
                "-c",
                "user.name=t",
                "-c",
                "user.email=t@localhost",
                "-c",
                "protocol.file.allow=always",
            ])
            .args(args)
            .current_dir(self.base.join("ws"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(status.status.success() || args[0] != "commit", "{status:?}");
    }

    fn open(&self) -> ReadOnlyGit {
        ReadOnlyGit::open(self.base.join("ws")).unwrap()
    }

    fn marked(&self) -> bool {
        fs::remove_file(self.base.join("mark")).is_ok()
    }
}

fn text(output: &GitOutput) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn every_subcommand_on_the_list_works() {
    let place = Place::new();
    fs::write(place.file("a.txt"), "two\n").unwrap();
    let git = place.open();

    for (args, expected) in [
        (&["status", "--porcelain"][..], " M a.txt\n"),
        (&["status", "-sb"], "## main\n M a.txt\n"),
        (&["diff", "--numstat"], "1\t1\ta.txt\n"),
        (&["diff", "--name-only", "HEAD", "--", "a.txt"], "a.txt\n"),
        (&["log", "--format=%s", "-1"], "first\n"),
        (&["log", "-n", "1", "--oneline", "--no-decorate", "--format=%s"], "first\n"),
        (&["show", "HEAD:a.txt"], "one\n"),
        (&["ls-files"], "a.txt\n"),
        (&["rev-parse", "--abbrev-ref", "HEAD"], "main\n"),
        (&["branch"], "* main\n"),
        (&["branch", "--show-current"], "main\n"),
        (&["grep", "-n", "tw"], "a.txt:1:two\n"),
        (&["grep", "-e", "../two|/t", "-e", "wo"], "a.txt:two\n"),
        (&["cat-file", "-p", "HEAD:a.txt"], "one\n"),
    ] {
        let output = git.run(args).unwrap();
        assert_eq!((output.code, text(&output)), (0, expected.to_owned()), "{args:?}");
    }
    assert!(text(&git.run(&["blame", "-L", "1,1", "a.txt"]).unwrap()).contains("two"));
    assert_eq!(git.run(&["grep", "/no/such/../pattern"]).unwrap().code, 1);
    assert!(matches!(git.run(&["show", "no-such-rev"]), Err(Error::Git { .. })));
}

#[test]
fn what_writes_runs_or_reaches_out_is_refused_by_name() {
    let git = Place::new().open();

    for args in [
        &["diff", "--output=x"][..],
        &["diff", "--output", "x"],
        &["diff", "--outp=x"],
        &["log", "--output=/tmp/x"],
        &["diff", "--ext-diff"],
        &["diff", "--ext"],
        &["show", "--textconv"],
        &["cat-file", "--textconv", "HEAD:a"],
        &["cat-file", "--filters", "HEAD:a"],
        &["cat-file", "--batch"],
        &["diff", "--no-index", "a", "b"],
        &["diff", "/etc/passwd", "/etc/hosts"],
        &["diff", "--", "../../etc/passwd"],
        &["diff", "HEAD", "a/../../x"],
        &["show", "HEAD:../x"],
        &["log", "--", ":(top)../x"],
        &["log", "--", ":(top)/etc"],
        &["diff", "-O/etc/passwd"],
        &["grep", "-O", "x"],
        &["grep", "-Ovi", "x"],
        &["grep", "--open-files-in-pager=vi", "x"],
        &["grep", "-f", "/etc/passwd"],
        &["grep", "--no-index", "x"],
        &["grep", "x", "/etc"],
        &["blame", "--contents", "/etc/passwd", "a"],
        &["blame", "-S", "/etc/passwd", "a"],
        &["blame", "-L/x/", "a"],
        &["log", "--show-signature"],
        &["log", "--format=%G?"],
        &["ls-files", "-X", "/etc/passwd"],
        &["ls-files", "--recurse-submodules"],
        &["branch", "-D", "main"],
        &["branch", "-m", "x"],
        &["branch", "--edit-description"],
        &["rev-parse", "--parseopt"],
        &["status", "-v"],
        &["status", "--output=x"],
        &["-c", "core.pager=x", "log"],
        &["--exec-path=/tmp", "log"],
        &["commit", "-m", "x"],
        &["config", "--list"],
        &["fetch"],
        &["log", "-n", "--all"],
        &["log", "-n"],
        &["log", "a\0b"],
        &[],
    ] {
        let refused = git.command(args);
        assert!(matches!(refused, Err(Error::GitRefused { .. })), "{args:?}: {refused:?}");
    }
}

#[test]
fn nothing_that_a_hostile_repository_names_is_run() {
    let place = Place::new();
    let evil = place.evil();
    for (key, value) in [
        ("filter.ev=il.clean", evil.as_str()),
        ("filter.ev=il.smudge", &evil),
        ("filter.proc.process", &evil),
        ("filter.proc.required", "true"),
        ("diff.conv.textconv", &evil),
        ("diff.ext.command", &evil),
        ("diff.external", &evil),
        ("core.fsmonitor", &evil),
        ("core.pager", &evil),
        ("pager.log", &evil),
        ("core.sshCommand", &evil),
        ("core.alternateRefsCommand", &evil),
        ("gpg.program", &evil),
        ("log.showSignature", "true"),
        ("alias.status", &format!("!{evil}")),
        ("core.editor", &evil),
        ("interactive.diffFilter", &evil),
        ("remote.x.url", &format!("ext::{evil}")),
        ("remote.x.promisor", "true"),
        ("extensions.partialClone", "x"),
    ] {
        place.git(&["config", key, value]);
    }
    fs::create_dir_all(place.file(".git/hooks")).unwrap();
    for hook in ["post-index-change", "pre-commit", "reference-transaction", "post-checkout"] {
        fs::copy(place.base.join("evil"), place.file(".git/hooks").join(hook)).unwrap();
    }
    fs::write(
        place.file(".gitattributes"),
        "a.txt filter=ev=il diff=conv\nb.txt filter=proc diff=ext\n",
    )
    .unwrap();
    fs::write(place.file("b.txt"), "b\n").unwrap();
    fs::write(place.file("a.txt"), "ONE\n").unwrap();
    let git = place.open();

    // The trap works for those who walk into it.
    place.git(&["status"]);
    assert!(place.marked());
    for args in [
        &["status", "--porcelain"][..],
        &["status", "--ignored"],
        &["diff"],
        &["diff", "HEAD"],
        &["diff", "--stat"],
        &["log", "-p"],
        &["log", "--stat", "--format=fuller"],
        &["show"],
        &["blame", "a.txt"],
        &["grep", "ON"],
        &["ls-files", "-m"],
        &["ls-files", "-o", "--exclude-standard"],
        &["cat-file", "-p", "HEAD:a.txt"],
        &["rev-parse", "HEAD"],
        &["branch", "-vv"],
        &["cat-file", "-e", "1234567890123456789012345678901234567890"],
        &["show", "1234567890123456789012345678901234567890"],
    ] {
        let outcome = git.run(args);
        assert!(!place.marked(), "{args:?} ran the repository's program: {outcome:?}");
    }
    assert!(text(&git.run(&["diff", "HEAD", "--", "a.txt"]).unwrap()).contains("-one\n+ONE\n"));
}

/// Source: `git help config` of git 2.47, every value that is the name of a file, and `git help attributes`.
#[test]
fn no_setting_of_a_repository_has_a_file_read_that_lies_outside_of_it() {
    let place = Place::new();
    fs::write(place.file("b.txt"), "two\n").unwrap();
    let outside = place.base.join("outside");
    // What git says of a file of revisions, of names, of patterns or of settings that is none of it, holds its lines.
    fs::write(&outside, "outside-marker\n*.txt\nt <t@localhost> <marker@example.org>\n").unwrap();
    let path = outside.display().to_string();
    for key in [
        "blame.ignoreRevsFile",
        "commit.template",
        "core.attributesFile",
        "core.excludesFile",
        "diff.orderFile",
        "fsck.skipList",
        "gpg.ssh.allowedSignersFile",
        "gpg.ssh.revocationFile",
        "mailmap.file",
        "trace2.normalTarget",
    ] {
        place.git(&["config", "--add", key, &path]);
    }
    place.git(&["config", "log.mailmap", "true"]);
    place.git(&["config", "blame.markIgnoredLines", "true"]);
    let git = place.open();

    for args in [
        &["blame", "-e", "a.txt"][..],
        &["status", "--porcelain"],
        &["ls-files", "--others", "--exclude-standard"],
        &["log", "--format=%aN %aE %s"],
        &["show", "HEAD"],
        &["diff", "HEAD"],
        &["grep", "two"],
        &["branch", "-v"],
        &["rev-parse", "HEAD"],
        &["cat-file", "-p", "HEAD"],
    ] {
        let done = git.run(args).map(|output| {
            let said = [output.stdout, output.stderr].concat();
            String::from_utf8_lossy(&said).into_owned()
        });
        let said = done.unwrap_or_else(|error| panic!("{args:?}: {error}"));
        assert!(!said.contains("marker"), "{args:?}: {said}");
    }
    // Patterns from outside hide nothing.
    assert_eq!(text(&git.run(&["ls-files", "-o", "--exclude-standard"]).unwrap()), "b.txt\n");
    assert_eq!(fs::read_to_string(&outside).unwrap().lines().count(), 3);
}

#[test]
fn looking_writes_nothing_into_the_repository() {
    let place = Place::new();
    let index = place.file(".git/index");
    // A touched file makes git want to refresh its index.
    let later =
        fs::metadata(&index).unwrap().modified().unwrap() + std::time::Duration::from_secs(5);
    fs::File::options().write(true).open(place.file("a.txt")).unwrap().set_modified(later).unwrap();
    let before = (fs::read(&index).unwrap(), fs::metadata(&index).unwrap().modified().unwrap());

    for args in [&["status"][..], &["diff"], &["diff", "HEAD"]] {
        place.open().run(args).unwrap();
    }

    let after = (fs::read(&index).unwrap(), fs::metadata(&index).unwrap().modified().unwrap());
    assert_eq!(before, after);
}

#[test]
fn a_worktree_setting_does_not_make_git_look_elsewhere() {
    let place = Place::new();
    fs::create_dir(place.base.join("other")).unwrap();
    fs::write(place.base.join("other/a.txt"), "SECRET\n").unwrap();
    place.git(&["config", "core.worktree", "../../other"]);

    let output = place.open().run(&["diff"]).unwrap();

    assert_eq!(text(&output), "");
}

#[test]
fn a_git_file_is_followed_only_to_a_repository_that_knows_the_folder() {
    let place = Place::new();
    place.git(&["worktree", "add", "-q", "../linked"]);
    let stranger = place.base.join("stranger");
    fs::create_dir(&stranger).unwrap();
    fs::write(stranger.join(".git"), format!("gitdir: {}\n", place.file(".git").display()))
        .unwrap();

    let linked = ReadOnlyGit::open(place.base.join("linked")).unwrap();
    assert_eq!(text(&linked.run(&["branch", "--show-current"]).unwrap()), "linked\n");
    for (dir, why) in [
        ("stranger", "the repository that its .git file names does not know it; "),
        ("", "it has no .git at its top"),
    ] {
        let error = ReadOnlyGit::open(place.base.join(dir)).unwrap_err();
        assert!(
            matches!(&error, Error::NotAWorktree { why: w, .. } if w.starts_with(why)),
            "{error}"
        );
    }
    fs::write(place.file(".git/commondir"), "../../elsewhere\n").unwrap();
    assert!(matches!(ReadOnlyGit::open(place.base.join("ws")), Err(Error::NotAWorktree { .. })));
}

#[test]
fn a_repository_apart_from_its_worktree_is_read_once_its_owner_says_whose_it_is() {
    let place = Place::new();
    place.git(&["init", "-q", "--separate-git-dir", "../apart"]);

    let refused = ReadOnlyGit::open(place.base.join("ws")).unwrap_err();
    let top = place.base.join("ws").display().to_string();
    place.git(&["config", "core.worktree", &top]);
    let git = place.open();

    let told = refused.to_string();
    assert!(told.contains("git config core.worktree"), "{told}");
    assert_eq!(text(&git.run(&["branch", "--show-current"]).unwrap()), "main\n");
}

#[test]
fn a_submodules_own_settings_run_nothing() {
    let place = Place::new();
    let sub = place.base.join("sub");
    fs::create_dir(&sub).unwrap();
    for args in [
        &["init", "-q"][..],
        &[
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@localhost",
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            "s",
        ],
    ] {
        assert!(Command::new("git").args(args).current_dir(&sub).status().unwrap().success());
    }
    place.git(&["submodule", "add", "-q", "../sub", "sub"]);
    place.git(&["commit", "-qm", "sub"]);
    place.git(&["config", "-f", ".git/modules/sub/config", "core.fsmonitor", &place.evil()]);
    place.git(&["config", "-f", ".gitmodules", "submodule.sub.ignore", "none"]);
    place.git(&["status"]);
    assert!(place.marked());

    for args in [&["status"][..], &["diff"], &["grep", "x"], &["diff", "HEAD"]] {
        place.open().run(args).unwrap();
        assert!(!place.marked(), "{args:?}");
    }
    let inner = ReadOnlyGit::open(place.file("sub")).unwrap();
    inner.run(&["status"]).unwrap();
    assert!(!place.marked());
}

#[test]
fn what_differs_from_a_commit_is_told_by_path_whatever_names_the_files_have() {
    let place = Place::new();
    let odd = "an odd\n* name.txt";
    fs::write(place.file(odd), "one\n").unwrap();
    fs::write(place.file("gone.txt"), "one\n").unwrap();
    place.git(&["add", "."]);
    place.git(&["commit", "-qm", "second"]);
    fs::write(place.file(odd), "two\n").unwrap();
    fs::write(place.file("staged.txt"), "new\n").unwrap();
    place.git(&["add", "staged.txt"]);
    fs::remove_file(place.file("gone.txt")).unwrap();
    fs::write(place.file("new.txt"), "new\n").unwrap();
    let git = place.open();
    let head = git.commit_of("HEAD").unwrap().unwrap();
    let names = |found: Vec<Touched>| -> Vec<String> {
        let told =
            |it: &Touched| format!("{} {} {}", it.path, it.before.is_some(), it.after.is_some());
        found.iter().map(told).collect()
    };

    let all = names(git.touched(&head, super::Place::Worktree, &[]).unwrap());
    let staged = names(git.touched(&head, super::Place::Index(None), &[]).unwrap());
    let one =
        names(git.touched(&head, super::Place::Worktree, &[RelPath::parse(odd).unwrap()]).unwrap());
    let untracked = git.untracked(&[]).unwrap();

    let changed = format!("{odd} true true");
    assert_eq!(all, [changed.as_str(), "gone.txt true false", "staged.txt false true"]);
    assert_eq!(staged, ["staged.txt false true"]);
    assert_eq!(one, [changed]);
    assert_eq!(untracked, [RelPath::parse("new.txt").unwrap()]);
}

#[test]
fn a_commit_that_would_be_an_option_is_refused() {
    let place = Place::new();
    let git = place.open();
    let refused = |found: Result<(), Error>| matches!(found, Err(Error::GitRefused { .. }));

    for odd in ["--output=owned", "-p", "", "HEAD owned"] {
        assert!(refused(git.commit_of(odd).map(drop)), "{odd}");
        assert!(refused(git.touched(odd, super::Place::Worktree, &[]).map(drop)), "{odd}");
    }
    assert!(!place.file("owned").exists());
}

#[test]
fn what_git_was_told_not_to_look_at_is_seen_where_it_differs() {
    let place = Place::new();
    let odd = "\"odd\nname\\";
    for name in ["assumed", "skipped", "same", "gone", "away", "runs", "stays", odd] {
        fs::write(place.file(name), "was\n").unwrap();
    }
    std::os::unix::fs::symlink("here", place.file("link")).unwrap();
    place.git(&["add", "."]);
    place.git(&["commit", "-qm", "more"]);
    for name in ["assumed", "same", "gone", "runs", "link", odd] {
        place.git(&["update-index", "--assume-unchanged", name]);
    }
    for name in ["skipped", "away", "stays"] {
        place.git(&["update-index", "--skip-worktree", name]);
    }
    for name in ["assumed", "skipped", odd] {
        fs::write(place.file(name), "is\n").unwrap();
    }
    for name in ["gone", "away", "link"] {
        fs::remove_file(place.file(name)).unwrap();
    }
    std::os::unix::fs::symlink("there", place.file("link")).unwrap();
    fs::set_permissions(place.file("runs"), PermissionsExt::from_mode(0o755)).unwrap();
    let git = place.open();
    let head = git.commit_of("HEAD").unwrap().unwrap();
    let seen = |paths: &[RelPath]| {
        let touched = git.touched(&head, super::Place::Worktree, paths).unwrap();
        let mut found: Vec<_> = touched
            .into_iter()
            .map(|it| {
                assert!(it.before.unwrap().oid.is_some());
                (it.path.to_string(), it.after.map(|side| (side.mode, side.oid)))
            })
            .collect();
        found.sort();
        found
    };

    let all = seen(&[]);
    let one = seen(&[RelPath::parse("skipped").unwrap()]);
    // Of what is not checked out, nothing is missing.
    place.git(&["config", "core.sparseCheckout", "true"]);
    let sparse = seen(&[]);

    let there = |name: &str, mode: u32| (name.to_owned(), Some((mode, None)));
    let gone = |name: &str| (name.to_owned(), None);
    assert_eq!(
        all,
        [
            there(odd, 0o100_644),
            there("assumed", 0o100_644),
            gone("away"),
            gone("gone"),
            there("link", 0o120_000),
            there("runs", 0o100_755),
            there("skipped", 0o100_644),
        ]
    );
    assert_eq!(one, [there("skipped", 0o100_644)]);
    let names: Vec<&str> = sparse.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, [odd, "assumed", "gone", "link", "runs", "skipped"]);
}

#[test]
fn a_damaged_repository_is_not_one_without_commits() {
    let place = Place::new();
    let git = place.open();
    let objects = place.file(".git/objects");
    fs::rename(&objects, place.file("away")).unwrap();
    fs::create_dir(&objects).unwrap();

    let lost = git.commit_of("HEAD").unwrap_err().to_string();
    fs::remove_dir(&objects).unwrap();
    fs::rename(place.file("away"), &objects).unwrap();
    fs::write(place.file(".git/HEAD"), "garbage\n").unwrap();
    let no_head = git.commit_of("HEAD").unwrap_err().to_string();

    assert!(lost.contains("HEAD names ") && lost.contains("not there"), "{lost}");
    assert!(no_head.contains("not a git repository"), "{no_head}");
}

#[test]
fn a_revision_that_is_none_is_refused_or_names_nothing() {
    let place = Place::new();
    let git = place.open();

    assert_eq!(git.commit_of("no-such-branch").unwrap(), None);
    assert_eq!(git.commit_of(&"ab".repeat(20)).unwrap(), None);
    for odd in ["", "--all", "a b", "a\nb"] {
        assert!(matches!(git.commit_of(odd), Err(Error::GitRefused { .. })), "{odd:?}");
    }
    let head = git.commit_of("main").unwrap().unwrap();
    assert_eq!(git.merge_base(&head, &head).unwrap().as_deref(), Some(head.as_str()));
}
