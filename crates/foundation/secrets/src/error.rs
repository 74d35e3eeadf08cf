//! Why a secret could not be taken, or put where it was asked for.

use std::{io, path::PathBuf};

use crate::SecretName;

/// Why a secret could not be taken, or put where it was asked for. No message holds a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Error {
    /// Rules of the scanner that cannot be read or applied. Nothing was scanned.
    #[error("the rules by which secrets are found cannot be used: {reason}")]
    Rules { reason: String },
    /// A content that is to be scanned cannot be read to its end.
    #[error("it cannot be read to its end")]
    Unreadable { source: std::io::Error },
    /// The text is not a name for a secret.
    #[error("{text:?} is not the name of a secret: wanted 1 to 64 of A-Z a-z 0-9 _ -")]
    Name { text: String },
    /// The value is so short that it would be found in ordinary text.
    #[error(
        "secret {name} has {found} bytes: scrubbing needs at least {least} to tell it from ordinary text"
    )]
    TooShort { name: SecretName, found: usize, least: usize },
    /// The value is longer than keys and certificates are.
    #[error("secret {name} has more than {limit} bytes")]
    TooLong { name: SecretName, limit: usize },
    /// The value looks like what the scrubber writes in its place, so that the two could not be told apart.
    #[error("secret {name} holds {marker:?}, which is what scrubbed text says")]
    LooksScrubbed { name: SecretName, marker: &'static str },
    /// The value is part of a name, and would be found in what the scrubber writes.
    #[error("secret {name} is part of the name {other}")]
    PartOfName { name: SecretName, other: SecretName },
    /// The value cannot stand in a header, for which it is wanted.
    #[error("secret {name} holds {what}, which no header may hold")]
    NoHeader { name: SecretName, what: &'static str },
    /// The value that came from there cannot be used, as `source` says.
    #[error("what comes from {origin} cannot be used")]
    Unusable { origin: String, source: Box<Self> },
    /// A secret of that name is there already.
    #[error("secret {name} is declared twice")]
    Duplicate { name: SecretName },
    /// The environment has no such variable.
    #[error("secret {name} comes from the environment variable {variable:?}, which is not set")]
    NoVariable { name: SecretName, variable: String },
    /// The file cannot be read.
    #[error("secret {name} comes from {path:?}, which cannot be read")]
    File { name: SecretName, path: PathBuf, source: io::Error },
    /// What was read is not text.
    #[error("secret {name} is not UTF-8 text")]
    NotText { name: SecretName },
    /// There are no sources of that kind on this system.
    #[error(
        "secret {name} comes from {kind}, which is read on Linux alone; env, file and command are read here"
    )]
    Unsupported { name: SecretName, kind: &'static str },
    /// The keyring has no such entry, or gives it to nobody.
    #[error(
        "secret {name} comes from the entry {entry:?} of the keyring, which cannot be read: {why}"
    )]
    Keyring { name: SecretName, entry: String, why: String },
    /// The command could not be started or waited for.
    #[error("secret {name} comes from the command {program:?}, which could not be run")]
    Command { name: SecretName, program: String, source: io::Error },
    /// The command failed or said nothing in time.
    #[error("secret {name} comes from the command {program:?}, which {how}")]
    CommandFailed { name: SecretName, program: String, how: String },
    /// A placeholder names a secret that is not there.
    #[error("no secret {name:?}{}", hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default())]
    Unknown { name: String, hint: Option<String> },
}
