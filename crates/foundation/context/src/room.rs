//! How many tokens there is room for in a model's window.

/// The part of a window that an answer may take, at the most: a small window is not all for the answer.
const ANSWER_PART: u64 = 4;

/// The part of a window that is left free: what servers add of their own is counted by nobody.
const MARGIN_PART: u64 = 64;

/// Hundredths of the room from which on a conversation is made shorter, before it has to be.
const FULL: u64 = 85;

/// Hundredths of the room that it then takes, so that the next turns need not do the same again and the
/// prefix that a provider keeps stands for a while.
const AIM: u64 = 55;

/// The fewest tokens of an answer: with less no call can be made, and a full window is better told of.
const LEAST_ANSWER: u64 = 256;

/// The room for a request in a window, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// The whole window.
    pub window: u64,
    /// What a request may have at the most.
    pub most: u64,
    /// From where on the conversation is made shorter.
    pub full: u64,
    /// To what it is made shorter then.
    pub aim: u64,
}

impl Room {
    /// Returns the room of a window that is shared with an answer of at most `answer` tokens.
    pub const fn of(window: u64, answer: u64) -> Self {
        let most_answer = window / ANSWER_PART;
        let answer = if answer < most_answer { answer } else { most_answer };
        Self::within(window, window - answer - window / MARGIN_PART)
    }

    /// Returns the same room, of which a server has refused a request of `tokens`.
    #[must_use]
    pub const fn refused(self, tokens: u64) -> Self {
        let most = share(tokens, 90);
        if most < self.most { Self::within(self.window, most) } else { self }
    }

    /// Returns the room of a window of which nothing is known but that it refused a request of `tokens`.
    pub const fn unknown(tokens: u64) -> Self {
        Self::within(tokens, share(tokens, 90))
    }

    const fn within(window: u64, most: u64) -> Self {
        Self { window, most, full: share(most, FULL), aim: share(most, AIM) }
    }

    /// Returns how much of the window is left free for what servers add of their own.
    pub const fn free(&self) -> u64 {
        self.window / MARGIN_PART
    }

    /// Returns how long an answer may be at the most behind a request of `tokens`: servers refuse a request
    /// whose answer may not fit.
    pub fn answer(&self, tokens: u64, wanted: u32) -> u32 {
        let left = self.window.saturating_sub(tokens).saturating_sub(self.free());
        let least = LEAST_ANSWER.min(u64::from(wanted));
        u32::try_from(left.clamp(least, u64::from(wanted))).unwrap_or(wanted)
    }
}

/// Returns hundredths of a number.
const fn share(of: u64, hundredths: u64) -> u64 {
    (of / 100).saturating_mul(hundredths) + (of % 100) * hundredths / 100
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_answer_as_large_as_the_window_leaves_room_for_the_request() {
        let room = Room::of(8_192, 8_192);

        assert_eq!((room.most, room.full, room.aim), (6_016, 5_113, 3_308));
        assert_eq!(room.answer(4_000, 8_192), 4_064);
        assert_eq!(room.answer(9_000, 8_192), 256);
        assert_eq!(room.answer(100, 1_000), 1_000);
    }

    #[test]
    fn what_a_server_refused_is_not_sent_again() {
        let room = Room::of(100_000, 1_000);

        assert_eq!(room.refused(10_000).most, 9_000);
        assert_eq!(room.refused(200_000), room);
        assert_eq!(Room::unknown(10_000).most, 9_000);
    }

    proptest! {
        #[test]
        fn the_aim_is_below_the_threshold_and_that_below_the_room(window in any::<u64>(), answer in any::<u64>()) {
            let room = Room::of(window, answer);
            prop_assert!(room.aim <= room.full && room.full <= room.most && room.most <= window);
            let wanted = u32::try_from(answer % 100_000).unwrap();
            prop_assert!(room.answer(window / 2, wanted) <= wanted);
        }
    }
}
