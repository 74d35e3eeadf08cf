//! What a bench prints: a figure with its floor, their ratio and what was aimed at.

use std::fmt::{self, Write as _};

use serde_json::{Value, json};

use crate::noise::Noise;

/// A limit that a figure or its ratio is held to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

impl Limit {
    fn is_met_by(self, value: f64) -> bool {
        match self {
            Self::AtLeast(limit) => value >= limit,
            Self::AtMost(limit) => value <= limit,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(limit) => write!(f, "≥ {}", short(*limit)),
            Self::AtMost(limit) => write!(f, "≤ {}", short(*limit)),
        }
    }
}

/// What is aimed at, for the ratio where there is a floor and for the figure itself where there is none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    /// Below this the work is not done.
    pub(crate) bar: Limit,
    /// What would be excellent.
    pub(crate) goal: Option<Limit>,
    /// Whether it holds for the figure although there is a floor.
    pub(crate) is_absolute: bool,
}

impl Target {
    /// Returns a target for the ratio.
    pub(crate) const fn ratio(bar: Limit, goal: Limit) -> Self {
        Self { bar, goal: Some(goal), is_absolute: false }
    }

    /// Returns a target for the figure itself.
    pub(crate) const fn figure(bar: Limit, goal: Option<Limit>) -> Self {
        Self { bar, goal, is_absolute: true }
    }
}

/// One figure over all repetitions.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    name: String,
    unit: &'static str,
    values: Vec<f64>,
    floor: Option<(&'static str, Vec<f64>)>,
    target: Option<Target>,
}

impl Figure {
    /// Takes a value for each repetition.
    pub(crate) fn new(name: impl Into<String>, unit: &'static str, values: Vec<f64>) -> Self {
        Self { name: name.into(), unit, values, floor: None, target: None }
    }

    /// Sets what it is measured against, with a value for each repetition.
    pub(crate) fn against(mut self, what: &'static str, values: Vec<f64>) -> Self {
        self.floor = Some((what, values));
        self
    }

    /// Sets what is aimed at.
    pub(crate) const fn aims(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }

    /// Returns the median of the ratios to the floor.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let (_, floor) = self.floor.as_ref()?;
        median(self.values.iter().zip(floor).map(|(value, floor)| value / floor).collect())
    }

    fn verdict(&self) -> Option<(Target, &'static str)> {
        let target = self.target?;
        let value = if target.is_absolute { median(self.values.clone()) } else { self.ratio() }?;
        let word = match target.goal {
            Some(goal) if goal.is_met_by(value) => "goal met",
            _ if target.bar.is_met_by(value) => "bar met",
            _ => "MISSED",
        };
        Some((target, word))
    }

    fn to_json(&self) -> Value {
        let (min, max) = range(&self.values);
        let mut document = json!({
            "name": self.name, "unit": self.unit, "median": median(self.values.clone()),
            "min": min, "max": max, "n": self.values.len(), "values": self.values,
        });
        if let Some((what, values)) = &self.floor {
            document["floor"] =
                json!({ "what": what, "median": median(values.clone()), "values": values });
            document["ratio"] = json!(self.ratio());
        }
        if let Some((target, word)) = self.verdict() {
            document["target"] = json!({
                "bar": target.bar.to_string(),
                "goal": target.goal.map(|goal| goal.to_string()),
                "of": if target.is_absolute { "figure" } else { "ratio" },
                "verdict": word,
            });
        }
        document
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (min, max) = range(&self.values);
        let middle = median(self.values.clone()).unwrap_or(f64::NAN);
        let mut line = format!(
            "{:<44} {:>9} [{}..{}] {} n={}",
            self.name,
            short(middle),
            short(min),
            short(max),
            self.unit,
            self.values.len(),
        );
        if let (Some((what, values)), Some(ratio)) = (&self.floor, self.ratio()) {
            let middle = median(values.clone()).unwrap_or(f64::NAN);
            write!(line, " floor={} ({what}) ratio={}", short(middle), short(ratio))?;
        }
        if let Some((target, word)) = self.verdict() {
            write!(line, " bar {}", target.bar)?;
            if let Some(goal) = target.goal {
                write!(line, " goal {goal}")?;
            }
            write!(line, ": {word}")?;
        }
        f.write_str(&line)
    }
}

/// What one bench found.
#[derive(Debug)]
pub(crate) struct Report {
    is_silent: bool,
    figures: Vec<Figure>,
    notes: Vec<String>,
    noise: Vec<String>,
}

impl Report {
    /// Begins with nothing; a silent one prints no lines.
    pub(crate) const fn new(is_silent: bool) -> Self {
        Self { is_silent, figures: Vec::new(), notes: Vec::new(), noise: Vec::new() }
    }

    /// Adds a figure.
    pub(crate) fn add(&mut self, figure: Figure) {
        self.say(&figure.to_string());
        self.figures.push(figure);
    }

    /// Adds a sentence, such as why something was left out.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.say(&format!("note: {text}"));
        self.notes.push(text);
    }

    /// Adds what else the machine did since `noise` began.
    pub(crate) fn noise(&mut self, of: &str, noise: &Noise) {
        let line = format!("{of}: {noise}");
        self.say(&format!("noise: {line}"));
        self.noise.push(line);
    }

    fn say(&self, line: &str) {
        if !self.is_silent {
            println!("{line}");
        }
    }

    /// Returns everything as one document.
    pub(crate) fn into_json(self) -> Value {
        json!({
            "figures": self.figures.iter().map(Figure::to_json).collect::<Vec<_>>(),
            "notes": self.notes,
            "noise": self.noise,
        })
    }
}

/// Returns the value in the middle of the sorted ones.
pub(crate) fn median(values: Vec<f64>) -> Option<f64> {
    percentile(values, 50)
}

/// Returns the value below which `percent` of a hundred lie.
pub(crate) fn percentile(mut values: Vec<f64>, percent: usize) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    values.get((values.len() * percent / 100).min(last)).copied()
}

fn range(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), value| {
        (min.min(*value), max.max(*value))
    })
}

/// Writes a number with as many digits as it deserves.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 1_000_000.0 => format!("{:.2}M", value / 1e6),
        size if size >= 10_000.0 => format!("{:.1}k", value / 1e3),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 && value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_the_median_of_the_repetitions_ratios() {
        let figure = Figure::new("x", "ms", vec![10.0, 2.0, 30.0])
            .against("floor", vec![10.0, 1.0, 10.0])
            .aims(Target::ratio(Limit::AtMost(2.0), Limit::AtMost(1.5)));

        assert_eq!(figure.ratio(), Some(2.0));
        assert_eq!(
            figure.to_string(),
            format!(
                "{:<44} {:>9} [2..30.0] ms n=3 floor=10.0 (floor) ratio=2 bar ≤ 2 goal ≤ 1.50: bar met",
                "x", "10.0"
            )
        );
    }
}
