//! Files: read, listed, written, edited, deleted, and never reached outside the workspace.

use std::{fs, os::unix::fs::symlink};

use formwork_protocols::{Attachment, BlobHash};
use serde_json::json;

use crate::world::{Setup, World};

#[tokio::test]
async fn a_picture_is_shown_and_kept_by_its_hash_and_other_bytes_are_no_text() {
    let world = World::new();
    let png = b"\x89PNG and then IEND";
    world.put("shots/a.png", png);
    world.put("b.bin", b"\0\x01\x02");

    let told = world.call("fs.read", json!({ "path": "shots/a.png" })).await;
    let other = world.fails("fs.read", json!({ "path": "b.bin" })).await;

    let picture = Attachment {
        blob: BlobHash::of(png),
        media_type: "image/png".to_owned(),
        bytes: 18,
        pixels: Some((2, 1)),
        name: "shots/a.png".to_owned(),
        content: None,
    };
    let line = format!(
        "shots/a.png is a picture of 2 × 1 pixels\n[image/png, 18 bytes, kept as {}]",
        picture.blob
    );
    assert_eq!((told.text, told.attached), (line, vec![picture]));
    assert!(other.contains("b.bin is not a text file: 3 bytes"), "{other}");
}

#[tokio::test]
async fn a_file_is_read_whole_or_in_part() {
    let world = World::new();
    world.put("a.txt", "one\ntwo\nthree\nfour");

    let whole = world.done("fs.read", json!({ "path": "a.txt" })).await;
    let middle = world.done("fs.read", json!({ "path": "a.txt", "from": 2, "lines": 2 })).await;
    let rest = world.done("fs.read", json!({ "path": "a.txt", "from": 4 })).await;

    assert_eq!(whole, "one\ntwo\nthree\nfour");
    assert_eq!(middle, "[lines 2 to 3 of 4]\ntwo\nthree\n");
    assert_eq!(rest, "[lines 4 to 4 of 4]\nfour");
}

#[tokio::test]
async fn a_part_that_is_not_there_is_told_by_how_many_lines_there_are() {
    let world = World::new();
    world.put("a.txt", "one\n");

    let beyond = world.fails("fs.read", json!({ "path": "a.txt", "from": 2 })).await;
    let none = world.fails("fs.read", json!({ "path": "a.txt", "lines": 0 })).await;

    assert_eq!(beyond, "error (invalid_arguments): a.txt has 1 lines, line 2 was asked for");
    assert!(none.contains("/lines: 0 is less than the minimum of 1"), "{none}");
}

#[tokio::test]
async fn an_empty_file_is_said_to_be_empty() {
    let world = World::new();
    world.put("a.txt", "");

    for arguments in [json!({ "path": "a.txt" }), json!({ "path": "a.txt", "from": 1 })] {
        assert_eq!(world.done("fs.read", arguments).await, "a.txt is empty");
    }
}

#[tokio::test]
async fn what_is_not_text_is_not_shown_as_text() {
    let world = World::new();
    world.put("logo.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");

    let told = world.fails("fs.read", json!({ "path": "logo.png" })).await;

    assert_eq!(told, "error (failed): logo.png is not a text file: 16 bytes");
}

#[tokio::test]
async fn a_folder_lists_its_names_in_order() {
    let world = World::new();
    world.put("b.txt", "");
    world.put("a/c.txt", "");
    symlink("b.txt", world.path("link")).unwrap();
    fs::create_dir(world.path("empty")).unwrap();

    let root = world.done("fs.list_dir", json!({})).await;
    let empty = world.done("fs.list_dir", json!({ "path": "empty" })).await;

    assert_eq!(root, "a/\nb.txt\nempty/\nlink@\n");
    assert_eq!(empty, "empty is an empty folder");
}

#[tokio::test]
async fn a_path_says_what_it_is() {
    let world = World::new();
    world.put("a.txt", "four");

    let told = world.done("fs.stat", json!({ "path": "a.txt" })).await;

    assert!(told.starts_with("a.txt: file, 4 bytes, mode 0"), "{told}");
    assert!(told.contains(", changed 20"), "{told}");
}

#[tokio::test]
async fn a_file_that_exists_is_overwritten_only_once_it_was_read() {
    let world = World::new();
    world.put("a.txt", "old\n");
    let write = || json!({ "path": "a.txt", "content": "new\n" });

    let unread = world.fails("fs.write", write()).await;
    let kept = world.content("a.txt");
    world.done("fs.read", json!({ "path": "a.txt" })).await;
    let written = world.done("fs.write", write()).await;

    assert_eq!(
        unread,
        r#"error (denied): "a.txt" was not read by this session; read it before it is overwritten"#
    );
    assert_eq!(kept, "old\n");
    assert_eq!(written, "changed a.txt (+1 -1)");
    assert_eq!(world.content("a.txt"), "new\n");
}

#[tokio::test]
async fn behaviour_21_a_file_that_somebody_changed_meanwhile_is_not_overwritten() {
    let world = World::new();
    world.put("a.txt", "old\n");
    world.done("fs.read", json!({ "path": "a.txt" })).await;
    world.put("a.txt", "theirs\n");

    let told = world.fails("fs.write", json!({ "path": "a.txt", "content": "mine\n" })).await;

    assert!(told.contains("was changed by somebody outside this run"), "{told}");
    assert_eq!(world.content("a.txt"), "theirs\n");
}

#[tokio::test]
async fn a_new_file_makes_its_folders() {
    let world = World::new();

    let told = world.done("fs.write", json!({ "path": "a/b/c.txt", "content": "c\n" })).await;

    assert_eq!(told, "created a/b/c.txt (+1 -0)");
    assert_eq!(world.content("a/b/c.txt"), "c\n");
}

#[tokio::test]
async fn an_edit_leaves_every_other_byte() {
    let world = World::new();
    world.put("a.txt", "one\r\ntwo\r\nthree");

    let told = world.done("fs.edit", json!({ "path": "a.txt", "old": "two", "new": "2" })).await;

    assert_eq!(told, "changed a.txt (+1 -1)");
    assert_eq!(world.content("a.txt"), "one\r\n2\r\nthree");
}

#[tokio::test]
async fn an_edit_of_a_text_that_stands_twice_needs_to_be_told_all() {
    let world = World::new();
    world.put("a.txt", "x\nx\n");

    let told = world.fails("fs.edit", json!({ "path": "a.txt", "old": "x", "new": "y" })).await;
    let kept = world.content("a.txt");
    let all = json!({ "path": "a.txt", "old": "x", "new": "y", "all": true });
    world.done("fs.edit", all).await;

    assert!(told.starts_with("error (failed): edit 1 of \"a.txt\": "), "{told}");
    assert!(told.contains('2'), "{told}");
    assert_eq!((kept.as_str(), world.content("a.txt").as_str()), ("x\nx\n", "y\ny\n"));
}

#[tokio::test]
async fn an_edit_that_misses_is_shown_the_nearest_text() {
    let world = World::new();
    world.put("a.rs", "fn main() {\n    let total = one + two;\n}\n");

    let arguments = json!({ "path": "a.rs", "old": "let total = one + tow;", "new": "" });
    let told = world.fails("fs.edit", arguments).await;

    assert!(told.contains("let total = one + two;"), "{told}");
}

#[tokio::test]
async fn a_deleted_file_is_in_the_trash_with_the_reason() {
    let world = World::new();
    world.put("old/a.txt", "a\n");

    let arguments = json!({ "path": "old/a.txt", "reason": "it is not used any more" });
    let told = world.done("fs.delete", arguments).await;

    assert!(!world.path("old/a.txt").exists());
    let entries = world.trash.list().unwrap();
    let [entry] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!(told, format!("deleted file old/a.txt; in the trash as {}", entry.id));
    assert_eq!(entry.reason, "it is not used any more");
    assert_eq!(entry.task, world.context.task.to_string());
    assert_eq!(entry.at_ms, 1_767_268_800_000);
}

#[tokio::test]
async fn behaviour_27_nothing_is_deleted_without_a_reason() {
    let world = World::new();
    world.put("a.txt", "a\n");

    for arguments in [json!({ "path": "a.txt" }), json!({ "path": "a.txt", "reason": "" })] {
        let told = world.fails("fs.delete", arguments).await;

        assert!(told.contains("reason"), "{told}");
        assert!(world.path("a.txt").exists());
    }
}

#[tokio::test]
async fn no_path_leads_out_of_the_workspace() {
    let world = World::new();
    let outside = world.folder().parent().unwrap().join("outside.txt");
    fs::write(&outside, "keep\n").unwrap();
    fs::create_dir(world.path("sub")).unwrap();
    symlink("../outside.txt", world.path("link.txt")).unwrap();
    symlink("..", world.path("up")).unwrap();
    symlink("../new.txt", world.path("dangling.txt")).unwrap();
    let absolute = outside.to_string_lossy().into_owned();

    let paths = [
        "../outside.txt",
        "sub/../../outside.txt",
        "./../outside.txt",
        absolute.as_str(),
        "link.txt",
        "up/outside.txt",
        "dangling.txt",
        "/etc/passwd",
        "a\0b",
        "",
    ];
    for path in paths {
        let read = world.fails("fs.read", json!({ "path": path })).await;
        let write = world.fails("fs.write", json!({ "path": path, "content": "gone" })).await;
        let edit = json!({ "path": path, "old": "keep", "new": "gone" });
        let edit = world.fails("fs.edit", edit).await;

        for told in [&read, &write, &edit] {
            assert!(told.starts_with("error (denied): "), "{path:?}: {told}");
        }
        assert!(!read.contains("keep"), "{path:?}: {read}");
    }
    assert_eq!(fs::read_to_string(&outside).unwrap(), "keep\n");
    assert!(!outside.with_file_name("new.txt").exists());
}

#[tokio::test]
async fn nothing_outside_is_deleted_through_a_link() {
    let world = World::new();
    let outside = world.folder().parent().unwrap().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("a.txt"), "keep\n").unwrap();
    symlink("../outside", world.path("link")).unwrap();

    let within = json!({ "path": "link/a.txt", "reason": "tidy" });
    world.fails("fs.delete", within).await;
    world.fails("fs.delete", json!({ "path": ".", "reason": "tidy" })).await;
    world.done("fs.delete", json!({ "path": "link", "reason": "tidy" })).await;

    assert_eq!(fs::read_to_string(outside.join("a.txt")).unwrap(), "keep\n");
    assert!(world.path("link").symlink_metadata().is_err());
}

#[tokio::test]
async fn git_s_own_folder_is_never_written() {
    let world = World::new();
    fs::create_dir(world.path(".git")).unwrap();
    symlink(".git", world.path("alias")).unwrap();

    for path in [".git/config", ".GIT/config", "sub/.git/hooks/pre-commit", "alias/config"] {
        let told = world.fails("fs.write", json!({ "path": path, "content": "x" })).await;

        assert!(told.starts_with("error (denied): "), "{path}: {told}");
    }
    let told = world.fails("fs.delete", json!({ "path": ".git", "reason": "tidy" })).await;
    assert!(told.starts_with("error (denied): "), "{told}");
    assert_eq!(fs::read_dir(world.path(".git")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_protected_path_is_written_by_no_name() {
    let world = World::with(Setup { protected: &["ci/**", "*.lock"], ..Setup::default() });
    world.put("ci/deploy.yml", "keep\n");
    symlink("ci", world.path("alias")).unwrap();

    for path in ["ci/deploy.yml", "./ci/new.yml", "alias/deploy.yml", "Cargo.lock"] {
        let told = world.fails("fs.write", json!({ "path": path, "content": "x" })).await;

        assert!(told.starts_with("error (denied): "), "{path}: {told}");
    }
    let told = world.fails("fs.delete", json!({ "path": "ci", "reason": "tidy" })).await;
    assert!(told.starts_with("error (denied): "), "{told}");
    assert_eq!(world.content("ci/deploy.yml"), "keep\n");
}

#[tokio::test]
async fn what_is_not_within_the_write_paths_is_only_read() {
    let world = World::with(Setup { write_paths: &["src/**"], ..Setup::default() });
    world.put("README.md", "keep\n");

    let read = world.done("fs.read", json!({ "path": "README.md" })).await;
    let told = world.fails("fs.write", json!({ "path": "README.md", "content": "x" })).await;
    world.done("fs.write", json!({ "path": "src/a.rs", "content": "x" })).await;

    assert_eq!(read, "keep\n");
    assert_eq!(
        told,
        r#"error (denied): "README.md" is refused: "README.md" is not within the write paths ["src/**"]"#
    );
}

#[tokio::test]
async fn files_that_are_too_large_to_show_are_not_compared_or_edited() {
    let world = World::new();
    world.put("small", "a\n");
    let large = std::fs::File::create(world.path("large")).unwrap();
    large.set_len((32 << 20) + 1).unwrap();

    let compared = world.fails("fs.diff", json!({ "from": "small", "to": "large" })).await;
    let edit = json!({ "path": "large", "old": "a", "new": "b" });
    let edited = world.fails("fs.edit", edit).await;

    for told in [compared, edited] {
        assert!(told.contains("has 33554433 bytes, wanted at most 33554432"), "{told}");
    }
}
