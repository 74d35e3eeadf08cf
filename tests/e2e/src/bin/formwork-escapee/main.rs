//! A hostile program: tries one thing that a confined program must not be able to do, and says how it went.
//!
//! It is what agents, checks and gates of the escape suite run. It ends with 0 where it got through and with 1
//! where it did not, and prints `escaped: …` or `refused: …` with the kernel's own words.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]
#![cfg_attr(not(target_os = "linux"), allow(unused))]

#[cfg(target_os = "linux")]
mod calls; // System calls that no library makes.
#[cfg(target_os = "linux")]
mod files; // Files beyond the workspace.
#[cfg(target_os = "linux")]
mod processes; // Other processes, and too many of its own.
#[cfg(target_os = "linux")]
mod sockets; // Whoever listens.

use std::{io, process::ExitCode};

/// What came of an attempt that went through: a word about it.
type Tried = io::Result<String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match tried(&words) {
        Ok(what) => {
            println!("escaped: {what}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("refused: {}: {error}", words.join(" "));
            ExitCode::FAILURE
        }
    }
}

#[cfg(target_os = "linux")]
fn tried(words: &[&str]) -> Tried {
    match words {
        ["read", path] => files::read(path),
        ["list", path] => files::list(path),
        ["write", path] => files::write(path),
        ["leave", path] => files::leave(path),
        ["remove", path] => files::remove(path),
        ["mode", path] => files::mode(path),
        ["times", path] => files::times(path),
        ["repository", path] => files::repository(path),
        ["device", path] => files::device(path),
        ["run", path] => files::run(path),
        ["link", from, to] => files::link(from, to),
        ["rename", from, to] => files::rename(from, to),
        ["tcp", address] => sockets::tcp(address),
        ["proxy", place] => sockets::proxy(place),
        ["proxy", place, "wrong token"] => sockets::proxy_with(place, "Zm9ybXdvcms6d3Jvbmc="),
        ["beside the proxy", place] => sockets::beside_the_proxy(place),
        ["name", address] => sockets::name(address),
        ["unix", path] => sockets::unix(path),
        ["abstract", name] => sockets::abstract_name(name),
        ["call", name] => calls::call(name),
        ["descriptors"] => processes::descriptors(),
        ["environment"] => processes::environment(),
        ["environment-of", process] => files::read(&format!("/proc/{process}/environ")),
        ["memory-of", process] => files::read(&format!("/proc/{process}/mem")),
        ["trace", process] => calls::trace(process),
        ["kill", process] => processes::kill(process),
        ["fork-bomb"] => processes::fork_bomb("0"),
        ["fork-bomb", depth] => processes::fork_bomb(depth),
        ["memory-bomb"] => processes::memory_bomb(),
        ["hold", file] => processes::hold(file),
        ["stay"] => processes::stay(),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "no such attempt")),
    }
}

#[cfg(not(target_os = "linux"))]
fn tried(_: &[&str]) -> Tried {
    Err(io::Error::new(io::ErrorKind::Unsupported, "the attempts are those of Linux"))
}
