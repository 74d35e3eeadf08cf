//! The small seams to the world: time, chance, and what must not be told.

use std::{
    borrow::Cow,
    cell::RefCell,
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
///
/// The kernel is asked for a seed, which is stretched to a block of bytes; each thread has its own, and no byte of it is
/// given out twice. A process that forks without beginning another program would repeat what is left of its block.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRng;

impl Rng for SystemRng {
    fn fill(&self, bytes: &mut [u8]) {
        BLOCK.with_borrow_mut(|block| block.fill(bytes));
    }
}

/// How many bytes are made at once: about a hundred ids, for three questions to the kernel.
const BLOCK_BYTES: usize = 1_024;

thread_local! {
    static BLOCK: RefCell<Block> = const { RefCell::new(Block::USED_UP) };
}

/// Random bytes that nobody has been given yet.
struct Block {
    bytes: [u8; BLOCK_BYTES],
    used: usize,
}

impl Block {
    const USED_UP: Self = Self { bytes: [0; BLOCK_BYTES], used: BLOCK_BYTES };

    fn fill(&mut self, bytes: &mut [u8]) {
        for wanted in bytes.chunks_mut(BLOCK_BYTES) {
            if BLOCK_BYTES - self.used < wanted.len() {
                self.renew();
            }
            let given = &mut self.bytes[self.used..self.used + wanted.len()];
            wanted.copy_from_slice(given);
            // What was given out cannot be read here later.
            given.fill(0);
            self.used += wanted.len();
        }
    }

    fn renew(&mut self) {
        let mut seed =
            blake3::Hasher::new_derive_key("formwork 2026-11-30 a block of random bytes");
        // Each has 122 random bits, and a seed of 256 leaves nothing to guess.
        for _ in 0..3 {
            seed.update(uuid::Uuid::new_v4().as_bytes());
        }
        seed.finalize_xof().fill(&mut self.bytes);
        self.used = 0;
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
    use std::thread;

    use super::*;

    #[test]
    fn the_machine_gives_no_bytes_twice_whatever_is_asked_for_and_by_whom() {
        let ids = || (0..1_000).map(|_| SystemRng.next_u64()).collect::<Vec<_>>();

        let threads = [thread::spawn(ids), thread::spawn(ids)];
        let mut all: Vec<u64> = threads.into_iter().flat_map(|it| it.join().unwrap()).collect();
        all.extend(ids());
        let mut long = vec![0; 3 * BLOCK_BYTES + 5];
        SystemRng.fill(&mut long);
        let words = long.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        all.extend(words);

        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(long.windows(5).all(|bytes| bytes != [0; 5]), "a part was left empty");
    }

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
