//! System calls that no library makes, as a hostile program makes them.

use std::{ffi::c_long, io};

use crate::Tried;

/// Makes a call by its name.
pub(crate) fn call(name: &str) -> Tried {
    let namespace = c_long::from(libc::CLONE_NEWUSER);
    let (family, kind) = (c_long::from(libc::AF_INET), c_long::from(libc::SOCK_RAW));
    let packet = c_long::from(libc::AF_PACKET);
    let netlink = c_long::from(libc::AF_NETLINK);
    match name {
        "io_uring" => made(libc::SYS_io_uring_setup, [1, 0, 0]),
        #[cfg(target_arch = "x86_64")]
        "io_uring by its x32 number" => made(libc::SYS_io_uring_setup | 0x4000_0000, [1, 0, 0]),
        "mount" => made(libc::SYS_mount, [0, 0, 0]),
        "unshare" => made(libc::SYS_unshare, [namespace, 0, 0]),
        "clone into a namespace" => made(libc::SYS_clone, [namespace, 0, 0]),
        "clone3" => made(libc::SYS_clone3, [0, 0, 0]),
        "setns" => made(libc::SYS_setns, [0, 0, 0]),
        "chroot" => made(libc::SYS_chroot, [0, 0, 0]),
        "keyctl" => made(libc::SYS_keyctl, [0, 0, 0]),
        "bpf" => made(libc::SYS_bpf, [0, 0, 0]),
        "perf_event_open" => made(libc::SYS_perf_event_open, [0, 0, 0]),
        "userfaultfd" => made(libc::SYS_userfaultfd, [0, 0, 0]),
        "open_by_handle_at" => made(libc::SYS_open_by_handle_at, [0, 0, 0]),
        "process_vm_readv" => made(libc::SYS_process_vm_readv, [1, 0, 0]),
        "raw socket" => made(libc::SYS_socket, [family, kind, 1]),
        "packet socket" => made(libc::SYS_socket, [packet, kind, 0]),
        "netlink socket" => made(libc::SYS_socket, [netlink, kind, 0]),
        // `TIOCSTI` of ioctl_tty(2): types into the terminal as if the user had.
        "typing" => made(libc::SYS_ioctl, [0, 0x5412, 0]),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "no such call")),
    }
    .map(|()| format!("made the call {name}"))
}

/// Attaches to another process.
pub(crate) fn trace(process: &str) -> Tried {
    const SEIZE: c_long = 0x4206; // `PTRACE_SEIZE` of ptrace(2): does not stop the other.
    let pid = process.parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    made(libc::SYS_ptrace, [SEIZE, pid, 0])?;
    Ok(format!("traces {process}"))
}

/// What a filter answers: that it is not permitted, or that there is no such call.
const FILTERED: [i32; 2] = [libc::EPERM, libc::ENOSYS];

/// Makes a call; one that the kernel looked at before it failed was not filtered.
fn made(number: c_long, [a, b, c]: [c_long; 3]) -> io::Result<()> {
    #[expect(
        unsafe_code,
        reason = "that the call is refused before it is looked at is the question"
    )]
    // SAFETY: pointers among the arguments are null, which the kernel answers with an error, and none of
    // these calls changes the memory of this process.
    let result = unsafe { libc::syscall(number, a, b, c, 0, 0, 0) };
    if result >= 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(errno) if FILTERED.contains(&errno) => Err(error),
        _ => Ok(()),
    }
}
