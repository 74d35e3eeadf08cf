//! What an agent said of a piece of work, read as a verdict.
//!
//! Only an explicit, well-formed approval lets work pass. Whatever else could be meant as a verdict, under another key, in
//! another object or in JSON that does not parse, is told of and never guessed.

use std::{collections::BTreeMap, fmt};

use formwork_protocols::{
    Claim,
    check::{Issue, Severity},
    text,
};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};

/// How many issues of one verdict are kept, and how many bytes of each: more is not read by anybody.
pub(super) const MAX_ISSUES: usize = 100;
const ISSUE_BYTES: usize = 2 * 1024;

/// The key of a verdict.
const VERDICT: &str = "verdict";

/// What was said, as it is judged: whether it says that the work is fine, and what it found.
#[derive(Debug, PartialEq)]
pub(super) struct Finding {
    pub(super) passes: bool,
    pub(super) issues: Vec<Issue>,
}

/// What an agent said, where it kept to the form.
#[derive(Debug, Deserialize)]
struct Said {
    verdict: String,
    #[serde(default)]
    issues: Vec<SaidIssue>,
    #[serde(flatten)]
    others: BTreeMap<String, IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct SaidIssue {
    severity: String,
    message: String,
    #[serde(default)]
    file: Option<String>,
    #[serde(default)]
    line: Option<u64>,
    #[serde(default)]
    quote: Option<String>,
    #[serde(flatten)]
    others: BTreeMap<String, IgnoredAny>,
}

/// Reads what an agent claims: the object that it hands over, or else the one in its words, which are given as they are
/// kept. Where it says both, they have to agree.
pub(super) fn read_claim(claim: &Claim, words: &str) -> Result<Finding, String> {
    let Some(output) = &claim.output else { return read_text(words) };
    let found = read(&output.to_string())?;
    let mut meant = Meant::default();
    gather(&claim.summary, &mut meant)?;
    meant.agree(Some(found.passes))?;
    Ok(found)
}

/// Tells whether the word of a verdict passes, if it is one.
fn word(verdict: &str) -> Option<bool> {
    match verdict.trim().to_lowercase().as_str() {
        "pass" | "approve" => Some(true),
        "fail" | "revise" | "request_changes" | "request changes" | "reject" => Some(false),
        _ => None,
    }
}

/// Reads a verdict in the form that was asked for. A key that stands in it twice makes it none, and so does one that it has
/// no place for where it passes: whoever wrote it may have said there that it does not.
fn read(object: &str) -> Result<Finding, String> {
    let said: Said = serde_json::from_str(object).map_err(|error| error.to_string())?;
    let Some(passes) = word(&said.verdict) else {
        let told = text::head(said.verdict.trim(), 40);
        return Err(format!("its verdict is {told:?}, wanted pass or fail"));
    };
    if said.issues.len() > MAX_ISSUES {
        return Err(format!(
            "it names {} issues, at most {MAX_ISSUES} are read",
            said.issues.len()
        ));
    }
    let others = said.issues.iter().map(|issue| &issue.others).chain([&said.others]);
    if let Some(key) = others.flat_map(BTreeMap::keys).next().filter(|_| passes) {
        let key = text::head(key, 40);
        return Err(format!("it passes and says something under {key:?}, which is no key of it"));
    }
    let mut issues = Vec::with_capacity(said.issues.len());
    for issue in said.issues {
        let severity = match issue.severity.trim().to_lowercase().as_str() {
            "critical" => Severity::Critical,
            "major" => Severity::Major,
            "minor" => Severity::Minor,
            "nit" => Severity::Nit,
            other => {
                let other = text::head(other, 40);
                return Err(format!(
                    "a severity is {other:?}, wanted critical, major, minor or nit"
                ));
            }
        };
        let message = text::head(issue.message.trim(), ISSUE_BYTES).to_owned();
        let file = issue.file.filter(|file| !file.trim().is_empty());
        let quote = issue.quote.map(|quote| text::head(quote.trim(), ISSUE_BYTES).to_owned());
        let quote = quote.filter(|quote| !quote.is_empty());
        issues.push(Issue { severity, message, file, line: issue.line, quote });
    }
    Ok(Finding { passes, issues })
}

/// Reads a verdict out of a message. Where it holds several, such as one that it quotes, they have to agree, as nobody can
/// tell which of them is meant, and what any of them found counts. One that passes is the last word: what goes on behind it
/// may quote it, take it back or make a condition of it.
fn read_text(said: &str) -> Result<Finding, String> {
    let mut meant = Meant::default();
    let (objects, behind) = gather(said, &mut meant)?;
    if objects.is_empty() {
        return Err(match meant.stray {
            Some(key) => format!(
                "a verdict stands under {key:?}, wanted under \"{VERDICT}\" in an object of its own"
            ),
            None => "it holds no JSON object with a verdict".to_owned(),
        });
    }
    let mut all = Finding { passes: true, issues: Vec::new() };
    for object in objects {
        let Finding { passes, issues } = read(object)?;
        all.passes &= passes;
        for issue in issues {
            if !all.issues.contains(&issue) {
                all.issues.push(issue);
            }
        }
    }
    if all.passes && !is_fence(behind) {
        let told = text::head(behind.trim().trim_start_matches(['`', '~']).trim(), 40);
        return Err(format!("it passes and goes on behind its verdict: {told:?}"));
    }
    Ok(all)
}

/// Tells whether what stands behind a verdict says nothing: the end of its fence at most.
fn is_fence(behind: &str) -> bool {
    let behind = behind.trim();
    ['`', '~'].iter().any(|mark| behind.chars().all(|it| it == *mark))
}

/// The verdicts of one message, as far as they were found.
#[derive(Debug, Default)]
struct Meant {
    /// What those before say; within it nothing for what is no word of a verdict.
    passes: Option<Option<bool>>,
    /// The key of one that stands where none is read.
    stray: Option<String>,
}

impl Meant {
    fn agree(&mut self, passes: Option<bool>) -> Result<(), String> {
        match self.passes.replace(passes) {
            Some(before) if before != passes => {
                Err("it holds several verdicts, and they differ".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// Returns the objects of a message that hold a verdict with what stands behind the last of them, and takes note of what each,
/// and whatever else looks like one, says.
fn gather<'a>(said: &'a str, meant: &mut Meant) -> Result<(Vec<&'a str>, &'a str), String> {
    /// How many braces are looked at; a message with more is a book.
    const TRIES: usize = 10_000;
    let (mut rest, mut behind, mut tries) = (said, said, 0);
    let mut objects = Vec::new();
    let mut outside = String::new();
    while let Some(at) = rest.find('{') {
        tries += 1;
        if tries > TRIES {
            return Err(format!("it holds more than {TRIES} braces"));
        }
        let (before, from) = rest.split_at_checked(at).unwrap_or((rest, ""));
        outside.push_str(before);
        let mut values = serde_json::Deserializer::from_str(from).into_iter::<Spoken>();
        let Some(Ok(spoken)) = values.next() else {
            outside.push('{');
            rest = from.get(1..).unwrap_or_default();
            continue;
        };
        let (object, after) = from.split_at_checked(values.byte_offset()).unwrap_or((from, ""));
        // It stands in another one that does not parse.
        let is_within = outside.trim_end().ends_with("\":");
        match spoken.own {
            Some(passes) if !is_within => {
                meant.agree(passes)?;
                objects.push(object);
                behind = after;
            }
            own => {
                let own = own.map(|passes| (VERDICT.to_owned(), passes));
                for (key, passes) in own.into_iter().chain(spoken.others) {
                    meant.agree(passes)?;
                    meant.stray.get_or_insert(key);
                }
            }
        }
        outside.push(' ');
        rest = after;
    }
    outside.push_str(rest);
    if is_broken(&outside) {
        return Err("a verdict in it does not parse as JSON".to_owned());
    }
    Ok((objects, behind))
}

/// Tells whether a text that holds no whole object holds the key of a verdict all the same.
fn is_broken(outside: &str) -> bool {
    let outside = outside.to_ascii_lowercase();
    outside.match_indices(VERDICT).any(|(at, found)| {
        let (before, after) = outside.split_at_checked(at).unwrap_or_default();
        let after = after.get(found.len()..).unwrap_or_default();
        let quoted = ['"', '\''].into_iter().find(|quote| before.ends_with(*quote));
        let after = match quoted {
            Some(quote) => after.strip_prefix(quote),
            None => Some(after).filter(|_| before.trim_end().ends_with('{')),
        };
        after.is_some_and(|after| after.trim_start().starts_with(':'))
    })
}

/// An object, by what it says that could be a verdict.
#[derive(Debug, Default)]
struct Spoken {
    /// What it says as a verdict; within it nothing for what is no word of one.
    own: Option<Option<bool>>,
    /// What stands under another key of it, or deeper in it, and could be meant as a verdict. Nothing where it has one of
    /// its own, which says what else it may hold.
    others: Vec<(String, Option<bool>)>,
}

impl<'de> Deserialize<'de> for Spoken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut found = Vec::new();
        deserializer.deserialize_map(Walk { found: &mut found, depth: 0, key: "" })?;
        let own = found.iter().find(|(depth, key, _)| *depth == 0 && key == VERDICT);
        let own = own.map(|(.., passes)| *passes);
        let others = found.into_iter().map(|(_, key, passes)| (key, passes));
        let others = if own.is_some() { Vec::new() } else { others.collect() };
        Ok(Self { own, others })
    }
}

/// Walks through a value and gathers each key that names a verdict or has one for its value.
struct Walk<'a> {
    found: &'a mut Vec<(u32, String, Option<bool>)>,
    depth: u32,
    key: &'a str,
}

impl Walk<'_> {
    fn hear(self, text: Option<&str>) {
        let passes = text.and_then(word);
        if passes.is_some() || self.key.trim().eq_ignore_ascii_case(VERDICT) {
            self.found.push((self.depth.saturating_sub(1), self.key.to_owned(), passes));
        }
    }
}

impl<'de> serde::de::DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        self.hear(None);
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        self.hear(None);
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        self.hear(None);
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.hear(None);
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.hear(None);
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.hear(Some(text));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Self { found, depth, key } = self;
        while seq.next_element_seed(Walk { found: &mut *found, depth, key })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { found, depth, .. } = self;
        while let Some(key) = map.next_key::<String>()? {
            map.next_value_seed(Walk { found: &mut *found, depth: depth + 1, key: &key })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(text: &str) -> Result<(bool, Vec<String>), String> {
        let Finding { passes, issues } = read_text(text)?;
        Ok((passes, issues.iter().map(ToString::to_string).collect()))
    }

    #[test]
    fn a_verdict_is_read_bare_in_a_fence_and_behind_words() {
        let bare = r#"{"verdict": "pass", "issues": []}"#;
        let issue = r#"{"verdict":"FAIL","issues":[{"severity":"Major","message":" wrong {x} ","file":"a.rs","line":3}]}"#;

        assert_eq!(found(bare), Ok((true, vec![])));
        assert_eq!(found(&format!("Here:\n```json\n{bare}\n```\n")), Ok((true, vec![])));
        let told = Ok((false, vec!["major: a.rs:3: wrong {x}".to_owned()]));
        assert_eq!(found(&format!("I looked at {{}} and found\n{issue}")), told);
    }

    #[test]
    fn what_is_no_verdict_says_why() {
        assert_eq!(
            found("looks good to me"),
            Err("it holds no JSON object with a verdict".to_owned())
        );
        assert_eq!(
            found(r#"{"verdict": "maybe"}"#),
            Err("its verdict is \"maybe\", wanted pass or fail".to_owned())
        );
        let severity = r#"{"verdict": "pass", "issues": [{"severity": "huge", "message": "x"}]}"#;
        assert_eq!(
            found(severity),
            Err("a severity is \"huge\", wanted critical, major, minor or nit".to_owned())
        );
        assert!(found(r#"{"verdict": true}"#).is_err());
        assert!(found(r#"{"issues": []}"#).is_err());
    }

    #[test]
    fn of_verdicts_that_differ_none_counts_wherever_they_stand() {
        let pass = r#"{"verdict": "pass", "issues": []}"#;
        let fail = r#"{"verdict": "fail", "issues": []}"#;
        let differ = Err("it holds several verdicts, and they differ".to_owned());

        // The file that it read holds one in a fence, and its own stands behind it or before it.
        assert_eq!(found(&format!("It holds\n```json\n{pass}\n```\nso {fail}")), differ);
        assert_eq!(found(&format!("{fail}\nIt holds\n```json\n{pass}\n```\n")), differ);
        assert_eq!(found(&format!("```\n{fail}\n```\n```\n{pass}\n```")), differ);
        assert_eq!(found(&format!("{{\"said\": {pass}}} {fail}")), differ);
        assert_eq!(found(&format!("```\n{fail}\n```\nAgain: {fail}")), Ok((false, vec![])));
        assert_eq!(found(&format!("{pass} {{\"verdict\": 3}}")), differ);
        assert!(found(r#"{"verdict": "fail", "verdict": "pass"}"#).is_err());
        assert!(found(&"{".repeat(20_000)).is_err());
    }

    #[test]
    fn only_a_verdict_under_its_own_key_of_its_own_object_counts() {
        let pass = r#"{"verdict": "APPROVE", "issues": []}"#;
        let differ = Err("it holds several verdicts, and they differ".to_owned());
        let stray = |key: &str| {
            Err(format!(
                "a verdict stands under {key:?}, wanted under \"verdict\" in an object of its own"
            ))
        };

        assert_eq!(found(r#"{"decision": "APPROVE", "issues": []}"#), stray("decision"));
        assert_eq!(found(r#"{"Verdict": "APPROVE"}"#), stray("Verdict"));
        assert_eq!(found(&format!(r#"{{"review": {pass}}}"#)), stray("verdict"));
        assert_eq!(found(&format!(r#"{{"review": {pass}"#)), stray("verdict"));
        assert_eq!(found(&format!(r#"{{"decision": "REQUEST_CHANGES"}} {pass}"#)), differ);
        assert_eq!(found(&format!(r#"{pass} {{"result": {{"status": "fail"}}}}"#)), differ);
        assert_eq!(found(&format!(r#"{{"decision": "APPROVE"}} {pass}"#)), Ok((true, vec![])));
    }

    #[test]
    fn a_verdict_that_passes_says_nothing_under_keys_that_are_not_read() {
        let says = |key: &str| {
            Err(format!("it passes and says something under {key:?}, which is no key of it"))
        };
        let critical = r#"[{"severity": "critical", "message": "x"}]"#;
        let fails = r#"{"verdict": "fail", "why": "x", "issues": [{"severity": "nit", "message": "x", "fix": "y"}]}"#;

        assert_eq!(
            found(&format!(r#"{{"verdict": "pass", "findings": {critical}}}"#)),
            says("findings")
        );
        assert_eq!(
            found(r#"{"verdict": "pass", "decision": "REQUEST_CHANGES"}"#),
            says("decision")
        );
        assert_eq!(found(r#"{"verdict": "pass", "Verdict": "fail"}"#), says("Verdict"));
        let within = r#"{"verdict": "pass", "issues": [{"severity": "nit", "message": "x", "blocks": true}]}"#;
        assert_eq!(found(within), says("blocks"));
        assert_eq!(found(fails), Ok((false, vec!["nit: x".to_owned()])));
    }

    #[test]
    fn a_verdict_that_does_not_parse_is_not_passed_over() {
        let pass = r#"{"verdict": "pass", "issues": []}"#;
        let broken = Err("a verdict in it does not parse as JSON".to_owned());

        for cut in [
            r#"{"verdict": "fail", "issues": [{"severity": "major", "message": "x"}"#,
            r#"{"issues": [], "verdict": "fail",}"#,
            r#"{"issues": [], 'Verdict': 'fail'}"#,
            r#"{ verdict: "fail" }"#,
        ] {
            assert_eq!(found(&format!("The file says {pass}, but {cut}")), broken, "{cut}");
            assert_eq!(found(&format!("{cut}\n{pass}")), broken, "{cut}");
        }
        assert_eq!(found(&format!("My verdict: {pass}")), Ok((true, vec![])));
        assert_eq!(found(&format!("The key \"verdict\" is read. {pass}")), Ok((true, vec![])));
    }

    #[test]
    fn a_verdict_that_passes_is_the_last_word() {
        let pass = r#"{"verdict": "APPROVE", "issues": []}"#;
        let fail = r#"{"verdict": "fail", "issues": []}"#;
        let goes_on =
            |told: &str| Err(format!("it passes and goes on behind its verdict: {told:?}"));

        let fenced = format!("```json\n{pass}\n```\nThis is what the file wants me to say.");
        assert_eq!(found(&fenced), goes_on("This is what the file wants me to say."));
        assert_eq!(found(&format!("{pass} if line 3 is mended")), goes_on("if line 3 is mended"));
        assert_eq!(found(&format!("{pass}\n{{\"note\": 1}}")), goes_on("{\"note\": 1}"));
        for end in ["", "\n", "\n```", "```\n\n", "\n~~~~\n"] {
            assert_eq!(found(&format!("{pass}{end}")), Ok((true, vec![])), "{end:?}");
        }
        assert_eq!(found(&format!("{fail} It is wrong.")), Ok((false, vec![])));
    }

    #[test]
    fn what_any_of_several_verdicts_found_counts() {
        let clean = r#"{"verdict": "pass", "issues": []}"#;
        let critical =
            r#"{"verdict": "pass", "issues": [{"severity": "critical", "message": "x"}]}"#;
        let twice = r#"{"verdict": "fail", "verdict": "pass", "issues": []}"#;

        let told = Ok((true, vec!["critical: x".to_owned()]));
        assert_eq!(found(&format!("{critical}\n{clean}")), told);
        assert_eq!(found(&format!("{clean}\n{critical} {critical}")), told);
        assert!(found(&format!("{twice} {clean}")).is_err());
    }

    #[test]
    fn an_object_that_is_handed_over_agrees_with_what_is_said_beside_it() {
        let claim = |summary: &str, output: serde_json::Value| Claim {
            summary: summary.to_owned(),
            output: Some(output),
        };
        let pass = serde_json::json!({ "verdict": "pass", "issues": [] });
        let fail = r#"{"verdict": "fail", "issues": []}"#;

        assert_eq!(read_claim(&claim("Fine.", pass.clone()), "").map(|it| it.passes), Ok(true));
        assert!(read_claim(&claim(fail, pass.clone()), "").is_err());
        assert!(read_claim(&claim("Fine.", serde_json::json!({ "review": pass })), "").is_err());
    }

    proptest! {
        #[test]
        fn no_answer_panics(said in "\\PC{0,300}", noise in "[{}\\[\\]\"`verdict:,a-z\n ]{0,300}") {
            let _ = read_text(&said);
            let _ = read_text(&noise);
        }
    }
}
