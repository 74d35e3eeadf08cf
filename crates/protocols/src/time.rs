//! Points in time and spans of it, as whole numbers.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A point in time: whole microseconds since 1970-01-01T00:00:00Z.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Takes microseconds since the epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Returns microseconds since the epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns whole milliseconds since the epoch.
    pub const fn as_millis(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// Returns the time that passed since `earlier`, or nothing of it where the clock went back.
    pub fn since(self, earlier: Self) -> Span {
        Span::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Returns the point `span` later.
    #[must_use]
    pub fn after(self, span: Span) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for Timestamp {
    /// Writes RFC 3339 in UTC, to the millisecond.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(time) => f.pad(&format!("{time:.3}")),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

/// A span of time in whole microseconds; reads and writes as `"1.5s"`, `"30m"`, `"250ms"`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct Span(u64);

/// Why a text is not a span of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a span of time: expected a number and ms, s, m or h, such as \"90s\" or \"1h30m\""
)]
pub struct SpanError {
    text: String,
}

const UNITS: [(&str, u64); 5] =
    [("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1)];

impl Span {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// Takes microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Takes milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// Takes seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// Returns the whole span in microseconds.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the whole milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000
    }

    /// Returns the sum, at most the largest span.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the span as the standard library's type.
    pub const fn as_duration(self) -> std::time::Duration {
        std::time::Duration::from_micros(self.0)
    }
}

/// Reads a span, if there is one, that is longer than none: for limits, where none would mean that nothing may be.
///
/// # Errors
/// What is wrong with it.
pub fn some_time<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Span>, D::Error> {
    let span = Option::<Span>::deserialize(from)?;
    match span {
        Some(Span::ZERO) => Err(serde::de::Error::custom("wanted more than no time, found 0s")),
        span => Ok(span),
    }
}

impl From<std::time::Duration> for Span {
    fn from(duration: std::time::Duration) -> Self {
        Self(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Span {
    /// Writes the largest units first and leaves out those that are nothing: `1h30m`, `1.5s`, `0s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0;
        if micros == 0 {
            return f.pad("0s");
        }
        if micros < 1_000 {
            return f.pad(&format!("{micros}us"));
        }
        if micros < 1_000_000 {
            return f.pad(&format!("{}ms", trimmed(micros, 1_000)));
        }
        let mut text = String::new();
        let (hours, rest) = (micros / 3_600_000_000, micros % 3_600_000_000);
        let (minutes, rest) = (rest / 60_000_000, rest % 60_000_000);
        if hours > 0 {
            text.push_str(&format!("{hours}h"));
        }
        if minutes > 0 {
            text.push_str(&format!("{minutes}m"));
        }
        if rest > 0 {
            text.push_str(&format!("{}s", trimmed(rest, 1_000_000)));
        }
        f.pad(&text)
    }
}

/// Writes `amount / unit` as a decimal without trailing zeros.
fn trimmed(amount: u64, unit: u64) -> String {
    let (whole, part) = (amount / unit, amount % unit);
    if part == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    format!("{whole}.{}", format!("{part:0width$}").trim_end_matches('0'))
}

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        let error = || SpanError { text: text.to_owned() };
        let mut rest = text.trim();
        if rest.is_empty() {
            return Err(error());
        }
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(error)?;
            let (number, tail) = rest.split_at(end);
            let unit_end =
                tail.find(|c: char| c.is_ascii_digit() || c.is_whitespace()).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(unit_end);
            let &(_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(error)?;
            let (whole, part) = number.split_once('.').unwrap_or((number, ""));
            let whole: u64 = whole.parse().map_err(|_| error())?;
            let mut micros = whole.checked_mul(factor).ok_or_else(error)?;
            let mut scale = factor;
            for digit in part.chars() {
                scale /= 10;
                micros = micros
                    .checked_add(u64::from(digit.to_digit(10).ok_or_else(error)?) * scale)
                    .ok_or_else(error)?;
            }
            total = total.checked_add(micros).ok_or_else(error)?;
            rest = tail.trim_start();
        }
        Ok(Self(total))
    }
}

impl TryFrom<String> for Span {
    type Error = SpanError;

    fn try_from(text: String) -> Result<Self, SpanError> {
        text.parse()
    }
}

impl From<Span> for String {
    fn from(span: Span) -> Self {
        span.to_string()
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "description": "A span of time such as \"90s\", \"30m\" or \"1h30m\"" })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_limit_of_no_time_is_none() {
        #[derive(Debug, PartialEq, Deserialize)]
        struct Limits {
            #[serde(default, deserialize_with = "some_time")]
            timeout: Option<Span>,
        }
        let read = |text: &str| serde_json::from_str::<Limits>(text).map(|limits| limits.timeout);

        assert_eq!(read("{}").unwrap(), None);
        assert_eq!(read(r#"{"timeout": "1ms"}"#).unwrap(), Some(Span::from_millis(1)));
        let told = read(r#"{"timeout": "0h"}"#).unwrap_err().to_string();
        assert!(told.starts_with("wanted more than no time, found 0s"), "{told}");
    }

    #[test]
    fn a_span_reads_as_people_write_it() {
        for (text, micros) in [
            ("250ms", 250_000),
            ("1.5s", 1_500_000),
            ("30m", 1_800_000_000),
            ("1h30m", 5_400_000_000),
            ("1h 30m", 5_400_000_000),
            ("0s", 0),
        ] {
            assert_eq!(text.parse::<Span>(), Ok(Span::from_micros(micros)), "{text}");
        }
        for text in ["", "5", "s", "5 s", "-1s", "1d", "1..5s", "99999999999999h"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_point_in_time_reads_as_rfc_3339() {
        assert_eq!(Timestamp::from_micros(1_500_000).to_string(), "1970-01-01T00:00:01.500Z");
    }

    proptest! {
        #[test]
        fn a_span_survives_its_text(micros in 0_u64..=u64::MAX / 2) {
            let span = Span::from_micros(micros);
            prop_assert_eq!(span.to_string().parse::<Span>().unwrap(), span);
        }

        #[test]
        fn no_text_panics(text in "[0-9.hmsu ]{0,30}") {
            let _ = text.parse::<Span>();
        }
    }
}
