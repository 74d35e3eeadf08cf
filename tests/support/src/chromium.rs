//! The browser of the machine, for tests of what pages may do.

use std::ffi::OsString;

use crate::require;

/// Returns what the tools for pages need of the environment, or says that tests of them are skipped.
///
/// # Panics
/// When `FORMWORK_REQUIRE` names `chromium` and there is none.
#[expect(clippy::disallowed_methods, reason = "a test run is configured by its environment")]
pub fn environment() -> Option<(Option<OsString>, OsString)> {
    let (named, path) = (std::env::var_os("CHROME"), std::env::var_os("PATH").unwrap_or_default());
    let names = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome"];
    let mut files = std::env::split_paths(&path).flat_map(|it| names.map(|name| it.join(name)));
    let found = match named.is_some() || files.any(|file| file.is_file()) {
        true => Ok((named, path.clone())),
        false => Err("there is no Chromium in PATH (Debian: apt-get install chromium)"),
    };
    require::present_or_skipped("chromium", found)
}
