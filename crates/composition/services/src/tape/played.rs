//! When there is nothing more to play: what is under way waits for what the record does not hold.
//!
//! No time decides that, for a machine may be busy. A piece of work that cannot go on says so itself, and the scheduler
//! says when it has nothing left to decide. Both together are the end of the record: between the end of one piece of work
//! and the beginning of the next it is the scheduler that is not done.
//!
//! Who comes first when several are under way is in the record as well, and may decide what begins and what is broken off:
//! a piece of work that is at its end waits until nothing else goes on, and then the one ends that ended first.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
};

use formwork_protocols::Cancel;
use formwork_scheduler::Signals;
use futures::future::{poll_fn, select};
use tokio::sync::Notify;

use super::lock;
use crate::course::Stopped;

/// What is under way of a run that is carried out again.
#[derive(Default)]
pub(crate) struct Playing {
    state: Mutex<State>,
    /// Told when nothing goes on.
    ended: Notify,
    /// What reaches the run.
    pub(crate) signals: Signals,
}

#[derive(Default)]
struct State {
    /// By the paths of the tasks, each of which has one at a time.
    pieces: HashMap<String, Piece>,
    /// Whether the scheduler has to look at everything once more before its word counts.
    is_stirred: bool,
    is_over: bool,
    /// What is to end that is nobody's answer, in the order of its places in the record.
    stops: VecDeque<Stopped>,
    /// What pieces of work wait for that is not theirs to bring about, by its place in the record.
    coming: BTreeMap<u64, Coming>,
}

/// Something that comes from elsewhere.
struct Coming {
    told: Arc<Notify>,
    is_there: bool,
}

/// What comes next where nothing goes on by itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A piece of work has come to its end.
    GoesOn,
    /// Somebody or the clock ends a task.
    Stops(Stopped),
    /// Nothing: the record is over.
    IsOver,
}

/// A piece of work.
#[derive(Default)]
struct Piece {
    cancel: Cancel,
    /// The calls of tools that it makes beside each other.
    calls: usize,
    /// What in it waits for what the record does not hold: the piece itself, or such calls.
    waits: usize,
    /// Whether it could do nothing else when it was last looked at.
    is_stalled: bool,
    /// When its end is due, by the place in the record, where it has come to it.
    turn: Option<(u64, Arc<Notify>)>,
}

impl Piece {
    /// Tells whether it goes on by itself no more. One that was told to stop does.
    fn is_over(&self) -> bool {
        self.is_stalled && !self.cancel.is_cancelled()
    }
}

impl Playing {
    /// Carries out a piece of work of a task, and knows at each moment whether it can go on.
    pub(crate) async fn follow<T>(
        &self,
        path: &str,
        cancel: &Cancel,
        work: impl Future<Output = T>,
    ) -> T {
        let piece = Piece { cancel: cancel.clone(), ..Piece::default() };
        self.lock().pieces.insert(path.to_owned(), piece);
        let _gone = Then(|| drop(self.lock().pieces.remove(path)));
        let mut work = pin!(work);
        poll_fn(|context| {
            self.change(path, |piece| piece.is_stalled = false);
            let polled = work.as_mut().poll(context);
            if polled.is_pending() {
                self.look_at(path);
            }
            polled
        })
        .await
    }

    /// Waits where the record has nothing more for the piece of work of a task.
    pub(crate) async fn wait(&self, path: &str, cancel: &Cancel) {
        self.change(path, |piece| piece.waits += 1);
        let _goes_on = Then(|| self.change(path, |piece| piece.waits -= 1));
        cancel.cancelled().await;
    }

    /// Waits until all else that goes on has come to its end as well, and it is this one that ended first then: at a place in
    /// the record, or behind all that is recorded. Whoever is told to stop waits no longer.
    pub(crate) async fn turn(&self, path: &str, place: Option<u64>, cancel: &Cancel) {
        let due = Arc::new(Notify::new());
        let turn = Some((place.unwrap_or(u64::MAX), Arc::clone(&due)));
        self.change(path, |piece| (piece.waits, piece.turn) = (piece.waits + 1, turn));
        let _goes_on =
            Then(|| self.change(path, |piece| (piece.waits, piece.turn) = (piece.waits - 1, None)));
        select(pin!(due.notified()), pin!(cancel.cancelled())).await;
    }

    /// Waits for what comes from elsewhere, at its place in the record, while something else is waited for as well. Nothing
    /// else comes before the value goes: by then whoever waited has left what it waited for.
    pub(crate) async fn come(&self, place: u64) -> impl Drop + '_ {
        let comes = Arc::new(Notify::new());
        self.lock().coming.insert(place, Coming { told: Arc::clone(&comes), is_there: false });
        let gone = Then(move || {
            self.lock().coming.remove(&place);
            self.stir();
        });
        comes.notified().await;
        gone
    }

    /// Takes what is to end that is nobody's answer, in the order of its places in the record.
    pub(crate) fn expect(&self, stops: impl IntoIterator<Item = Stopped>) {
        self.lock().stops.extend(stops);
    }

    /// Has come what comes next in the record: the end of a piece of work that has come to it, or what is not theirs.
    pub(crate) fn end_next(&self) -> Next {
        let mut state = self.lock();
        state.is_over = false;
        let stop = state.stops.front().map_or(u64::MAX, |stopped| stopped.at);
        let coming = state.coming.iter().find(|(_, coming)| !coming.is_there);
        let coming = coming.map_or(u64::MAX, |(place, _)| *place);
        let held = state.pieces.values_mut().filter(|piece| piece.is_over());
        let held = held.filter_map(|piece| Some((piece.turn.as_ref()?.0, piece)));
        let next = held.min_by_key(|(place, _)| *place);
        let turn = next.as_ref().map_or(u64::MAX, |(place, _)| *place);
        if stop != u64::MAX && stop <= coming.min(turn) {
            return state.stops.pop_front().map_or(Next::IsOver, Next::Stops);
        }
        if coming != u64::MAX && coming <= turn {
            if let Some(coming) = state.coming.get_mut(&coming) {
                coming.is_there = true;
                coming.told.notify_one();
            }
            return Next::GoesOn;
        }
        let Some((_, next)) = next else { return Next::IsOver };
        next.is_stalled = false;
        if let Some((_, due)) = next.turn.take() {
            due.notify_one();
        }
        Next::GoesOn
    }

    /// Counts a call of a tool that the conversation of a task makes until the value goes.
    pub(crate) fn call<'a>(&'a self, path: &'a str) -> impl Drop + 'a {
        self.change(path, |piece| piece.calls += 1);
        Then(|| self.change(path, |piece| piece.calls -= 1))
    }

    /// Hears from the scheduler that it goes on only by what is under way.
    pub(crate) fn idle(&self, under_way: usize) {
        let mut state = self.lock();
        let is_coming = state.coming.values().any(|coming| coming.is_there);
        let over = state.pieces.values().filter(|piece| piece.is_over()).count();
        if is_coming || over != under_way {
            return;
        }
        // What a piece has brought about before it came to its end may have come behind the scheduler's back.
        if std::mem::take(&mut state.is_stirred) {
            self.signals.look();
            return;
        }
        state.is_over = true;
        self.ended.notify_one();
    }

    /// Tells whether nothing goes on, unless somebody outside has something to say or [a turn](Playing::turn) comes.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Waits until that may be so.
    pub(crate) async fn ended(&self) {
        self.ended.notified().await;
    }

    /// Hears that something happened that the scheduler has to look at.
    pub(crate) fn stir(&self) {
        let mut state = self.lock();
        (state.is_stirred, state.is_over) = (true, false);
        drop(state);
        self.signals.look();
    }

    /// Notes whether the piece of work of a task can go on, now that it has done all that it could.
    fn look_at(&self, path: &str) {
        let mut is_stalled = false;
        self.change(path, |piece| {
            // Where calls are made beside each other, they are what is waited for.
            piece.is_stalled = piece.waits > 0 && piece.waits >= piece.calls;
            is_stalled = piece.is_stalled;
        });
        if is_stalled {
            self.stir();
        }
    }

    fn change(&self, path: &str, change: impl FnOnce(&mut Piece)) {
        if let Some(piece) = self.lock().pieces.get_mut(path) {
            change(piece);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Something that is done when the value goes.
struct Then<F: FnMut()>(F);

impl<F: FnMut()> Drop for Then<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use formwork_scheduler::Stop;
    use futures::FutureExt as _;

    use super::*;

    /// Has the scheduler find nothing to do, as often as it is woken, and tells whether the record is over then.
    fn is_over(playing: &Playing, under_way: usize) -> bool {
        playing.idle(under_way);
        playing.idle(under_way);
        playing.is_over()
    }

    #[test]
    fn a_record_is_over_when_all_that_is_under_way_waits_for_more_of_it() {
        let (playing, cancel) = (Playing::default(), Cancel::new());
        let mut one = Box::pin(playing.follow("a", &cancel, playing.wait("a", &cancel)));
        let mut other = Box::pin(playing.follow("b", &cancel, playing.wait("b", &cancel)));

        assert!(one.as_mut().now_or_never().is_none());
        // The other has begun and not come to its end, or has not even begun.
        assert!(!is_over(&playing, 2));
        assert!(other.as_mut().now_or_never().is_none());

        assert!(is_over(&playing, 2));
    }

    #[test]
    fn what_stalled_a_moment_ago_is_looked_past_once_more() {
        let (playing, cancel) = (Playing::default(), Cancel::new());
        let mut piece = Box::pin(playing.follow("a", &cancel, playing.wait("a", &cancel)));
        assert!(piece.as_mut().now_or_never().is_none());

        playing.idle(1);
        let at_first = playing.is_over();
        playing.idle(1);

        assert!(!at_first && playing.is_over());
        // Something was said to the run.
        playing.stir();
        assert!(!playing.is_over());
    }

    #[test]
    fn pieces_of_work_end_in_the_order_of_the_record_once_nothing_else_goes_on() {
        let (playing, cancel) = (Playing::default(), Cancel::new());
        let piece = |path: &'static str, place| {
            Box::pin(playing.follow(path, &cancel, playing.turn(path, place, &cancel)))
        };
        let (mut last, mut second) = (piece("a", None), piece("b", Some(9)));
        let mut first = piece("c", Some(7));
        let mut ended = Vec::new();
        assert!(last.as_mut().now_or_never().is_none() && !is_over(&playing, 3));
        assert!(
            second.as_mut().now_or_never().is_none() && first.as_mut().now_or_never().is_none()
        );

        for under_way in [3, 2, 1] {
            assert!(is_over(&playing, under_way) && playing.end_next() == Next::GoesOn);
            for (name, piece) in [("a", &mut last), ("b", &mut second), ("c", &mut first)] {
                if !ended.contains(&name) && piece.as_mut().now_or_never().is_some() {
                    ended.push(name);
                }
            }
        }

        assert_eq!(ended, ["c", "b", "a"]);
        assert_eq!(playing.end_next(), Next::IsOver);
    }

    #[test]
    fn what_ends_from_outside_or_is_awaited_comes_between_the_ends_of_pieces_of_work() {
        let (playing, cancel) = (Playing::default(), Cancel::new());
        let stop = |at| Stopped { at, path: "w".to_owned(), by: Stop::Cancelled };
        playing.expect([stop(3), stop(9)]);
        let mut comes = Box::pin(playing.come(5));
        let mut piece = Box::pin(playing.follow("a", &cancel, playing.turn("a", Some(9), &cancel)));
        assert!(comes.as_mut().now_or_never().is_none() && piece.as_mut().now_or_never().is_none());

        let first = playing.end_next();
        let second = playing.end_next();
        let has_come = comes.as_mut().now_or_never().is_some();
        // What was to end had ended by the time that its end came.
        let third = playing.end_next();
        let goes_on = piece.as_mut().now_or_never().is_none();
        let last = playing.end_next();

        assert_eq!(
            (first, second, third),
            (Next::Stops(stop(3)), Next::GoesOn, Next::Stops(stop(9)))
        );
        assert!(has_come && goes_on && last == Next::GoesOn);
        assert!(piece.as_mut().now_or_never().is_some());
        assert_eq!(playing.end_next(), Next::IsOver);
    }

    #[test]
    fn what_was_told_to_stop_is_not_over_before_it_has_stopped() {
        let (playing, cancel) = (Playing::default(), Cancel::new());
        let mut piece = Box::pin(playing.follow("a", &cancel, playing.wait("a", &cancel)));
        assert!(piece.as_mut().now_or_never().is_none());

        cancel.cancel();

        assert!(!is_over(&playing, 1));
        assert!(piece.as_mut().now_or_never().is_some());
        assert!(is_over(&playing, 0));
    }

    #[test]
    fn of_calls_beside_each_other_all_have_to_wait() {
        let playing = Arc::new(Playing::default());
        let (cancel, answer) = (Cancel::new(), Cancel::new());
        let call = async |waits: &Cancel, is_recorded: bool| {
            let _call = playing.call("a");
            match is_recorded {
                true => waits.cancelled().await,
                false => playing.wait("a", waits).await,
            }
        };
        let both = futures::future::join(call(&cancel, false), call(&answer, true));
        let mut piece = Box::pin(playing.follow("a", &cancel, both));

        assert!(piece.as_mut().now_or_never().is_none());
        assert!(!is_over(&playing, 1));
        answer.cancel();
        assert!(piece.as_mut().now_or_never().is_none());

        assert!(is_over(&playing, 1));
    }
}
