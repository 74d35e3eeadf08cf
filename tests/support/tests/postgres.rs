//! One cluster serves every test process, and goes with the last of them.

use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use formwork_testkit::postgres::{Database, Postgres};

/// Asks the server for one value, by the program that comes with it.
fn query(database: &Database<'_>, sql: &str) -> String {
    let psql = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|version| version.path().join("bin/psql"))
        .find(|psql| psql.is_file())
        .unwrap_or_else(|| PathBuf::from("psql"));
    let output = Command::new(psql)
        .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--command", sql])
        .arg(database.url())
        .output()
        .expect("psql comes with the server");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn pg_each_database_is_a_tests_own() {
    let Some(postgres) = Postgres::shared() else { return };
    let one = postgres.database().unwrap();
    let other = postgres.database().unwrap();

    query(&one, "create table kept (n int); insert into kept values (7)");

    assert_eq!(query(&one, "select n from kept"), "7");
    assert_eq!(query(&other, "select count(*) from pg_tables where tablename = 'kept'"), "0");
}

#[test]
fn pg_a_dropped_database_is_gone() {
    let Some(postgres) = Postgres::shared() else { return };
    let gone = postgres.database().unwrap();
    let stays = postgres.database().unwrap();
    let name = query(&gone, "select current_database()");

    drop(gone);

    let count = format!("select count(*) from pg_database where datname = '{name}'");
    assert_eq!(query(&stays, &count), "0");
}

#[test]
fn pg_the_server_does_not_run_as_root() {
    let Some(postgres) = Postgres::shared() else { return };
    let database = postgres.database().unwrap();

    let folder = query(&database, "show data_directory");

    let owner =
        Command::new("stat").args(["--format=%U"]).arg(Path::new(&folder)).output().unwrap();
    assert_ne!(String::from_utf8_lossy(&owner.stdout).trim(), "root");
}

/// Says to this very test, run once more as a process of its own, that it is the one to be killed.
const VICTIM: &str = "FORMWORK_TESTKIT_VICTIM";

#[test]
#[expect(clippy::disallowed_methods, reason = "a process learns its part from its environment")]
fn pg_a_killed_test_process_leaves_nothing_behind() {
    let Some(postgres) = Postgres::shared() else { return };
    if std::env::var_os(VICTIM).is_some() {
        println!("{}", postgres.database().unwrap().url());
        std::io::stdin().read_line(&mut String::new()).unwrap();
        return;
    }
    // A temporary folder of its own means a cluster of its own. The server's user must enter it.
    let temporary = tempfile::tempdir().unwrap();
    std::fs::set_permissions(temporary.path(), Permissions::from_mode(0o755)).unwrap();
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "pg_a_killed_test_process_leaves_nothing_behind", "--nocapture"])
        .env("TMPDIR", temporary.path())
        .env(VICTIM, "yes")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let folder = BufReader::new(victim.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .find_map(|line| Some(line.split_once("?host=")?.1.split_once('&')?.0.to_owned()))
        .unwrap();
    let mut connection = UnixStream::connect(Path::new(&folder).join(".s.PGSQL.5432")).unwrap();

    victim.kill().unwrap();
    victim.wait().unwrap();

    // The server ends every connection when it stops, and the watchdog holds the lock to the end.
    assert_eq!(connection.read(&mut [0]).unwrap_or(0), 0);
    let lock = std::fs::read_dir(temporary.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "lock"))
        .unwrap();
    File::open(lock).unwrap().lock().unwrap();
    assert!(!Path::new(&folder).exists());
}
