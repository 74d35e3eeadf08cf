//! How runs go and end, with a launcher and without.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::{
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    time::{Duration, Instant},
};

use bytes::Bytes;
use formwork_sandbox::{
    Caps, Command, Error, Exit, Limits, Protection, Sandbox, Stream, Terminal, Whole,
};
use support::{alone, both_ways, launched, pid_in, run, runs, shell, timed_out};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// What would hold a run up here does so for a minute and longer; a busy machine has its share.
const BOUND: Duration = Duration::from_secs(30);

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[tokio::test]
async fn a_command_returns_its_code_and_both_streams() {
    let dir = folder();
    for sandbox in both_ways(dir.path()) {
        let script = "echo out; echo err >&2; exit 3";

        let finished = run(&sandbox, shell(script, dir.path())).await.unwrap();

        assert_eq!(finished.exit, Exit::Code(3));
        assert_eq!(finished.stdout.preview(), "out\n");
        assert_eq!(finished.stderr.preview(), "err\n");
        assert_eq!(finished.combined.total_bytes, 8);
        assert_eq!(finished.stdout.blake3, blake3::hash(b"out\n"));
        assert_eq!((finished.stragglers, finished.unkillable), (0, 0));
    }
}

#[tokio::test]
async fn a_command_that_a_signal_ends_says_which() {
    let dir = folder();
    for sandbox in both_ways(dir.path()) {
        let finished = run(&sandbox, shell("kill -SEGV $$", dir.path())).await.unwrap();

        assert_eq!(finished.exit, Exit::Signal(11));
    }
}

#[tokio::test]
async fn the_input_is_closed_unless_given() {
    let dir = folder();
    for sandbox in both_ways(dir.path()) {
        let closed = Command::new(["cat"], dir.path(), Protection::None);
        let mut given = closed.clone();
        given.stdin = Some(Bytes::from(vec![b'x'; 300_000]));

        let closed = run(&sandbox, closed).await.unwrap();
        let given = run(&sandbox, given).await.unwrap();

        assert_eq!((closed.exit, closed.stdout.total_bytes), (Exit::Code(0), 0));
        assert_eq!((given.exit, given.stdout.total_bytes), (Exit::Code(0), 300_000));
    }
}

#[tokio::test]
async fn arguments_are_not_shell_text_and_may_be_any_bytes() {
    use std::os::unix::ffi::OsStringExt;
    let dir = folder();
    for sandbox in both_ways(dir.path()) {
        let odd = std::ffi::OsString::from_vec(b"$HOME; \xFF *".to_vec());
        let command =
            Command::new(["printf".into(), "%s".into(), odd], dir.path(), Protection::None);

        let mut finished = run(&sandbox, command).await.unwrap();

        assert_eq!(finished.stdout.whole.read().unwrap(), b"$HOME; \xFF *");
    }
}

#[tokio::test]
async fn a_command_sees_only_allowed_and_set_variables() {
    let dir = folder();
    for sandbox in both_ways(dir.path()) {
        let mut command = Command::new(["env"], dir.path(), Protection::None);
        command.set.insert("GREETING".into(), "hi".into());

        let finished = run(&sandbox, command).await.unwrap();

        let text = finished.stdout.preview();
        let mut names: Vec<_> = text.lines().filter_map(|line| line.split('=').next()).collect();
        names.sort_unstable();
        assert_eq!(names, ["FORMWORK_PROCESS", "GREETING", "PATH"]);
    }
}

#[tokio::test]
async fn a_missing_program_is_named_with_where_it_was_searched() {
    let dir = folder();
    for sandbox in both_ways(dir.path()) {
        for name in ["no-such-program", "./no-such-program"] {
            let command = Command::new([name], dir.path(), Protection::None);

            let error = run(&sandbox, command).await.unwrap_err();

            let Error::ProgramNotFound { program, searched } = error else { panic!("{error:?}") };
            assert_eq!(program, name);
            assert!(searched.contains("/usr/bin") || searched.ends_with(name), "{searched}");
        }
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_run_is_a_typed_error() {
    let dir = folder();
    let script = dir.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    for sandbox in both_ways(dir.path()) {
        let command = || Command::new([&script], dir.path(), Protection::None);

        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o644)).unwrap();
        let not_executable = run(&sandbox, command()).await.unwrap_err();
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
        let no_interpreter = run(&sandbox, command()).await.unwrap_err();

        assert!(matches!(not_executable, Error::NotStarted { .. }), "{not_executable:?}");
        assert!(matches!(no_interpreter, Error::ProgramNotFound { .. }), "{no_interpreter:?}");
    }
}

#[tokio::test]
async fn a_missing_folder_is_named() {
    let dir = folder();
    let missing = dir.path().join("gone");
    for sandbox in both_ways(dir.path()) {
        let error = run(&sandbox, shell("true", &missing)).await.unwrap_err();

        assert!(
            matches!(&error, Error::DirectoryNotFound { cwd, .. } if *cwd == missing),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn too_long_arguments_are_refused_with_their_size() {
    let dir = folder();
    for sandbox in both_ways(dir.path()) {
        let long = "x".repeat(4 << 20);
        let command = Command::new(["echo", long.as_str()], dir.path(), Protection::None);

        let error = run(&sandbox, command).await.unwrap_err();

        assert!(matches!(error, Error::TooLong { bytes, .. } if bytes > 4 << 20), "{error:?}");
    }
}

#[tokio::test]
async fn what_no_process_can_be_given_is_refused() {
    let dir = folder();
    for sandbox in both_ways(dir.path()) {
        let empty = Command::new([""; 0], dir.path(), Protection::None);
        let nul = Command::new(["echo", "a\0b"], dir.path(), Protection::None);

        let empty = run(&sandbox, empty).await.unwrap_err();
        let nul = run(&sandbox, nul).await.unwrap_err();

        assert!(matches!(empty, Error::EmptyCommand));
        assert!(matches!(nul, Error::NulByte { what: "an argument", .. }));
    }
}

#[tokio::test]
async fn a_timeout_ends_a_command_that_ignores_being_told() {
    let dir = folder();
    for sandbox in both_ways(dir.path()) {
        let script = "trap '' TERM; echo $$ > pid; while :; do sleep 1; done";
        let mut command = shell(script, dir.path());
        command.grace = Duration::from_millis(200);

        let (finished, pid) = timed_out(&sandbox, &command).await;

        assert_eq!(finished.exit, Exit::TimedOut);
        assert!(!runs(pid));
    }
}

#[tokio::test]
async fn a_command_may_clean_up_when_told_to_end() {
    let dir = folder();
    for sandbox in both_ways(dir.path()) {
        let script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done";
        let cancel = CancellationToken::new();
        let (sender, mut receiver) = mpsc::channel(8);
        let run = sandbox.run(shell(script, dir.path()), cancel.clone(), Some(sender));
        let when_up = async {
            let first = receiver.recv().await.unwrap();
            cancel.cancel();
            first
        };

        let began = Instant::now();
        let (finished, first) = tokio::join!(run, when_up);

        let finished = finished.unwrap();
        assert_eq!((first.stream, &first.bytes[..]), (Stream::Stdout, &b"up\n"[..]));
        assert_eq!(finished.exit, Exit::Cancelled);
        assert_eq!(finished.stdout.preview(), "up\nbye\n");
        assert!(began.elapsed() < BOUND);
    }
}

#[tokio::test]
async fn a_run_that_is_cancelled_before_it_began_starts_nothing() {
    let dir = folder();
    for sandbox in both_ways(dir.path()) {
        let cancel = CancellationToken::new();
        cancel.cancel();

        let finished = sandbox.run(shell("touch it", dir.path()), cancel, None).await.unwrap();

        assert_eq!(finished.exit, Exit::Cancelled);
        assert!(!dir.path().join("it").exists());
    }
}

#[tokio::test]
async fn a_grandchild_in_its_own_session_that_holds_the_output_does_not_hold_the_run() {
    let dir = folder();
    for sandbox in both_ways(dir.path()) {
        let script = "setsid sh -c 'echo $$ > pid; exec sleep 1000' & while ! [ -s pid ]; do :; done; echo done";

        let began = Instant::now();
        let finished = run(&sandbox, shell(script, dir.path())).await.unwrap();

        assert_eq!(finished.exit, Exit::Code(0));
        assert_eq!(finished.stdout.preview(), "done\n");
        assert_eq!(finished.stragglers, 1);
        assert!(began.elapsed() < BOUND);
        assert!(!runs(pid_in(&dir.path().join("pid"))));
        std::fs::remove_file(dir.path().join("pid")).unwrap();
    }
}

#[tokio::test]
async fn a_daemon_that_was_forked_twice_ends_with_the_run() {
    let dir = folder();
    for sandbox in both_ways(dir.path()) {
        let daemon = "echo $$ > pid; exec sleep 1000 < /dev/null > /dev/null 2>&1";
        let script =
            format!("(setsid sh -c \"(sh -c '{daemon}' &)\" &) ; while ! [ -s pid ]; do :; done");

        let finished =
            run(&sandbox, shell(&script.replace("$$", "\\$\\$"), dir.path())).await.unwrap();

        assert_eq!(finished.exit, Exit::Code(0));
        assert!(!runs(pid_in(&dir.path().join("pid"))));
        std::fs::remove_file(dir.path().join("pid")).unwrap();
    }
}

#[tokio::test]
async fn a_timeout_ends_what_left_the_session_too() {
    let dir = folder();
    for sandbox in both_ways(dir.path()) {
        let script =
            "setsid sh -c 'trap \"\" TERM; echo $$ > pid; while :; do sleep 1; done' & sleep 1000";
        let mut command = shell(script, dir.path());
        command.grace = Duration::from_millis(200);

        let (finished, pid) = timed_out(&sandbox, &command).await;

        assert_eq!(finished.exit, Exit::TimedOut);
        assert!(!runs(pid));
    }
}

#[tokio::test]
async fn an_orphan_without_the_mark_ends_below_a_launcher() {
    let dir = folder();
    let script = "env -i PATH=$PATH setsid sh -c 'echo $$ > pid; exec sleep 1000' > /dev/null 2>&1 & \
                  while ! [ -s pid ]; do :; done";

    let finished = run(&launched(dir.path()), shell(script, dir.path())).await.unwrap();

    assert_eq!((finished.exit, finished.stragglers), (Exit::Code(0), 1));
    assert!(!runs(pid_in(&dir.path().join("pid"))));
}

#[tokio::test]
async fn dropping_a_run_kills_its_tree() {
    let dir = folder();
    for sandbox in both_ways(dir.path()) {
        let script = "setsid sleep 1000 & echo $! > child; echo $$ > pid; echo up; sleep 1000";
        let (sender, mut receiver) = mpsc::channel(8);
        let run = sandbox.run(shell(script, dir.path()), CancellationToken::new(), Some(sender));

        tokio::select! {
            _ = run => panic!("it runs for a thousand seconds"),
            _ = receiver.recv() => {}
        }

        for file in ["child", "pid"] {
            assert!(support::ends_within(pid_in(&dir.path().join(file)), 3), "{file}");
        }
    }
}

#[tokio::test]
async fn a_killed_launcher_leaves_nothing_running() {
    let dir = folder();
    let script = "setsid sh -c 'echo $$ > pid; exec sleep 1000' & while ! [ -s pid ]; do :; done; kill -9 $PPID; sleep 1000";

    let error = run(&launched(dir.path()), shell(script, dir.path())).await.unwrap_err();

    assert!(matches!(error, Error::LauncherLost { .. }), "{error:?}");
    assert!(!runs(pid_in(&dir.path().join("pid"))));
}

#[tokio::test]
async fn a_program_that_is_no_launcher_is_an_error() {
    let dir = folder();
    for (path, started) in [("/bin/true", true), ("/no/such/launcher", false)] {
        let sandbox = alone(dir.path()).with_launcher(formwork_sandbox::Launcher::new(path));

        let error = run(&sandbox, shell("true", dir.path())).await.unwrap_err();

        match started {
            true => assert!(matches!(error, Error::LauncherLost { .. }), "{error:?}"),
            false => assert!(matches!(error, Error::LauncherNotStarted { .. }), "{error:?}"),
        }
    }
}

#[tokio::test]
async fn huge_output_is_kept_whole_outside_memory() {
    let dir = folder();
    for sandbox in both_ways(dir.path()) {
        let script = "head -c 100000000 /dev/zero | tr '\\0' 'a'; echo end";
        let mut command = shell(script, dir.path());
        command.caps = Caps { head: 4, tail: 8, whole: 1 << 30 };
        let before = peak_memory();

        let finished = run(&sandbox, command).await.unwrap();

        assert_eq!(finished.stdout.total_bytes, 100_000_004);
        assert_eq!(finished.stdout.preview(), "aaaa\n[99999992 bytes left out]\naaaaend\n");
        let grown = peak_memory() - before;
        assert!(grown < 30 << 20, "memory grew by {grown} bytes");
        let Whole::File(file) = &finished.stdout.whole else { panic!("not in a file") };
        assert_eq!(file.metadata().unwrap().len(), 100_000_004);
        assert!(matches!(finished.combined.whole, Whole::File(_)));
    }
}

#[tokio::test]
async fn output_beyond_the_cap_does_not_fill_the_disk() {
    let dir = folder();
    for sandbox in both_ways(dir.path()) {
        let mut command = shell("head -c 3000000 /dev/zero", dir.path());
        command.caps = Caps { head: 4, tail: 8, whole: 1 << 20 };

        let finished = run(&sandbox, command).await.unwrap();

        assert_eq!(finished.stdout.total_bytes, 3_000_000);
        assert_eq!(finished.stdout.blake3, blake3::hash(&vec![0; 3_000_000]));
        assert!(matches!(finished.stdout.whole, Whole::Missing(_)));
    }
}

#[tokio::test]
async fn behaviour_24_binary_output_is_kept_byte_for_byte() {
    let dir = folder();
    let bytes: Vec<u8> = (0..=255).cycle().take(200_000).collect();
    std::fs::write(dir.path().join("it"), &bytes).unwrap();
    for sandbox in both_ways(dir.path()) {
        let command = Command::new(["cat", "it"], dir.path(), Protection::None);

        let mut finished = run(&sandbox, command).await.unwrap();

        assert_eq!(finished.stdout.whole.read().unwrap(), bytes);
    }
}

#[tokio::test]
async fn a_slow_watcher_misses_output_and_holds_nothing_up() {
    let dir = folder();
    for sandbox in both_ways(dir.path()) {
        let (sender, mut receiver) = mpsc::channel(1);
        let command = shell("head -c 1000000 /dev/zero", dir.path());

        let finished = sandbox.run(command, CancellationToken::new(), Some(sender)).await.unwrap();

        assert_eq!(finished.stdout.total_bytes, 1_000_000);
        assert!(receiver.recv().await.unwrap().bytes.len() < 1_000_000);
        assert_eq!(receiver.recv().await, None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_may_overlap() {
    let dir = folder();
    for sandbox in both_ways(dir.path()) {
        let mut running = tokio::task::JoinSet::new();
        for number in 0..32 {
            let (sandbox, cwd) = (sandbox.clone(), PathBuf::from(dir.path()));
            running.spawn(async move {
                let finished = run(&sandbox, shell(&format!("echo {number}"), &cwd)).await.unwrap();
                (number, finished.stdout.preview())
            });
        }

        let mut outputs = running.join_all().await;

        outputs.sort_unstable();
        let wanted: Vec<_> = (0..32).map(|number| (number, format!("{number}\n"))).collect();
        assert_eq!(outputs, wanted);
    }
}

/// Returns the most memory that this process has had resident, in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_command_is_given_no_open_file_but_its_three() {
    use std::os::fd::AsRawFd as _;
    let dir = folder();
    std::fs::write(dir.path().join("secret"), "hunter2").unwrap();
    // As whoever starts this program may leave one open.
    let open = std::fs::File::open(dir.path().join("secret")).unwrap();
    rustix::io::fcntl_setfd(&open, rustix::io::FdFlags::empty()).unwrap();
    let script = format!("cat /proc/self/fd/{}", open.as_raw_fd());

    let finished = run(&launched(dir.path()), shell(&script, dir.path())).await.unwrap();

    assert!(!finished.combined.preview().contains("hunter2"), "{finished:?}");
    assert_ne!(finished.exit, Exit::Code(0));
}

/// Runs a script at a terminal.
async fn at_terminal(
    sandbox: &Sandbox,
    script: &str,
    dir: &std::path::Path,
) -> formwork_sandbox::Finished {
    let mut command = shell(script, dir);
    command.terminal = Some(Terminal::default());
    command.timeout = Duration::from_secs(30);
    run(sandbox, command).await.unwrap()
}

#[tokio::test]
async fn a_command_has_a_terminal_where_it_asks_for_one_and_none_otherwise() {
    let dir = folder();
    let script = "for fd in 0 1 2; do test -t $fd && printf 'yes ' || printf 'no '; done; stty size; tty; echo err >&2";
    for sandbox in both_ways(dir.path()) {
        let mut sized = shell("stty size; echo $TERM", dir.path());
        sized.terminal = Some(Terminal { columns: 120, rows: 40 });

        let with = at_terminal(&sandbox, script, dir.path()).await;
        let without = run(&sandbox, shell(script, dir.path())).await.unwrap();
        let sized = run(&sandbox, sized).await.unwrap();

        let said = with.stdout.preview();
        assert!(said.starts_with("yes yes yes 24 80\n/dev/pts/"), "{said}");
        assert!(said.ends_with("\nerr\n"), "{said}");
        assert_eq!((with.stderr.total_bytes, with.combined.blake3), (0, with.stdout.blake3));
        assert!(without.stdout.preview().starts_with("no no no not a tty\n"), "{without:?}");
        assert_eq!(sized.stdout.preview(), "40 120\nxterm-256color\n");
    }
}

#[tokio::test]
async fn below_a_launcher_the_terminal_is_that_of_the_session() {
    let dir = folder();

    let finished = at_terminal(&launched(dir.path()), "echo told > /dev/tty", dir.path()).await;

    assert_eq!((finished.exit, finished.stdout.preview().as_str()), (Exit::Code(0), "told\n"));
}

#[tokio::test]
async fn a_confined_command_has_a_terminal_and_opens_no_other() {
    let dir = folder();
    let mut command = shell("test -t 1 && echo yes; echo x > $(tty) && echo escaped", dir.path());
    command.terminal = Some(Terminal::default());
    command.protection = Protection::Restricted(Limits::new(Limits::system_roots(), [dir.path()]));

    let finished = run(&launched(dir.path()), command).await.unwrap();

    let said = finished.stdout.preview();
    assert!(said.starts_with("yes\n") && said.contains("Permission denied"), "{said}");
    assert!(!said.contains("escaped"), "{said}");
}

#[tokio::test]
async fn what_is_read_from_a_terminal_is_at_its_end() {
    let dir = folder();
    for sandbox in both_ways(dir.path()) {
        let mut given = shell("cat; test -t 1 && echo yes", dir.path());
        given.terminal = Some(Terminal::default());
        given.stdin = Some(Bytes::from("input\n"));

        let finished = at_terminal(&sandbox, "cat; cat; read line || echo done", dir.path()).await;
        let given = run(&sandbox, given).await.unwrap();

        assert_eq!((finished.exit, finished.stdout.preview().as_str()), (Exit::Code(0), "done\n"));
        assert_eq!(given.stdout.preview(), "input\nyes\n");
    }
}

#[tokio::test]
async fn what_is_written_to_a_terminal_arrives_whole_and_as_it_is() {
    let dir = folder();
    for sandbox in both_ways(dir.path()) {
        let script = "printf 'a\\nb\\r\\n\\033[1mc'; head -c 3000000 /dev/zero | tr '\\0' x";

        let mut finished = at_terminal(&sandbox, script, dir.path()).await;

        let whole = finished.stdout.whole.read().unwrap();
        assert_eq!(&whole[..10], b"a\nb\r\n\x1b[1mc");
        assert_eq!(whole.len(), 3_000_010);
    }
}

#[tokio::test]
async fn a_grandchild_that_holds_the_terminal_holds_nothing_up() {
    let dir = folder();
    for sandbox in both_ways(dir.path()) {
        let begun = Instant::now();
        let script = "setsid sh -c 'echo $$ > pid; exec sleep 60' & while ! test -s pid; do :; done; echo out";

        let finished = at_terminal(&sandbox, script, dir.path()).await;

        assert_eq!((finished.exit, finished.stdout.preview().as_str()), (Exit::Code(0), "out\n"));
        assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
        assert!(finished.stragglers >= 1, "{}", finished.stragglers);
        assert!(!runs(pid_in(&dir.path().join("pid"))));
        std::fs::remove_file(dir.path().join("pid")).unwrap();
    }
}

#[tokio::test]
async fn a_timeout_ends_all_that_runs_at_a_terminal() {
    let dir = folder();
    for sandbox in both_ways(dir.path()) {
        let script = "trap '' TERM HUP; echo begun; \
                      setsid sh -c 'trap \"\" TERM HUP; echo $$ > pid; while :; do sleep 1; done' & \
                      while :; do sleep 1; done";
        let mut command = shell(script, dir.path());
        command.terminal = Some(Terminal::default());
        command.grace = Duration::from_millis(200);

        let (finished, pid) = timed_out(&sandbox, &command).await;

        assert_eq!(
            (finished.exit, finished.stdout.preview().as_str()),
            (Exit::TimedOut, "begun\n")
        );
        assert!(!runs(pid));
    }
}
