//! What the kernel counts of a disk.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// The disk below a folder, with what the kernel counts of it.
pub(crate) struct Device {
    stat: PathBuf,
}

impl Device {
    /// Returns nothing where the kernel does not count.
    pub(crate) fn of(folder: &Path) -> Option<Self> {
        let device = fs::metadata(folder).ok()?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let stat = Path::new("/sys/dev/block").join(format!("{major}:{minor}/stat"));
        stat.exists().then_some(Self { stat })
    }

    /// Returns how often it was flushed.
    pub(crate) fn flushes(&self) -> Option<f64> {
        // Source: the kernel's Documentation/block/stat.rst; the sixteenth field counts flushes.
        fs::read_to_string(&self.stat).ok()?.split_whitespace().nth(15)?.parse().ok()
    }
}
