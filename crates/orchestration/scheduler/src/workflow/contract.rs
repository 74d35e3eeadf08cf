//! Contracts as they are written: a Markdown file of requirements, each with what proves it.
//!
//! A heading `## R1: Title` begins a requirement; a line `- check: VERB` with its arguments between backticks is a
//! proof of it. All else is for those who read it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
};

use formwork_protocols::{
    BlobHash, Body, TaskSpec, ToolName,
    check::{CheckKind, CheckSpec},
    contract::{ContractCheck, Proof, ProofKind, Requirement},
    document::{Diagnostic, Diagnostics, nearest_hint},
    text,
};
use globset::Glob;
use serde_json::Value;

use super::check::TIMEOUT;

/// The verbs of proofs, each with what it needs.
const VERBS: [(&str, &str); 9] = [
    ("run", "run `COMMAND`"),
    ("touched", "touched `GLOB` …"),
    ("untouched", "untouched `GLOB` …"),
    ("contains", "contains `FILE` `TEXT`"),
    ("lacks", "lacks `FILE` `TEXT`"),
    ("exists", "exists `FILE`"),
    ("missing", "missing `FILE`"),
    ("called", "called `TOOL`"),
    ("not called", "not called `TOOL`"),
];

/// The most requirements, and the most proofs of all together: a contract of more is several tasks.
const MOST: usize = 200;

/// The longest id of a requirement.
const ID_BYTES: usize = 32;

/// What a line begins with that is a proof.
const CHECK: &str = "check:";

/// Reads a contract. `path` is where the file is, from the root of the workspace.
///
/// # Errors
/// Every fault of the file with its line.
pub fn contract(path: &str, text: &str) -> Result<ContractCheck, Diagnostics> {
    let mut reader = Reader {
        path,
        text: text.into(),
        requirements: Vec::new(),
        ids: BTreeMap::new(),
        faults: Vec::new(),
    };
    let (mut at, mut fence) = (0, None);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let span = at..at + line.trim_end().len();
        at += line.len();
        let trimmed = line.trim();
        // What stands between fences is an example.
        match (fence, trimmed.get(..3)) {
            (None, Some(mark @ ("```" | "~~~"))) => fence = Some(mark),
            (Some(open), Some(mark)) if mark == open => fence = None,
            (None, _) => reader.line(trimmed, number + 1, span),
            _ => {}
        }
    }
    reader.finish()
}

struct Reader<'a> {
    path: &'a str,
    text: Arc<str>,
    requirements: Vec<(Requirement, Range<usize>, usize)>,
    ids: BTreeMap<String, usize>,
    faults: Vec<Diagnostic>,
}

impl Reader<'_> {
    fn fault(
        &mut self,
        (line, span): (usize, Range<usize>),
        message: String,
        hint: Option<String>,
    ) {
        self.faults.push(Diagnostic {
            source: self.path.into(),
            line,
            column: 1,
            span,
            key: String::new(),
            message,
            hint,
            text: Arc::clone(&self.text),
        });
    }

    fn line(&mut self, line: &str, number: usize, span: Range<usize>) {
        let place = (number, span);
        if let Some((id, title)) = heading(line) {
            return self.requirement(id, title, place);
        }
        let Some(item) = line.strip_prefix(['-', '*']).map(str::trim_start) else { return };
        let is_check = item.get(..CHECK.len()).is_some_and(|it| it.eq_ignore_ascii_case(CHECK));
        if !is_check {
            return;
        }
        let written = item.get(CHECK.len()..).unwrap_or_default().trim();
        let proof = match proof(written) {
            Ok(kind) => Proof { line: number as u64, kind },
            Err((message, hint)) => return self.fault(place, message, hint),
        };
        let all: usize = self.requirements.iter().map(|(it, ..)| it.proofs.len()).sum();
        match self.requirements.last_mut() {
            Some((requirement, ..)) if all < MOST => {
                requirement.proofs.push(proof);
            }
            Some(_) => {
                self.fault(place, format!("a contract has more than {MOST} checks"), None);
            }
            None => {
                let hint =
                    "begin a requirement above it, as in `## R1: what it asks for`".to_owned();
                self.fault(place, "this check belongs to no requirement".to_owned(), Some(hint));
            }
        }
    }

    fn requirement(&mut self, id: &str, title: &str, place: (usize, Range<usize>)) {
        if let Some(first) = self.ids.get(id) {
            let message = format!("requirement {id} stands in line {first} already");
            self.fault(place.clone(), message, None);
        }
        if title.is_empty() {
            self.fault(
                place.clone(),
                format!("requirement {id} does not say what it asks for"),
                None,
            );
        }
        if self.requirements.len() == MOST {
            self.fault(
                place.clone(),
                format!("a contract has more than {MOST} requirements"),
                None,
            );
        }
        self.ids.entry(id.to_owned()).or_insert(place.0);
        let requirement =
            Requirement { id: id.to_owned(), title: title.to_owned(), proofs: Vec::new() };
        self.requirements.push((requirement, place.1, place.0));
    }

    fn finish(mut self) -> Result<ContractCheck, Diagnostics> {
        let found = std::mem::take(&mut self.requirements);
        for (requirement, span, line) in &found {
            // What is wrong with its checks is told already.
            let is_told = self.faults.iter().any(|fault| fault.line > *line);
            if requirement.proofs.is_empty() && !is_told {
                let message = format!(
                    "requirement {} has no check, so nobody can tell whether it is kept",
                    requirement.id
                );
                let hint = "add one below it, as in - check: run `cargo test`".to_owned();
                self.fault((*line, span.clone()), message, Some(hint));
            }
        }
        if found.is_empty() && self.faults.is_empty() {
            let hint = "begin one, as in `## R1: what it asks for`".to_owned();
            self.fault((1, 0..0), "the contract has no requirement".to_owned(), Some(hint));
        }
        let (path, hash) = (self.path.to_owned(), BlobHash::of(self.text.as_bytes()));
        let requirements = found.into_iter().map(|(requirement, ..)| requirement).collect();
        Diagnostics::from_iter(self.faults).or(ContractCheck { path, hash, requirements })
    }
}

/// The variable by which a contract is put into the prompt of its task.
const VARIABLE: &str = "task_contract";

/// Binds a task to a contract: it is one of its exit checks, and its agent is told the whole.
pub(super) fn bound(mut task: TaskSpec, contract: ContractCheck, text: String) -> TaskSpec {
    let name = format!("spec {}", contract.path);
    task.postchecks.push(CheckSpec::new(name, CheckKind::Contract(contract), TIMEOUT));
    if let Body::Agent { prompt, .. } = &mut task.body {
        // What it says is put in as a value, and values are never read as templates.
        prompt.push_str(&format!(
            "\n\nYour work is held against this contract when you end the task: every line `- check:` of it has to hold.\n\n\
             <contract>\n{{{{{VARIABLE}}}}}\n</contract>"
        ));
        task.vars
            .insert(VARIABLE.to_owned(), Value::String(text.replace("</contract", "<\\/contract")));
    }
    task
}

/// Says which tools of a contract do not exist, each with its line. Where no tool is known, all are taken for granted.
pub(super) fn unknown_tools(
    contract: &ContractCheck,
    text: &str,
    known: &BTreeSet<String>,
) -> Vec<Diagnostic> {
    let mut faults = Vec::new();
    let proofs = contract.requirements.iter().flat_map(|requirement| &requirement.proofs);
    for proof in proofs.filter(|_| !known.is_empty()) {
        let (ProofKind::Called { tool } | ProofKind::NotCalled { tool }) = &proof.kind else {
            continue;
        };
        if known.contains(tool) {
            continue;
        }
        faults.push(Diagnostic {
            source: contract.path.as_str().into(),
            line: usize::try_from(proof.line).unwrap_or(1),
            column: 1,
            span: 0..0,
            key: String::new(),
            message: format!("there is no tool {tool}"),
            hint: nearest_hint(tool, known.iter().map(String::as_str)),
            text: text.into(),
        });
    }
    faults
}

/// Reads a heading that begins a requirement: its id has a capital letter first and a digit at the end.
fn heading(line: &str) -> Option<(&str, &str)> {
    let rest = line.trim_start_matches('#');
    if rest.len() == line.len() || !rest.starts_with(' ') {
        return None;
    }
    let rest = rest.trim();
    let end = rest.find(|it: char| it == ':' || it.is_whitespace()).unwrap_or(rest.len());
    let (id, title) = rest.split_at(end);
    let is_id = id.len() <= ID_BYTES
        && id.starts_with(|it: char| it.is_ascii_uppercase())
        && id.ends_with(|it: char| it.is_ascii_digit())
        && id.chars().all(|it| {
            it.is_ascii_uppercase() || it.is_ascii_digit() || matches!(it, '-' | '_' | '.')
        });
    is_id.then(|| (id, title.trim_start_matches([':', ' ', '-', '–', '—']).trim()))
}

type Wrong = (String, Option<String>);

/// Reads a proof: a verb, and its arguments between backticks.
fn proof(written: &str) -> Result<ProofKind, Wrong> {
    let verb_end = written.find('`').unwrap_or(written.len());
    let (verb, rest) = written.split_at(verb_end);
    let verb = verb.trim().trim_end_matches(':').trim_end().to_lowercase();
    let Some((_, form)) = VERBS.iter().find(|(known, _)| *known == verb) else {
        let names = VERBS.iter().map(|(verb, _)| *verb);
        let near = nearest_hint(&verb, names);
        let all = VERBS.map(|(verb, _)| verb).join(", ");
        let message = match verb.is_empty() {
            true => format!("a check begins with one of {all}"),
            false => format!("there is no check {:?}", text::head(&verb, 60)),
        };
        return Err((message, near.or(Some(format!("a check is one of {all}")))));
    };
    let needs = |found: &str| (format!("wanted {form}, found {found}"), None);
    let words = backticked(rest).map_err(|found| needs(&found))?;
    let one = |words: &[String]| match words {
        [word] => Ok(word.clone()),
        words => Err(needs(&format!("{} arguments", words.len()))),
    };
    Ok(match verb.as_str() {
        "run" => ProofKind::Run { argv: argv(&one(&words)?).map_err(|why| (why, None))? },
        "touched" | "untouched" => {
            if words.is_empty() {
                return Err(needs("no glob"));
            }
            words.iter().try_for_each(|glob| sound_glob(glob))?;
            match verb.as_str() {
                "touched" => ProofKind::Touched { globs: words },
                _ => ProofKind::Untouched { globs: words },
            }
        }
        "contains" | "lacks" => {
            let [path, text] = words.as_slice() else {
                return Err(needs(&format!("{} arguments", words.len())));
            };
            let (path, text) = (sound_path(path)?, text.clone());
            match verb.as_str() {
                "contains" => ProofKind::Contains { path, text },
                _ => ProofKind::Lacks { path, text },
            }
        }
        "exists" => ProofKind::Exists { path: sound_path(&one(&words)?)? },
        "missing" => ProofKind::Missing { path: sound_path(&one(&words)?)? },
        "called" => ProofKind::Called { tool: sound_tool(&one(&words)?)? },
        _ => ProofKind::NotCalled { tool: sound_tool(&one(&words)?)? },
    })
}

/// Returns what stands between pairs of backticks; between two of them where a text has one itself.
fn backticked(mut rest: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if rest.is_empty() {
            return Ok(words);
        }
        let ticks = rest.len() - rest.trim_start_matches('`').len();
        if ticks == 0 {
            return Err(format!("{:?} outside of backticks", text::head(rest, 40)));
        }
        let (mark, behind) = rest.split_at(ticks);
        let Some(end) = behind.find(mark) else {
            return Err("a backtick that nothing closes".to_owned());
        };
        let (word, behind) = behind.split_at(end);
        let word = if ticks > 1 { word.trim() } else { word };
        if word.is_empty() {
            return Err("an empty argument".to_owned());
        }
        words.push(word.to_owned());
        rest = behind.get(ticks..).unwrap_or_default();
    }
}

/// Parts a command into its program and arguments. Quotes hold words together; there is no shell.
fn argv(command: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None::<char>);
    for it in command.chars() {
        match quote {
            Some(mark) if it == mark => quote = None,
            Some(_) => word.get_or_insert_default().push(it),
            None if matches!(it, '"' | '\'') => {
                quote = Some(it);
                word.get_or_insert_default();
            }
            None if it.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(it),
        }
    }
    if let Some(mark) = quote {
        return Err(format!("the command has a {mark} that nothing closes"));
    }
    words.extend(word);
    match words.first() {
        Some(program) if !program.is_empty() && !command.contains('\0') => Ok(words),
        _ => Err("a command names a program".to_owned()),
    }
}

fn sound_path(path: &str) -> Result<String, Wrong> {
    let leads_out = path.starts_with(['/', '~']) || path.split('/').any(|name| name == "..");
    match leads_out || path.contains(['\\', '\0']) {
        true => Err((format!("{path:?} is no path from the root of the workspace"), None)),
        false => Ok(path.trim_start_matches("./").to_owned()),
    }
}

fn sound_glob(glob: &str) -> Result<(), Wrong> {
    sound_path(glob)?;
    Glob::new(glob)
        .map(drop)
        .map_err(|error| (format!("{glob:?} is not a glob: {}", error.kind()), None))
}

fn sound_tool(tool: &str) -> Result<String, Wrong> {
    match ToolName::parse(tool) {
        Ok(tool) => Ok(tool.to_string()),
        Err(error) => Err((error.to_string(), None)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SPEC: &str = "# Median\n\nWords.\n\n## R1: The mean of the middle two\n\nMore words.\n\n\
        - check: run `cargo test \"two words\"`\n- check: touched `src/**`, `docs/**`\n- a point\n\n\
        ```md\n## R9: an example\n- check: nonsense\n```\n\n### R2 No panics\n\n\
        * Check: lacks `src/lib.rs` ``x.unwrap()`[0]``\n- check: contains `src/lib.rs` `fn median`\n\
        - check: untouched `tests/**`\n- check: called `exec`\n- check: not called `fs.delete`\n\
        - check: exists `./README.md`\n- check: missing `tmp/x`\n";

    #[test]
    fn a_contract_is_read_with_its_requirements_and_their_lines() {
        insta::assert_json_snapshot!(contract("SPEC.md", SPEC).unwrap());
    }

    #[test]
    fn every_fault_of_a_contract_is_told_with_its_line() {
        let text = "- check: run `x`\n## R1: One\n- check: rn `cargo test`\n- check: run cargo test\n\
            - check: run `'x`\n- check: contains `a`\n- check: touched `[`\n- check: exists `../a`\n\
            - check: called `No Tool`\n- check: lacks `a` `\n## R1: Twice\n- check:\n## R2:\n## R3: Nothing\n";

        let faults = contract("docs/SPEC.md", text).unwrap_err();

        let told: Vec<_> = faults
            .into_iter()
            .map(|fault| {
                format!("{}:{}: {} ({:?})", fault.source, fault.line, fault.message, fault.hint)
            })
            .collect();
        insta::assert_snapshot!(told.join("\n"));
        assert_eq!(contract("SPEC.md", "# Only words\n").unwrap_err().into_iter().count(), 1);
    }

    proptest! {
        #[test]
        fn no_text_panics_and_a_contract_that_is_read_can_be_tested(
            text in "(## R[0-9]: \\PC{0,8}\n|- check: (run|touched|lacks|called)? ?(`\\PC{0,8}`? ?){0,3}\n|```\n|\\PC{0,12}\n){0,12}"
        ) {
            if let Ok(contract) = contract("SPEC.md", &text) {
                prop_assert!(contract.requirements.iter().all(|it| !it.proofs.is_empty()));
            }
        }
    }
}
