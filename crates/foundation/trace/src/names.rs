//! Which hashes the data of events names.

use std::collections::HashSet;

use formwork_protocols::{BlobHash, StoreError};

use crate::{
    database::{Connection, Database},
    read,
};

/// How many hexadecimal digits a hash has.
const DIGITS: usize = 64;

/// How many events are held at once.
const PAGE: i64 = 1000;

pub(crate) const DATA: &str =
    "SELECT position, data FROM events WHERE position > $1 ORDER BY position LIMIT $2";

/// Lists the hashes that stand in a text, each as a word of its own.
pub(crate) fn hashes_in(text: &str) -> impl Iterator<Item = BlobHash> {
    let words = text.split(|character: char| !character.is_ascii_alphanumeric());
    words.filter(|word| word.len() == DIGITS).filter_map(|word| word.parse().ok())
}

/// Collects what the log names from a position on, and returns how far it read: 32 bytes a name are held.
pub(crate) async fn named_since(
    database: &Database,
    connection: &mut Connection,
    mut after: i64,
    names: &mut HashSet<BlobHash>,
) -> Result<i64, StoreError> {
    let failed = |error: sqlx::Error| database.failed(&error);
    loop {
        let rows = connection.fetch(DATA, vec![after.into(), PAGE.into()]).await.map_err(failed)?;
        if rows.is_empty() {
            return Ok(after);
        }
        for row in rows {
            after = row.int(0).map_err(failed)?;
            names.extend(hashes_in(&row.text(1).map_err(failed)?));
        }
    }
}

/// Returns the hash that a row of the table of blobs has in its column.
pub(crate) fn hash_of(
    database: &Database,
    row: &crate::database::Row,
    column: usize,
) -> Result<BlobHash, StoreError> {
    let bytes = row.bytes(column).map_err(|error| database.failed(&error))?;
    read::hash(&bytes).ok_or_else(|| database.corrupt("a blob has no whole hash"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_found_wherever_it_stands_and_part_of_a_longer_word_is_none() {
        let (one, two) = (BlobHash::of(b"one"), BlobHash::of(b"two"));
        let text = format!(r#"{{"a":"{one}","b":["{two}","x{one}","{one}0"],"c":"…{two} é"}}"#);

        let found: Vec<_> = hashes_in(&text).collect();

        assert_eq!(found, [one, two, two]);
    }
}
