//! United States dollars, exact to one cached token.

use std::{borrow::Cow, fmt, iter::Sum, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// United States dollars in whole nano-dollars, fine enough that one token's price is exact.
///
/// Reads and writes as a decimal text (`"0.315"`). It may be negative where a difference is; an
/// amount spent or reserved never is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct Usd(i64);

/// Why a text is not an amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum UsdError {
    /// The text is not a decimal number.
    #[error("{text:?} is not an amount in US dollars: expected a decimal such as \"0.315\"")]
    NotADecimal { text: String },
    /// The text has more decimals than a nano-dollar.
    #[error("{text:?} has {found} decimals, an amount in US dollars has at most 9")]
    TooFine { text: String, found: usize },
    /// The amount does not fit.
    #[error("{text:?} is more than the largest amount, {}", Usd::MAX)]
    TooLarge { text: String },
}

/// How many nano-dollars a dollar has.
const NANOS: i64 = 1_000_000_000;

impl Usd {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The largest amount, some nine billion dollars.
    pub const MAX: Self = Self(i64::MAX);

    /// Takes an amount in nano-dollars.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Returns the amount in nano-dollars.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Returns the sum, or nothing where it does not fit.
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(nanos) => Some(Self(nanos)),
            None => None,
        }
    }

    /// Returns the difference, or nothing where it does not fit.
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(nanos) => Some(Self(nanos)),
            None => None,
        }
    }

    /// Returns the sum, at most [`Usd::MAX`].
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the difference; what does not fit stays at the bound.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns the cost of `tokens` at this price for a million of them, rounded up to a nano-dollar, and at most [`Usd::MAX`].
    ///
    /// Rounds up so that an estimate is never short; one item is rounded once.
    #[must_use]
    pub fn per_million(self, tokens: u64) -> Self {
        self.checked_per_million(tokens).unwrap_or(Self::MAX)
    }

    /// Returns the same, or nothing where it does not fit.
    pub fn checked_per_million(self, tokens: u64) -> Option<Self> {
        let exact = i128::from(self.0) * i128::from(tokens);
        let rounded = exact.div_euclid(1_000_000) + i128::from(exact.rem_euclid(1_000_000) != 0);
        i64::try_from(rounded).ok().map(Self)
    }

    /// Returns `percent` hundredths of the amount, rounded down.
    #[must_use]
    pub fn percent(self, percent: u32) -> Self {
        let part = i128::from(self.0) * i128::from(percent) / 100;
        Self(i64::try_from(part).unwrap_or(i64::MAX))
    }
}

/// Reads an amount that cannot be negative: a cap or a price. For `#[serde(deserialize_with)]`.
///
/// # Errors
/// What is wrong with the amount.
pub(crate) fn not_negative<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Usd, D::Error> {
    let amount = Usd::deserialize(from)?;
    match amount < Usd::ZERO {
        true => Err(serde::de::Error::custom(format!("wanted at least 0, found {amount}"))),
        false => Ok(amount),
    }
}

/// The same, of an amount that need not be there.
///
/// # Errors
/// What is wrong with the amount.
pub(crate) fn maybe_not_negative<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<Usd>, D::Error> {
    #[derive(Deserialize)]
    struct Amount(#[serde(deserialize_with = "not_negative")] Usd);
    Ok(Option::<Amount>::deserialize(from)?.map(|Amount(amount)| amount))
}

/// Writes an amount that cannot be negative, so that nothing is recorded that nobody could read. For
/// `#[serde(serialize_with)]`.
///
/// # Errors
/// Where it is negative.
pub(crate) fn not_negative_out<S: serde::Serializer>(
    amount: &Usd,
    to: S,
) -> Result<S::Ok, S::Error> {
    match *amount < Usd::ZERO {
        true => Err(serde::ser::Error::custom(format!("wanted at least 0, found {amount}"))),
        false => amount.serialize(to),
    }
}

/// The same, of an amount that need not be there.
///
/// # Errors
/// Where it is negative.
pub(crate) fn maybe_not_negative_out<S: serde::Serializer>(
    amount: &Option<Usd>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match amount {
        Some(amount) => not_negative_out(amount, to),
        None => to.serialize_none(),
    }
}

impl Sum for Usd {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Self::saturating_add)
    }
}

impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let nanos = self.0.unsigned_abs();
        let (whole, part) = (nanos / NANOS.unsigned_abs(), nanos % NANOS.unsigned_abs());
        if part == 0 {
            return f.pad(&format!("{sign}{whole}"));
        }
        let decimals = format!("{part:09}");
        f.pad(&format!("{sign}{whole}.{}", decimals.trim_end_matches('0')))
    }
}

impl FromStr for Usd {
    type Err = UsdError;

    fn from_str(text: &str) -> Result<Self, UsdError> {
        let not_a_decimal = || UsdError::NotADecimal { text: text.to_owned() };
        let too_large = || UsdError::TooLarge { text: text.to_owned() };
        let (negative, digits) =
            text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
        let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
        let is_number =
            |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        if !is_number(whole) || !is_number(part) {
            return Err(not_a_decimal());
        }
        if part.len() > 9 {
            return Err(UsdError::TooFine { text: text.to_owned(), found: part.len() });
        }
        let whole: i64 = whole.parse().map_err(|_| too_large())?;
        let part: i64 = format!("{part:0<9}").parse().map_err(|_| not_a_decimal())?;
        let nanos = whole
            .checked_mul(NANOS)
            .and_then(|nanos| nanos.checked_add(part))
            .ok_or_else(too_large)?;
        Ok(Self(if negative { -nanos } else { nanos }))
    }
}

impl TryFrom<String> for Usd {
    type Error = UsdError;

    fn try_from(text: String) -> Result<Self, UsdError> {
        text.parse()
    }
}

impl From<Usd> for String {
    fn from(amount: Usd) -> Self {
        amount.to_string()
    }
}

impl JsonSchema for Usd {
    fn schema_name() -> Cow<'static, str> {
        "Usd".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "US dollars as a decimal text with at most nine decimals, such as \"0.315\"",
            "pattern": "^-?[0-9]+(\\.[0-9]{1,9})?$"
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_cached_token_has_an_exact_price() {
        let per_million: Usd = "0.30".parse().unwrap();

        assert_eq!(per_million.per_million(1), Usd::from_nanos(300));
        assert_eq!(per_million.per_million(1).to_string(), "0.0000003");
    }

    #[test]
    fn a_fraction_of_a_nano_dollar_is_rounded_up() {
        assert_eq!(Usd::from_nanos(1).per_million(1), Usd::from_nanos(1));
        assert_eq!(Usd::from_nanos(1).per_million(0), Usd::ZERO);
    }

    #[test]
    fn what_is_no_amount_is_refused_with_the_reason() {
        for (text, message) in [
            ("", "\"\" is not an amount in US dollars: expected a decimal such as \"0.315\""),
            ("1,5", "\"1,5\" is not an amount in US dollars: expected a decimal such as \"0.315\""),
            (".5", "\".5\" is not an amount in US dollars: expected a decimal such as \"0.315\""),
            (
                "0.0000000001",
                "\"0.0000000001\" has 10 decimals, an amount in US dollars has at most 9",
            ),
            (
                "99999999999",
                "\"99999999999\" is more than the largest amount, 9223372036.854775807",
            ),
        ] {
            assert_eq!(text.parse::<Usd>().unwrap_err().to_string(), message);
        }
    }

    proptest! {
        #[test]
        fn an_amount_survives_its_text(nanos in -i64::MAX..=i64::MAX) {
            let amount = Usd::from_nanos(nanos);
            prop_assert_eq!(amount.to_string().parse::<Usd>().unwrap(), amount);
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = text.parse::<Usd>();
        }
    }
}
