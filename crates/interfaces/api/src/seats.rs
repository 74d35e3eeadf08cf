//! How much goes on at once: of all, and of one credential, so that one who asks much does not keep others out.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use formwork_protocols::CredentialId;

/// So many seats, of which one credential may have so many.
#[derive(Debug, Clone)]
pub(crate) struct Seats(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    all: usize,
    of_one: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by: HashMap<CredentialId, usize>,
}

/// Why there is no seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// Whoever asks has as many as one may have.
    OfOne,
    /// All are taken.
    All,
}

/// A seat, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    of: Arc<Inner>,
    by: CredentialId,
}

impl Seats {
    pub(crate) fn new(all: usize, of_one: usize) -> Self {
        Self(Arc::new(Inner { all, of_one, taken: Mutex::default() }))
    }

    /// Takes a seat.
    ///
    /// # Errors
    /// [`Full`]; nobody is kept waiting.
    pub(crate) fn take(&self, by: CredentialId) -> Result<Seat, Full> {
        let mut taken = self.0.taken();
        let own = taken.by.get(&by).copied().unwrap_or_default();
        if own >= self.0.of_one {
            return Err(Full::OfOne);
        }
        if taken.all >= self.0.all {
            return Err(Full::All);
        }
        taken.all += 1;
        taken.by.insert(by, own + 1);
        Ok(Seat { of: Arc::clone(&self.0), by })
    }
}

impl Inner {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.of.taken();
        taken.all = taken.all.saturating_sub(1);
        if let Some(own) = taken.by.get_mut(&self.by) {
            *own -= 1;
            if *own == 0 {
                // Nothing is kept of who is not here.
                taken.by.remove(&self.by);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use formwork_protocols::{SystemClock, SystemRng};

    use super::*;

    #[test]
    fn one_who_asks_much_leaves_seats_to_others_and_each_is_given_back() {
        let (seats, [one, two, three]) =
            (Seats::new(3, 2), [(); 3].map(|()| CredentialId::generate(&SystemClock, &SystemRng)));

        let held = [seats.take(one).unwrap(), seats.take(one).unwrap()];
        let third = seats.take(one).unwrap_err();
        let other = seats.take(two).unwrap();
        let none_left = seats.take(three).unwrap_err();
        drop((held, other));

        assert_eq!((third, none_left), (Full::OfOne, Full::All));
        assert!(seats.take(three).is_ok());
        assert!(seats.0.taken().by.is_empty() && seats.0.taken().all == 0);
    }
}
