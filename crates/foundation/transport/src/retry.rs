//! How long to wait before the next try.

use std::time::Duration;

use formwork_protocols::{Rng, Timestamp};
use reqwest::header::HeaderMap;

use crate::endpoint::RetryPolicy;

/// A server that refuses the connection comes back within a second or not soon: these waits are short.
const REFUSED_BASE: Duration = Duration::from_millis(100);

/// What kind of failure a wait follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// No connection was made.
    NoConnection,
    /// The answer could not be understood; asking often would be billed often.
    Unusable,
    /// The server failed or asked for patience.
    Failure,
}

/// Whether another try follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Wait(Duration),
    /// No try is left.
    Spent,
    /// The server asks for a longer wait than the policy allows.
    TooLong,
}

/// Decides what follows the `made`th try.
pub(crate) fn next(
    policy: &RetryPolicy,
    after: After,
    made: u32,
    asked: Option<Duration>,
    rng: &dyn Rng,
) -> Next {
    let (most, base) = match after {
        After::NoConnection => (3, REFUSED_BASE.min(policy.base.as_duration())),
        After::Unusable => (2, policy.base.as_duration()),
        After::Failure => (u32::MAX, policy.base.as_duration()),
    };
    if made >= policy.tries.min(most) {
        return Next::Spent;
    }
    let cap = policy.cap.as_duration();
    let floor = asked.unwrap_or_default();
    if floor > cap {
        return Next::TooLong;
    }
    let bound = base.saturating_mul(2_u32.saturating_pow(made.saturating_sub(1))).min(cap);
    Next::Wait(jitter(bound, rng).max(floor).min(cap))
}

/// Returns a random part of `bound`.
fn jitter(bound: Duration, rng: &dyn Rng) -> Duration {
    let micros = u64::try_from(bound.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(rng.next_u64() % micros.saturating_add(1).max(1))
}

/// Returns how long the server's headers ask to wait.
///
/// `Retry-After` in seconds or as a date (RFC 9110, 10.2.3), `retry-after-ms`, and where neither is there, the reset
/// of each rate limit of which nothing remains (OpenAI's `x-ratelimit-*`, Anthropic's `anthropic-ratelimit-*`).
pub(crate) fn asked(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let header = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let until = |micros: i64| {
        Duration::from_micros(u64::try_from(micros.saturating_sub(now.as_micros())).unwrap_or(0))
    };
    if let Some(millis) = header("retry-after-ms").and_then(|text| text.parse::<f64>().ok()) {
        return Duration::try_from_secs_f64(millis / 1_000.0).ok();
    }
    if let Some(text) = header("retry-after") {
        if let Ok(seconds) = text.parse::<f64>() {
            return Duration::try_from_secs_f64(seconds).ok();
        }
        let date = httpdate::parse_http_date(text).ok()?;
        let since = date.duration_since(std::time::UNIX_EPOCH).ok()?;
        return Some(until(i64::try_from(since.as_micros()).ok()?));
    }
    let resets = headers.iter().filter_map(|(name, left)| {
        let limit = name.as_str();
        if !limit.contains("ratelimit") || left.to_str().ok()?.trim() != "0" {
            return None;
        }
        if let Some(what) = limit.strip_prefix("x-ratelimit-remaining-") {
            let reset: formwork_protocols::Span =
                header(&format!("x-ratelimit-reset-{what}"))?.parse().ok()?;
            return Some(reset.as_duration());
        }
        let what = limit.strip_prefix("anthropic-ratelimit-")?.strip_suffix("-remaining")?;
        let reset: jiff::Timestamp =
            header(&format!("anthropic-ratelimit-{what}-reset"))?.parse().ok()?;
        Some(until(reset.as_microsecond()))
    });
    resets.max()
}

#[cfg(test)]
mod tests {
    use formwork_protocols::{SeededRng, Span};
    use proptest::prelude::*;
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        pairs.collect()
    }

    #[test]
    fn a_wait_is_asked_for_in_seconds_in_milliseconds_or_by_a_date() {
        // 2026-11-29T12:00:00Z
        let now = Timestamp::from_micros(1_795_953_600_000_000);
        for (pairs, millis) in [
            (&[("retry-after", "7")][..], Some(7_000)),
            (&[("retry-after", "0.5")], Some(500)),
            (&[("retry-after", "Sun, 29 Nov 2026 12:00:30 GMT")], Some(30_000)),
            (&[("retry-after", "Sun, 29 Nov 2026 11:00:00 GMT")], Some(0)),
            (&[("retry-after", "soon")], None),
            (&[("retry-after", "-3")], None),
            (&[("retry-after", "9"), ("retry-after-ms", "250")], Some(250)),
            (
                &[
                    ("x-ratelimit-remaining-requests", "0"),
                    ("x-ratelimit-reset-requests", "6m0s"),
                    ("x-ratelimit-remaining-tokens", "12"),
                    ("x-ratelimit-reset-tokens", "9h"),
                ],
                Some(360_000),
            ),
            (
                &[
                    ("anthropic-ratelimit-tokens-remaining", "0"),
                    ("anthropic-ratelimit-tokens-reset", "2026-11-29T12:00:05Z"),
                ],
                Some(5_000),
            ),
            (&[], None),
        ] {
            assert_eq!(asked(&headers(pairs), now), millis.map(Duration::from_millis), "{pairs:?}");
        }
    }

    #[test]
    fn a_refused_connection_is_tried_three_times_within_a_second() {
        let policy = RetryPolicy { tries: 10, ..RetryPolicy::default() };
        let rng = SeededRng::new(1);

        let mut waited = Duration::ZERO;
        let mut made = 1;
        while let Next::Wait(wait) = next(&policy, After::NoConnection, made, None, &rng) {
            waited += wait;
            made += 1;
        }

        assert_eq!(made, 3);
        assert!(waited < Duration::from_secs(1));
    }

    #[test]
    fn a_provider_that_asks_for_more_than_the_cap_is_not_waited_for() {
        let policy = RetryPolicy { cap: Span::from_secs(60), ..RetryPolicy::default() };
        let after = |secs| {
            next(&policy, After::Failure, 1, Some(Duration::from_secs(secs)), &SeededRng::new(1))
        };

        assert_eq!(after(60), Next::Wait(Duration::from_secs(60)));
        assert_eq!(after(61), Next::TooLong);
    }

    proptest! {
        #[test]
        fn a_wait_lies_between_the_floor_and_the_cap(
            seed: u64, made in 1_u32..40, floor in 0_u64..120_000,
        ) {
            let policy = RetryPolicy { tries: 100, ..RetryPolicy::default() };
            let asked = Duration::from_millis(floor);

            match next(&policy, After::Failure, made, Some(asked), &SeededRng::new(seed)) {
                Next::Wait(wait) => prop_assert!(wait >= asked && wait <= policy.cap.as_duration()),
                end => prop_assert_eq!(end, Next::TooLong),
            }
        }
    }
}
