//! The table of faults names tests, and each of them exists.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Collects the names of the functions below a folder.
fn functions(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            functions(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let named = text.lines().filter_map(|line| {
                let (_, after) = line.split_once("fn ")?;
                after.split(['(', '<', ' ']).next().map(str::to_owned)
            });
            found.extend(named);
        }
    }
}

#[test]
fn every_test_that_the_table_names_exists() {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let table = fs::read_to_string(own.join("tests/FAULTS.md")).unwrap();
    let mut known = BTreeSet::new();
    functions(&own.join("src"), &mut known);
    functions(&own.join("tests"), &mut known);
    // A crate that stands alone has no workspace around it, and nothing to look its whole up in.
    let whole = own.join("../../../tests/e2e");
    let has_whole = whole.is_dir();
    functions(&whole, &mut known);

    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    let mut named = 0;
    for row in &rows {
        let shown = row.rsplit('|').nth(1).unwrap_or_default();
        let tests = shown.split('`').skip(1).step_by(2).filter(|name| name.contains('_'));
        for test in tests {
            named += 1;
            assert!(known.contains(test) || !has_whole, "there is no test {test}");
        }
        let is_heading = row.starts_with("| **");
        assert!(is_heading || shown.contains('`'), "nothing shows it: {row}");
    }
    assert!(rows.len() > 50 && named > 70, "{} rows name {named} tests", rows.len());
}
