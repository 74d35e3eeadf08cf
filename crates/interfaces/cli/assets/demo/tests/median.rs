use middle::median;

#[test]
fn no_values_have_no_median() {
    assert_eq!(median(&[]), None);
}

#[test]
fn an_odd_number_of_values_has_one_in_the_middle() {
    assert_eq!(median(&[1, 2, 9]), Some(2.0));
}

#[test]
fn the_order_of_the_values_does_not_matter() {
    assert_eq!(median(&[9, 1, 2]), Some(2.0));
}

#[test]
fn an_even_number_of_values_has_two_in_the_middle() {
    assert_eq!(median(&[4, 1, 3, 2]), Some(2.5));
}
