//! `formwork workflows`: what there is to run, and what it would do.

use formwork_protocols::OutcomeCode;
use formwork_services::operations::workflows::{
    List, ListParams, Plan, PlanParams, Planned, Validate, ValidateParams,
};

use crate::{
    args::{Global, Workflows},
    fault::Fault,
    settings::Need,
    terminal::{Format, Terminal},
    view::visible,
};

pub(super) fn workflows(
    global: &Global,
    terminal: &Terminal,
    args: Workflows,
) -> Result<OutcomeCode, Fault> {
    super::reading(global, Need::Look, async |formwork, caller, settings| {
        match args {
            Workflows::List => {
                let listed = formwork.call::<List>(&caller, ListParams {}).await?;
                terminal.result(&listed, || {
                    if listed.workflows.is_empty() {
                        return "no workflows below .formwork/workflows\n".to_owned();
                    }
                    let line = |workflow: &formwork_services::operations::workflows::Summary| {
                        let faults = match workflow.faults {
                            0 => String::new(),
                            count => format!("  ({})", super::counted(count, "fault")),
                        };
                        format!(
                            "{:<20} {}{faults}\n",
                            visible(&workflow.name),
                            visible(&workflow.description)
                        )
                    };
                    listed.workflows.iter().map(line).collect()
                })?;
            }
            Workflows::Get { workflow } => {
                let (source, text) = super::run::workflow_text(&settings, &workflow)?;
                let document = serde_json::json!({ "file": source, "text": text });
                terminal.result(&document, || text.clone())?;
            }
            Workflows::Validate { workflow } => {
                let (source, text) = super::run::workflow_text(&settings, &workflow)?;
                let params = ValidateParams { source, text };
                let found = formwork.call::<Validate>(&caller, params).await?;
                terminal.result(&found, || match found.faults.len() {
                    0 => format!("{workflow} is valid\n"),
                    count => format!(
                        "{}\n{}\n",
                        found.faults.join("\n"),
                        super::counted(count as u64, "fault")
                    ),
                })?;
                if !found.faults.is_empty() {
                    return Ok(OutcomeCode::Setup);
                }
            }
            Workflows::Plan { workflow, vars, model } => {
                let (source, text) = super::run::workflow_text(&settings, &workflow)?;
                let vars = super::run::variables(&vars)?;
                let params = PlanParams { source, text, vars, model };
                let planned = formwork.call::<Plan>(&caller, params).await?;
                terminal.result(&planned, || drawn(&planned, terminal.format))?;
            }
        }
        Ok(OutcomeCode::Completed)
    })
}

/// Draws what a workflow would do.
fn drawn(planned: &Planned, format: Format) -> String {
    let worst = match &planned.worst_case {
        Some(usd) => format!("at most ${usd}"),
        None => "without a bound".to_owned(),
    };
    let mut out = format!(
        "{}: {}, up to {} at once, {worst}\n",
        planned.name,
        super::counted(planned.tasks.len() as u64, "task"),
        planned.width
    );
    if format == Format::Quiet {
        return out;
    }
    for service in &planned.services {
        let ready = service.ready.as_ref().map_or(String::new(), |ready| {
            format!(", ready once {} ends well, within {}", ready.argv.join(" "), ready.timeout)
        });
        let again = match service.restarts {
            0 => "never started again".to_owned(),
            1 => "started again once".to_owned(),
            times => format!("started again {times} times at most"),
        };
        let line = format!("service {}: {}{ready}, {again}", service.name, service.argv.join(" "));
        out.push_str(&format!("{}\n", visible(&line)));
    }
    for task in &planned.tasks {
        let indent = "  ".repeat(usize::try_from(task.depth).unwrap_or(0).min(32));
        let name = task.path.rsplit('/').next().unwrap_or(&task.path);
        let turn = if task.depth == 0 { String::new() } else { format!("{}. ", task.turn) };
        let after = match task.depends_on.as_slice() {
            [] => String::new(),
            names => format!(" after {}", names.join(", ")),
        };
        let cost = task.worst_case.map_or(String::new(), |usd| format!(", at most ${usd}"));
        let tries = match task.attempts {
            0 => String::new(),
            tries => format!(", {}", super::counted(tries, "attempt")),
        };
        let does = visible(&task.does);
        let output = task.output.as_ref().map_or(String::new(), |name| format!(", as {name}"));
        out.push_str(&format!("{indent}{turn}{name}: {does}{after}{output}{tries}{cost}\n"));
        for (when, checks) in [("entry", &task.prechecks), ("exit", &task.postchecks)] {
            for check in checks {
                out.push_str(&format!("{indent}     {when} check {}\n", visible(check)));
            }
        }
        for agent in &task.agents {
            let price = match &agent.price {
                None => "no price".to_owned(),
                Some(price) => format!("${} in, ${} out per million", price.input, price.output),
            };
            out.push_str(&format!(
                "{indent}     {} thinks with {} ({price})\n",
                agent.agent, agent.model
            ));
            if let Some(file) = &agent.in_place_of_built_in {
                out.push_str(&format!(
                    "{indent}     {} is {}, in place of the built-in one\n",
                    agent.agent,
                    visible(file)
                ));
            }
            out.push_str(&format!(
                "{indent}     {} may use {}\n",
                agent.agent,
                agent.tools.join(" ")
            ));
        }
    }
    for why in &planned.unbounded {
        out.push_str(&format!("no bound: {}\n", visible(why)));
    }
    out
}
