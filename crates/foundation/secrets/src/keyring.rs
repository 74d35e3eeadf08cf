//! The keyring that the kernel keeps: it needs no service, no desktop and no password of its own.

/// Reads the entry of that description.
#[cfg(not(target_os = "linux"))]
pub(crate) fn read(
    name: &crate::SecretName,
    _entry: &str,
) -> Result<secrecy::SecretSlice<u8>, crate::Error> {
    Err(crate::Error::Unsupported { name: name.clone(), kind: "the keyring" })
}

#[cfg(target_os = "linux")]
pub(crate) use linux::read;

#[cfg(target_os = "linux")]
mod linux {
    use linux_keyutils::{
        Key, KeyError, KeyRing,
        KeyRingIdentifier::{Session, Thread, User},
    };
    use secrecy::{SecretSlice, zeroize::Zeroize as _};

    use crate::{Error, SecretName};

    /// The most bytes that the kernel takes for a key of the kind `user`.
    const MAX_KEY: usize = 32 * 1024;

    /// What a kernel without keyrings answers: `ENOSYS`.
    const NO_SUCH_CALL: i32 = 38;

    /// Reads the entry of that description from the session's keyring, or else from the user's.
    pub(crate) fn read(name: &SecretName, entry: &str) -> Result<SecretSlice<u8>, Error> {
        find(entry).map_err(|why| Error::Keyring {
            name: name.clone(),
            entry: entry.to_owned(),
            why: said(why),
        })
    }

    fn find(entry: &str) -> Result<SecretSlice<u8>, KeyError> {
        let in_session = KeyRing::from_special_id(Session, false).and_then(|it| it.search(entry));
        if let Ok(key) = in_session {
            return bytes(key);
        }
        // A key is read by whoever has a way to it from a keyring of its own, and not every session links the user's.
        let own = KeyRing::from_special_id(Thread, true)?;
        own.link_keyring_id(User)?;
        let value = own.search(entry).and_then(bytes);
        own.unlink_keyring_id(User)?;
        value
    }

    fn bytes(key: Key) -> Result<SecretSlice<u8>, KeyError> {
        let mut room = vec![0; MAX_KEY];
        let read = key.read(&mut room);
        let value = read.map(|length| room.get(..length).unwrap_or_default().to_vec().into());
        room.zeroize();
        value
    }

    fn said(why: KeyError) -> String {
        match why {
            KeyError::KeyDoesNotExist => {
                "neither the session's keyring nor the user's has it".to_owned()
            }
            KeyError::KeyExpired => "it has expired".to_owned(),
            KeyError::KeyRevoked => "it was revoked".to_owned(),
            KeyError::AccessDenied => "the kernel gives it to nobody here".to_owned(),
            // As the filter of a container answers.
            KeyError::PermissionDenied
            | KeyError::OperationNotSupported
            | KeyError::Unknown(NO_SUCH_CALL) => {
                "the kernel's keyrings are not to be had here, as in most containers".to_owned()
            }
            other => format!("the kernel says {other}"),
        }
    }
}
