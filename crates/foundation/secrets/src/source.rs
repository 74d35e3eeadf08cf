//! Where a secret comes from.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretSlice, SecretString};
use serde::{Deserialize, Serialize};

use crate::registry::MAX_BYTES;
use crate::{Error, SecretName, keyring};

/// A password manager that asks nobody answers within this; one that waits for a person has no terminal here.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// How often it is looked whether one has ended that has said all it has to say.
const LOOK: Duration = Duration::from_millis(5);

/// Looks a variable of the environment up; only the program's outermost layer has one.
pub trait Environment {
    /// Returns the value of `variable`, or nothing when it is not set.
    fn variable(&self, variable: &str) -> Option<SecretString>;
}

impl<F: Fn(&str) -> Option<String>> Environment for F {
    fn variable(&self, variable: &str) -> Option<SecretString> {
        self(variable).map(SecretString::from)
    }
}

/// Where a secret comes from, as configuration says it: `{ env = "API_KEY" }`. Never the secret itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Source {
    /// A variable of the environment. A last newline is no part of the secret.
    Env(String),
    /// A file that holds the secret and perhaps a last newline; relative to the file that names it.
    File(PathBuf),
    /// An entry of the kernel's keyring, by its description, as `keyctl add user SERVICE/USER VALUE @u` makes one: it is
    /// looked for in the session's keyring and then in the user's. Read on Linux alone.
    Keyring(#[schemars(length(min = 1))] String),
    /// A program and its arguments; what it prints is the secret and perhaps a last newline. No shell is involved.
    Command(#[schemars(length(min = 1))] Vec<String>),
}

impl Source {
    /// Reads the secret. May wait for a program for up to ten seconds.
    ///
    /// `base` is the folder that relative paths begin at.
    ///
    /// # Errors
    /// [`Error::NoVariable`], [`Error::File`], [`Error::Keyring`], [`Error::Command`], [`Error::CommandFailed`] and
    /// [`Error::Unsupported`] by kind of source; [`Error::NotText`] and [`Error::TooLong`] for what was read.
    pub fn resolve(
        &self,
        name: &SecretName,
        environment: &dyn Environment,
        base: &Path,
    ) -> Result<SecretString, Error> {
        match self {
            Self::Env(variable) => {
                let value = environment.variable(variable).ok_or_else(|| Error::NoVariable {
                    name: name.clone(),
                    variable: variable.clone(),
                })?;
                Ok(SecretString::from(without_newline(value.expose_secret())))
            }
            Self::File(path) => {
                let path = base.join(path);
                let bytes = regular(&path)
                    .and_then(read_bounded)
                    .map_err(|source| Error::File { name: name.clone(), path, source })?;
                text(name, &bytes)
            }
            Self::Keyring(entry) => text(name, &keyring::read(name, entry)?),
            Self::Command(argv) => text(name, &run(name, argv, base, COMMAND_TIMEOUT)?),
        }
    }
}

/// Opens a regular file: a pipe would be waited for.
fn regular(path: &Path) -> io::Result<File> {
    let found = std::fs::metadata(path)?;
    match found.is_dir() || found.is_file() {
        true => File::open(path),
        false => Err(io::Error::other("it is no file")),
    }
}

impl Source {
    /// Reads a secret that is to stand in a header, such as the key of a provider: newlines at its end are no part of it.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve); [`Error::NoHeader`] within [`Error::Unusable`] where no header may hold it.
    pub fn resolve_key(
        &self,
        name: &SecretName,
        environment: &dyn Environment,
        base: &Path,
    ) -> Result<SecretString, Error> {
        let value = self.resolve(name, environment, base)?;
        let key = value.expose_secret().trim_end_matches(['\r', '\n']);
        match no_header(key) {
            None => Ok(SecretString::from(key)),
            Some(what) => Err(self.unusable(Error::NoHeader { name: name.clone(), what })),
        }
    }

    /// Says of a value that came from here that it cannot be used.
    #[must_use]
    pub fn unusable(&self, why: Error) -> Error {
        Error::Unusable { origin: self.to_string(), source: Box::new(why) }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(variable) => write!(f, "the environment variable {variable:?}"),
            Self::File(path) => write!(f, "the file {path:?}"),
            Self::Keyring(entry) => write!(f, "the entry {entry:?} of the keyring"),
            Self::Command(argv) => {
                write!(f, "the command {:?}", argv.first().map_or("", String::as_str))
            }
        }
    }
}

/// Says what of a text keeps it from being the value of a header, if anything does.
fn no_header(text: &str) -> Option<&'static str> {
    if text.trim_matches([' ', '\t']) != text {
        return Some("a blank at its beginning or end");
    }
    text.chars().find_map(|it| match it {
        '\n' | '\r' => Some("a line break"),
        it if it.is_control() => Some("a control character"),
        it if !it.is_ascii() => Some("a character that is not ASCII"),
        _ => None,
    })
}

/// Reads a byte more than a secret may have, so that a longer one is noticed.
fn read_bounded(file: impl Read) -> io::Result<SecretSlice<u8>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(3);
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

fn text(name: &SecretName, bytes: &SecretSlice<u8>) -> Result<SecretString, Error> {
    let text = std::str::from_utf8(bytes.expose_secret())
        .map_err(|_| Error::NotText { name: name.clone() })?;
    Ok(SecretString::from(without_newline(text)))
}

fn without_newline(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

fn run(
    name: &SecretName,
    argv: &[String],
    base: &Path,
    within: Duration,
) -> Result<SecretSlice<u8>, Error> {
    let (program, arguments) = argv.split_first().map_or(("", [].as_slice()), |(p, a)| (p, a));
    let failed =
        |how: String| Error::CommandFailed { name: name.clone(), program: program.to_owned(), how };
    let not_run =
        |source| Error::Command { name: name.clone(), program: program.to_owned(), source };

    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(base)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // What it says there may hold the secret, and is shown to nobody.
        .stderr(Stdio::null())
        .spawn()
        .map_err(not_run)?;
    let begun = Instant::now();
    let output = child.stdout.take();
    let (sender, receiver) = mpsc::sync_channel(1);
    // Ends with the pipe. A grandchild that keeps the pipe open keeps only this thread, which holds nothing.
    thread::spawn(move || sender.send(output.map_or_else(|| Ok(Vec::new().into()), read_bounded)));
    let bytes = match receiver.recv_timeout(within) {
        Ok(bytes) => bytes.map_err(not_run)?,
        Err(_) => {
            end(&mut child);
            return Err(failed(format!("said nothing within {} s", within.as_secs_f64())));
        }
    };
    if bytes.expose_secret().len() > MAX_BYTES {
        end(&mut child);
        return Err(Error::TooLong { name: name.clone(), limit: MAX_BYTES });
    }
    // One that has closed its output need not end by itself, and the standard library waits for no end with a bound.
    let (_open, nothing) = mpsc::channel::<()>();
    let status = loop {
        match child.try_wait().map_err(not_run)? {
            Some(status) => break status,
            None if begun.elapsed() < within => drop(nothing.recv_timeout(LOOK)),
            None => {
                end(&mut child);
                return Err(failed(format!("did not end within {} s", within.as_secs_f64())));
            }
        }
    };
    if status.success() { Ok(bytes) } else { Err(failed(format!("failed ({status})"))) }
}

/// Ends a program that is of no more use; one that has ended by itself is as well.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_says_its_secret_and_stays_is_not_waited_for() {
        let name = SecretName::parse("KEY").unwrap();
        let argv = ["sh", "-c", "echo k; exec >&-; exec sleep 1000"].map(str::to_owned);

        let told = run(&name, &argv, Path::new("/"), Duration::from_millis(200)).unwrap_err();

        assert!(told.to_string().ends_with("did not end within 0.2 s"), "{told}");
    }
}
