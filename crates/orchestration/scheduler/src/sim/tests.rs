//! The simulator itself: that it repeats itself, and that it goes everywhere.

use super::simulate;

#[test]
fn a_seed_gives_the_same_series_each_time_and_another_seed_another() {
    let once = simulate(11, 5_000).unwrap();

    assert_eq!(simulate(11, 5_000).unwrap(), once);
    assert_ne!(simulate(12, 5_000).unwrap().digest, once.digest);
}
