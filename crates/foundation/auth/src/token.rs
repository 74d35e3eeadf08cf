//! The secret by which somebody is known.

use std::fmt;

use formwork_protocols::{CredentialId, Rng, TokenHash};
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

/// What every token begins with, so that people and scanners know one where they see it.
pub const PREFIX: &str = "formwork_";

/// How many bytes of chance a token has: 256 bits, which nobody guesses.
const SECRET: usize = 32;

/// How many characters a token has: the prefix, the credential, a line between the two, and the secret.
const LENGTH: usize = PREFIX.len() + 32 + 1 + 2 * SECRET;

/// A token: which credential it is of, and a secret. It is shown once, never printed by `Debug`, and wiped when dropped.
///
/// `formwork_`, the credential as 32 hexadecimal digits, `_`, and the secret as 64 of them; in lower case, and nothing else.
pub struct Token {
    credential: CredentialId,
    text: SecretString,
}

impl Token {
    /// Makes a token of a credential.
    pub fn generate(credential: CredentialId, rng: &dyn Rng) -> Self {
        let mut secret = [0; SECRET];
        rng.fill(&mut secret);
        let hex = blake3::Hash::from_bytes(secret).to_hex();
        let text = format!("{PREFIX}{}_{hex}", credential.as_uuid().simple());
        Self { credential, text: text.into() }
    }

    /// Reads a token. Nothing but the one form of it is one, so that none has two texts.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = |text: &str| text.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
        let rest = text.strip_prefix(PREFIX).filter(|_| text.len() == LENGTH)?;
        let (credential, secret) = rest.split_once('_')?;
        if credential.len() != 32 || !digits(credential) || !digits(secret) {
            return None;
        }
        let credential = CredentialId::from_uuid(Uuid::try_parse(credential).ok()?);
        Some(Self { credential, text: text.to_owned().into() })
    }

    /// Returns the credential that it is of, as it says itself.
    pub const fn credential(&self) -> CredentialId {
        self.credential
    }

    /// Returns what is kept of it.
    ///
    /// The hash is keyed by the credential, so that what is kept of one says nothing of another. A key that is itself a secret
    /// would have to be had by every process that shares the log, and would add nothing to 256 bits of chance.
    pub fn hash(&self) -> TokenHash {
        let key =
            blake3::derive_key("formwork 2026 token of a credential", self.credential.as_bytes());
        let hash = blake3::keyed_hash(&key, self.expose().as_bytes());
        TokenHash::from_bytes(*hash.as_bytes())
    }

    /// Returns the text, to be handed to whoever it was made for.
    pub fn expose(&self) -> &str {
        self.text.expose_secret()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("credential", &self.credential).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use formwork_protocols::{SeededRng, SystemClock, SystemRng};

    use super::*;

    fn token() -> Token {
        let credential = CredentialId::generate(&SystemClock, &SystemRng);
        Token::generate(credential, &SystemRng)
    }

    #[test]
    fn a_token_is_read_as_it_was_written_and_in_no_other_form() {
        let token = token();
        let text = token.expose();

        let read = Token::parse(text).unwrap();

        assert_eq!((read.credential(), read.hash()), (token.credential(), token.hash()));
        for other in [
            text.to_uppercase(),
            format!(" {text}"),
            format!("{text}\n"),
            text.replace('_', "-"),
            text[..text.len() - 1].to_owned(),
            format!("{text}0"),
            format!("{PREFIX}{}", "é".repeat((LENGTH - PREFIX.len()) / 2)),
            String::new(),
            PREFIX.to_owned(),
        ] {
            assert!(Token::parse(&other).is_none(), "{other:?}");
        }
    }

    #[test]
    fn no_two_tokens_are_the_same_and_what_is_kept_of_each_is_its_own() {
        let credential = CredentialId::generate(&SystemClock, &SystemRng);
        let other = CredentialId::generate(&SystemClock, &SystemRng);

        let (one, two) =
            (Token::generate(credential, &SystemRng), Token::generate(credential, &SystemRng));
        let same_chance =
            [credential, other].map(|of| Token::generate(of, &SeededRng::new(7)).hash());

        assert_ne!(one.expose(), two.expose());
        assert_ne!(one.hash(), two.hash());
        assert_ne!(same_chance[0], same_chance[1]);
    }

    #[test]
    fn what_is_printed_of_a_token_is_its_credential_alone() {
        let token = token();
        let secret = token.expose().rsplit('_').next().unwrap().to_owned();

        let printed = format!("{token:?}");

        assert!(printed.contains(&token.credential().to_string()) && !printed.contains(&secret));
    }
}
