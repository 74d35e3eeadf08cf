//! `formwork runs export` and `formwork runs import`.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use formwork_protocols::{OutcomeCode, RunId};
use formwork_services::{
    Formwork,
    capability::Caller,
    operations::bundles::{Export, ExportParams, Import, ImportParams},
};

use super::db::bytes;
use crate::{fault::Fault, terminal::Terminal};

/// What stands for standard output.
const STDOUT: &str = "-";

pub(super) async fn export(
    formwork: &Formwork,
    caller: &Caller,
    terminal: &Terminal,
    run: RunId,
    output: Option<PathBuf>,
    overwrite: bool,
) -> Result<OutcomeCode, Fault> {
    if output.as_deref() == Some(Path::new(STDOUT)) {
        // It is whole before the first byte of it is printed.
        let folder = super::temporary()?;
        let file = folder.path().join("run.jsonl");
        let params = ExportParams { run, file: file.clone(), overwrite: false };
        formwork.call::<Export>(caller, params).await?;
        let mut file = std::fs::File::open(&file)?;
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                return Ok(OutcomeCode::Completed);
            }
            crate::terminal::bytes(buffer.get(..read).unwrap_or_default())?;
        }
    }
    let named = output.unwrap_or_else(|| PathBuf::from(format!("{run}.jsonl.zst")));
    let file = std::path::absolute(named)?;
    let done = formwork.call::<Export>(caller, ExportParams { run, file, overwrite }).await?;
    terminal.result(&done, || {
        format!(
            "run {run} with {} events and {} blobs went into {} ({})\n",
            done.events,
            done.blobs,
            done.file.display(),
            bytes(done.bytes)
        )
    })?;
    Ok(OutcomeCode::Completed)
}

pub(super) async fn import(
    formwork: &Formwork,
    caller: &Caller,
    terminal: &Terminal,
    file: PathBuf,
) -> Result<OutcomeCode, Fault> {
    let file = std::path::absolute(file)?;
    let done = formwork.call::<Import>(caller, ImportParams { file }).await?;
    terminal.result(&done, || {
        let mut text = String::new();
        for run in &done.imported {
            text.push_str(&format!("run {run} is here now\n"));
        }
        for run in &done.restored {
            text.push_str(&format!("run {run} is back from the archive, as it was\n"));
        }
        for run in &done.identical {
            text.push_str(&format!("run {run} was here already, the same to the last event\n"));
        }
        text
    })?;
    Ok(OutcomeCode::Completed)
}
