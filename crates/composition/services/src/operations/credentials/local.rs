//! A credential for programs of the machine on which a server runs, in a file for nobody but their owner.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use formwork_auth::{Credential, Grant, Guard, Standing, Token};
use formwork_protocols::event::CredentialOrigin;

use super::{owner, within};
use crate::{
    Error, Formwork,
    capability::{Caller, Scope},
    private,
};

/// The file, in the folder of state.
const FILE: &str = "serve.token";

/// The most bytes of it that are read: several times a token.
const MOST: u64 = 1_024;

/// What programs of this machine may ask a server with.
#[derive(Debug)]
pub struct Local {
    /// The file that holds the token.
    pub path: PathBuf,
    /// The token, where it was made now.
    pub made: Option<Token>,
}

/// Sees to it that programs of this machine can ask a server with the powers of `caller`, where nobody has a credential that
/// somebody asked for: the token stands in a file of the folder of state that only its owner reads, and is made anew where the
/// one in it is no longer taken. Returns nothing where somebody has a credential.
///
/// # Errors
/// [`Error::State`] names the file; [`Error::Scope`] where the caller may not give all of it.
pub async fn local(formwork: &Formwork, caller: &Caller) -> Result<Option<Local>, Error> {
    caller.may::<super::Add>()?;
    within(caller, &Scope::ALL)?;
    if is_given(formwork).await? {
        return Ok(None);
    }
    let guard = formwork.guard();
    let path = formwork.state().join(FILE);
    if let Some(token) = read(&path).map_err(failed("read", &path))? {
        match guard.admit(token.expose()).await {
            Ok(_) if private::open_to_others(&path).is_none() => {
                return Ok(Some(Local { path, made: None }));
            }
            // Others may have read it.
            Ok(admitted) => drop(guard.revoke(caller.principal(), admitted.credential).await?),
            Err(formwork_auth::Error::Refused(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let token = make(guard, caller, &path).await?;
    Ok(Some(Local { path, made: Some(token) }))
}

/// Tells whether anybody has a credential that somebody asked for and that is taken.
///
/// # Errors
/// [`Error::Store`] where the log cannot be asked.
pub async fn is_given(formwork: &Formwork) -> Result<bool, Error> {
    let now = formwork.now();
    let is_given = |it: &Credential| {
        it.origin != CredentialOrigin::Local && it.standing(now) == Standing::Live
    };
    Ok(formwork.guard().all().await?.iter().any(is_given))
}

async fn make(guard: &Guard, caller: &Caller, path: &Path) -> Result<Token, Error> {
    let by = caller.principal();
    let grant = Grant { origin: CredentialOrigin::Local, ..Grant::new(owner(caller)?, Scope::ALL) };
    let (credential, token) = guard.issue(by, grant).await?;
    if let Err(error) = write(path, &token) {
        // Nobody has it.
        guard.revoke(by, credential.id).await?;
        return Err(failed("write", path)(error));
    }
    Ok(token)
}

/// Reads the token of a file; nothing where there is none.
fn read(path: &Path) -> io::Result<Option<Token>> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(MOST).read_to_end(&mut bytes)?;
    let text = String::from_utf8(bytes).unwrap_or_default();
    Ok(Token::parse(text.trim_end()))
}

/// Puts a token into a file that only its owner reads: it is there whole, or as it was.
fn write(path: &Path, token: &Token) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    // One that is made so has mode 0600.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    writeln!(file, "{}", token.expose())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    fs::File::open(folder)?.sync_all()
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::State { action, path, source }
}
