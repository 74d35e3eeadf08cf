//! The small seams to the world: time, chance, and what must not be told.

use std::{
    borrow::Cow,
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::Value;

use crate::time::Timestamp;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Returns the present time.
    fn now(&self) -> Timestamp;
}

/// The machine's clock. The only place that reads it.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the seam")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }
}

/// Makes random bytes.
pub trait Rng: Send + Sync {
    /// Fills `bytes`.
    fn fill(&self, bytes: &mut [u8]);

    /// Returns a random number.
    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// The machine's randomness.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRng;

impl Rng for SystemRng {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            // The upper half of a version 4 UUID has 60 random bits beside its version; both halves
            // are folded into one number so that every bit of it is random.
            let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
            let number = high.rotate_left(23) ^ low.rotate_left(2) ^ (low >> 5);
            chunk.copy_from_slice(&number.to_le_bytes()[..chunk.len()]);
        }
    }
}

/// Numbers that follow from a seed, so that a run can be repeated (SplitMix64).
///
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
#[derive(Debug)]
pub struct SeededRng(AtomicU64);

impl SeededRng {
    /// Begins at a seed.
    pub const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }
}

impl Rng for SeededRng {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let step = 0x9E37_79B9_7F4A_7C15_u64;
            let mut z = self.0.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^= z >> 31;
            chunk.copy_from_slice(&z.to_le_bytes()[..chunk.len()]);
        }
    }
}

/// Takes secrets out of whatever is about to be recorded, shown or sent. Deterministic.
pub trait Scrub: Send + Sync {
    /// Returns the text with every known secret replaced by its name.
    fn scrub_text<'a>(&self, text: &'a str) -> Cow<'a, str>;

    /// Replaces every known secret in all the texts of a value, its keys included, and its numbers.
    ///
    /// Nothing is changed in a value of which each text, key and written number is left as it is by
    /// [`scrub_text`](Self::scrub_text): whoever has looked at those need not ask.
    fn scrub_value(&self, value: &mut Value);
}

/// Knows no secrets and changes nothing; for those who have none.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSecrets;

impl Scrub for NoSecrets {
    fn scrub_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        Cow::Borrowed(text)
    }

    fn scrub_value(&self, _: &mut Value) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_series() {
        let series = |seed| {
            let rng = SeededRng::new(seed);
            [rng.next_u64(), rng.next_u64(), rng.next_u64()]
        };

        assert_eq!(series(7), series(7));
        assert_ne!(series(7), series(8));
    }
}
