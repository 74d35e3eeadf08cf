//! Files beyond the workspace.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    process::Command,
};

use crate::Tried;

/// What is read of a file: enough to show what it holds.
const MOST: u64 = 4096;

pub(crate) fn read(path: &str) -> Tried {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST).read_to_end(&mut bytes)?;
    Ok(format!("read {path}: {}", String::from_utf8_lossy(&bytes)))
}

pub(crate) fn list(path: &str) -> Tried {
    let names: Vec<_> = fs::read_dir(path)?.flatten().map(|entry| entry.file_name()).collect();
    Ok(format!("listed {path}: {names:?}"))
}

pub(crate) fn write(path: &str) -> Tried {
    File::options().create(true).append(true).open(path)?.write_all(b"escaped\n")?;
    Ok(format!("wrote {path}"))
}

/// Writes a file; whoever asked looks whether anybody else can see it.
pub(crate) fn leave(path: &str) -> Tried {
    write(path)?;
    Err(io::Error::other("a file was written, which others are not to see"))
}

pub(crate) fn remove(path: &str) -> Tried {
    if fs::symlink_metadata(path)?.is_dir() {
        fs::remove_dir_all(path)?;
    } else {
        fs::remove_file(path)?;
    }
    Ok(format!("removed {path}"))
}

/// Changes the mode of a file, which takes no opening of it.
pub(crate) fn mode(path: &str) -> Tried {
    let mode = fs::metadata(path)?.permissions().mode() ^ 0o022;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    Ok(format!("changed the mode of {path}"))
}

/// Makes a file as old as time.
pub(crate) fn times(path: &str) -> Tried {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
    let old = Timespec { tv_sec: 1, tv_nsec: 0 };
    let times = Timestamps { last_access: old, last_modification: old };
    utimensat(CWD, path, &times, AtFlags::empty())?;
    Ok(format!("changed the times of {path}"))
}

/// Makes a repository that starts a program once somebody uses git there; whoever asked has to notice.
pub(crate) fn repository(path: &str) -> Tried {
    let evil = "[core]\n\tfsmonitor = touch started\n";
    let head = "ref: refs/heads/main\n";
    match path {
        // What it shares with others lies elsewhere, behind a name that only git takes as it is.
        "shared" => {
            fs::create_dir_all("shared/.git")?;
            fs::create_dir_all("common /objects")?;
            fs::create_dir_all("common /refs")?;
            fs::write("shared/.git/HEAD", head)?;
            fs::write("shared/.git/commondir", "../../common ")?;
            fs::write("common /commondir", "nowhere")?;
            fs::write("common /config", evil)?;
        }
        // Git reads more of a name than others do.
        "named" => {
            repository_at("named/it", head, evil)?;
            fs::write("named/.git", format!("gitdir: it{}", "\n".repeat(70_000)))?;
        }
        _ => repository_at(path, head, evil)?,
    }
    Err(io::Error::other("a repository was made, and whoever asked has to notice it"))
}

fn repository_at(path: &str, head: &str, config: &str) -> io::Result<()> {
    for folder in ["objects", "refs"] {
        fs::create_dir_all(format!("{path}/{folder}"))?;
    }
    fs::write(format!("{path}/HEAD"), head)?;
    fs::write(format!("{path}/config"), config)
}

pub(crate) fn device(path: &str) -> Tried {
    let kind = rustix::fs::FileType::BlockDevice;
    let device = rustix::fs::makedev(8, 0);
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, rustix::fs::Mode::RWXU, device)?;
    Ok(format!("made the device {path}"))
}

pub(crate) fn run(path: &str) -> Tried {
    Command::new(path).status()?;
    Ok(format!("ran {path}"))
}

/// Gives a file a second name and writes by that.
pub(crate) fn link(from: &str, to: &str) -> Tried {
    fs::hard_link(from, to)?;
    write(to)?;
    Ok(format!("linked {from} to {to}"))
}

pub(crate) fn rename(from: &str, to: &str) -> Tried {
    fs::rename(from, to)?;
    Ok(format!("moved {from} to {to}"))
}
