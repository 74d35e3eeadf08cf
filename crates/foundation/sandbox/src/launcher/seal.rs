//! Makes paths below the write roots read-only for one command, and shared folders its own, by a view of the file system
//! of its own.
//!
//! Landlock grants a folder with all that is below it and takes nothing back, so that a part of a writable folder
//! cannot be kept from writing by it. A mount can: the part is mounted upon itself, read-only, where nobody but the
//! command sees it. The folders on the way to it are mounted upon themselves as well, since a mount point cannot be
//! moved out of the way. A working folder entered before lies below these mounts, where nothing is sealed, so that it is
//! entered again.

use std::{
    collections::BTreeSet,
    ffi::CString,
    fs,
    path::{Path, PathBuf},
};

use rustix::{
    fs::StatVfsMountFlags,
    io::Errno,
    mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change, mount_remount},
    thread::UnshareFlags,
};

use crate::{
    Limits,
    wire::{NotRun, Protecting},
};

/// Puts empty folders in the place of the private ones and seals what is to be sealed, for the calling process, which
/// works in `cwd`, and what it starts.
pub(super) fn apply(limits: &Limits, cwd: &Path) -> Result<(), NotRun> {
    let (paths, roots) = (&limits.sealed, &limits.write_roots);
    if paths.is_empty() && limits.private.is_empty() {
        return Ok(());
    }
    if !cwd.is_absolute() {
        // It was entered already, and names another folder or none from there.
        return Err(failed(cwd, Errno::INVAL));
    }
    own_view().map_err(|errno| missing("a view of the file system of its own", errno))?;
    for folder in &limits.private {
        own_folder(folder, limits.memory).map_err(|errno| failed(folder, errno))?;
    }
    for folder in ways(paths, roots) {
        mount_bind(&folder, &folder).map_err(|errno| failed(&folder, errno))?;
    }
    for path in paths {
        seal(path).map_err(|errno| failed(path, errno))?;
    }
    // Only a way from the top crosses the mounts just made.
    rustix::process::chdir(cwd).map_err(|errno| failed(cwd, errno))
}

/// Leaves the view that others have, as root or else as a user whose rights over mounts reach no further.
fn own_view() -> Result<(), Errno> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // Memory and queues that programs of a user share by number are not files, and no rule of paths holds them.
    let own = UnshareFlags::NEWNS | UnshareFlags::NEWIPC;
    if super::spawn::unshare(own).is_err() {
        super::spawn::unshare(own | UnshareFlags::NEWUSER)?;
        let write = |name: &str, text: String| {
            let written = fs::write(format!("/proc/self/{name}"), text);
            written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        };
        write("setgroups", "deny".to_owned())?;
        write("uid_map", format!("{user} {user} 1"))?;
        write("gid_map", format!("{group} {group} 1"))?;
    }
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
}

/// Mounts an empty folder upon another one, which may hold so many bytes, or half of the machine's memory.
fn own_folder(folder: &Path, bytes: Option<u64>) -> Result<(), Errno> {
    let size = bytes.map(|bytes| format!(",size={bytes}")).unwrap_or_default();
    let options = CString::new(format!("mode=1777{size}")).map_err(|_| Errno::INVAL)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", folder, "tmpfs", flags, options.as_c_str())
}

/// Returns the folders between the roots and the paths, outermost first.
fn ways(paths: &[PathBuf], roots: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut ways = BTreeSet::new();
    for path in paths {
        let root = roots.iter().filter(|root| path.starts_with(root)).min();
        let Some(root) = root else { continue };
        let above = path.ancestors().skip(1).take_while(|above| *above != root.as_path());
        ways.extend(above.filter(|above| above.starts_with(root)).map(Path::to_owned));
    }
    ways
}

fn seal(path: &Path) -> Result<(), Errno> {
    // A link's target would be mounted in place of the link, which stays as writable as it was.
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        return Err(Errno::LOOP);
    }
    mount_bind(path, path)?;
    let found = rustix::fs::statvfs(path)?.f_flag;
    let mut flags = MountFlags::BIND | MountFlags::RDONLY;
    // What the mount below forbids may not be allowed again.
    for (has, keep) in [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ] {
        if found.contains(has) {
            flags |= keep;
        }
    }
    mount_remount(path, flags, "")
}

fn missing(what: &str, errno: Errno) -> NotRun {
    NotRun::ProtectionMissing { protection: Protecting::Seal, reason: format!("{what}: {errno}") }
}

fn failed(path: &Path, errno: Errno) -> NotRun {
    missing(&path.display().to_string(), errno)
}
