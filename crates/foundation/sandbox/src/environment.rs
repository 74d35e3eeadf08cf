//! Which variables a command sees.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
};

use crate::{Command, Error};

/// The parent's environment, as a value.
///
/// A command sees of it only what is on the allow-list: where programs, the home folder and
/// temporary files are, the locale, the terminal, the time zone, and where Rust keeps its tools.
/// Keys and tokens are not on it, so they reach a command only where [`Command::set`] or
/// [`Command::pass`] names them one by one.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<OsString, OsString>);

/// Passed on when the parent has them.
const ALLOWED: &[&str] = &[
    "CARGO_HOME",
    "COLORTERM",
    "HOME",
    "LANG",
    "LANGUAGE",
    "LOGNAME",
    "NO_COLOR",
    "PATH",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "SHELL",
    "TEMP",
    "TERM",
    "TMP",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_CACHE_HOME",
];

/// Each makes some common program run code of its value's choosing, so that whoever sets it runs
/// more than the argument vector says.
const FORBIDDEN: &[&str] = &["BASH_ENV", "ENV", "GCONV_PATH", "IFS", "PROMPT_COMMAND", "SHELLOPTS"];

impl Environment {
    /// Takes the parent's variables.
    pub fn new<K: Into<OsString>, V: Into<OsString>>(
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }

    /// Returns the variables that `command` sees.
    pub(crate) fn of(&self, command: &Command) -> Result<BTreeMap<OsString, OsString>, Error> {
        let named = command.set.keys().chain(&command.pass);
        if let Some(name) = named.into_iter().find(|name| is_forbidden(name)) {
            return Err(Error::ForbiddenVariable { name: name.to_string_lossy().into_owned() });
        }
        let passed = self
            .0
            .iter()
            .filter(|(name, _)| is_allowed(name) || command.pass.contains(name))
            .map(|(name, value)| (name.clone(), value.clone()));
        let set = command.set.iter().map(|(name, value)| (name.clone(), value.clone()));
        Ok(passed.chain(set).collect())
    }
}

/// Names the variables and shows no value, since values may be secrets.
impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

fn is_allowed(name: &OsStr) -> bool {
    ALLOWED.iter().any(|allowed| name == *allowed) || name.as_bytes().starts_with(b"LC_")
}

/// The dynamic linkers' variables load code into every program that is started.
fn is_forbidden(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    bytes.starts_with(b"LD_")
        || bytes.starts_with(b"DYLD_")
        || bytes.starts_with(b"BASH_FUNC_")
        || bytes.is_empty()
        || bytes.contains(&b'=')
        || FORBIDDEN.iter().any(|forbidden| name == *forbidden)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Protection;

    fn command() -> Command {
        Command::new(["true"], "/", Protection::None)
    }

    #[test]
    fn only_the_allow_list_passes_from_the_parent() {
        let parent = Environment::new([
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("LD_PRELOAD", "evil.so"),
            ("OPENAI_API_KEY", "sk-1"),
            ("CARGO_REGISTRY_TOKEN", "t"),
        ]);

        let seen = parent.of(&command()).unwrap();

        let wanted = [("LC_ALL", "C"), ("PATH", "/bin")];
        assert_eq!(seen, wanted.map(|(k, v)| (k.into(), v.into())).into());
    }

    #[test]
    fn a_named_variable_passes_and_a_set_one_wins() {
        let parent = Environment::new([("PATH", "/bin"), ("DATABASE_URL", "db")]);
        let mut command = command();
        command.pass.push("DATABASE_URL".into());
        command.set.insert("PATH".into(), "/opt/bin".into());

        let seen = parent.of(&command).unwrap();

        let wanted = [("DATABASE_URL", "db"), ("PATH", "/opt/bin")];
        assert_eq!(seen, wanted.map(|(k, v)| (k.into(), v.into())).into());
    }

    #[test]
    fn a_variable_that_injects_code_is_refused_even_when_named() {
        for name in ["LD_PRELOAD", "DYLD_INSERT_LIBRARIES", "BASH_ENV", "BASH_FUNC_ls%%", "A=B", ""]
        {
            let mut set = command();
            set.set.insert(name.into(), "x".into());
            let mut passed = command();
            passed.pass.push(name.into());

            for command in [set, passed] {
                let refused = Environment::default().of(&command).unwrap_err();
                assert!(matches!(refused, Error::ForbiddenVariable { name: it } if it == name));
            }
        }
    }

    #[test]
    fn debug_shows_no_value() {
        let parent = Environment::new([("KEY", "hunter2")]);

        assert_eq!(format!("{parent:?}"), r#"{"KEY"}"#);
    }
}
