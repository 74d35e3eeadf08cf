//! Numbers that follow from the seed.

use formwork_protocols::{Clock, Rng, SeededRng, Timestamp};

/// All chance of a simulated world.
#[derive(Debug)]
pub(super) struct Chance(SeededRng);

impl Chance {
    pub(super) const fn new(seed: u64) -> Self {
        Self(SeededRng::new(seed))
    }

    /// Returns a number below `end`, or 0 where there is none.
    pub(super) fn below(&self, end: u32) -> u32 {
        u32::try_from(self.0.next_u64() % u64::from(end.max(1))).unwrap_or(0)
    }

    /// Returns one of `count` places, or 0 where there is none.
    pub(super) fn place(&self, count: usize) -> usize {
        self.below(u32::try_from(count).unwrap_or(u32::MAX)) as usize
    }

    /// Is true in `share` of a thousand cases.
    pub(super) fn happens(&self, share: u32) -> bool {
        self.below(1_000) < share
    }

    pub(super) fn one_of<T: Copy, const N: usize>(&self, choices: [T; N]) -> T {
        choices[self.place(N)]
    }

    pub(super) const fn rng(&self) -> &dyn Rng {
        &self.0
    }
}

/// A clock that stands at one time.
#[derive(Debug, Clone, Copy)]
pub(super) struct StandsAt(pub(super) Timestamp);

impl Clock for StandsAt {
    fn now(&self) -> Timestamp {
        self.0
    }
}
