//! Other processes, and too many of its own.

use std::{
    fs, io,
    os::{fd::BorrowedFd, unix::process::CommandExt as _},
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal};

use crate::Tried;

/// How long a process stays that nobody ends.
const LONG: Duration = Duration::from_secs(600);

/// Ends another process.
pub(crate) fn kill(process: &str) -> Tried {
    let pid = process.parse().ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    rustix::process::kill_process(pid, Signal::KILL)?;
    Ok(format!("killed {process}"))
}

/// Looks for files of the program that started it which it did not mean to give away.
pub(crate) fn descriptors() -> Tried {
    let is_open = |number: &i32| {
        #[expect(unsafe_code, reason = "that a number may be no open file is the question")]
        // SAFETY: asking for the flags of a descriptor changes nothing, also where there is none.
        let file = unsafe { BorrowedFd::borrow_raw(*number) };
        rustix::io::fcntl_getfd(file).is_ok()
    };
    match (3..1024).find(is_open) {
        Some(number) => Ok(format!("was given open file {number}")),
        None => Err(io::Error::new(io::ErrorKind::NotFound, "no file beyond the three is open")),
    }
}

/// Tells all variables that it was given; whoever asked looks for what should not be among them.
pub(crate) fn environment() -> Tried {
    for (name, value) in std::env::vars_os() {
        println!("{}={}", name.to_string_lossy(), value.to_string_lossy());
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "these are all variables"))
}

/// How often a bomb doubles: some thousand processes, which no limit allows and a machine outlives on which none holds.
const DOUBLES: u32 = 12;

/// Starts itself twice, which does the same.
pub(crate) fn fork_bomb(depth: &str) -> Tried {
    let own = std::env::current_exe()?;
    let depth: u32 = depth.parse().map_err(io::Error::other)?;
    let mut begun = 0;
    while depth < DOUBLES && begun < 2 {
        // What is refused is tried again: a bomb does not give up.
        let next = Command::new(&own).args(["fork-bomb", &(depth + 1).to_string()]).spawn();
        begun += u32::from(next.is_ok());
    }
    loop {
        std::thread::park();
    }
}

/// Takes memory and touches it, without end.
pub(crate) fn memory_bomb() -> Tried {
    let mut taken: Vec<Vec<u8>> = Vec::new();
    loop {
        taken.push(vec![1; 16 << 20]);
        if taken.len() >= 4096 {
            return Ok("was given 64 GiB".to_owned());
        }
    }
}

/// Leaves a process in a session of its own that keeps the output open, and notes which.
pub(crate) fn hold(file: &str) -> Tried {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("stay").stdin(Stdio::null());
    #[expect(unsafe_code, reason = "a session of its own begins between fork and exec")]
    // SAFETY: it is one system call.
    unsafe {
        command.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into));
    }
    let child = command.spawn()?;
    fs::write(file, child.id().to_string())?;
    Err(io::Error::other("a process was left behind, for others to end"))
}

/// Stays until it is ended.
pub(crate) fn stay() -> Tried {
    #[expect(clippy::disallowed_methods, reason = "it waits to be ended")]
    std::thread::sleep(LONG);
    Ok("nobody ended it".to_owned())
}
