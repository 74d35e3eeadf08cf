//! Processes that die, and several of them at once.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use async_trait::async_trait;
use formwork_dispatch::Until;
use formwork_protocols::{Append, Cancel, Store, StoreError, store::Recorded};
use formwork_testkit::between::{Between, Through};

use crate::world::{LEASE, World, log, on_both};

on_both! {
    behaviour_36_an_action_that_was_killed_before_its_record_is_done_again_with_its_key,
    behaviour_36_two_processes_never_do_the_same_and_what_one_leaves_the_other_does,
    behaviour_36_a_kill_at_any_point_skips_nothing_and_repeats_only_what_was_not_recorded,
    behaviour_36_what_ends_its_process_each_time_is_given_up,
    what_is_broken_off_in_good_order_is_done_again_however_often,
    behaviour_36_who_was_taken_for_dead_records_nothing_any_more,
}

const EACH: &str = "name = \"each\"\nbegin = \"beginning\"\n[filter]\nkinds = [\"external.*\"]\n\
    [[actions]]\ncommand = [\"true\"]\n[[actions]]\ncommand = [\"false\"]\n";

/// Begins to dispatch, and dies once an action has had its effect and before that is recorded.
async fn dies(world: &World, owner: &str) -> Vec<String> {
    let host = world.host_that(|_| None);
    let dispatcher = world.dispatcher(&host, &[EACH]).with_lease(LEASE).with_owner(owner);
    let cancel = Cancel::new();
    tokio::select! {
        _ = dispatcher.run(Until::Idle, &cancel) => unreachable!("the action never ends"),
        () = host.began.notified() => {}
    }
    host.effects()
}

async fn behaviour_36_an_action_that_was_killed_before_its_record_is_done_again_with_its_key(
    world: World,
) {
    let event = world.fire("x").await;
    let first = dies(&world, "one").await;
    let host = world.host();

    let held = world.once(&host, &[EACH]).await;
    let while_held = host.effects();
    world.clock.forward(31);
    let lapsed = world.once(&host, &[EACH]).await;

    assert_eq!(first, [format!("{event}.0#1")]);
    assert_eq!((held[0].held_by.as_deref(), while_held), (Some("one"), vec![]));
    assert_eq!(lapsed[0].delivered, 1);
    assert_eq!(host.effects(), [format!("{event}.0#1"), format!("{event}.1#1")]);
    let key = format!("{}-{event}-0", log("each"));
    assert_eq!(host.documents.lock().unwrap()[0]["key"], key);
}

async fn behaviour_36_two_processes_never_do_the_same_and_what_one_leaves_the_other_does(
    world: World,
) {
    let hosts = [world.host(), world.host()];
    let mut at = Vec::new();
    for _ in 0..20 {
        at.push(world.fire("x").await);
    }
    let of = |number: usize| world.dispatcher(&hosts[number], &[EACH]);
    let cancel = Cancel::new();

    let (one, two) = tokio::join!(of(0).run(Until::Idle, &cancel), of(1).run(Until::Idle, &cancel));
    let left = world.once(&hosts[1], &[EACH]).await;

    let delivered = [&one.unwrap(), &two.unwrap(), &left].map(|lanes| lanes[0].delivered);
    assert_eq!(delivered.iter().sum::<u64>(), 20, "{delivered:?}");
    let mut effects: Vec<_> = hosts.iter().flat_map(|host| host.effects()).collect();
    effects.sort();
    let mut wanted: Vec<_> =
        at.iter().flat_map(|at| [format!("{at}.0#1"), format!("{at}.1#1")]).collect();
    wanted.sort();
    assert_eq!(effects, wanted);
}

/// Lets so many appends pass and is dead then: nothing is read or written any more.
struct Dies(AtomicI64);

#[async_trait]
impl Between for Dies {
    async fn append(&self, store: &dyn Store, batch: Append) -> Result<Vec<Recorded>, StoreError> {
        if self.0.fetch_sub(1, Ordering::SeqCst) <= 0 {
            return Err(StoreError::Closed);
        }
        store.append(batch).await
    }
}

async fn behaviour_36_a_kill_at_any_point_skips_nothing_and_repeats_only_what_was_not_recorded(
    world: World,
) {
    let wanted = |at: u64| [format!("{at}.0#1"), format!("{at}.1#1")];
    for appends in 0..9 {
        let (one, two) = (world.fire("x").await, world.fire("x").await);
        let (before, after) = (world.host(), world.host());
        let through = Through::new(Arc::clone(&world.store), Dies(AtomicI64::new(appends)));
        let dying = world.dispatcher_on(Arc::new(through), &before, &[EACH]).with_lease(LEASE);

        let died = dying.run(Until::Idle, &Cancel::new()).await;
        world.clock.forward(31);
        let lanes = world.once(&after, &[EACH]).await;

        assert!(died.is_err(), "{appends}");
        let (before, after) = (before.effects(), after.effects());
        let all: Vec<String> = [wanted(one), wanted(two)].concat();
        let done: BTreeSet<_> = before.iter().chain(&after).cloned().collect();
        assert_eq!(done, all.iter().cloned().collect(), "{appends}");
        // At most the one that was under way is done twice, and what follows is what is left.
        let twice: Vec<_> = after.iter().filter(|it| before.contains(it)).collect();
        assert!(twice.len() <= 1, "{appends}: {twice:?}");
        assert_eq!(after, all[all.len() - after.len()..], "{appends}");
        assert_eq!(lanes[0].waiting, 0);
    }
    assert_eq!(world.state("each").await.delivered, 18);
}

async fn behaviour_36_what_ends_its_process_each_time_is_given_up(world: World) {
    let event = world.fire("x").await;
    for number in 0..5 {
        assert_eq!(dies(&world, &number.to_string()).await, [format!("{event}.0#1")]);
        world.clock.forward(31);
    }
    let host = world.host();

    let lanes = world.once(&host, &[EACH]).await;

    assert_eq!((lanes[0].dead, host.effects()), (1, vec![]));
    let state = world.state("each").await;
    assert_eq!(
        state.dead.values().next().unwrap().reason,
        "its process ended 5 times while it was done"
    );
}

async fn what_is_broken_off_in_good_order_is_done_again_however_often(world: World) {
    let event = world.fire("x").await;
    for _ in 0..7 {
        let (host, cancel) = (world.host_that(|_| None), Cancel::new());
        let dispatcher = world.dispatcher(&host, &[EACH]);
        let stopping = async {
            host.began.notified().await;
            cancel.cancel();
        };
        let (ended, ()) = tokio::join!(dispatcher.run(Until::Cancelled, &cancel), stopping);
        assert_eq!(ended.unwrap()[0].waiting, 1);
    }
    let host = world.host();

    let lanes = world.once(&host, &[EACH]).await;

    assert_eq!(lanes[0].delivered, 1);
    assert_eq!(host.effects(), [format!("{event}.0#1"), format!("{event}.1#1")]);
}

async fn behaviour_36_who_was_taken_for_dead_records_nothing_any_more(world: World) {
    let event = world.fire("x").await;
    let slow = world.host_that(|_| None);
    let other = world.host();
    let dispatcher = world.dispatcher(&slow, &[EACH]).with_lease(LEASE);
    let cancel = Cancel::new();
    let taking_over = async {
        slow.began.notified().await;
        world.clock.forward(31);
        let lanes = world.once(&other, &[EACH]).await;
        // What the slow one is told now stands in a log that is no longer its own.
        cancel.cancel();
        lanes
    };

    let (held_up, lanes) = tokio::join!(dispatcher.run(Until::Idle, &cancel), taking_over);

    assert_eq!(lanes[0].delivered, 1);
    assert!(held_up.is_ok());
    assert_eq!(other.effects(), [format!("{event}.0#1"), format!("{event}.1#1")]);
    let kinds = world.kinds("each").await;
    assert_eq!(kinds.iter().filter(|kind| *kind == "dispatch.delivered").count(), 1);
    assert_eq!(kinds.iter().filter(|kind| *kind == "dispatch.done").count(), 2);
}
