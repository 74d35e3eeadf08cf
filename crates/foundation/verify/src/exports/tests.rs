use super::*;

/// Returns a file of Rust that the first of `by` that declares it makes a module.
fn module(path: &str, name: &str, by: &[&str], sides: [Option<&[&str]>; 2]) -> File {
    let by = by.iter().map(ToString::to_string).collect();
    let place = Some(Place { name: name.to_owned(), by });
    File { place, ..file(path, sides[0], sides[1]) }
}

fn symbol(line: u64, text: &str) -> Symbol {
    let (exported, text) = match text.strip_prefix('-') {
        Some(text) => (false, text),
        None => (true, text),
    };
    let (name, signature) = text.split_once(' ').unwrap_or((text, text));
    let kind = match signature.split_whitespace().find(|word| *word != "pub") {
        Some("use") => SymbolKind::Reexport,
        Some("mod") => SymbolKind::Module,
        _ => SymbolKind::Function,
    };
    Symbol { kind, name: name.to_owned(), signature: signature.to_owned(), exported, line }
}

fn side(symbols: Option<&[&str]>) -> Side {
    let Some(symbols) = symbols else { return Side::Absent };
    Side::Declares((1..).zip(symbols).map(|(line, text)| symbol(line, text)).collect())
}

fn file(path: &str, before: Option<&[&str]>, after: Option<&[&str]>) -> File {
    let language = match path.rsplit_once('.') {
        Some((_, "py")) => Language::Python,
        Some((_, "ts")) => Language::TypeScript,
        Some((_, "js")) => Language::JavaScript,
        _ => Language::Rust,
    };
    let (path, place) = (path.to_owned(), None);
    File { path, language, place, before: side(before), after: side(after) }
}

/// Returns what is found by each of the two checks.
fn found(files: Vec<File>) -> (Vec<String>, Vec<String>) {
    let by = |held| {
        let decision = judge(held, Read { files: files.clone(), outside: Vec::new() });
        assert_eq!(decision.passed, decision.issues.is_empty());
        decision.issues.iter().map(ToString::to_string).collect()
    };
    (by(Held::There), by(Held::Alike))
}

fn none() -> (Vec<String>, Vec<String>) {
    (Vec::new(), Vec::new())
}

#[test]
fn an_export_that_is_gone_is_told_with_its_place_and_what_it_was() {
    let files = vec![file("a.rs", Some(&["-own fn own()", "f fn f(a)"]), Some(&["g fn g()"]))];

    let (removed, changed) = found(files);

    let gone = "major: a.rs:2: function `f` is gone: was `fn f(a)`, line 2 when the task began";
    assert_eq!(removed, [gone]);
    assert_eq!(changed, Vec::<String>::new());
}

#[test]
fn an_export_with_another_signature_is_told_with_what_it_was_and_is() {
    let files = vec![file("a.rs", Some(&["f fn f(a)"]), Some(&["g fn g()", "f fn f(b)"]))];

    let (removed, changed) = found(files);

    assert_eq!(removed, Vec::<String>::new());
    assert_eq!(changed, ["major: a.rs:2: function `f` has changed: was `fn f(a)`, now `fn f(b)`"]);
}

#[test]
fn what_is_not_exported_any_more_is_both() {
    let (removed, changed) =
        found(vec![file("a.rs", Some(&["f pub fn f()"]), Some(&["-f fn f()"]))]);

    let what = "function `f`";
    let now = "was `pub fn f()`, now `fn f()`";
    assert_eq!(removed, [format!("major: a.rs:1: {what} is not exported any more: {now}")]);
    assert_eq!(changed, [format!("major: a.rs:1: {what} has changed: {now}")]);
}

#[test]
fn what_is_not_exported_may_go_and_change_and_what_is_new_is_fine() {
    let before: &[&str] = &["-f fn f()", "-g fn g(a)", "h fn h()"];
    let after: &[&str] = &["-g fn g(b)", "h fn h()", "i fn i()"];

    assert_eq!(found(vec![file("a.rs", Some(before), Some(after))]), none());
}

#[test]
fn what_moved_as_it_was_is_neither_gone_nor_changed() {
    let renamed =
        vec![file("a.rs", Some(&["f fn f()"]), None), file("b.rs", None, Some(&["f fn f()"]))];
    let handed_on = vec![
        file("a.rs", Some(&["f fn f()"]), Some(&["f use f"])),
        file("b.rs", None, Some(&["f fn f()"])),
    ];
    let kin =
        vec![file("a.js", Some(&["f fn f()"]), None), file("b.ts", None, Some(&["f fn f()"]))];

    for files in [renamed, handed_on, kin] {
        assert_eq!(found(files), none());
    }
}

#[test]
fn what_moved_to_where_nobody_reaches_it_is_gone() {
    let moved = |lib: &[&str]| {
        found(vec![
            file("lib.rs", Some(&["f fn f()"]), Some(lib)),
            module("b.rs", "b", &["lib.rs", "main.rs"], [None, Some(&["f fn f()"])]),
        ])
    };
    let gone = "major: lib.rs:1: function `f` is gone: was `fn f()`, line 1 when the task began; \
                b.rs has it, where others cannot reach it";

    for lib in [&["-b mod b"][..], &["-b mod b", "g use g"], &["-b mod b", "c::* use c::*"], &[]] {
        assert_eq!(moved(lib), (vec![gone.to_owned()], Vec::new()), "{lib:?}");
    }
    for lib in
        [&["b pub mod b"][..], &["-b mod b", "f use f"], &["-b mod b", "self::b::* use self::b::*"]]
    {
        assert_eq!(moved(lib), none(), "{lib:?}");
    }
    // One that a file declares by a path of its own is handed on by another name.
    assert_eq!(moved(&["-imp mod imp", "imp::* use imp::*"]), none());
}

#[test]
fn what_nobody_reached_before_may_move_to_where_nobody_reaches_it() {
    let lib = |before, after| file("lib.rs", Some(before), Some(after));
    let from = module("a.rs", "a", &["lib.rs"], [Some(&["f fn f()"]), None]);
    let to = |by| module("b.rs", "b", by, [None, Some(&["f fn f()"])]);
    let deep = module("b/c.rs", "c", &["b.rs"], [None, Some(&["f fn f()"])]);
    let above = module("b.rs", "b", &["lib.rs"], [None, Some(&["c pub mod c"])]);

    let within = found(vec![lib(&["-a mod a"], &["-b mod b"]), from.clone(), to(&["lib.rs"])]);
    let unknown = found(vec![from.clone(), to(&["lib.rs"])]);
    let hidden = found(vec![
        lib(&["a pub mod a"], &["-b mod b"]),
        from.clone(),
        above.clone(),
        deep.clone(),
    ]);
    let handed_on = found(vec![lib(&["a pub mod a"], &["-b mod b", "c use c"]), from, above, deep]);

    assert_eq!([within, unknown, handed_on], [none(), none(), (vec!["major: lib.rs:1: module `a` is gone: was `pub mod a`, line 1 when the task began".to_owned()], Vec::new())]);
    assert_eq!(hidden.0.len(), 2);
}

#[test]
fn what_stands_elsewhere_makes_up_for_one_loss_alone_and_in_its_language_alone() {
    let two = vec![
        file("a.rs", Some(&["new fn new()"]), None),
        file("b.rs", Some(&["new fn new()"]), None),
        file("c.rs", None, Some(&["new fn new()"])),
    ];
    let stood_before = vec![
        file("a.rs", Some(&["new fn new()"]), None),
        file("b.rs", Some(&["new fn new()"]), Some(&["new fn new()", "x fn x()"])),
    ];
    let other =
        vec![file("a.rs", Some(&["f fn f()"]), None), file("b.py", None, Some(&["f fn f()"]))];

    for files in [two, stood_before, other] {
        assert_eq!(found(files).0.len(), 1);
    }
}

#[test]
fn what_moved_with_another_signature_is_gone_and_changed_unless_it_is_handed_on() {
    let moved = |after: Option<&[&str]>| {
        found(vec![
            file("a.rs", Some(&["f fn f(a)"]), after),
            file("b.rs", None, Some(&["f fn f(b)"])),
        ])
    };

    let (removed, changed) = moved(None);
    let (still_there, changed_as_well) = moved(Some(&["f use f"]));

    assert_eq!(
        removed,
        ["major: a.rs:1: function `f` is gone: was `fn f(a)`, line 1 when the task began; \
          b.rs has one of that name, but `fn f(b)`"]
    );
    let change = "major: b.rs:1: function `f` has changed: was `fn f(a)`, now in b.rs `fn f(b)`";
    assert_eq!(changed, [change]);
    assert_eq!((still_there, changed_as_well), (Vec::new(), vec![change.to_owned()]));
}

#[test]
fn what_is_handed_on_from_nobody_knows_where_has_changed_and_is_there() {
    let (removed, changed) = found(vec![file("a.rs", Some(&["f fn f(a)"]), Some(&["f use f"]))]);

    assert_eq!(removed, Vec::<String>::new());
    assert_eq!(changed, ["major: a.rs:1: function `f` has changed: was `fn f(a)`, now `use f`"]);
}

#[test]
fn what_was_handed_on_may_be_declared_instead_and_may_not_go() {
    let declared = vec![file("a.rs", Some(&["f use f"]), Some(&["f fn f()"]))];
    let gone = vec![file("a.rs", Some(&["f use f"]), Some(&[]))];

    assert_eq!(found(declared), none());
    assert_eq!(found(gone).0.len(), 1);
}

#[test]
fn of_several_of_one_name_one_may_not_go() {
    let before: &[&str] = &["f fn f(a)", "f fn f(b)"];

    let one_less = found(vec![file("A.rs", Some(before), Some(&["f fn f(b)"]))]);
    let one_other = found(vec![file("A.rs", Some(before), Some(&["f fn f(c)", "f fn f(b)"]))]);

    assert_eq!((one_less.0.len(), one_less.1.len()), (1, 0));
    assert_eq!((one_other.0.len(), one_other.1.len()), (0, 1));
}

#[test]
fn a_file_that_cannot_be_read_any_more_fails_and_one_that_never_could_is_told_of() {
    let unread = || Side::Unread("line 3 is not understood as Rust".to_owned());
    let broken = File { after: unread(), ..file("a.rs", Some(&["f fn f()"]), None) };
    let odd = File { before: unread(), ..file("b.rs", None, Some(&["f fn f()"])) };
    let new = File { after: unread(), ..file("c.rs", None, None) };
    let outside = vec!["README.md".to_owned()];

    let fails = judge(Held::There, Read { files: vec![broken], outside: Vec::new() });
    let passes = judge(Held::There, Read { files: vec![odd, new], outside });

    assert!(!fails.passed);
    assert_eq!(
        fails.reason,
        "a.rs: what it exports cannot be told any more: line 3 is not understood as Rust"
    );
    assert!(passes.passed);
    assert_eq!(
        passes.reason,
        "nothing is gone of 0 exports in 2 changed files, but 2 of them could not be judged"
    );
    assert_eq!(
        passes.evidence.excerpt,
        "not judged: b.rs (line 3 is not understood as Rust, when the task began)\n\
         not judged: c.rs (line 3 is not understood as Rust)\n\
         not judged: README.md (its language is not known)\n"
    );
}

#[test]
fn where_no_language_is_known_nothing_is_said_of_any() {
    let read = Read { files: Vec::new(), outside: vec!["a.zig".to_owned()] };

    let decision = judge(Held::Alike, read);

    assert!(decision.passed);
    assert_eq!(decision.reason, "no file of a language that is known was changed");
    assert_eq!(decision.evidence.excerpt, "not judged: a.zig (its language is not known)\n");
}
