//! What the machine does to the log in the middle of a run: the run ends with a clear error and is taken up again.

use std::{path::Path, process::Stdio};

use formwork_testkit::{http::Gate, mounts::Mounts, postgres::Postgres};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStderr, Command},
};

use crate::{
    answers::{calling, calls, ends, held},
    world::{DEADLINE, World, end_of},
};

/// Prepares a task whose one call leaves a mark, asked for by an answer that is held back.
fn held_back(world: &World, gate: &Gate) -> &'static str {
    world.repo.write("mark.sh", "echo done >> $1.marks\n").unwrap();
    world.agent("worker", "one");
    let call = ("exec", json!({ "command": ["sh", "mark.sh", "work"] }));
    world.server.reply(&World::chat("one"), held(gate, &calling(std::slice::from_ref(&call))));
    // The one that is asked again once there is room.
    world.server.reply(&World::chat("one"), calls(&[call]));
    world.server.reply(&World::chat("one"), ends("Done."));
    world.workflow(
        "[[tasks]]\nname = \"work\"\nagent = \"worker\"\nprompt = \"Run mark.sh.\"\n\
         postchecks = [{ command = [\"grep\", \"-qx\", \"done\", \"work.marks\"] }]\n",
    )
}

/// Checks that the program said why it stopped, and not that it had completed.
#[track_caller]
fn assert_told(stdout: &str, stderr: &str, reason: &str) {
    assert!(
        stderr.contains("cannot be written: ") && stderr.contains(reason),
        "{stdout}\n{stderr}"
    );
    assert!(!stdout.contains("completed"), "{stdout}\n{stderr}");
}

/// Waits until a program has said something on its standard error, and returns the line, with what is to be kept until the
/// program has ended: what it says later must reach somebody.
async fn said(program: &mut Child, what: &str) -> (String, Lines<BufReader<ChildStderr>>) {
    let mut lines = BufReader::new(program.stderr.take().unwrap()).lines();
    let found = async {
        loop {
            let line = lines.next_line().await.unwrap();
            let line = line.expect("the program says it before it ends");
            if line.contains(what) {
                return line;
            }
        }
    };
    let line = tokio::time::timeout(DEADLINE, found).await.expect("it says so before the deadline");
    (line, lines)
}

#[tokio::test]
async fn a_run_whose_disk_fills_up_waits_until_there_is_room_and_goes_on() {
    let Some(mounts) = Mounts::available() else { return };
    let world = World::new().await;
    let gate = Gate::new();
    let workflow = held_back(&world, &gate);
    std::fs::create_dir_all(world.state()).unwrap();
    let formwork = world.formwork(Vec::<&str>::new());
    let script = "mount -t tmpfs -o size=4m none \"$1\" || exit 70\nstate=$1 workflow=$2; shift 2\n\
        \"$@\" trust > /dev/null || exit 71\n\
        \"$@\" run \"$workflow\"; echo \"ended $?\"; \"$@\" db verify; echo \"verified $?\"\n";
    let mut command = Command::from(mounts.shell(script));
    command.arg(world.state()).arg(workflow);
    command.arg(formwork.as_std().get_program()).args(formwork.as_std().get_args());
    command
        .current_dir(world.repo.path())
        .env_clear()
        .envs(formwork.as_std().get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);

    let mut program = command.spawn().unwrap();
    gate.reached().await;
    // The namespace is that of the process, seen from without.
    let within = Path::new("/proc").join(program.id().unwrap().to_string()).join("root");
    let state = world.state();
    let fill = within.join(state.strip_prefix("/").unwrap()).join("fill");
    let filled = std::io::copy(
        &mut std::fs::File::open("/dev/zero").unwrap(),
        &mut std::fs::File::create(&fill).unwrap(),
    );
    gate.open();
    let (told, _later) = said(&mut program, "the run waits for it").await;
    std::fs::remove_file(fill).unwrap();
    let ended = end_of(program).await;

    assert_eq!(filled.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    assert!(told.contains("cannot be written: the disk is full; the run waits"), "{told}");
    assert!(ended.stdout.contains("completed"), "{ended:#?}");
    assert!(ended.stdout.contains("ended 0\n"), "{ended:#?}");
    assert!(ended.stdout.contains("verified 0\n"), "{ended:#?}");
    assert_eq!(world.repo.read("work.marks").unwrap(), "done\n");
}

#[tokio::test]
async fn a_log_that_is_removed_in_the_middle_of_a_run_is_an_error_and_no_success() {
    let world = World::new().await;
    let gate = Gate::new();
    let workflow = held_back(&world, &gate);

    let program = world.formwork(["run", workflow]).spawn().unwrap();
    gate.reached().await;
    for end in ["", "-wal", "-shm"] {
        std::fs::remove_file(world.state().join(format!("formwork.db{end}"))).unwrap();
    }
    gate.open();
    let ended = end_of(program).await;

    assert_eq!(ended.code, Some(3), "{ended:#?}");
    assert_told(&ended.stdout, &ended.stderr, "its file was removed while it was open");
    // What could not be recorded was not done.
    assert!(!world.path("work.marks").exists());
}

#[tokio::test]
async fn pg_a_run_whose_server_stops_waits_until_it_is_back_and_goes_on() {
    let Some(postgres) = Postgres::of_ones_own() else { return };
    let database = postgres.database().unwrap();
    let world = World::new().await.on(database.url());
    let gate = Gate::new();
    let workflow = held_back(&world, &gate);

    let mut program = world.formwork(["run", workflow]).spawn().unwrap();
    gate.reached().await;
    postgres.stop().unwrap();
    gate.open();
    let (told, _later) = said(&mut program, "the run waits for it").await;
    postgres.start().unwrap();
    let ended = end_of(program).await;

    assert!(told.contains("the store at postgres://"), "{told}");
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.last_line().starts_with("completed"), "{ended:#?}");
    assert_eq!(world.repo.read("work.marks").unwrap(), "done\n");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_store_of_a_later_version_is_refused_with_what_to_do() {
    let world = World::new().await;
    world.json(["db", "init"]).await;
    let file = world.state().join("formwork.db");
    let mut bytes = std::fs::read(&file).unwrap();
    // The version that a program gives its tables stands there. Source: section 1.3 of SQLite's file format.
    bytes[60..64].copy_from_slice(&99_u32.to_be_bytes());
    std::fs::write(&file, bytes).unwrap();

    for verb in [vec!["runs", "list"], vec!["db", "migrate"], vec!["db", "verify"]] {
        let refused = world.run(&verb).await;
        assert_eq!(refused.code, Some(3), "{refused:#?}");
        let told = format!(
            "formwork: the store at {} has schema version 99, this program knows up to 3\n\
             hint: use the version of Formwork that wrote it, or another --database-url\n",
            file.display()
        );
        assert_eq!(refused.stderr, told);
    }
}

#[tokio::test]
async fn a_damaged_page_is_told_and_the_file_is_left_as_it_is() {
    let world = World::new().await;
    world.server.reply(&World::chat("one"), ends("It is."));
    world.run(["ask", "Is it?"]).await;
    let file = world.state().join("formwork.db");
    let mut bytes = std::fs::read(&file).unwrap();
    // Pages that hold no part of the schema, some of them of runs and of tasks.
    bytes[6 * 4096..14 * 4096].fill(0xa5);
    std::fs::write(&file, &bytes).unwrap();

    let verified = world.run(["db", "verify"]).await;
    let machine = world.run(["db", "verify", "--json"]).await;

    let audited = world.run(["audit", "verify"]).await;

    // An audit that cannot be made for it is no sound one.
    assert_eq!(audited.code, Some(2), "{audited:#?}");
    assert_eq!((verified.code, machine.code), (Some(2), Some(2)), "{verified:#?}");
    assert!(verified.stdout.contains("✗ ") && verified.stdout.contains("page 7"), "{verified:#?}");
    assert!(
        verified.stdout.ends_with(
            "hint: put the newest copy of the database in its place, and import from bundles what \
             it lacks; see the guide of the log\n"
        ),
        "{verified:#?}"
    );
    assert_eq!(machine.json()["sound"], false, "{machine:#?}");
    assert_eq!(std::fs::read(&file).unwrap(), bytes);
}

#[tokio::test]
async fn a_log_that_was_cut_or_emptied_is_told_and_never_taken_for_a_new_one() {
    let world = World::new().await;
    world
        .server
        .reply(&World::chat("one"), calls(&[("fs.write", json!({ "path": "a", "content": "x" }))]));
    world.server.reply(&World::chat("one"), ends("Written."));
    world.run(["run", "-m", "Write."]).await;
    let file = world.state().join("formwork.db");
    let whole = std::fs::read(&file).unwrap();
    let cut_to = |length: usize| {
        for beside in ["formwork.db-wal", "formwork.db-shm"] {
            let _ = std::fs::remove_file(world.state().join(beside));
        }
        std::fs::write(&file, &whole[..length]).unwrap();
    };
    let with = async |length: usize| {
        cut_to(length);
        let audited = world.run(["audit", "verify"]).await;
        let asked = world.run(["ask", "Is it?"]).await;
        let listed = world.run(["runs", "list"]).await;
        assert_eq!(std::fs::metadata(&file).unwrap().len(), length as u64);
        (audited, asked, listed)
    };

    let (cut, ..) = with(whole.len() / 2).await;
    let (emptied, asked, listed) = with(0).await;
    // Where nothing was ever done, it is one that somebody was about to make.
    std::fs::remove_dir_all(world.state().join("snapshots")).unwrap();
    cut_to(0);
    let new = world.run(["audit", "verify"]).await;

    assert_eq!(cut.code, Some(2), "{cut:#?}");
    assert_eq!(
        (emptied.code, asked.code, listed.code),
        (Some(2), Some(3), Some(3)),
        "{emptied:#?}"
    );
    for told in [&emptied, &asked, &listed] {
        let damaged =
            "formwork.db is damaged: it has 0 bytes, and beside it are the snapshots of runs";
        assert!(told.stderr.contains(damaged), "{told:#?}");
    }
    assert_eq!(world.server.requests().len(), 2);
    assert_eq!(new.code, Some(0), "{new:#?}");
}

#[tokio::test]
async fn a_folder_of_state_that_is_read_only_is_found_by_doctor_and_read_by_what_only_looks() {
    let Some(mounts) = Mounts::available() else { return };
    let world = World::new().await;
    std::fs::create_dir_all(world.state()).unwrap();
    world.server.reply(
        &World::chat("one"),
        calls(&[("fs.write", json!({ "path": "a", "content": "x\n" }))]),
    );
    world.server.reply(&World::chat("one"), ends("Written."));
    let formwork = world.formwork(Vec::<&str>::new());
    let script = "mount -t tmpfs -o size=16m none \"$1\" || exit 70\nstate=$1; shift\n\
        \"$@\" run -m Write.; echo \"ended $?\"; \"$@\" doctor --offline; echo \"doctor $?\"\n\
        mount -o remount,ro \"$state\" || exit 71\n\
        \"$@\" doctor --offline; echo \"doctor $?\"; \"$@\" ask hi; echo \"asked $?\"\n\
        \"$@\" undo --dry-run $(\"$@\" runs list --json | sed -n 's/.*\"run\": *\"\\([^\"]*\\)\".*/\\1/p' | head -1); echo \"undone $?\"\n";
    let mut command = Command::from(mounts.shell(script));
    command.arg(world.state());
    command.arg(formwork.as_std().get_program()).args(formwork.as_std().get_args());
    command
        .current_dir(world.repo.path())
        .env_clear()
        .envs(formwork.as_std().get_envs().filter_map(|(name, value)| Some((name, value?))));
    // The log lies elsewhere, and is sound.
    let log = format!("sqlite://{}", world.state().with_file_name("log.db").display());
    command.env("FORMWORK_DATABASE_URL", log);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);

    let ended = end_of(command.spawn().unwrap()).await;

    let told = &ended.stdout;
    assert!(told.contains("ended 0\n") && told.contains("doctor 0\n"), "{ended:#?}");
    let (_, after) = told.split_once("doctor 0\n").unwrap();
    assert!(after.contains("doctor 3\n") && after.contains("Read-only file system"), "{ended:#?}");
    assert!(after.contains("name another folder of state with FORMWORK_STATE_DIR"), "{ended:#?}");
    assert!(after.contains("asked 3\n"), "{ended:#?}");
    let hint = "hint: what it lies on is read-only: have it mounted to be written";
    assert!(ended.stderr.contains(hint), "{ended:#?}");
    // What only shows what it would do writes nothing.
    assert!(after.contains("would take back a\n") && after.contains("undone 0\n"), "{ended:#?}");
    assert_eq!(world.repo.read("a").unwrap(), "x\n");
    assert_eq!(world.server.requests().len(), 2);
}

#[tokio::test]
async fn a_server_that_is_away_is_one_clear_message_without_the_password() {
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let world = World::new().await.on(&format!("postgres://ada:hunter2@127.0.0.1:{port}/log"));

    let list = world.run(["runs", "list"]).await;

    assert_eq!((list.code, list.stdout.as_str()), (Some(3), ""), "{list:#?}");
    let told = format!(
        "formwork: cannot open the store at postgres://127.0.0.1:{port}/log: Connection refused \
         (os error 111)\nhint: check that the server runs, and the address, the user and the \
         password of database_url\n"
    );
    assert_eq!(list.stderr, told);
}

#[tokio::test]
async fn a_bound_on_the_size_of_files_is_told_and_ends_no_process_without_a_word() {
    let world = World::new().await;
    world.agent("worker", "one");
    world.server.reply(&World::chat("one"), ends("Done."));
    let workflow =
        world.workflow("[[tasks]]\nname = \"work\"\nagent = \"worker\"\nprompt = \"Work.\"\n");

    let formwork = world.formwork(["run", workflow]);
    let mut command = Command::new("sh");
    // Of 512 bytes each, or of 1024: no log fits.
    command.args(["-c", "ulimit -f 8; \"$@\"", "sh"]);
    command.arg(formwork.as_std().get_program()).args(formwork.as_std().get_args());
    command
        .current_dir(world.repo.path())
        .env_clear()
        .envs(formwork.as_std().get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let ended = end_of(command.spawn().unwrap()).await;

    assert_eq!(ended.code, Some(3), "{ended:#?}");
    assert!(ended.stderr.contains("formwork.db"), "{ended:#?}");
}
