//! Who may ask for what from outside: scopes, and what is kept of a token.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::id::NameError;

/// What a caller must have been given in order to ask for an operation.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// To look.
    Read,
    /// To begin, resume and end runs.
    Run,
    /// To change what Formwork may do.
    Admin,
    /// To carry out calls of tasks elsewhere, and nothing else.
    Worker,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 4] = [Self::Read, Self::Run, Self::Admin, Self::Worker];

    /// Returns its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Run => "run",
            Self::Admin => "admin",
            Self::Worker => "worker",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Scope {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let found = Self::ALL.into_iter().find(|scope| scope.as_str() == text);
        found.ok_or_else(|| NameError::NotAScope { text: text.to_owned() })
    }
}

/// All that is kept of a token: its keyed BLAKE3 hash. Two are compared in a time that tells nothing of where they differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TokenHash(blake3::Hash); // Whose comparison takes the same time whatever it finds.

impl TokenHash {
    /// Takes a hash that is already known.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(blake3::Hash::from_bytes(bytes))
    }
}

impl TryFrom<String> for TokenHash {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        let hash = blake3::Hash::from_hex(&text);
        hash.map(Self).map_err(|_| NameError::NotAHash { text })
    }
}

impl From<TokenHash> for String {
    fn from(hash: TokenHash) -> Self {
        hash.0.to_hex().as_str().to_owned()
    }
}

impl JsonSchema for TokenHash {
    fn schema_name() -> Cow<'static, str> {
        "TokenHash".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9a-f]{64}$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_known_by_its_name_and_by_nothing_else() {
        for scope in Scope::ALL {
            assert_eq!(scope.to_string().parse(), Ok(scope));
        }
        assert_eq!(
            "root".parse::<Scope>().unwrap_err().to_string(),
            "\"root\" is no scope: expected read, run, admin or worker"
        );
    }

    #[test]
    fn a_hash_survives_a_round_trip() {
        let hash = TokenHash::from_bytes([7; 32]);

        let text = serde_json::to_string(&hash).unwrap();

        assert_eq!(serde_json::from_str::<TokenHash>(&text).unwrap(), hash);
        assert_ne!(hash, TokenHash::from_bytes([8; 32]));
    }
}
