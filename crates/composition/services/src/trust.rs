//! Which project configs may take effect: those whose content a person has looked at.

use std::path::{Path, PathBuf};

use formwork_policy::{Trust, TrustStore};

use crate::Error;

/// The file that remembers them, in the state folder and never within a project.
fn store(state: &Path, file: &Path) -> Result<TrustStore, Error> {
    let folder = file.parent().unwrap_or(file);
    crate::private::folder(state).map_err(|source| Error::State {
        action: "make the folder",
        path: state.to_owned(),
        source,
    })?;
    TrustStore::new(place(state), folder).map_err(|error| rules(&error))
}

fn place(state: &Path) -> PathBuf {
    state.join("trust.json")
}

fn rules(error: &formwork_policy::Error) -> Error {
    Error::Trust { reason: crate::error::chain(error) }
}

/// Tells whether a file is trusted as it stands. What cannot be told is not trusted.
pub fn is_trusted(state: &Path, file: &Path, text: &str) -> bool {
    store(state, file)
        .and_then(|store| store.judge(file, text.as_bytes()).map_err(|error| rules(&error)))
        .is_ok_and(|trust| trust == Trust::Trusted)
}

/// Trusts a file as it stands.
///
/// # Errors
/// [`Error::Trust`] when that cannot be remembered.
pub fn trust(state: &Path, file: &Path, text: &str) -> Result<(), Error> {
    store(state, file)?.trust(file, text.as_bytes()).map_err(|error| rules(&error))
}

/// Takes the trust in a file back.
///
/// # Errors
/// [`Error::Trust`] when that cannot be remembered.
pub fn revoke(state: &Path, file: &Path) -> Result<(), Error> {
    store(state, file)?.revoke(file).map_err(|error| rules(&error))
}
