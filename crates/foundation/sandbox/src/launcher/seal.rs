//! Makes paths below the write roots read-only for one command, or all that is beyond them, and shared folders its own,
//! by a view of the file system of its own.
//!
//! Landlock grants a folder with all that is below it and takes nothing back, so that a part of a writable folder
//! cannot be kept from writing by it. A mount can: the part is mounted upon itself, read-only, where nobody but the
//! command sees it. The folders on the way to it are mounted upon themselves as well, since a mount point cannot be
//! moved out of the way. A working folder entered before lies below these mounts, where nothing is sealed, so that it is
//! entered again.
//!
//! Nor does Landlock judge who changes what describes a file. A mount that is read-only does. So every mount is made so at
//! once, and what was at the write roots before, as writable as it was, is put back upon them. A device needs none of it:
//! what is written to it changes nothing of the file system that it lies in.

use std::{
    collections::BTreeSet,
    ffi::{CString, OsString},
    fs,
    os::{fd::OwnedFd, unix::ffi::OsStringExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, FileType, StatVfsMountFlags},
    io::Errno,
    mount::{
        MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_bind,
        mount_bind_recursive, mount_change, mount_remount, move_mount, open_tree,
    },
    thread::UnshareFlags,
};

use crate::{
    Beyond, Limits,
    wire::{NotRun, Protecting},
};

/// Whether a command has a network of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnNetwork {
    Yes,
    No,
}

/// Puts empty folders in the place of the private ones and seals what is to be sealed, for the calling process, which
/// works in `cwd`, and what it starts. A network of its own comes with that: a user that is not root leaves what is shared
/// once and not twice.
pub(super) fn apply(limits: &Limits, cwd: &Path, network: OwnNetwork) -> Result<(), NotRun> {
    let (paths, roots) = (&limits.sealed, &limits.write_roots);
    let is_bare =
        paths.is_empty() && limits.private.is_empty() && limits.beyond == Beyond::Described;
    if is_bare && network == OwnNetwork::No {
        return Ok(());
    }
    if !cwd.is_absolute() {
        // It was entered already, and names another folder or none from there.
        return Err(failed(cwd, Errno::INVAL));
    }
    own_view(network).map_err(|errno| match network {
        OwnNetwork::No => missing("a view of the file system of its own", errno),
        OwnNetwork::Yes => NotRun::ProtectionMissing {
            protection: Protecting::Network,
            reason: format!("a network of its own: {errno}"),
        },
    })?;
    if let Some(memory) = limits.memory {
        // Memory that is had by number is counted once it is used. Where the kernel lets us, there is no more of it.
        let _ = fs::write("/proc/sys/kernel/shmall", (memory / 4096).to_string());
    }
    if limits.beyond == Beyond::Nothing {
        close_beyond(limits)?;
    } else {
        for folder in &limits.private {
            own_folder(folder, limits.memory).map_err(|errno| failed(folder, errno))?;
        }
    }
    for folder in ways(paths, roots) {
        mount_bind(&folder, &folder).map_err(|errno| failed(&folder, errno))?;
    }
    // What may be written although it lies below a sealed path has a mount of its own, which comes along.
    let is_below = |root: &Path, path: &Path| root != path && root.starts_with(path);
    let open: Vec<&PathBuf> =
        roots.iter().filter(|root| paths.iter().any(|path| is_below(root, path))).collect();
    for root in &open {
        mount_bind(root.as_path(), root.as_path()).map_err(|errno| failed(root, errno))?;
    }
    for path in paths {
        let below = open.iter().any(|root| is_below(root, path));
        seal(path, below).map_err(|errno| failed(path, errno))?;
    }
    // Only a way from the top crosses the mounts just made.
    rustix::process::chdir(cwd).map_err(|errno| failed(cwd, errno))
}

/// Leaves the view that others have, as root or else as a user whose rights over mounts reach no further.
fn own_view(network: OwnNetwork) -> Result<(), Errno> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // Memory and queues that programs of a user share by number are not files, and no rule of paths holds them.
    let mut own = UnshareFlags::NEWNS | UnshareFlags::NEWIPC;
    if network == OwnNetwork::Yes {
        own |= UnshareFlags::NEWNET;
    }
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

/// Makes every mount read-only but for those at and below the write roots, and gives it its private folders.
fn close_beyond(limits: &Limits) -> Result<(), NotRun> {
    let (roots, private) = (&limits.write_roots, &limits.private);
    // A root within another one stays part of its mount, so that files can be moved between them.
    let is_outermost =
        |root: &&PathBuf| !roots.iter().any(|other| other != *root && root.starts_with(other));
    let (own, others): (Vec<_>, Vec<_>) =
        roots.iter().filter(is_outermost).partition(|root| private.contains(root));
    for folder in private.iter().filter(|folder| !own.contains(folder)) {
        own_folder(folder, limits.memory).map_err(|errno| failed(folder, errno))?;
    }
    let mut open = Vec::new();
    for root in others {
        if is_device(root).map_err(|errno| failed(root, errno))? {
            continue;
        }
        // What is mounted below it comes along, as writable as it is.
        open.push((root, copy_of(root).map_err(|errno| failed(root, errno))?));
    }
    match super::spawn::make_read_only(Path::new("/"), true) {
        Ok(()) => {}
        // What is the root of this process is not the root of a mount, as below chroot(2).
        Err(Errno::INVAL) => close_each()?,
        Err(errno) => return Err(failed(Path::new("/"), errno)),
    }
    for (root, copy) in open {
        move_mount(copy, c"", CWD, root.as_path(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(|errno| failed(root, errno))?;
    }
    for folder in own {
        own_folder(folder, limits.memory).map_err(|errno| failed(folder, errno))?;
    }
    Ok(())
}

/// Says whether a root is a device, to which one writes wherever its file lies.
fn is_device(root: &Path) -> Result<bool, Errno> {
    let mode = rustix::fs::stat(root)?.st_mode;
    Ok(FileType::from_raw_mode(mode) == FileType::CharacterDevice)
}

/// Copies what is mounted at and below a path, to be mounted somewhere.
fn copy_of(root: &Path) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    open_tree(CWD, root, flags)
}

/// Makes each mount read-only by its place.
fn close_each() -> Result<(), NotRun> {
    let table = Path::new("/proc/self/mountinfo");
    let mounts = fs::read(table)
        .map_err(|error| failed(table, Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    for place in mounts.split(|&byte| byte == b'\n').filter_map(place_of) {
        match super::spawn::make_read_only(&place, false) {
            // It lies below another mount, where no path leads to it, or its folder is gone.
            Ok(()) | Err(Errno::INVAL | Errno::NOENT | Errno::NOTDIR) => {}
            // Nor does any path lead there for the command, which has no more rights than this process.
            Err(Errno::ACCESS) => {}
            Err(errno) => return Err(failed(&place, errno)),
        }
    }
    Ok(())
}

/// Reads where a mount is from a line of proc(5)'s `mountinfo`, in which some characters are written as octal numbers.
fn place_of(line: &[u8]) -> Option<PathBuf> {
    let field = line.split(|&byte| byte == b' ').nth(4)?;
    let mut place = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let number = after.get(..3).filter(|_| byte == b'\\');
        let number = number.and_then(|digits| std::str::from_utf8(digits).ok());
        match number.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(number) => {
                place.push(number);
                rest = after.get(3..).unwrap_or_default();
            }
            None => place.push(byte),
        }
    }
    Some(OsString::from_vec(place).into())
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

/// Makes a path read-only, but for what has a mount of its own below it if there is such.
fn seal(path: &Path, has_open: bool) -> Result<(), Errno> {
    // A link's target would be mounted in place of the link, which stays as writable as it was.
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        return Err(Errno::LOOP);
    }
    match has_open {
        true => mount_bind_recursive(path, path)?,
        false => mount_bind(path, path)?,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_tells_where_a_mount_is() {
        let line = br"36 35 98:0 /mnt1 /a\040b\134c/d rw,noatime master:1 - ext3 /dev/root rw";

        assert_eq!(place_of(line), Some(PathBuf::from(r"/a b\c/d")));
        assert_eq!(place_of(b""), None);
    }
}
