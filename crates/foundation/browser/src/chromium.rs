//! Chromium as a process: found, started with a profile that is thrown away, and ended with all that it started.

use std::{
    ffi::{OsStr, OsString},
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::{Error, connection::Connection};

/// What Chromium is called, in the order in which it is looked for.
const NAMES: [&str; 5] =
    ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome"];

/// How long it is given to leave by itself once nobody speaks to it any more.
const LEAVE: Duration = Duration::from_secs(2);

/// What it is started with, besides its profile and its proxy.
const SWITCHES: [&str; 29] = [
    "--headless",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    // Nothing that no page asked for.
    "--disable-background-networking",
    "--disable-breakpad",
    "--disable-client-side-phishing-detection",
    "--disable-component-extensions-with-background-pages",
    "--disable-component-update",
    "--component-updater=url-source=http://127.0.0.1:1/",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-features=OptimizationHints,MediaRouter,DialMediaRouteProvider,Translate,AutofillServerCommunication,NetworkPrediction,NetworkTimeServiceQuerying,PreconnectToSearch,SearchEnginePreconnect,SearchEnginePreconnect2,NavigationPredictor,LCPPFontURLPredictor",
    "--gaia-url=http://127.0.0.1:1",
    "--google-base-url=http://127.0.0.1:1",
    "--disable-notifications",
    "--disable-print-preview",
    "--disable-sync",
    "--metrics-recording-only",
    "--no-pings",
    "--password-store=basic",
    "--use-mock-keychain",
    "--mute-audio",
    // Nothing beside the proxy: no names, no datagrams.
    "--disable-quic",
    "--dns-prefetch-disable",
    "--proxy-bypass-list=<-loopback>",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
];

/// It reads from file 3 and writes to file 4, where a new process has neither: a shell puts them there. And it removes the
/// profile once the browser has left, for whoever began it may have been killed.
const BEGIN: &str = "\"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null; rm -rf \"$0\"";

/// Whether Chromium confines its own pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sandbox {
    /// It does.
    Own,
    /// It does not: it refuses to as root.
    NoneAsRoot,
}

/// Tells whether Chromium will confine its own pages when this process starts it.
pub fn own_sandbox() -> Sandbox {
    if rustix::process::geteuid().is_root() { Sandbox::NoneAsRoot } else { Sandbox::Own }
}

/// Finds Chromium: the program that was named, else the first of its usual names in the folders of `path`. What lies
/// below one of `roots` stands in for none: whoever works there could have put it there.
///
/// # Errors
/// What was looked for, and what to do.
pub fn find(named: Option<&OsStr>, path: &OsStr, roots: &[PathBuf]) -> Result<PathBuf, String> {
    let is_elsewhere = |file: &Path| {
        let real = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        !roots.iter().any(|root| file.starts_with(root) || real.starts_with(root))
    };
    if let Some(named) = named {
        let file = PathBuf::from(named);
        return match file.is_absolute() && is_program(&file) && is_elsewhere(&file) {
            true => Ok(file),
            false => Err(format!(
                "CHROME names {}, which is no program outside of the workspace by its whole path",
                file.display()
            )),
        };
    }
    let folders: Vec<PathBuf> =
        std::env::split_paths(path).filter(|folder| folder.is_absolute()).collect();
    let mut files = NAMES.iter().flat_map(|name| folders.iter().map(move |it| it.join(name)));
    files.find(|file| is_program(file) && is_elsewhere(file)).ok_or_else(|| {
        format!(
            "there is no Chromium on this machine: neither {} is in PATH. Install it (Debian: apt-get install \
             chromium), or name it by its path in CHROME",
            NAMES.join(" nor ")
        )
    })
}

fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

/// A Chromium that runs. Dropped, it is killed with all of its group.
pub(crate) struct Chromium {
    child: Child,
    group: Option<Pid>,
    /// Thrown away with all that pages left there.
    profile: Option<TempDir>,
}

impl Chromium {
    /// Starts it.
    pub(crate) fn start(program: &Path, proxy: SocketAddr) -> Result<(Self, Connection), Error> {
        let failed = |source| Error::NotStarted { program: program.to_owned(), source };
        let profile =
            tempfile::Builder::new().prefix("formwork-browser-").tempdir().map_err(failed)?;
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", BEGIN])
            .arg(profile.path())
            .arg(program)
            .args(SWITCHES)
            .arg(format!("--proxy-server=http://{proxy}"))
            // It resolves nothing itself.
            .arg(format!("--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE {}", proxy.ip()))
            .arg(joined("--user-data-dir=", profile.path()))
            .arg("--window-size=1280,1024");
        if own_sandbox() == Sandbox::NoneAsRoot {
            command.arg("--no-sandbox");
        }
        command
            .arg("about:blank")
            .current_dir(profile.path())
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            // Nothing of whoever runs this is there to be read.
            .env("HOME", profile.path())
            .env("TMPDIR", profile.path())
            .env("LANG", "C.UTF-8")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(failed)?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let pipes = child.stdin.take().zip(child.stdout.take());
        let chromium = Self { child, group, profile: Some(profile) };
        let broken = || failed(std::io::ErrorKind::BrokenPipe.into());
        let (input, output) = pipes.ok_or_else(broken)?;
        Ok((chromium, Connection::new(input, output)))
    }

    /// Waits until it has ended, with all that it started. Nobody may speak to it any more.
    pub(crate) async fn end(mut self) {
        let left = tokio::time::timeout(LEAVE, self.child.wait()).await;
        self.kill();
        if left.is_err() {
            let _ = self.child.wait().await;
        }
        if let Some(profile) = self.profile.take() {
            // What it could not remove lies in the folder of the system for what may be thrown away.
            let _ = tokio::task::spawn_blocking(move || profile.close()).await;
        }
    }

    fn kill(&self) {
        if let Some(group) = self.group {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        self.kill();
    }
}

fn joined(switch: &str, path: &Path) -> OsString {
    let mut whole = OsString::from(switch);
    whole.push(path);
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_the_workspace_stands_in_for_no_browser() {
        let folder = TempDir::new().unwrap();
        let (inside, beside) = (folder.path().join("ws/bin"), folder.path().join("bin"));
        for place in [&inside, &beside] {
            std::fs::create_dir_all(place).unwrap();
            std::fs::write(place.join("chromium"), "").unwrap();
            std::fs::set_permissions(
                place.join("chromium"),
                std::fs::Permissions::from_mode(0o755),
            )
            .unwrap();
        }
        let path = std::env::join_paths([&inside, &beside]).unwrap();
        let roots = [folder.path().join("ws")];
        let named = |file: &Path| find(Some(file.as_os_str()), &path, &roots);

        assert_eq!(find(None, &path, &roots), Ok(beside.join("chromium")));
        assert_eq!(named(&beside.join("chromium")), Ok(beside.join("chromium")));
        assert!(named(&inside.join("chromium")).is_err());
        assert!(named(Path::new("chromium")).is_err());
        let none = find(None, OsStr::new("bin:/nowhere"), &roots).unwrap_err();
        assert!(none.contains("apt-get install chromium"), "{none}");
    }
}
