//! Starts a command that is set up between fork and exec: the one module with `unsafe` code.

use std::{
    ffi::CString,
    io::{self, Read, Write},
    os::{
        fd::AsRawFd as _,
        unix::{ffi::OsStrExt, process::CommandExt},
    },
    path::Path,
    process::Command,
};

use rustix::{io::Errno, process::Pid, thread::UnshareFlags};

use super::restrict::Setup;
use crate::{program, wire::NotRun};

/// `MOUNT_ATTR_RDONLY` of mount_setattr(2).
const READ_ONLY: u64 = 1;

/// Leaves what this process shares with others: its view of the file system, its user.
pub(super) fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    #[expect(unsafe_code, reason = "leaving shared descriptors could pull them from under others")]
    // SAFETY: it is called in the one thread of a process that is about to start a program, and never with the flag
    // that parts open files.
    unsafe {
        rustix::thread::unshare_unsafe(flags)
    }
}

/// What mount_setattr(2) is to change.
#[repr(C)]
struct MountChange {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Makes the mount at `place` read-only, and with `below` all that are mounted in it.
pub(super) fn make_read_only(place: &Path, below: bool) -> rustix::io::Result<()> {
    let place = CString::new(place.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    let flags = if below { libc::AT_RECURSIVE } else { 0 };
    let change = MountChange { set: READ_ONLY, clear: 0, propagation: 0, user_namespace: 0 };
    #[expect(unsafe_code, reason = "no library that is used here has this call")]
    // SAFETY: the kernel reads a text that ends with NUL and a structure of the size that is told, and keeps neither.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            place.as_ptr(),
            flags,
            &raw const change,
            size_of::<MountChange>(),
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// Brings up the one device of a network that was just made, over which a process speaks to itself.
pub(super) fn bring_up_loopback() -> io::Result<()> {
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        None,
    )?;
    #[expect(unsafe_code, reason = "no library that is used here has this call")]
    // SAFETY: all fields of the structure are numbers, of which zero is one; the kernel reads it and keeps nothing.
    let done = unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (own, byte) in request.ifr_name.iter_mut().zip(b"lo") {
            *own = byte.cast_signed() as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request)
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has this process served before all that are not served in real time, and what it starts as if nothing had been asked.
pub(super) fn serve_in_real_time() -> io::Result<()> {
    #[expect(unsafe_code, reason = "no library that is used here has this call")]
    // SAFETY: all fields of the structure are numbers, of which zero is one; the kernel reads it and keeps nothing.
    let done = unsafe {
        let mut how: libc::sched_param = std::mem::zeroed();
        how.sched_priority = 1; // The least: whatever else is in real time goes before.
        libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &raw const how)
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has freed memory joined with what is free beside it, and nothing set aside for the next piece of its size.
///
/// What was set aside is gone through at the first larger piece, page by page, and each page that it lies in is copied for a process
/// that was just forked: a third of all that a launcher copies before its command starts.
#[cfg(target_env = "gnu")]
pub(super) fn keep_memory_joined() {
    #[expect(unsafe_code, reason = "the C library's allocator has no other way to be told")]
    // SAFETY: it sets a number of the allocator. Where it refuses, nothing changes.
    unsafe {
        libc::mallopt(libc::M_MXFAST, 0)
    };
}

#[cfg(not(target_env = "gnu"))]
pub(super) fn keep_memory_joined() {}

/// Ends this process, and leaves to the system what it holds.
pub(super) fn leave(code: i32) -> ! {
    #[expect(
        unsafe_code,
        reason = "what the C library does at an end is for who has something to be done"
    )]
    // SAFETY: what is skipped are handlers and buffers, of which a copy of a broker has none of its own.
    unsafe {
        libc::_exit(code)
    }
}

/// Makes a second process of this one. Returns its number here, and nothing there.
pub(super) fn fork() -> io::Result<Option<Pid>> {
    #[expect(unsafe_code, reason = "no library that is used here has this call")]
    // SAFETY: a broker has one thread, so that no other one can hold a lock that its copy would wait for.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        number => Ok(Pid::from_raw(number)),
    }
}

/// Has every open file but the standard three closed once a program starts: whoever started this one may have left some
/// open, which are not the command's.
fn close_others() {
    let (first, last) = (3_u32, u32::MAX);
    #[expect(unsafe_code, reason = "the C libraries of some systems have no such function")]
    // SAFETY: it marks descriptors, closes none, and leaves memory alone.
    let marked =
        unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) };
    // A kernel that cannot, before 5.11, has no Landlock that would be enough either.
    let _ = marked;
}

/// Starts `command`, the program in `file`, once `setup` has been applied to its process.
pub(super) fn spawn(mut command: Command, file: &Path, setup: Setup) -> Result<Pid, NotRun> {
    let failed = |error: io::Error| program::not_started(file, &error);
    // What went wrong before exec comes back through here, since exec's own way has only a number.
    let (mut said, mut says) = io::pipe().map_err(failed)?;
    let mut setup = Some(setup);
    let prepare = move || {
        let Some(setup) = setup.take() else { return Ok(()) };
        close_others();
        setup.apply().or_else(|reason| {
            says.write_all(&serde_json::to_vec(&reason)?)?;
            Err(io::ErrorKind::PermissionDenied.into())
        })
    };
    #[expect(
        unsafe_code,
        reason = "what confines a process must run in it before its program does"
    )]
    // SAFETY: between fork and exec only such code may run as needs no lock that another thread
    // might have held while this process forked. A launcher has one thread, so there is none.
    unsafe {
        command.pre_exec(prepare);
    }
    let spawned = command.spawn();
    drop(command); // It holds the other end of the pipe.
    let child = spawned.map_err(|error| {
        let mut reason = Vec::new();
        match said.read_to_end(&mut reason).map(|_| serde_json::from_slice(&reason)) {
            Ok(Ok(reason)) => reason,
            _ => failed(error),
        }
    })?;
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or(NotRun::NotStarted { errno: Errno::SRCH.raw_os_error() })
}
