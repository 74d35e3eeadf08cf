use super::*;
use crate::text::Encoding;
use proptest::prelude::*;

fn miss(bytes: &str, edit: Edit) -> Miss {
    match splice("f", bytes.as_bytes(), &[edit]) {
        Err(Error::Miss { miss, .. }) => *miss,
        other => panic!("wanted a miss, found {other:?}"),
    }
}

fn patched(bytes: &str, patch: &str) -> Result<String, Error> {
    let patch = Patch::parse(patch)?;
    let Action::Update { hunks, .. } = &patch.files()[0].action else { panic!("no update") };
    Ok(String::from_utf8(change("f", bytes.as_bytes(), Change::Hunks(hunks))?).unwrap())
}

use super::patch::{Action, Runs};

#[test]
fn edits_apply_in_turn_and_all_or_none() {
    let edits = [Edit::one("b", "c"), Edit::all("c", "d")];

    assert_eq!(splice("f", b"a b c", &edits).unwrap(), b"a d d");
    let edits = [Edit::one("a", "x"), Edit::one("nowhere at all", "y")];
    let error = splice("f", b"a b c", &edits).unwrap_err().to_string();
    assert_eq!(error, r#"edit 2 of "f": cannot place "nowhere at all": no such text is there"#);
}

#[test]
fn a_text_with_several_places_names_their_lines_overlapping_ones_too() {
    assert_eq!(
        miss("x\ny\nx\n", Edit::one("x", "z")).reason,
        Reason::Several { lines: vec![1, 3] }
    );
    assert_eq!(miss("aaa", Edit::one("aa", "b")).reason, Reason::Several { lines: vec![1, 1] });
}

#[test]
fn a_miss_says_why_and_what_comes_nearest() {
    let file = "fn main() {\n    let name = \u{201c}caf\u{e9}\u{201d};  \n\tif a { b }\n}\n";
    for (old, reason, line) in [
        ("fn main() {\nlet name", Reason::Indentation, 1),
        ("    if a { b }", Reason::Indentation, 3),
        ("if a {b}", Reason::Spacing, 3),
        ("let name = \"caf\u{e9}\"", Reason::Unicode, 2),
        ("\u{201c}cafe\u{301}\u{201d}", Reason::Unicode, 2),
        ("\u{201c}caf\u{e9}\u{201d};\n\tif", Reason::TrailingSpace, 2),
        ("FN main", Reason::Case, 1),
        ("fn main() {\\n    let", Reason::Escaped, 1),
        ("3\t\tif a { b }", Reason::LineNumbers, 3),
        ("fn main(args) {", Reason::Different, 1),
        ("if  a {\tb } \n}", Reason::Spacing, 3),
        ("let  name = \"cafe\u{301}\"", Reason::Unicode, 2),
    ] {
        let miss = miss(file, Edit::one(old, "new"));

        assert_eq!(
            (&miss.reason, miss.nearest.as_ref().map(|n| n.line)),
            (&reason, Some(line)),
            "{miss}"
        );
    }
    assert_eq!(miss("a\rb\rc", Edit::one("a\nb", "x")).reason, Reason::LineEnding);
    assert_eq!(miss("a", Edit::one("", "x")).reason, Reason::Empty);
    assert_eq!(miss("a", Edit::one("a", "a")).reason, Reason::Unchanged);
}

#[test]
fn a_missing_last_newline_stays_missing() {
    assert_eq!(splice("f", b"a\nb", &[Edit::one("b\n", "c\n")]).unwrap(), b"a\nc");
    assert_eq!(
        splice("f", b"a\r\nb", &[Edit::one("a\nb\n", "a\nB\nC\n")]).unwrap(),
        b"a\r\nB\r\nC"
    );
    assert_eq!(splice("f", b"", &[Edit::one("", "new\n")]).unwrap(), b"new\n");
}

#[test]
fn a_v4a_patch_finds_its_place_by_context_and_anchor() {
    let file = "class A:\n  def f():\n    return 1\n  def g():\n    return 1\n";
    let patch = "*** Begin Patch\n*** Update File: f\n@@ class A:\n@@   def g():\n-    return 1\n+    return 2\n*** End Patch\n";

    assert_eq!(
        patched(file, patch).unwrap(),
        "class A:\n  def f():\n    return 1\n  def g():\n    return 2\n"
    );
    let unanchored =
        "*** Begin Patch\n*** Update File: f\n@@\n-    return 1\n+    return 2\n*** End Patch";
    let error = patched(file, unanchored).unwrap_err().to_string();
    assert!(error.contains("several places, lines 3, 5"), "{error}");
    let at_end = "*** Begin Patch\n*** Update File: f\n@@\n-    return 1\n+    return 2\n*** End of File\n*** End Patch";
    assert!(patched(file, at_end).unwrap().ends_with("g():\n    return 2\n"));
}

#[test]
fn a_v4a_patch_names_what_becomes_of_each_file() {
    let patch = Patch::parse(
        "*** Begin Patch\n*** Add File: new\n+a\n+\n*** Delete File: old\n*** Update File: x\n*** Move to: y\n*** End Patch\n",
    )
    .unwrap();

    let expected = [
        PatchedFile {
            path: "new".into(),
            action: Action::Create { text: "a\n\n".into(), runs: Runs::AsIs },
        },
        PatchedFile { path: "old".into(), action: Action::Delete },
        PatchedFile {
            path: "x".into(),
            action: Action::Update {
                to: Some("y".into()),
                hunks: vec![],
                was: Runs::AsIs,
                runs: Runs::AsIs,
            },
        },
    ];
    assert_eq!(patch.files(), expected);
}

#[test]
fn a_unified_diff_with_wrong_counts_and_lines_applies() {
    let file = "one\r\ntwo\nthree\n\nfour\n";
    let diff =
        "--- a/f\n+++ b/f\n@@ -40,9 +41,1 @@ fn x\n one\n-two\n+2\n+2b\n three\n\n-four\n+4\n\n";

    assert_eq!(patched(file, diff).unwrap(), "one\r\n2\n2b\nthree\n\n4\n");
}

#[test]
fn a_unified_diffs_line_number_decides_between_equal_blocks() {
    let file = "a\nx\nb\nx\nc\n";
    let diff = |line| format!("--- a/f\n+++ b/f\n@@ -{line},1 +{line},1 @@\n-x\n+y\n");

    assert_eq!(patched(file, &diff(4)).unwrap(), "a\nx\nb\ny\nc\n");
    assert!(patched(file, &diff(3)).is_err());
}

/// Each of these took minutes when the text was gone through anew for each place or hunk.
#[test]
fn the_text_is_gone_through_once_however_many_places_change() {
    const MANY: usize = 10_000;
    let lines: String = (0..MANY).map(|n| format!("line {n}\n")).collect();

    let all = splice("f", lines.as_bytes(), &[Edit::all("line", "Zeile")]).unwrap();
    assert!(all.starts_with(b"Zeile 0\nZeile 1\n") && all.ends_with(b"Zeile 9999\n"));

    let hunk = |n: usize| format!("@@ -{0},1 +{0},1 @@\n-line {n}\n+LINE {n}\n", n + 1);
    let patch: String = (0..MANY).map(hunk).collect();
    let patched = patched(&lines, &format!("--- a/f\n+++ b/f\n{patch}")).unwrap();
    assert_eq!(patched, lines.to_uppercase());

    let same = "=".repeat(500_000);
    let several = miss(&same, Edit::one("=".repeat(10_000), "x"));
    assert!(matches!(several.reason, Reason::Several { lines } if lines == [1; 20]));
}

#[test]
fn a_folder_named_a_is_not_taken_for_gits_prefix() {
    let path = |old: &str, new: &str| {
        let diff = format!("--- {old}\n+++ {new}\n@@ -1 +1 @@\n-x\n+y\n");
        Patch::parse(&diff).unwrap().files()[0].path().to_owned()
    };

    assert_eq!(path("a/x", "b/x"), "x");
    assert_eq!(path("a/x", "a/x"), "a/x");
    assert_eq!(path("x", "x"), "x");
}

#[test]
fn a_header_of_git_says_what_becomes_of_a_file_without_hunks() {
    let patch = Patch::parse(
        "A mail about the new mode of things\nnew mode 120000\ndiff --git a/run b/run\nold mode 100644\nnew mode 100755\n\
         diff --git a/a b/c.txt b/a b/c.txt\nold mode 100755\nnew mode 100644\n\
         diff --git a/empty b/empty\nnew file mode 100644\nindex 0000000..e69de29\n\
         diff --git \"a/gone ü\" \"b/gone ü\"\ndeleted file mode 100755\nindex e69de29..0000000\n\
         diff --git a/old b/new\nold mode 100644\nnew mode 100755\nsimilarity index 100%\nrename from old\nrename to new\n\
         diff --git a/x b/y\nsimilarity index 90%\nrename from x\nrename to y\n--- a/x\n+++ b/y\n@@ -1 +1 @@\n-1\n+2\n\
         diff --git a/tool b/tool\nnew file mode 100755\n--- /dev/null\n+++ b/tool\n@@ -0,0 +1 @@\n+x\n",
    )
    .unwrap();

    let told: Vec<_> = patch
        .files()
        .iter()
        .map(|file| {
            let (what, runs) = match &file.action {
                Action::Create { text, runs } => (format!("create {text:?}"), *runs),
                Action::Update { to, hunks, runs, .. } => {
                    (format!("{} hunks, to {}", hunks.len(), to.as_deref().unwrap_or("-")), *runs)
                }
                Action::Delete => ("delete".to_owned(), Runs::AsIs),
            };
            (file.path(), what, runs)
        })
        .collect();
    let expected = [
        ("run", "0 hunks, to -", Runs::Yes),
        ("a b/c.txt", "0 hunks, to -", Runs::No),
        ("empty", "create \"\"", Runs::No),
        ("gone ü", "delete", Runs::AsIs),
        ("old", "0 hunks, to new", Runs::Yes),
        ("x", "1 hunks, to y", Runs::AsIs),
        ("tool", "create \"x\\n\"", Runs::Yes),
    ];
    assert_eq!(told, expected.map(|(path, what, runs)| (path, what.to_owned(), runs)));
}

#[test]
fn what_a_header_of_git_says_and_cannot_be_done_is_refused_by_name() {
    let refused = |lines: &str| {
        let patch =
            format!("diff --git a/f b/f\n{lines}--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+x\n");
        Patch::parse(&patch).unwrap_err().to_string()
    };

    assert_eq!(
        refused("new file mode 120000\n"),
        "patch line 2: a new file has mode 100644 or 100755, found 120000, which is a link"
    );
    assert_eq!(
        refused("new file mode 160000\n"),
        "patch line 2: a new file has mode 100644 or 100755, found 160000, which is a submodule"
    );
    assert_eq!(
        refused("old mode 100644\nnew mode 104755\n"),
        "patch line 3: a file has mode 100644 or 100755, found 104755"
    );
    assert_eq!(
        refused("old mode 120000\nnew mode 100644\n"),
        "patch line 2: a file has mode 100644 or 100755, found 120000, which is a link"
    );
    assert_eq!(
        refused("similarity index 100%\ncopy from f\ncopy to g\n"),
        "patch line 3: copies cannot be applied: copy the file, and patch the copy"
    );
}

#[test]
fn a_unified_diff_can_add_and_take_the_last_newline() {
    let add = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n";
    let remove = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file\n";

    assert_eq!(patched("a", add).unwrap(), "b\n");
    assert_eq!(patched("a\n", remove).unwrap(), "b");
    let keep = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n";
    assert_eq!(patched("a", keep).unwrap(), "b");
}

#[test]
fn a_hunk_whose_spaces_drifted_is_refused_with_the_reason() {
    let diff = "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n   if x:\n-   y\n+   z\n";

    let error = patched("if x:\n\ty\n", diff).unwrap_err().to_string();

    assert!(error.contains("the indentation differs; nearest is line 1"), "{error}");
}

#[test]
fn what_is_no_patch_is_refused_by_line() {
    for (patch, message) in [
        ("hello", "patch line 1: the patch names no file"),
        (
            "*** Begin Patch\n*** Add File: x\nraw\n*** End Patch",
            "patch line 3: a line of a new file begins with `+`, found \"raw\"",
        ),
        (
            "*** Begin Patch\n*** Update File: x\n-a\n",
            "patch line 3: wanted `*** End Patch`, found the end",
        ),
        ("--- a/x\n@@ -1 +1 @@\n", "patch line 2: wanted `+++ …` below `--- …`"),
        ("*** Begin Patch\n*** End Patch", "patch line 2: the patch names no file"),
    ] {
        assert_eq!(Patch::parse(patch).unwrap_err().to_string(), message);
    }
}

#[test]
fn a_diff_shows_what_changes_endings_only_where_nothing_else_does() {
    assert_eq!(
        diff("f", Some(b"a\r\nb\r\n"), Some(b"a\r\nc\r\n")),
        "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
    );
    assert!(diff("f", Some(b"a\r\n"), Some(b"a\n")).contains("-a\r\n+a\n"));
    assert_eq!(diff("f", Some(b"a"), Some(b"a")), "");
    assert_eq!(diff("f", None, Some(b"a\n")), "--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+a\n");
    assert_eq!(diff("f", Some(b"\0"), Some(b"\0\0")), "Binary file f differs: 1 bytes, then 2\n");
    // What an interpreter runs is shown, whatever stands beside it.
    let script = b"one();\ntwo();\nthree(); //\0\n";
    assert_eq!(
        diff("f", None, Some(script)),
        "--- /dev/null\n+++ b/f\n@@ -0,0 +1,3 @@\n+one();\n+two();\n+three(); //␀\n"
    );
}

/// A file of marked lines in one of six encodings.
#[derive(Debug, Clone, Copy)]
enum Form {
    Utf8,
    Utf8Bom,
    Utf16Le,
    Utf16Be,
    Latin1,
    Utf16LeBare,
}

fn encode(form: Form, text: &str) -> Vec<u8> {
    match form {
        Form::Utf8 | Form::Utf8Bom => text.as_bytes().to_vec(),
        Form::Utf16Le | Form::Utf16LeBare => {
            text.encode_utf16().flat_map(u16::to_le_bytes).collect()
        }
        Form::Utf16Be => text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
        Form::Latin1 => encoding_rs::WINDOWS_1252.encode(text).0.into_owned(),
    }
}

fn mark(form: Form) -> &'static [u8] {
    match form {
        Form::Utf8Bom => b"\xef\xbb\xbf",
        Form::Utf16Le => b"\xff\xfe",
        Form::Utf16Be => b"\xfe\xff",
        Form::Utf8 | Form::Latin1 | Form::Utf16LeBare => b"",
    }
}

fn forms() -> impl Strategy<Value = Form> {
    prop::sample::select(vec![
        Form::Utf8,
        Form::Utf8Bom,
        Form::Utf16Le,
        Form::Utf16Be,
        Form::Latin1,
        Form::Utf16LeBare,
    ])
}

/// Lines over characters that every form has, with any ending; long enough to tell bare UTF-16.
fn lines() -> impl Strategy<Value = Vec<(String, &'static str)>> {
    let line = ("[a-d é\u{fc}]{0,6}", prop::sample::select(vec!["\n", "\r\n", "\r"]));
    prop::collection::vec(line, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_byte_outside_the_edited_span_is_unchanged(
        form in forms(),
        lines in lines(),
        open in any::<bool>(),
        cut in (0.0..1.0f64, 0.0..1.0f64),
        new in "[a-f é\n]{0,9}",
    ) {
        // Latin-1 is told from UTF-8 by a byte that UTF-8 cannot have there.
        let mut text = String::from("plain words here é;");
        for (line, ending) in &lines {
            text.push_str(line);
            text.push_str(ending);
        }
        if open {
            text.truncate(text.trim_end().len());
        }
        let raw = [mark(form), &encode(form, &text)].concat();
        // A span that does not cut a `\r\n` in two.
        let stops: Vec<usize> = text
            .char_indices()
            .map(|(at, _)| at)
            .chain([text.len()])
            .filter(|&at| !(text[at..].starts_with('\n') && text[..at].ends_with('\r')))
            .collect();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let pick = |part: f64| stops[((stops.len() - 1) as f64 * part) as usize];
        let (start, end) = (pick(cut.0).min(pick(cut.1)), pick(cut.0).max(pick(cut.1)));
        let old = &text[start..end];

        let edited = splice("f", &raw, &[Edit::one(old, new.as_str())]);

        let folded = text.replace("\r\n", "\n");
        let wanted = old.replace("\r\n", "\n");
        match edited {
            Ok(bytes) => {
                let before = [mark(form), &encode(form, &text[..start])].concat();
                let after = encode(form, &text[end..]);
                prop_assert!(bytes.starts_with(&before), "head changed: {:?}", bytes);
                prop_assert!(bytes.ends_with(&after), "tail changed: {:?}", bytes);
                let middle = &bytes[before.len()..bytes.len() - after.len()];
                let middle = crate::text::Text::new([mark(form), &encode(form, "plain words here é;"), middle].concat());
                let middle = middle.unwrap().lf().strip_prefix("plain words here é;").unwrap().to_owned();
                prop_assert_eq!(middle, new);
            }
            Err(Error::Miss { miss, .. }) => match miss.reason {
                Reason::Several { .. } => prop_assert!(find(&folded, &wanted, Occurrences::One).len() > 1),
                Reason::Empty => prop_assert!(wanted.is_empty()),
                Reason::Unchanged => prop_assert_eq!(wanted, new),
                other => prop_assert!(false, "{:?}", other),
            },
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn an_edit_of_ascii_leaves_every_other_byte_of_an_encoding_that_nobody_knows(
        encoding in prop::sample::select(vec![
            encoding_rs::SHIFT_JIS,
            encoding_rs::EUC_JP,
            encoding_rs::GBK,
            encoding_rs::BIG5,
            encoding_rs::KOI8_R,
            encoding_rs::WINDOWS_1251,
        ]),
        words in prop::collection::vec(("[日本語表示テストПривет]{1,6}", prop::sample::select(vec!["\n", "\r\n", "\r", ""])), 1..9),
        at in any::<prop::sample::Index>(),
        new in "[a-z]{1,9}",
    ) {
        let encoded = |text: &str| encoding.encode(text).0.into_owned();
        let at = at.index(words.len());
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for (number, (word, ending)) in words.iter().enumerate() {
            let side = if number <= at { &mut before } else { &mut after };
            side.extend(encoded(word));
            side.extend(if number == at { b" ".to_vec() } else { format!(" [{number}]{ending}").into_bytes() });
        }
        let raw = [before.as_slice(), b"[here]", &after].concat();
        prop_assume!(Encoding::of(&raw).is_ok());

        let edited = splice("f", &raw, &[Edit::one("[here]", new.as_str())]).unwrap();

        prop_assert_eq!(edited, [before.as_slice(), new.as_bytes(), &after].concat());
    }

    #[test]
    fn writing_the_same_text_whole_changes_no_byte(form in forms(), lines in lines()) {
        let mut text = String::from("plain words here é;");
        for (line, ending) in &lines {
            text.push_str(line);
            // Folded once more, a carriage return before a line ending would be part of it.
            text.push_str(if *ending == "\r" { "\n" } else { ending });
        }
        let raw = [mark(form), &encode(form, &text)].concat();

        let same = change("f", &raw, Change::Whole(&text.replace("\r\n", "\n"))).unwrap();

        prop_assert_eq!(same, raw);
    }

    #[test]
    fn our_own_diff_applied_to_the_old_gives_the_new(old in "([ab]{0,2}\n){0,9}", new in "([ab]{0,2}\n){1,9}") {
        prop_assume!(old != new && !old.is_empty());
        let shown = diff("f", Some(old.as_bytes()), Some(new.as_bytes()));

        prop_assert_eq!(patched(&old, &shown).unwrap(), new);
    }

    #[test]
    fn reading_any_patch_and_finding_any_miss_never_panics(patch in "([-+ @*\\\\]{0,3}[a-z é]{0,3}\n?){0,9}", text in "\\PC{0,40}", old in "\\PC{1,20}") {
        let _ = Patch::parse(&patch);
        let _ = Patch::parse(&format!("*** Begin Patch\n*** Update File: x\n{patch}"));
        let _ = Patch::parse(&format!("--- a/f\n+++ b/f\n@@ -1 +1 @@\n{patch}"));
        let _ = splice("f", text.as_bytes(), &[Edit::one(old, "x")]);
    }
}
