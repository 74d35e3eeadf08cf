//! What tells a real secret from what only looks like one.

/// Returns the Shannon entropy in bits per byte: 0 for one letter over and over, 8 at the most.
#[expect(clippy::cast_precision_loss, reason = "a share needs no more digits")]
pub(super) fn entropy(bytes: &[u8]) -> f64 {
    let mut counts = [0_usize; 256];
    for byte in bytes {
        if let Some(count) = counts.get_mut(usize::from(*byte)) {
            *count += 1;
        }
    }
    let all = bytes.len() as f64;
    let share = |count: &usize| {
        let share = *count as f64 / all;
        -share * share.log2()
    };
    counts.iter().filter(|count| **count > 0).map(share).sum()
}

/// Tells whether the digits bear out the checksum of payment cards.
///
/// Source: ISO/IEC 7812-1, annex B.
pub(super) fn luhn(bytes: &[u8]) -> bool {
    let digits = bytes.iter().rev().filter(|byte| byte.is_ascii_digit());
    let sum: u32 = digits
        .enumerate()
        .map(|(at, byte)| {
            let digit = u32::from(byte - b'0');
            match at % 2 {
                0 => digit,
                _ if digit > 4 => digit * 2 - 9,
                _ => digit * 2,
            }
        })
        .sum();
    sum.is_multiple_of(10)
}

/// Tells whether the letters and digits bear out the checksum of bank accounts.
///
/// Source: ISO 13616-1, the remainder by 97.
pub(super) fn iban(bytes: &[u8]) -> bool {
    let plain: Vec<u8> = bytes.iter().copied().filter(u8::is_ascii_alphanumeric).collect();
    let (Some(head), Some(tail)) = (plain.get(..4), plain.get(4..)) else { return false };
    if !(15..=34).contains(&plain.len()) {
        return false;
    }
    let mut rest = 0_u32;
    for byte in tail.iter().chain(head) {
        rest = match byte {
            b'0'..=b'9' => (rest * 10 + u32::from(byte - b'0')) % 97,
            _ => (rest * 100 + u32::from(byte.to_ascii_uppercase() - b'A') + 10) % 97,
        };
    }
    rest == 1
}
