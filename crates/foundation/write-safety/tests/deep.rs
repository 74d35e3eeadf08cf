//! A tree that is deeper than any that people make: each way through it ends with a word, and none with the stack.

use formwork_write_safety::{
    Apply, Error, Reads, Refusal, Removal, Root, Sealing, Snapshots, Trash, Which, Workspace,
    WriteRules,
};
use rustix::fs::{Mode, OFlags, mkdirat, openat};
use std::{process::Command, sync::Arc};

const LEVELS: usize = 3_000;

/// Makes `d/d/d/…`, which is too deep to be named by a path, and takes it away again.
struct Deep(tempfile::TempDir);

impl Deep {
    fn new() -> std::io::Result<Self> {
        let place = tempfile::tempdir()?;
        std::fs::create_dir(place.path().join("ws"))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut folder = rustix::fs::open(place.path().join("ws"), flags, Mode::empty())?;
        for _ in 0..LEVELS {
            mkdirat(&folder, "d", Mode::RWXU)?;
            folder = openat(&folder, "d", flags, Mode::empty())?;
        }
        Ok(Self(place))
    }
}

impl Drop for Deep {
    fn drop(&mut self) {
        // The library's way to remove a tree holds a folder open for each level.
        let _ = Command::new("rm").arg("-rf").arg(self.0.path().join("ws")).status();
    }
}

#[test]
fn a_tree_of_thousands_of_levels_is_refused_or_left_out_and_never_overflows_the_stack() {
    let deep = Deep::new().unwrap();
    let root = Arc::new(Root::open(deep.0.path().join("ws")).unwrap());
    let state = deep.0.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let workspace =
        Workspace::new(Arc::clone(&root), WriteRules::everything(), Reads::new().session());

    let snapshots = Snapshots::open(state.join("snapshots")).unwrap();
    let snapshot = snapshots.take(&root, Which::All).unwrap();
    assert_eq!(snapshot.entries().len(), 200);
    assert_eq!(snapshot.skipped().len(), 1);

    let writable = WriteRules::everything().writable(root.path(), Sealing::Had, &[]);
    assert!(writable.roots.iter().all(|root| !root.ends_with("d/d/d")), "{writable:?}");

    let trash = Trash::open(state.join("trash")).unwrap();
    let removal = Removal { reason: "tidy".into(), run: "r".into(), task: "t".into(), at_ms: 0 };
    workspace.delete("d", &trash, &removal).unwrap_err();
    workspace.copy("d", "e").unwrap_err();
    assert!(!root.path().join("e").exists());

    let refused = workspace.create("x/".repeat(250) + "f", "x", Apply::Write);
    let why = Refusal::TooDeep { limit: 200 };
    assert!(matches!(refused, Err(Error::Refused { why: found, .. }) if found == why));
}
