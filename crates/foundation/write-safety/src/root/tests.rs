use super::*;
use std::os::unix::fs::symlink;

/// A workspace, a trusted folder and a secret outside, with both resolvers.
struct Place {
    _keep: tempfile::TempDir,
    base: PathBuf,
}

impl Place {
    fn new() -> Self {
        let keep = tempfile::tempdir().unwrap();
        let base = keep.path().canonicalize().unwrap();
        for (file, text) in [("ws/src/a.rs", "a"), ("lib/b.rs", "b"), ("secret", "s")] {
            let file = base.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        Self { _keep: keep, base }
    }

    fn link(&self, target: &str, link: &str) {
        symlink(target, self.base.join("ws").join(link)).unwrap();
    }

    fn roots(&self) -> [Root; 2] {
        let open =
            || Root::open(self.base.join("ws")).unwrap().trust(self.base.join("lib")).unwrap();
        [open(), open().walking()]
    }
}

fn why(error: Error) -> Refusal {
    match error {
        Error::Refused { why, .. } => why,
        other => panic!("wanted a refusal, found {other:?}"),
    }
}

#[test]
fn a_file_is_read_by_relative_absolute_and_linked_path() {
    let place = Place::new();
    place.link("src", "code");
    place.link("code/../code/a.rs", "again");
    place.link(place.base.join("ws/src/a.rs").to_str().unwrap(), "absolute");
    place.link("../lib/b.rs", "to-lib");
    let base = place.base.display();

    for root in place.roots() {
        for (path, text) in [
            ("src/a.rs".to_owned(), "a"),
            ("./src/../src/a.rs".to_owned(), "a"),
            ("code/a.rs".to_owned(), "a"),
            ("again".to_owned(), "a"),
            ("absolute".to_owned(), "a"),
            ("to-lib".to_owned(), "b"),
            (format!("{base}/ws/src/a.rs"), "a"),
            (format!("{base}/ws/../lib/b.rs"), "b"),
        ] {
            assert_eq!(root.read(&path).unwrap(), text.as_bytes(), "{path} by {:?}", root.resolver);
        }
    }
}

#[test]
fn no_way_leads_out() {
    let place = Place::new();
    place.link("../secret", "up");
    place.link("src/../../secret", "down-and-up");
    place.link("/etc", "etc");
    place.link("up", "chained");
    place.link("../nowhere", "dangling");
    place.link("/proc/self/root/etc/passwd", "magic");
    place.link("..", "parent");
    let base = place.base.display();

    for root in place.roots() {
        for path in [
            "../secret".to_owned(),
            "src/../../secret".to_owned(),
            "up".to_owned(),
            "down-and-up".to_owned(),
            "etc/passwd".to_owned(),
            "chained".to_owned(),
            "dangling".to_owned(),
            "magic".to_owned(),
            "parent/secret".to_owned(),
            "/etc/passwd".to_owned(),
            "/proc/self/root/etc/passwd".to_owned(),
            format!("{base}/secret"),
            format!("{base}/ws-other/x"),
        ] {
            let refused = why(root.read(&path).unwrap_err());

            assert!(
                matches!(refused, Refusal::Outside | Refusal::LinkOutside { .. }),
                "{path} by {:?}: {refused}",
                root.resolver
            );
        }
    }
}

#[test]
fn links_that_go_in_circles_end() {
    let place = Place::new();
    place.link("b", "a");
    place.link("a", "b");

    for root in place.roots() {
        assert_eq!(why(root.read("a").unwrap_err()), Refusal::TooManyLinks { limit: MAX_LINKS });
    }
}

#[test]
fn a_trusted_root_is_not_for_writing() {
    let place = Place::new();
    place.link("../lib", "lib");

    for root in place.roots() {
        let direct = root.locate(&place.base.join("lib/b.rs"), Access::Write, Last::Follow);
        let linked = root.locate(Path::new("lib/b.rs"), Access::Write, Last::Follow);

        for refused in [direct, linked] {
            assert!(matches!(why(refused.unwrap_err()), Refusal::ReadOnly { .. }));
        }
    }
}

#[test]
fn a_pipe_and_a_folder_are_not_read_as_files() {
    let place = Place::new();
    let pipe = place.base.join("ws/pipe");
    fs::mknodat(fs::CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();

    for root in place.roots() {
        assert_eq!(why(root.read("pipe").unwrap_err()), Refusal::Special { kind: "special file" });
        let folder = root.read("src").unwrap_err().to_string();
        assert_eq!(folder, r#""src" is a folder, wanted a file"#);
        let below = root.read("src/a.rs/x").unwrap_err().to_string();
        assert_eq!(below, r#""src/a.rs/x" is a file, wanted a folder"#);
    }
}

#[test]
fn a_folder_lists_its_names_and_kinds() {
    let place = Place::new();
    place.link("/etc", "etc");

    for root in place.roots() {
        let entry = |name: &str, kind| Entry { name: name.into(), kind };
        assert_eq!(root.list(".").unwrap(), [entry("etc", Kind::Link), entry("src", Kind::Folder)]);
        assert_eq!(root.list("src").unwrap(), [entry("a.rs", Kind::File)]);
        assert!(matches!(root.list("none"), Err(Error::Missing { path }) if path == "none"));
        assert_eq!(root.real("src/../src/a.rs").unwrap(), place.base.join("ws/src/a.rs"));
    }
}

#[test]
fn a_folder_swapped_for_a_link_while_it_is_read_never_leads_out() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let place = Place::new();
    let ws = place.base.join("ws");
    std::fs::create_dir(place.base.join("out")).unwrap();
    std::fs::write(place.base.join("out/a.rs"), "SECRET").unwrap();
    symlink("../out", ws.join("evil")).unwrap();
    let done = AtomicBool::new(false);

    for root in place.roots() {
        done.store(false, Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    fs::renameat_with(
                        fs::CWD,
                        ws.join("src"),
                        fs::CWD,
                        ws.join("evil"),
                        fs::RenameFlags::EXCHANGE,
                    )
                    .unwrap();
                }
            });
            let mut texts = std::collections::BTreeSet::new();
            for _ in 0..3000 {
                texts.extend(root.read("src/a.rs").ok());
            }
            done.store(true, Ordering::Relaxed);
            assert_eq!(texts.into_iter().collect::<Vec<_>>(), [b"a"]);
        });
    }
}
