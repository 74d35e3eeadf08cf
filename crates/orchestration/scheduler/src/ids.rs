//! Tables by id, without a hash that is safe against those who choose the keys.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasherDefault, Hasher},
};

/// A table by id or by place. Ids are random for the most part and nobody chooses them, so they need no keyed hash.
pub(crate) type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// A set of ids.
pub(crate) type IdSet<K> = HashSet<K, BuildHasherDefault<IdHasher>>;

/// Folds what is random anyway.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct IdHasher(u64);

impl IdHasher {
    const fn fold(&mut self, word: u64) {
        // An odd number without a pattern, as in Fibonacci hashing: 2 to the 64th by the golden ratio.
        self.0 = (self.0.rotate_left(29) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.fold(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.fold(u64::from(number));
    }

    fn write_usize(&mut self, _: usize) {
        // The length of an id, which is that of every other.
    }

    fn finish(&self) -> u64 {
        // A table looks at the lowest bits first, and a product mixes upwards.
        self.0 ^ (self.0 >> 32)
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher as _;

    use formwork_protocols::{SeededRng, SystemClock, TaskId};

    use super::*;

    #[test]
    fn ids_of_one_moment_and_places_in_a_row_fall_into_different_parts_of_a_table() {
        let rng = SeededRng::new(3);
        let hasher = BuildHasherDefault::<IdHasher>::default();
        let spread = |hashes: Vec<u64>| {
            let low: HashSet<u64> = hashes.iter().map(|hash| hash & 1023).collect();
            let high: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
            (low.len(), high.len())
        };

        let ids = (0..1024).map(|_| hasher.hash_one(TaskId::generate(&SystemClock, &rng)));
        let ids = spread(ids.collect());
        let places = spread((0..1024_u32).map(|place| hasher.hash_one(place)).collect());

        // A thousand balls in a thousand boxes leave a third of them empty.
        assert!(ids.0 > 600 && ids.1 == 128, "{ids:?}");
        assert!(places.0 > 600 && places.1 == 128, "{places:?}");
    }
}
