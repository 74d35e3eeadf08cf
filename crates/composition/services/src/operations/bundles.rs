//! `runs.export` and `runs.import`: runs as files that stand for themselves.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use formwork_protocols::RunId;
use formwork_trace::{BundleError, Fate, Form};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
};

/// What a compressed bundle is called.
const COMPRESSED: &str = "zst";

/// Which run, and whereto.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportParams {
    /// The run.
    pub run: RunId,
    /// The file, on the machine where Formwork runs; compressed where its name ends in `.zst`.
    pub file: PathBuf,
    /// Whether a file that is there is written over.
    #[serde(default)]
    pub overwrite: bool,
}

/// A bundle that was written.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Exported {
    /// The run.
    pub run: RunId,
    /// The file.
    pub file: PathBuf,
    /// How many events it holds.
    pub events: u64,
    /// How many blobs it holds.
    pub blobs: u64,
    /// How many bytes it has.
    pub bytes: u64,
    /// The BLAKE3 hash of the file.
    pub digest: String,
}

/// `runs.export`
pub struct Export;

#[async_trait]
impl Operation for Export {
    const NAME: &'static str = "runs.export";
    const DOC: &'static str =
        "Writes a run into a file that stands for itself: its events, its blobs and its chain.";
    const SCOPE: Scope = Scope::Admin;
    const EFFECT: Effect = Effect::Write;
    type Params = ExportParams;
    type Output = Exported;

    async fn run(formwork: &Formwork, _: &Caller, params: ExportParams) -> Result<Exported, Error> {
        let ExportParams { run, file, overwrite } = params;
        let failed = |source| Error::State { action: "write", path: file.clone(), source };
        if let Some(why) = fs::symlink_metadata(&file).ok().and_then(|it| stands_in(&it, overwrite))
        {
            return Err(failed(io::Error::new(io::ErrorKind::AlreadyExists, why)));
        }
        let form = match file.extension() {
            Some(extension) if extension == COMPRESSED => Form::Compressed,
            _ => Form::Plain,
        };
        let part = Part::beside(&file).map_err(failed)?;
        let out = File::create_new(&part.path).map_err(failed)?;
        let written = formwork.trace().export(run, out, form, formwork.scrub()).await;
        let (out, counts) = written.map_err(|error| match error {
            BundleError::Io(source) => failed(source),
            error => error.into(),
        })?;
        out.sync_all().map_err(failed)?;
        drop(out);
        let (digest, bytes) = formwork_trace::digest(&part.path).map_err(failed)?;
        fs::rename(&part.path, &file).map_err(failed)?;
        let (events, blobs) = (counts.events, counts.blobs);
        Ok(Exported { run, events, blobs, bytes, digest: digest.to_string(), file })
    }
}

/// Says why a file cannot be put in the place of what is there.
fn stands_in(there: &fs::Metadata, overwrite: bool) -> Option<&'static str> {
    if !there.is_file() {
        return Some("what is there is no file, and is not replaced: name another place");
    }
    (!overwrite)
        .then_some("it is there already, and is replaced only where that is asked for (--force)")
}

/// A file that is being written. It goes, unless it was renamed.
struct Part {
    path: PathBuf,
}

impl Part {
    fn beside(file: &Path) -> io::Result<Self> {
        let name = file.file_name().ok_or_else(|| io::Error::other("it names no file"))?;
        let name = format!(".{}.{}.part", name.to_string_lossy(), std::process::id());
        Ok(Self { path: file.with_file_name(name) })
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It is not there where it was renamed.
        let _ = fs::remove_file(&self.path);
    }
}

/// Which file.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportParams {
    /// A bundle or an archive, on the machine where Formwork runs.
    pub file: PathBuf,
}

/// What became of the runs of a bundle.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Imported {
    /// The runs that are here now and were not before.
    pub imported: Vec<RunId>,
    /// The runs that this machine had taken out into an archive, and that are back as they were.
    #[serde(default)]
    pub restored: Vec<RunId>,
    /// The runs that were here already, the same to the last event.
    pub identical: Vec<RunId>,
}

/// `runs.import`
pub struct Import;

#[async_trait]
impl Operation for Import {
    const NAME: &'static str = "runs.import";
    const DOC: &'static str = "Takes in the runs of a bundle or an archive, once all of it was found to be what was written.";
    const SCOPE: Scope = Scope::Admin;
    const EFFECT: Effect = Effect::Write;
    type Params = ImportParams;
    type Output = Imported;

    async fn run(formwork: &Formwork, _: &Caller, params: ImportParams) -> Result<Imported, Error> {
        let ImportParams { file } = params;
        let done = formwork.trace().import(&file).await.map_err(|error| match error {
            BundleError::Io(source) => Error::State { action: "read", path: file, source },
            error => error.into(),
        })?;
        let of = |fate| done.iter().filter(move |(_, had)| *had == fate).map(|(run, _)| *run);
        Ok(Imported {
            imported: of(Fate::Imported).collect(),
            restored: of(Fate::Restored).collect(),
            identical: of(Fate::Identical).collect(),
        })
    }
}
