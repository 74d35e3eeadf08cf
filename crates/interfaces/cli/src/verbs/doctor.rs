//! `formwork doctor`: what would break a run, and what to do about it.

use formwork_protocols::OutcomeCode;
use formwork_services::doctor::{self, Finding, Grade};

use crate::{
    args::{Doctor, Global},
    fault::Fault,
    settings::{Need, Settings},
    terminal::Terminal,
};

pub(super) fn doctor(
    global: &Global,
    terminal: &Terminal,
    args: Doctor,
) -> Result<OutcomeCode, Fault> {
    let mut findings = Vec::new();
    // Config that does not parse is a finding like any other; the rest is still looked at.
    let settings = match Settings::load(global, Vec::new(), Need::Look) {
        Ok(settings) => settings,
        Err(fault) => {
            for message in fault.messages() {
                findings.push(Finding::new(
                    "config",
                    Grade::Broken,
                    message,
                    fault.hint.as_deref(),
                ));
            }
            return conclude(terminal, &findings);
        }
    };
    findings.push(Finding::new(
        "config",
        Grade::Sound,
        format!("{} values are set", settings.layered.entries.len()),
        None,
    ));
    if let Some(project) = settings.project.as_ref().filter(|it| it.untrusted.is_some()) {
        findings.push(Finding::new(
            "trust",
            Grade::Broken,
            format!(
                "{} is not trusted and sets {}",
                project.path.display(),
                project.reaching.join(", ")
            ),
            Some("read the file, then run `formwork trust`"),
        ));
    }
    super::block_on(async {
        match super::open(&settings).await {
            Ok(formwork) => {
                findings.extend(doctor::examine(&formwork, !args.offline).await);
                formwork.close().await;
            }
            Err(fault) => {
                for message in fault.messages() {
                    findings.push(Finding::new(
                        "set-up",
                        Grade::Broken,
                        message,
                        fault.hint.as_deref(),
                    ));
                }
            }
        }
        Ok(())
    })?;
    conclude(terminal, &findings)
}

fn conclude(terminal: &Terminal, findings: &[Finding]) -> Result<OutcomeCode, Fault> {
    let broken = findings.iter().filter(|finding| finding.grade == Grade::Broken).count();
    let document = serde_json::json!({ "findings": findings, "broken": broken });
    terminal.result(&document, || {
        let mut text = String::new();
        for finding in findings {
            let mark = match finding.grade {
                Grade::Sound => "✓",
                Grade::Weak => "·",
                Grade::Broken => "✗",
            };
            let found = super::folded(&finding.found, 13);
            text.push_str(&format!("{mark} {:<10} {found}\n", finding.about));
            if let Some(advice) = &finding.advice {
                text.push_str(&format!("  {:<10} → {advice}\n", ""));
            }
        }
        text.push_str(&match broken {
            0 => "nothing stands in the way of a run\n".to_owned(),
            1 => "1 thing stands in the way of a run\n".to_owned(),
            more => format!("{more} things stand in the way of a run\n"),
        });
        text
    })?;
    Ok(if broken == 0 { OutcomeCode::Completed } else { OutcomeCode::Setup })
}
