//! The simulator itself: that it repeats itself, and that it goes everywhere.

use super::{simulate, world::simulate_wide};

#[test]
fn a_seed_gives_the_same_series_each_time_and_another_seed_another() {
    let once = simulate(11, 5_000).unwrap();

    assert_eq!(simulate(11, 5_000).unwrap(), once);
    assert_ne!(simulate(12, 5_000).unwrap().digest, once.digest);
}

#[test]
fn behaviour_13_sixty_four_children_at_once_pass_no_budget_and_all_end() {
    let report = simulate_wide(0..150).unwrap();

    // The worlds were as hostile as they are meant to be.
    assert!(report.tasks >= 150 * 65, "{report}");
    let seen = [report.refused, report.crashes, report.cancels, report.made, report.waits];
    assert!(seen.iter().all(|count| *count > 0), "{report}");
    assert!(report.completed < 150 && report.attempts > report.tasks / 2, "{report}");
}

#[test]
fn what_ends_before_a_run_is_taken_up_makes_no_room_that_is_not_there() {
    // An item whose time was over at a crash ended while another one was under way.
    simulate(7_021_521, 1).unwrap();
}

#[test]
fn what_was_asked_about_has_not_rested() {
    // An attempt that could not reach its model was asked about in place of a rest, and the process died after that.
    simulate(635, 1).unwrap();
}
