//! The same task for each item of a list, and what surrounds the attempts of a task.

use std::collections::BTreeSet;

use formwork_protocols::{
    Body, TaskSpec,
    check::{CheckKind, CheckSpec, CommandCheck, Expect, OutputCheck},
    spec::{ForEach, OnFailure},
};
use serde_json::Value;

use super::{
    check::{self, TIMEOUT},
    code::{Code, code},
    document::{ExecutionDocument, OnItemFailure, TaskDocument},
    plan::Reader,
    refer::{Level, Side},
};
use crate::run::output::Form;

/// How a value gets to code without becoming code.
const AS_ARGUMENT: &str = r#"["sh", "-c", "echo \"$1\"", "sh", "{{…}}"]"#;
const IN_ENVIRONMENT: &str = r#"["env", "X={{…}}", "sh", "-c", "echo \"$X\""]"#;

impl Reader<'_> {
    /// Turns a task into one that is done for each item of its list, where it has one.
    pub(super) fn each(
        &mut self,
        place: &str,
        task: &TaskDocument,
        levels: &[Level<'_>],
        mut spec: TaskSpec,
    ) -> TaskSpec {
        let Some(items) = &task.for_each else {
            for (key, given) in [
                ("max_concurrency", task.max_concurrency.is_some()),
                ("on_item_failure", task.on_item_failure.is_some()),
            ] {
                if given {
                    self.fault(
                        &format!("{place}/{key}"),
                        format!("{key} belongs to for_each"),
                        None,
                    );
                }
            }
            return spec;
        };
        self.expression(&format!("{place}/for_each"), items, levels, Side::Around);
        // The list, the checks and the caps are of the whole; what is tried again is one item.
        let mut one = TaskSpec::new(spec.name.clone(), spec.body);
        one.retries = std::mem::take(&mut spec.retries);
        one.before_retry = std::mem::take(&mut spec.before_retry);
        one.isolation = std::mem::take(&mut spec.isolation);
        // Its checks are of the whole, and look where the items were done.
        one.target.clone_from(&spec.target);
        let of_output = |check: &CheckSpec| matches!(check.kind, CheckKind::Output(_));
        (one.postchecks, spec.postchecks) = spec.postchecks.into_iter().partition(of_output);
        let on_failure = match task.on_item_failure {
            None | Some(OnItemFailure::Continue) => OnFailure::ContinueIndependent,
            Some(OnItemFailure::Abort) => OnFailure::AbortAll,
            Some(OnItemFailure::Ignore) => OnFailure::Ignore,
        };
        let max_concurrency = task.max_concurrency;
        spec.body = Body::ForEach(Box::new(ForEach {
            items: items.clone(),
            task: one,
            max_concurrency,
            on_failure,
        }));
        spec
    }

    /// Turns the schema of a task's result into the check that holds the result to it.
    pub(super) fn output(&mut self, place: &str, task: &TaskDocument) -> Option<CheckSpec> {
        let schema = Value::Object(task.output_schema.clone()?);
        let place = format!("{place}/output_schema");
        let check = match output_check(schema.clone()) {
            Ok(check) => check,
            Err(fault) => {
                self.fault(&place, fault, None);
                return None;
            }
        };
        let is_object = schema.get("type").is_none_or(|kind| kind == "object");
        if task.agent.is_some() && !is_object {
            let message = "what an agent hands over is an object";
            let hint = "put the value under a key of its own".to_owned();
            self.fault(&place, message, Some(hint));
        }
        if task.subtasks.is_some() {
            let message = "subtasks hand over what each of them does, by name";
            self.fault(&place, message, Some("give output_schema to the subtasks".to_owned()));
        }
        Some(check)
    }

    /// Reads what is run around the attempts of a task.
    pub(super) fn executions(
        &mut self,
        place: &str,
        written: &[ExecutionDocument],
        levels: &[Level<'_>],
        side: Side,
    ) -> Vec<CheckSpec> {
        let mut specs = Vec::new();
        for (at, one) in written.iter().enumerate() {
            let place = format!("{place}/{at}/command");
            if !check::argv_is_sound(self.document, &place, &one.command, &mut self.faults) {
                continue;
            }
            self.words(&place, &one.command, levels, side);
            let name = one.name.clone().unwrap_or_else(|| one.command.join(" "));
            let command =
                CommandCheck { argv: one.command.clone(), parse: None, expect: Expect::Pass };
            let timeout = one.timeout.unwrap_or(TIMEOUT);
            specs.push(CheckSpec::new(name, CheckKind::Command(command), timeout));
        }
        specs
    }

    /// Finds names within the words of a command that lead nowhere, and values that would be code.
    pub(super) fn words(&mut self, place: &str, argv: &[String], levels: &[Level<'_>], side: Side) {
        let mut outside = BTreeSet::new();
        for (at, word) in argv.iter().enumerate().filter(|(_, word)| word.contains("{{")) {
            self.template(&format!("{place}/{at}"), word, levels, side);
            if self.is_from_outside(word, levels, side) {
                outside.insert(at);
            }
        }
        for Code { at, reader } in code(argv, &outside) {
            let (message, hint) = match reader {
                Some(reader) => (
                    format!(
                        "{reader} runs this word as code, and what is put in is not the workflow's own"
                    ),
                    format!(
                        "hand it over as an argument ({AS_ARGUMENT}) or in the environment ({IN_ENVIRONMENT})"
                    ),
                ),
                None => (
                    "which program runs is said by the workflow, and what is put in is not its own"
                        .to_owned(),
                    "write the program, and hand over what is put in as an argument".to_owned(),
                ),
            };
            self.fault(&format!("{place}/{at}"), message, Some(hint));
        }
    }
}

/// Makes the check that holds what a task hands over to a schema.
///
/// # Errors
/// What is wrong with the schema, in one line.
pub fn output_check(schema: Value) -> Result<CheckSpec, String> {
    Form::of(&schema).map_err(|fault| format!("it is no JSON Schema: {fault}"))?;
    Ok(CheckSpec::new("output", CheckKind::Output(OutputCheck { schema }), TIMEOUT))
}
