//! What a plan runs: every program that its tasks, checks and steps start, and who says so.

use formwork_protocols::{
    AgentName, Body, PermissionMode, ServiceName, TaskName, TaskSpec, ToolClass, ToolSpec,
    WorkflowName,
    check::{CheckKind, CheckSpec, Fix},
    contract::ProofKind,
};
use formwork_sandbox::Protection;

use crate::Error;

/// A program that a plan runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Program<'a> {
    pub(crate) task: &'a TaskName,
    /// Its place in the task.
    pub(crate) place: Place<'a>,
    /// The program and its arguments.
    pub(crate) argv: &'a [String],
    /// The workflow that a check names, where that says so, and not the plan's own document.
    pub(crate) workflow: Option<&'a WorkflowName>,
    /// The contract that says so, by its path.
    pub(crate) contract: Option<&'a str>,
}

/// Where in a task a program is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place<'a> {
    /// It is the work.
    Work,
    /// It decides a check, and only looks.
    Check(&'a str),
    /// It mends what a check found.
    Fix(&'a str),
    /// It is run once the task has passed, or before it is tried again.
    Step,
    /// It runs while the tasks below work, or tells when what does is ready.
    Service(&'a ServiceName),
}

/// Returns every program that a tree of tasks runs, in the order of the document.
pub(crate) fn programs(root: &TaskSpec) -> Vec<Program<'_>> {
    let mut found = Vec::new();
    Walk { workflow: None, check: None, found: &mut found }.task(root);
    found
}

struct Walk<'a, 'b> {
    workflow: Option<&'a WorkflowName>,
    /// The check that is decided by the tasks that are walked.
    check: Option<&'a str>,
    found: &'b mut Vec<Program<'a>>,
}

impl<'a> Walk<'a, '_> {
    fn task(&mut self, spec: &'a TaskSpec) {
        for service in &spec.services {
            let place = Place::Service(&service.name);
            self.add(spec, place, &service.argv, None);
            if let Some(ready) = &service.ready {
                self.add(spec, place, &ready.argv, None);
            }
        }
        if let Body::Command { argv } = &spec.body {
            self.add(spec, Place::Work, argv, None);
        }
        for check in spec.prechecks.iter().chain(&spec.postchecks) {
            self.check(spec, check, Place::Check(&check.name));
        }
        for step in spec.before_retry.iter().chain(&spec.on_success) {
            self.check(spec, step, Place::Step);
        }
        spec.body.below().iter().for_each(|below| self.task(below));
    }

    fn check(&mut self, spec: &'a TaskSpec, check: &'a CheckSpec, place: Place<'a>) {
        match &check.kind {
            CheckKind::Command(command) => self.add(spec, place, &command.argv, None),
            CheckKind::Suite(suite) => self.add(spec, place, &suite.argv, None),
            CheckKind::Contract(contract) => {
                for proof in contract.requirements.iter().flat_map(|it| &it.proofs) {
                    if let ProofKind::Run { argv } = &proof.kind {
                        self.add(spec, place, argv, Some(&contract.path));
                    }
                }
            }
            CheckKind::Workflow(workflow) => {
                let decided = self.check.unwrap_or(&check.name);
                let mut below = Walk {
                    workflow: Some(&workflow.workflow),
                    check: Some(decided),
                    found: self.found,
                };
                workflow.tasks.iter().for_each(|task| below.task(task));
            }
            _ => {}
        }
        if let Some(Fix::Command { argv }) = &check.fix {
            self.add(spec, Place::Fix(&check.name), argv, None);
        }
    }

    fn add(
        &mut self,
        spec: &'a TaskSpec,
        place: Place<'a>,
        argv: &'a [String],
        contract: Option<&'a str>,
    ) {
        // What decides a check is a look, whatever it is made of.
        let place = self.check.map_or(place, Place::Check);
        let Self { workflow, .. } = *self;
        self.found.push(Program { task: &spec.name, place, argv, workflow, contract });
    }
}

/// Returns the agents whose word changes things where the mode of a run allows it, with their tasks: those that work and those that
/// mend. Who decides a check looks on in every mode.
pub(crate) fn acting(root: &TaskSpec) -> Vec<(&TaskName, &AgentName)> {
    let mut found = Vec::new();
    if let Body::Agent { agent, .. } = &root.body {
        found.push((&root.name, agent));
    }
    for check in root.prechecks.iter().chain(&root.postchecks) {
        if let Some(Fix::Agent { agent, .. }) = &check.fix {
            found.push((&root.name, agent));
        }
    }
    found.extend(root.body.below().iter().flat_map(acting));
    found
}

/// Refuses a plan that a mode cannot carry out: what changes anything is run in none that only looks, and what looks is
/// run there only where something keeps it from more.
///
/// # Errors
/// [`Error::ReadOnly`] names the first task.
pub(crate) fn fit(
    root: &TaskSpec,
    mode: PermissionMode,
    protection: &Protection,
) -> Result<(), Error> {
    if mode >= PermissionMode::Edit {
        return Ok(());
    }
    let is_free = *protection == Protection::None;
    for Program { task, place, argv, .. } in programs(root) {
        let what = match place {
            Place::Work => format!("task {task} runs {}", argv.join(" ")),
            Place::Service(name) => format!("service {name} runs {}", argv.join(" ")),
            Place::Step => format!("task {task} runs {} besides its work", argv.join(" ")),
            Place::Fix(check) => format!("check {check:?} of task {task} has a fix"),
            Place::Check(check) if is_free => format!(
                "check {check:?} of task {task} runs {}, which nothing here keeps from writing",
                argv.join(" ")
            ),
            Place::Check(_) => continue,
        };
        return Err(Error::ReadOnly { what, mode });
    }
    Ok(())
}

/// How many tools a line names.
const NAMED: usize = 3;

/// Says which of the tools that agents ask for change files, and are not offered in a mode that only looks.
pub(crate) fn withheld<'a>(
    mode: PermissionMode,
    asked: impl Iterator<Item = &'a ToolSpec>,
) -> Option<String> {
    if mode >= PermissionMode::Edit {
        return None;
    }
    let writes = asked.filter(|it| matches!(it.class, ToolClass::Write | ToolClass::Delete));
    let names: Vec<&str> = writes.map(|it| it.definition.name.as_str()).collect();
    let some = names.get(..NAMED.min(names.len()))?.join(", ");
    let told = match names.len().saturating_sub(NAMED) {
        0 if names.is_empty() => return None,
        0 => some,
        more => format!("{some} and {more} more"),
    };
    let mode = mode.as_str();
    Some(format!(
        "mode {mode} changes nothing, and has no {told}: pass --mode edit, or say mode = \"edit\" below [permissions]"
    ))
}

/// Tells whether a check runs a program, by itself and not by tasks of its own.
pub(crate) fn runs_program(check: &CheckSpec) -> bool {
    match &check.kind {
        CheckKind::Command(_) | CheckKind::Suite(_) => true,
        CheckKind::Contract(contract) => {
            let mut proofs = contract.requirements.iter().flat_map(|it| &it.proofs);
            proofs.any(|proof| matches!(proof.kind, ProofKind::Run { .. }))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use formwork_protocols::WorkflowName;
    use formwork_scheduler::workflow::{Known, Plan, WrittenWorkflow};
    use serde_json::Map;

    use super::*;

    fn plan() -> Plan {
        let text = "format_version = 1\nname = \"w\"\n[[services]]\nname = \"db\"\ncommand = [\"serve\"]\n\
            ready = { command = [\"look\"] }\n[[tasks]]\nname = \"a\"\ncommand = [\"make\"]\nspec = \"c.md\"\nretries = { max = 1 }\n\
            before_retry = [{ command = [\"reset\"] }]\non_success = [{ command = [\"ship\"] }]\n\
            [[tasks.postchecks]]\ncommand = [\"test\"]\nfix = { command = [\"mend\"] }\n\
            [[tasks.postchecks]]\nworkflow = \"smoke\"\n";
        let smoke =
            "format_version = 1\nname = \"smoke\"\n[[tasks]]\nname = \"s\"\ncommand = [\"poke\"]\n";
        let smoke = WrittenWorkflow { file: "smoke.toml".to_owned(), text: smoke.to_owned() };
        let contract = "# C\n\n## R1: It holds\n\n- check: run `prove it`\n";
        let known = Known {
            workflows: [(WorkflowName::parse("smoke").unwrap(), smoke)].into(),
            contracts: [("c.md".to_owned(), Ok(contract.to_owned()))].into(),
            ..Known::default()
        };
        Plan::parse("w.toml", text, &known, &Map::new()).unwrap()
    }

    #[test]
    fn every_program_of_a_plan_is_found_with_who_says_so() {
        let plan = plan();

        let mut found: Vec<_> = programs(plan.root())
            .into_iter()
            .map(|it| (it.argv[0].as_str(), it.workflow.map(WorkflowName::as_str), it.contract))
            .collect();

        found.sort_unstable();
        let wanted = [
            ("look", None, None),
            ("make", None, None),
            ("mend", None, None),
            ("poke", Some("smoke"), None),
            ("prove", None, Some("c.md")),
            ("reset", None, None),
            ("serve", None, None),
            ("ship", None, None),
            ("test", None, None),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn agents_that_work_or_mend_act_and_those_that_judge_do_not() {
        let text = "format_version = 1\nname = \"w\"\n[[tasks]]\nname = \"all\"\n\
            [[tasks.subtasks]]\nname = \"each\"\nfor_each = \"['a']\"\nagent = \"coder\"\nprompt = \"x\"\n\
            [[tasks.subtasks]]\nname = \"run\"\ncommand = [\"true\"]\n\
            [[tasks.subtasks.postchecks]]\nagent = \"reviewer\"\nprompt = \"x\"\n\
            fix = { agent = \"mender\", prompt = \"x\" }\n";
        let agents = ["coder", "reviewer", "mender"].map(|it| AgentName::parse(it).unwrap());
        let known = Known { agents: agents.into(), ..Known::default() };
        let plan = Plan::parse("w.toml", text, &known, &Map::new()).unwrap();

        let found = acting(plan.root());

        let found: Vec<_> =
            found.into_iter().map(|(task, by)| (task.as_str(), by.as_str())).collect();
        assert_eq!(found, [("each", "coder"), ("run", "mender")]);
    }

    #[test]
    fn what_changes_anything_does_not_fit_a_mode_that_looks() {
        let plan = plan();
        let told =
            |mode, root: &TaskSpec| fit(root, mode, &Protection::None).unwrap_err().to_string();
        let mut looks = plan.root().body.below()[0].clone();

        assert!(fit(plan.root(), PermissionMode::Edit, &Protection::None).is_ok());
        assert_eq!(
            told(PermissionMode::Plan, plan.root()),
            "service db runs serve, and a run in mode plan changes nothing"
        );
        assert_eq!(
            told(PermissionMode::Plan, &looks),
            "task a runs make, and a run in mode plan changes nothing"
        );
        looks.body = Body::Native { function: "f".to_owned() };
        looks.before_retry.clear();
        looks.on_success.clear();
        looks.postchecks.retain(|check| check.fix.is_none());
        let told = told(PermissionMode::Ask, &looks);
        assert!(
            told.contains("which nothing here keeps from writing, and a run in mode ask"),
            "{told}"
        );
    }
}
