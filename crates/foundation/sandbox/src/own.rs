//! Programs and scripts of one's own, read to know whether they are what they were.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use rustix::fs::{Mode, OFlags};

/// The largest that is known again. Programs that are linked with all that they use are as large as this.
const LARGEST: u64 = 256 << 20;

/// Reads a program or script, to compare it with what it was. It blocks, but waits for nobody.
///
/// # Errors
/// What the system says; also where it is no regular file, such as a pipe, and where it has more than 256 MiB.
pub fn own(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > LARGEST {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_no_program_and_nobody_waits_for_its_writer() {
        let folder = tempfile::tempdir().unwrap();
        let (file, pipe) = (folder.path().join("file"), folder.path().join("pipe"));
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();

        let read = (own(&file).unwrap(), own(&pipe).is_err(), own(folder.path()).is_err());

        assert!(made.success());
        assert_eq!(read, (b"#!/bin/sh\n".to_vec(), true, true));
    }
}
