//! JUnit's XML, read by hand: elements and attributes, comments, CDATA, nothing else.

use formwork_protocols::check::Counts;

use super::Report;

pub(super) fn read(text: &str) -> Option<Report> {
    let mut suites = Suites::default();
    for tag in (Reader { rest: text }) {
        suites.take(&tag);
    }
    suites.report()
}

#[derive(Default)]
struct Suites {
    known: bool,
    counts: Counts,
    /// What the suite elements say of themselves, for a file without test cases.
    said: Counts,
    depth: usize,
    case: Option<Case>,
    failures: String,
}

/// A test case that is open.
#[derive(Default)]
struct Case {
    name: String,
    failed: Option<String>,
    skipped: bool,
    collected: bool,
}

impl Suites {
    fn take(&mut self, tag: &Tag<'_>) {
        match (tag.name, tag.kind) {
            ("testsuite" | "testsuites", Kind::Close) => self.depth = self.depth.saturating_sub(1),
            ("testsuite" | "testsuites", kind) => self.open_suite(tag, kind),
            ("testcase", Kind::Close) => self.close_case(),
            ("testcase", kind) => {
                // A file that was cut may leave one open.
                self.close_case();
                let name = [tag.attribute("classname"), tag.attribute("name")];
                let name: Vec<_> = name.into_iter().flatten().filter(|n| !n.is_empty()).collect();
                self.case = Some(Case { name: name.join(" "), ..Case::default() });
                if kind == Kind::Empty {
                    self.close_case();
                }
            }
            ("failure" | "error", Kind::Open | Kind::Empty) => {
                if let Some(case) = &mut self.case {
                    let message = tag.attribute("message").unwrap_or_default();
                    // pytest's word for a module that could not be imported: no test began.
                    case.collected |= message == "collection failure";
                    let failed = case.failed.get_or_insert_default();
                    failed.push_str(&format!("{message}\n{}\n", unescape(tag.text).trim()));
                }
            }
            ("skipped", Kind::Open | Kind::Empty) => {
                if let Some(case) = &mut self.case {
                    case.skipped = true;
                }
            }
            _ => {}
        }
    }

    fn open_suite(&mut self, tag: &Tag<'_>, kind: Kind) {
        self.known = true;
        let number = |name| tag.attribute(name).and_then(|text| text.trim().parse::<u64>().ok());
        // The outermost element has the sum of those within it, if it says anything.
        if let Some(tests) = number("tests").filter(|_| self.said == Counts::default()) {
            let skipped =
                number("skipped").unwrap_or(0).saturating_add(number("disabled").unwrap_or(0));
            let failed =
                number("failures").unwrap_or(0).saturating_add(number("errors").unwrap_or(0));
            self.said = Counts { run: tests.saturating_sub(skipped), failed, skipped };
        }
        if kind == Kind::Open {
            self.depth = self.depth.saturating_add(1);
        }
    }

    fn close_case(&mut self) {
        let Some(case) = self.case.take() else { return };
        if case.skipped {
            self.counts.skipped = self.counts.skipped.saturating_add(1);
            return;
        }
        if let Some(failed) = &case.failed {
            self.failures.push_str(&format!("{}: {}\n", case.name, failed.trim()));
        }
        if case.collected {
            return;
        }
        self.counts.run = self.counts.run.saturating_add(1);
        self.counts.failed = self.counts.failed.saturating_add(u64::from(case.failed.is_some()));
    }

    fn report(mut self) -> Option<Report> {
        self.close_case();
        if !self.known {
            return None;
        }
        let counts = if self.counts == Counts::default() && self.failures.is_empty() {
            self.said
        } else {
            self.counts
        };
        // A run that was killed leaves a file without its end.
        let fault = (self.depth > 0).then(|| "the XML ends before its last element".to_owned());
        Some(Report { fault, ..Report::new(counts, self.failures) })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Open,
    Close,
    Empty,
}

/// A tag, with the text up to the next one.
struct Tag<'a> {
    name: &'a str,
    kind: Kind,
    attributes: &'a str,
    text: &'a str,
}

impl Tag<'_> {
    /// Returns an attribute's value.
    fn attribute(&self, wanted: &str) -> Option<String> {
        let mut rest = self.attributes;
        loop {
            let (name, after) = rest.split_once('=')?;
            let after = after.trim_start();
            let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''))?;
            let (value, after) = after.strip_prefix(quote)?.split_once(quote)?;
            if name.trim() == wanted {
                return Some(unescape(value));
            }
            rest = after;
        }
    }
}

/// Yields the tags of a text.
struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Reader<'a> {
    type Item = Tag<'a>;

    fn next(&mut self) -> Option<Tag<'a>> {
        loop {
            let (_, after) = self.rest.split_once('<')?;
            let skipped = [("!--", "-->"), ("![CDATA[", "]]>"), ("?", "?>"), ("!", ">")];
            if let Some((begin, end)) =
                skipped.into_iter().find(|(begin, _)| after.starts_with(begin))
            {
                let inside = after.strip_prefix(begin)?;
                self.rest = inside.split_once(end)?.1;
                continue;
            }
            let end = end_of_tag(after)?;
            let (inside, after) = (after.get(..end)?, after.get(end..)?.strip_prefix('>')?);
            self.rest = after;
            return Some(Tag { text: text_of(after), ..tag(inside) });
        }
    }
}

/// Returns where a tag ends: at the first `>` that is not within quotes.
fn end_of_tag(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, '>') => return Some(at),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
    }
    None
}

/// Takes a tag apart. Its text is to be added.
fn tag(inside: &str) -> Tag<'_> {
    let (inside, kind) = match (inside.strip_prefix('/'), inside.strip_suffix('/')) {
        (Some(inside), _) => (inside, Kind::Close),
        (None, Some(inside)) => (inside, Kind::Empty),
        (None, None) => (inside, Kind::Open),
    };
    let end = inside.find(char::is_whitespace).unwrap_or(inside.len());
    let (name, attributes) = inside.split_at(end);
    // A prefix names a space of names, and there is only one here.
    let name = name.rsplit(':').next().unwrap_or(name);
    Tag { name, kind, attributes, text: "" }
}

/// Returns the text up to the next tag; that of a CDATA section if it begins with one.
fn text_of(text: &str) -> &str {
    if let Some(inside) = text.trim_start().strip_prefix("<![CDATA[") {
        return inside.split("]]>").next().unwrap_or_default();
    }
    text.split('<').next().unwrap_or_default()
}

/// Replaces the five entities of XML, and line breaks written as numbers.
fn unescape(text: &str) -> String {
    let entities = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&#10;", "\n"),
        ("&#xA;", "\n"),
    ];
    let text =
        entities.into_iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    // Last, so that `&amp;lt;` stays `&lt;`.
    text.replace("&amp;", "&")
}
