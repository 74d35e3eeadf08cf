//! A contract held against what was made: every requirement, whatever the others come to.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read as _,
    path::Path,
};

use formwork_protocols::{
    Blob, Cancel, Span,
    check::{CheckStep, CommandCheck, Evidence, Expect, Issue, Parser, Severity, StepKind},
    contract::{ContractCheck, ProofKind, Requirement},
    event::FileChange,
};

use crate::{
    Changes, baseline,
    command::{self, Shop},
    verifier::Decision,
};

/// How many bytes of a file are looked through for a text.
const LOOKED_BYTES: u64 = 16 * 1024 * 1024;

/// How many files a proof names.
const NAMED: usize = 5;

/// What a contract came to.
pub(crate) struct Held {
    pub(crate) decision: Decision,
    pub(crate) steps: Vec<CheckStep>,
    pub(crate) outputs: Vec<Blob>,
    pub(crate) reached: Vec<String>,
}

/// Holds a contract against a workspace. Nothing is returned where `cancel` was raised.
pub(crate) async fn hold(
    shop: &Shop<'_>,
    contract: &ContractCheck,
    changes: &dyn Changes,
    timeout: Span,
    cancel: &Cancel,
) -> Option<Held> {
    let known = tokio::select! {
        biased;
        () = cancel.cancelled() => return None,
        known = async { (changes.since_entry().await, changes.calls().await) } => known,
    };
    let (mut steps, mut issues) = (Vec::new(), Vec::new());
    let (mut outputs, mut reached) = (Vec::new(), Vec::new());
    let mut excerpt = String::new();
    // Whether a proof could not be had, and which.
    let (mut not_run, mut why) = (false, String::new());
    for requirement in &contract.requirements {
        for proof in &requirement.proofs {
            let decision = match &proof.kind {
                ProofKind::Run { argv } => {
                    let check = CommandCheck {
                        argv: argv.clone(),
                        parse: Parser::of(argv),
                        expect: Expect::Pass,
                    };
                    let ran = command::run(shop, &check, timeout, cancel).await?;
                    outputs.extend(ran.output);
                    reached.extend(ran.reached);
                    ran.decision
                }
                kind => looked(shop.root, kind, &known),
            };
            if decision.not_run && !not_run {
                not_run = true;
                why = format!("; {} {}: {}", requirement.id, proof.kind, decision.reason);
            }
            if !decision.passed {
                issues.push(issue(contract, requirement, proof.line, &decision));
                if excerpt.is_empty() {
                    excerpt.clone_from(&decision.evidence.excerpt);
                }
            }
            steps.push(CheckStep {
                what: StepKind::Requirement,
                passed: decision.passed,
                reason: format!("{} {}: {}", requirement.id, proof.kind, decision.reason),
                evidence: decision.evidence,
            });
        }
    }
    let all = contract.requirements.len();
    let is_kept = |it: &&Requirement| !issues.iter().any(|issue: &Issue| names(issue, &it.id));
    let kept = contract.requirements.iter().filter(is_kept).count();
    let reason = match all {
        1 if kept == 1 => "the requirement is kept".to_owned(),
        all if kept == all => format!("all {all} requirements are kept"),
        all => format!("{kept} of {all} requirements are kept"),
    } + &why;
    let evidence = Evidence { excerpt, ..Evidence::default() };
    let decision = Decision { passed: issues.is_empty(), reason, issues, evidence, not_run };
    Some(Held { decision, steps, outputs, reached })
}

/// Tells whether an issue is about a requirement.
fn names(issue: &Issue, id: &str) -> bool {
    issue.message.strip_prefix(id).is_some_and(|rest| rest.starts_with(' '))
}

fn issue(contract: &ContractCheck, of: &Requirement, line: u64, decision: &Decision) -> Issue {
    let message = format!("{} ({}) is not kept: {}", of.id, of.title, decision.reason);
    Issue {
        file: Some(contract.path.clone()),
        line: Some(line),
        ..Issue::new(Severity::Major, message)
    }
}

/// What is known of the work: the files that it changed, and how many calls of each tool ended well.
type Known = (Result<Vec<FileChange>, String>, Result<BTreeMap<String, u64>, String>);

/// Decides on a proof that runs nothing.
fn looked(root: &Path, kind: &ProofKind, (changes, calls): &Known) -> Decision {
    match kind {
        ProofKind::Touched { globs } | ProofKind::Untouched { globs } => {
            touched(kind, globs, changes)
        }
        ProofKind::Contains { path, text } | ProofKind::Lacks { path, text } => {
            let wanted = matches!(kind, ProofKind::Contains { .. });
            match (read(root, path), wanted) {
                (Ok(None), true) => Decision::fail(format!("there is no file {path}")),
                (Ok(None), false) => Decision::pass(format!("there is no file {path}")),
                (Ok(Some(bytes)), wanted) => {
                    let at = line_of(&bytes, text);
                    let found = match at {
                        Some(line) => format!("{path} holds it in line {line}"),
                        None => format!("{path} does not hold {text:?}"),
                    };
                    if at.is_some() == wanted {
                        Decision::pass(found)
                    } else {
                        Decision::fail(found)
                    }
                }
                (Err(why), _) => Decision::fail(format!("{path} cannot be read: {why}")),
            }
        }
        ProofKind::Exists { path } | ProofKind::Missing { path } => {
            let wanted = matches!(kind, ProofKind::Exists { .. });
            // A link that leads nowhere is there.
            match (root.join(path).symlink_metadata().is_ok(), wanted) {
                (true, true) => Decision::pass(format!("{path} is there")),
                (false, false) => Decision::pass(format!("{path} is not there")),
                (false, true) => Decision::fail(format!("{path} is not there")),
                (true, false) => Decision::fail(format!("{path} is there")),
            }
        }
        ProofKind::Called { tool } | ProofKind::NotCalled { tool } => {
            let wanted = matches!(kind, ProofKind::Called { .. });
            match calls {
                Err(why) => Decision::fail(format!("cannot tell what was called: {why}")),
                Ok(calls) => {
                    // Some providers show names in a form without dots.
                    let plain = tool.replace('.', "_");
                    let own = calls.iter().filter(|(name, _)| **name == *tool || **name == plain);
                    let count: u64 = own.map(|(_, count)| count).sum();
                    let found = match count {
                        0 => format!("no call of {tool} ended well"),
                        1 => format!("1 call of {tool} ended well"),
                        count => format!("{count} calls of {tool} ended well"),
                    };
                    if (count > 0) == wanted {
                        Decision::pass(found)
                    } else {
                        Decision::fail(found)
                    }
                }
            }
        }
        _ => Decision::not_run("this version does not know such a proof"),
    }
}

fn touched(
    kind: &ProofKind,
    globs: &[String],
    changes: &Result<Vec<FileChange>, String>,
) -> Decision {
    let patterns: BTreeSet<String> = globs.iter().cloned().collect();
    let (changes, set) = match (changes, baseline::compile(&patterns)) {
        (Err(why), _) => return Decision::fail(format!("cannot tell what was changed: {why}")),
        (_, Err(error)) => return Decision::fail(error.to_string()),
        (Ok(changes), Ok(set)) => (changes, set),
    };
    let found: Vec<&str> = changes
        .iter()
        .map(|change| change.path.as_str())
        .filter(|path| set.is_match(path))
        .collect();
    let of = globs.join(", ");
    let named = match found.len() {
        0 => format!("the task changed no file of {of}"),
        count if count <= NAMED => format!("the task changed {}", found.join(", ")),
        count => {
            let first = found.get(..NAMED).unwrap_or_default().join(", ");
            format!("the task changed {first} and {} more", count - NAMED)
        }
    };
    let wanted = matches!(kind, ProofKind::Touched { .. });
    if found.is_empty() == wanted { Decision::fail(named) } else { Decision::pass(named) }
}

/// Reads a file of the workspace; nothing where there is none. No link on the way leads out of it.
fn read(root: &Path, path: &str) -> Result<Option<Vec<u8>>, String> {
    let (root, whole) = match (root.canonicalize(), root.join(path).canonicalize()) {
        (Ok(root), Ok(whole)) => (root, whole),
        (Err(error), _) => return Err(error.to_string()),
        (_, Err(error)) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        (_, Err(error)) => return Err(error.to_string()),
    };
    if !whole.starts_with(&root) {
        return Err("it leads out of the workspace".to_owned());
    }
    let about = whole.metadata().map_err(|error| error.to_string())?;
    if !about.is_file() {
        return Err("it is no file".to_owned());
    }
    if about.len() > LOOKED_BYTES {
        return Err(format!(
            "it has {} bytes, at most {LOOKED_BYTES} are looked through",
            about.len()
        ));
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(&whole).map_err(|error| error.to_string())?;
    file.take(LOOKED_BYTES).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    Ok(Some(bytes))
}

/// Returns the line, from 1, in which a text first begins.
fn line_of(bytes: &[u8], text: &str) -> Option<usize> {
    let whole = String::from_utf8_lossy(bytes);
    let before = whole.get(..whole.find(text)?)?;
    Some(before.bytes().filter(|byte| *byte == b'\n').count() + 1)
}

#[cfg(test)]
mod tests {
    use formwork_protocols::BlobHash;

    use super::*;

    fn change(path: &str) -> FileChange {
        let hash = Some(BlobHash::of(path.as_bytes()));
        FileChange {
            path: path.to_owned(),
            before: hash,
            after: hash,
            added: 1,
            removed: 0,
            before_mode: None,
            after_mode: None,
            call: None,
            apart: false,
        }
    }

    #[test]
    fn each_proof_is_decided_by_what_is_there_and_by_what_was_done() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("lib.rs"), "fn a() {}\nfn median() {}\n").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", root.path().join("out")).unwrap();
        let calls = BTreeMap::from([("exec".to_owned(), 2)]);
        let known: Known = (Ok(vec![change("src/lib.rs"), change("docs/a.md")]), Ok(calls));
        let text = |it: &str| it.to_owned();
        let (path, globs) = (|it: &str| it.to_owned(), |it: &str| vec![it.to_owned()]);
        let kinds = [
            ProofKind::Touched { globs: globs("src/**") },
            ProofKind::Touched { globs: globs("tests/**") },
            ProofKind::Untouched { globs: globs("tests/**") },
            ProofKind::Untouched { globs: globs("docs") },
            ProofKind::Contains { path: path("lib.rs"), text: text("fn median") },
            ProofKind::Contains { path: path("none.rs"), text: text("x") },
            ProofKind::Lacks { path: path("lib.rs"), text: text("unwrap") },
            ProofKind::Lacks { path: path("lib.rs"), text: text("median") },
            ProofKind::Contains { path: path("out"), text: text("root") },
            ProofKind::Exists { path: path("lib.rs") },
            ProofKind::Missing { path: path("lib.rs") },
            ProofKind::Called { tool: text("exec") },
            ProofKind::NotCalled { tool: text("exec") },
            ProofKind::NotCalled { tool: text("fs.delete") },
        ];

        let told: Vec<String> = kinds
            .iter()
            .map(|kind| {
                let Decision { passed, reason, .. } = looked(root.path(), kind, &known);
                format!("{} {kind}: {reason}", if passed { "✓" } else { "✗" })
            })
            .collect();

        assert_eq!(
            told,
            [
                "✓ touched src/**: the task changed src/lib.rs",
                "✗ touched tests/**: the task changed no file of tests/**",
                "✓ untouched tests/**: the task changed no file of tests/**",
                "✗ untouched docs: the task changed docs/a.md",
                "✓ contains lib.rs \"fn median\": lib.rs holds it in line 2",
                "✗ contains none.rs \"x\": there is no file none.rs",
                "✓ lacks lib.rs \"unwrap\": lib.rs does not hold \"unwrap\"",
                "✗ lacks lib.rs \"median\": lib.rs holds it in line 2",
                "✗ contains out \"root\": out cannot be read: it leads out of the workspace",
                "✓ exists lib.rs: lib.rs is there",
                "✗ missing lib.rs: lib.rs is there",
                "✓ called exec: 2 calls of exec ended well",
                "✗ not called exec: 2 calls of exec ended well",
                "✓ not called fs.delete: no call of fs.delete ended well",
            ]
        );
    }

    #[test]
    fn what_cannot_be_told_is_not_kept() {
        let known: Known = (Err("no snapshot".to_owned()), Err("no log".to_owned()));
        let root = tempfile::tempdir().unwrap();

        for kind in [
            ProofKind::Untouched { globs: vec!["a".to_owned()] },
            ProofKind::NotCalled { tool: "exec".to_owned() },
        ] {
            assert!(!looked(root.path(), &kind, &known).passed, "{kind}");
        }
    }
}
