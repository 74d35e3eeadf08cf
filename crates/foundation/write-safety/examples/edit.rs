//! Edits a file as an agent would, and shows what is refused: `cargo run --example edit`.

use formwork_write_safety::{Apply, Edit, Reads, Root, Snapshots, Which, Workspace, WriteRules};
use std::{error::Error, fs, io::Write, sync::Arc};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let (workspace_dir, store_dir) = (folder.path().join("project"), folder.path().join("store"));
    fs::create_dir_all(workspace_dir.join("src"))?;
    fs::write(workspace_dir.join("src/greet.txt"), "Hello,\r\nworld\r\n")?;

    let root = Arc::new(Root::open(&workspace_dir)?);
    let rules = WriteRules::parse(&["src/**"], &["src/vendor/**"])?;
    let workspace = Workspace::new(Arc::clone(&root), rules, Reads::new().session());
    let snapshots = Snapshots::open(&store_dir)?;
    let before = snapshots.take(&root, Which::NotIgnored)?;
    let mut out = std::io::stdout().lock();

    let edits = [Edit::one("Hello,\nworld", "Hello,\nFormwork")];
    let changed = workspace.edit("src/greet.txt", &edits, Apply::Write)?;
    writeln!(out, "{}", changed.diff)?;
    for refused in [
        workspace.write("src/../../escape", b"", Apply::Write),
        workspace.write("Cargo.toml", b"", Apply::Write),
        workspace.write("src/greet.txt", b"not read before", Apply::Write),
        workspace.edit("src/greet.txt", &[Edit::one("hello", "Bye")], Apply::Write),
    ] {
        if let Err(error) = refused {
            writeln!(out, "{error}")?;
        }
    }

    let restored = snapshots.restore(&root, &before)?;
    writeln!(out, "{} file restored", restored.paths.len())?;
    Ok(())
}
