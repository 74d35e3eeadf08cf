//! Whether what a body hands over has the form that was asked for.

use formwork_protocols::{
    check::{Evidence, Issue, Severity, Verdict},
    text,
};
use serde_json::Value;

/// How many faults are told at once, and how long each is told: it repeats the value that is at fault.
const MAX_FAULTS: usize = 8;
const MAX_FAULT_BYTES: usize = 400;

/// How much of what was handed over is shown with its faults.
const MAX_SHOWN: usize = 2_000;

/// A schema that is ready to judge.
pub(crate) struct Form(jsonschema::Validator);

impl Form {
    /// Compiles a schema. References to other documents are not followed, and patterns take linear time.
    ///
    /// # Errors
    /// What is wrong with the schema, in one line.
    pub(crate) fn of(schema: &Value) -> Result<Self, String> {
        let patterns = jsonschema::PatternOptions::regex();
        jsonschema::options()
            .with_pattern_options(patterns)
            .build(schema)
            .map(Self)
            .map_err(|error| text::head(&error.to_string(), MAX_FAULT_BYTES).to_owned())
    }
}

/// Judges what was handed over, if anything was.
pub(super) fn judge(check: &str, schema: &Value, output: Option<&Value>) -> Verdict {
    let issue = |message: String| Issue::new(Severity::Major, message);
    let (reason, issues) = match (Form::of(schema), output) {
        (Err(fault), _) => (format!("its schema is none: {fault}"), Vec::new()),
        (Ok(_), None) => {
            let reason = "nothing was handed over as output, and a schema asks for it".to_owned();
            (reason, Vec::new())
        }
        (Ok(Form(form)), Some(output)) => {
            let faults = form.iter_errors(output).take(MAX_FAULTS).map(|error| {
                let place = error.instance_path().to_string();
                let place = if place.is_empty() { "the output".to_owned() } else { place };
                let said = error.to_string();
                issue(format!("{place}: {}", text::head(&said, MAX_FAULT_BYTES)))
            });
            let issues: Vec<Issue> = faults.collect();
            let reason = match issues.as_slice() {
                [] => "the output follows its schema".to_owned(),
                [first, ..] => format!("the output does not follow its schema: {}", first.message),
            };
            (super::tree::one_line(&reason), issues)
        }
    };
    let passed = issues.is_empty() && reason.ends_with("follows its schema");
    let shown =
        if passed { String::new() } else { output.map(Value::to_string).unwrap_or_default() };
    let excerpt = text::head(&shown, MAX_SHOWN).to_owned();
    let evidence = Evidence { excerpt, ..Evidence::default() };
    Verdict { issues, evidence, ..Verdict::bare(check, passed, reason) }
}
