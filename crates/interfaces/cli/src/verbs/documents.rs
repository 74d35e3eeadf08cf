//! `formwork validate` and `formwork schema`: documents, before anything runs.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::anyhow;
use formwork_protocols::{OutcomeCode, document::Diagnostics};
use formwork_services::documents::{self, Kind, KnownModels};
use serde_json::json;

use crate::{
    args::{Document, Global, Schema, Validate},
    fault::{Fault, What},
    settings::{Need, Settings},
    terminal::Terminal,
};

pub(super) fn validate(
    global: &Global,
    terminal: &Terminal,
    args: Validate,
) -> Result<OutcomeCode, Fault> {
    let named = !args.paths.is_empty();
    let (roots, workspace) = if named {
        let here = Settings::load(global, Vec::new(), Need::Look)
            .map_or_else(|_| PathBuf::from("."), |settings| settings.workspace);
        (args.paths, here)
    } else {
        let settings = Settings::load(global, Vec::new(), Need::Look)?;
        let own = ["formwork.toml", ".formwork"].map(|name| settings.workspace.join(name));
        (own.into_iter().filter(|path| path.exists()).collect(), settings.workspace)
    };
    let mut files = Vec::new();
    for root in &roots {
        collect(root, &mut files)?;
    }
    if files.is_empty() {
        let what =
            if named { "the paths hold no document" } else { "this workspace has no document" };
        return Err(Fault::setup(anyhow!("{what}")).hint("`formwork init` writes a starting set"));
    }
    // Config that does not parse is told of as the document that it is.
    let settings = Settings::load(global, Vec::new(), Need::Check).ok();
    let known = match &settings {
        Some(settings) => KnownModels::new(&settings.layered.config, &settings.workspace).map(Some),
        None => Ok(None),
    };
    let mut faults: Vec<formwork_protocols::document::Diagnostic> = Vec::new();
    for file in &files {
        let text = formwork_services::reading::document_of(&workspace, file).map_err(|error| {
            Fault::setup(
                anyhow::Error::from(error).context(format!("cannot read {}", file.display())),
            )
        })?;
        let kind = Kind::of(file, &text);
        if let Err(found) =
            documents::validate(kind, &file.display().to_string(), &text, &workspace)
        {
            faults.extend(found.iter().cloned());
        }
        if let Ok(Some(known)) = &known {
            for fault in known.faults(kind, &file.display().to_string(), &text, &workspace) {
                // An agent's own document and the workflow that asks for it tell the same.
                if !faults.iter().any(|told| told.to_string() == fault.to_string()) {
                    faults.push(fault);
                }
            }
        }
    }
    match known {
        // A script that a provider names is a document too.
        Err(formwork_services::Error::Documents(found)) => {
            let told: Vec<_> = faults.iter().map(ToString::to_string).collect();
            faults.extend(found.into_iter().filter(|it| !told.contains(&it.to_string())));
        }
        Err(error) if faults.is_empty() => return Err(error.into()),
        _ => {}
    }
    if faults.is_empty() {
        let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        terminal.result(&json!({ "valid": names, "errors": [] }), || {
            let documents = if files.len() == 1 { "document is" } else { "documents are" };
            format!("{} {documents} valid\n", files.len())
        })?;
        return Ok(OutcomeCode::Completed);
    }
    let found: Diagnostics = faults.into_iter().collect();
    Err(Fault { code: OutcomeCode::Setup, what: What::Documents(found), hint: None })
}

/// Collects the documents at or below a path, in order.
fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), Fault> {
    let context = |error: std::io::Error| {
        Fault::setup(anyhow::Error::from(error).context(format!("cannot read {}", path.display())))
    };
    if !fs::metadata(path).map_err(context)?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let mut entries: Vec<PathBuf> = fs::read_dir(path)
        .map_err(context)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(context)?;
    entries.sort();
    for entry in entries {
        let is_folder = entry.is_dir() && !entry.is_symlink();
        if is_folder {
            collect(&entry, files)?;
        } else if entry.extension().is_some_and(|extension| extension == "toml") {
            files.push(entry);
        }
    }
    Ok(())
}

pub(super) fn schema(terminal: &Terminal, args: Schema) -> Result<OutcomeCode, Fault> {
    let kind = match args.document {
        Document::Config => Kind::Config,
        Document::Agent => Kind::Agent,
        Document::Workflow => Kind::Workflow,
        Document::Tool => Kind::Tool,
        Document::Subscription => Kind::Subscription,
        Document::Source => Kind::Source,
        Document::Script => Kind::Script,
        Document::Event => Kind::Event,
    };
    let schema = documents::schema(kind);
    terminal.result(&json!({ "schema": schema }), || {
        format!("{}\n", serde_json::to_string_pretty(&schema).unwrap_or_default())
    })?;
    Ok(OutcomeCode::Completed)
}
