//! One cluster serves every test process, and goes with the last of them.

use std::path::{Path, PathBuf};
use std::process::Command;

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
