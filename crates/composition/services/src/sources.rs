//! The sources of a workspace: who outside may tell of what happens there, and how what they send comes into the log.
//!
//! Start at [`Receiver`], which takes requests as an interface hands them over, whatever that speaks.

mod document; // What a person writes.
mod mapping; // What a delivery is called, and what is kept of it.
mod receiver; // How one comes into the log.
mod signature; // Whether it comes from who it says.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use formwork_protocols::document::{Diagnostic, Diagnostics};

use crate::reading;

pub(crate) use document::Source;
pub use {
    document::{
        Algorithm, EventDocument, MAX_BYTES, PlaceDocument, SchemeName, SignatureDocument,
        SourceDocument,
    },
    receiver::{Arrival, LeftOut, Received, Receiver, Refusal},
    signature::{Encoding, Headers},
};

/// The folder of a workspace's sources.
pub(crate) const SOURCES: &str = ".formwork/sources";

/// The most sources of one workspace: each is an address.
const MAX_SOURCES: usize = 1_000;

/// A source of the workspace, as its file says.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// Its file.
    pub(crate) path: PathBuf,
    /// What the file says.
    pub(crate) text: String,
    /// What that means, or what is wrong with it.
    pub(crate) read: Result<Source, Diagnostics>,
}

impl Found {
    /// Returns the name of its file, which has to be its own.
    pub(crate) fn name(&self) -> String {
        let stem = self.path.file_stem().and_then(|name| name.to_str());
        stem.unwrap_or_default().to_owned()
    }

    /// Says what it does, for whoever is to trust it.
    pub(crate) fn does(&self) -> Vec<String> {
        let Ok(source) = &self.read else { return Vec::new() };
        let mut events: Vec<&str> = source.mapping.names.values().map(|it| it.as_str()).collect();
        events.extend(source.mapping.otherwise.as_ref().map(|it| it.as_str()));
        events.sort_unstable();
        events.dedup();
        vec![format!(
            "lets whoever has the secret {} tell of {}",
            source.secrets.join(" or "),
            events.join(" ")
        )]
    }
}

/// Reads the sources of a workspace, trusted or not, in the order of their names. Nothing of them has an effect by that.
///
/// # Errors
/// [`Diagnostics`] where the folder cannot be read.
pub(crate) fn read(workspace: &Path) -> Result<Vec<Found>, Diagnostics> {
    let folder = workspace.join(SOURCES);
    let mut files: Vec<PathBuf> = match fs::read_dir(&folder) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(fault(&folder, format!("the folder cannot be read: {error}")).into());
        }
    };
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    if files.len() > MAX_SOURCES {
        let told =
            format!("there are {} sources, and no more than {MAX_SOURCES} are read", files.len());
        return Err(fault(&folder, told).into());
    }
    let found = |path: PathBuf| match reading::document_of(workspace, &path) {
        Ok(text) => {
            let read = Source::parse(&path.display().to_string(), &text);
            Found { path, text, read }
        }
        Err(error) => {
            let read = Err(fault(&path, format!("it cannot be read: {error}")).into());
            Found { path, text: String::new(), read }
        }
    };
    let mut all: Vec<Found> = files.into_iter().map(found).collect();
    // Which of two would be meant is nobody's to guess, so neither is.
    let mut slugs: BTreeMap<String, usize> = BTreeMap::new();
    for source in all.iter().filter_map(|found| found.read.as_ref().ok()) {
        *slugs.entry(source.slug.to_string()).or_default() += 1;
    }
    for found in &mut all {
        if let Ok(source) = &found.read
            && slugs.get(source.slug.as_str()).is_some_and(|count| *count > 1)
        {
            let told = format!("another source has the slug {} too", source.slug);
            found.read = Err(fault(&found.path, told).into());
        }
    }
    Ok(all)
}

/// Checks a source by itself, and against the others of the workspace where it is one of them.
///
/// # Errors
/// [`Diagnostics`] lists every fault with its place.
pub(crate) fn validate(source: &str, text: &str, workspace: &Path) -> Result<(), Diagnostics> {
    let own = Source::parse(source, text)?;
    let others = read(workspace).unwrap_or_default();
    let found = others.into_iter().find(|it| it.name() == own.name.as_str() && it.text == text);
    found.map_or(Ok(()), |found| found.read.map(drop))
}

fn fault(path: &Path, told: String) -> Diagnostic {
    Diagnostic {
        source: path.display().to_string().into(),
        line: 1,
        column: 1,
        span: 0..0,
        key: String::new(),
        message: told,
        hint: None,
        text: "".into(),
    }
}
