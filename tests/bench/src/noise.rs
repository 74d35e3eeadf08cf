//! What else the machine did meanwhile.

use std::{fmt, fs, time::Instant};

/// Since when, and what had been used until then.
#[derive(Debug)]
pub(crate) struct Noise {
    since: Instant,
    machine: f64,
    ours: f64,
}

/// How many ticks a second the kernel counts in for programs, on every Linux.
const TICKS: f64 = 100.0;

impl Noise {
    /// Begins to measure.
    pub(crate) fn begin() -> Self {
        Self { since: Instant::now(), machine: machine(), ours: ours() }
    }

    /// Returns how many cores others kept busy since then.
    pub(crate) fn cores(&self) -> f64 {
        let others = (machine() - self.machine) - (ours() - self.ours);
        (others / TICKS / self.since.elapsed().as_secs_f64()).max(0.0)
    }
}

impl fmt::Display for Noise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.since.elapsed().as_secs_f64();
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        write!(f, "others used {:.2} of {cores} cores for {seconds:.1} s", self.cores())
    }
}

/// Returns the ticks that all processors were busy.
fn machine() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
    fields
        .enumerate()
        // The fourth and fifth count idle time; guests are counted within users.
        .filter(|(place, _)| !matches!(place, 3 | 4 | 8 | 9))
        .filter_map(|(_, field)| field.parse::<f64>().ok())
        .sum()
}

/// Returns the ticks of this process and of its children that ended.
fn ours() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name before the last parenthesis may hold spaces.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(4).filter_map(|field| field.parse::<f64>().ok()).sum()
}
