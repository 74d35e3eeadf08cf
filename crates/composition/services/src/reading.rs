//! Documents out of files that somebody else may have put there.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Component, Path, PathBuf},
};

use formwork_context::{outside, visible};
use formwork_protocols::{Attachment, BlobHash};
use formwork_transport::media;
use formwork_write_safety::Root;

/// The largest document that is read, in bytes: no person writes a larger one.
pub const LARGEST: u64 = 4 * 1024 * 1024;

/// How many bytes of a file are shown to a model with what it is asked.
pub(crate) const SHOWN: u64 = 32 * 1024;

/// The largest image or document that is shown, in bytes: the most that any provider takes of one.
const LARGEST_SHOWN: u64 = 24 * 1024 * 1024;

/// A file as a model is shown it.
pub(crate) enum Shown {
    /// Its text, up to a bound, and how many bytes it has where that is more.
    Text { text: String, cut: Option<u64> },
    /// It, whole: an image or a document.
    Attached(Attachment),
}

/// Returns a file of a workspace as it is shown to a model.
///
/// # Errors
/// Why it cannot be shown, in words.
pub(crate) fn attached(root: &Root, path: &str) -> Result<Shown, String> {
    let (mut file, length) = open(root, path)?;
    let mut bytes = Vec::new();
    let mut more = |bytes: &mut Vec<u8>, most: u64| {
        let read = (&mut file).take(most).read_to_end(bytes);
        read.map(drop).map_err(|error| error.to_string())
    };
    more(&mut bytes, SHOWN)?;
    let Some(begins) = media::begins_as(&bytes) else {
        let text = text(path, &bytes, length)?;
        return Ok(Shown::Text { text, cut: (length > SHOWN).then_some(length) });
    };
    if length > LARGEST_SHOWN {
        return Err(format!(
            "it is a {begins} of {length} bytes, and at most {LARGEST_SHOWN} are shown"
        ));
    }
    more(&mut bytes, LARGEST_SHOWN)?;
    let found = media::look(&bytes).map_err(|unfit| unfit.to_string())?;
    Ok(Shown::Attached(Attachment {
        blob: BlobHash::of(&bytes),
        media_type: found.format.media_type().to_owned(),
        bytes: bytes.len() as u64,
        pixels: found.pixels,
        name: name(path),
        content: Some(bytes.into()),
    }))
}

/// Finds out which picture bytes are, for tools.
pub(crate) fn look_at(bytes: &[u8]) -> Result<(&'static str, (u32, u32)), String> {
    let found = media::look(bytes).map_err(|unfit| unfit.to_string())?;
    let pixels = found.pixels.ok_or_else(|| format!("it is a {}", found.format))?;
    Ok((found.format.media_type(), pixels))
}

/// Returns the text of a file of a workspace as it is shown to a model.
///
/// # Errors
/// Why it cannot be shown, in words.
pub(crate) fn shown(root: &Root, path: &str) -> Result<String, String> {
    let (file, length) = open(root, path)?;
    let mut bytes = Vec::new();
    file.take(SHOWN).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if let Some(what) = media::begins_as(&bytes) {
        return Err(format!("it is a {what}, and only texts are shown"));
    }
    text(path, &bytes, length)
}

/// Opens a file of a workspace, and tells how many bytes it has.
fn open(root: &Root, path: &str) -> Result<(File, u64), String> {
    let file = root.open_file(path).map_err(|error| crate::error::chain(&error))?;
    let about = file.metadata().map_err(|error| error.to_string())?;
    match about.is_file() {
        true => Ok((file, about.len())),
        false => Err("it is no file".to_owned()),
    }
}

/// Returns a path as a model reads it.
fn name(path: &str) -> String {
    visible(path).replace(['"', '<', '>', '[', ']', '\n'], "_")
}

fn text(path: &str, bytes: &[u8], length: u64) -> Result<String, String> {
    if bytes.contains(&0) {
        return Err("it is not a text file".to_owned());
    }
    let text = String::from_utf8_lossy(bytes);
    let more = match length > SHOWN {
        true => format!("\n[{} bytes follow]", length - SHOWN),
        false => String::new(),
    };
    let path = name(path);
    Ok(format!(
        "\n\n<file path=\"{path}\">\n{}{more}\n</file>",
        outside(&text).replace("</", "<\\/")
    ))
}

/// Reads a document that a person named.
///
/// # Errors
/// [`io::Error`] where it is no regular file, has more than [`LARGEST`] bytes or is not UTF-8: a pipe would be waited for,
/// and a device read without end.
pub fn document(path: &Path) -> io::Result<String> {
    let bytes = bytes(path, LARGEST)?;
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

/// Reads a document; one below the workspace may lie nowhere else, for a repository could lead to any file by a link.
///
/// # Errors
/// As [`document`], and where a link leads out of the workspace.
pub fn document_of(workspace: &Path, path: &Path) -> io::Result<String> {
    let root = fs::canonicalize(workspace)?;
    let named = without_steps_up(&std::path::absolute(path)?);
    let is_own = named.starts_with(&root) || named.starts_with(workspace);
    if is_own && !fs::canonicalize(&named)?.starts_with(&root) {
        return Err(io::Error::other("it leads out of the workspace"));
    }
    document(path)
}

/// Leaves out each `..` with the folder that it leads out of, as far as these are no links: what is named is what is meant.
fn without_steps_up(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => match fs::canonicalize(&plain) {
                Ok(real) => plain = real.parent().unwrap_or(&real).to_owned(),
                Err(_) => plain.push(part),
            },
            part => plain.push(part),
        }
    }
    plain
}

/// Reads a regular file of at most `most` bytes.
pub(crate) fn bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let is_file = |found: fs::Metadata| match found.is_file() {
        true => Ok(()),
        false if found.is_dir() => Err(io::Error::from(io::ErrorKind::IsADirectory)),
        false => Err(io::Error::other("it is no file")),
    };
    // Before it is opened, which would wait for whoever writes to a pipe; and what was opened, should it have changed.
    is_file(fs::metadata(path)?)?;
    let file = File::open(path)?;
    is_file(file.metadata()?)?;
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {most} bytes"),
        )),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_a_file_of_a_persons_size_that_lies_where_it_says() {
        let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (at, outside) = (own.path().join("a.toml"), other.path().join("b.toml"));
        fs::write(&at, "a = 1").unwrap();
        fs::write(&outside, "b = 1").unwrap();

        assert_eq!(document_of(own.path(), &at).unwrap(), "a = 1");
        assert_eq!(document_of(own.path(), &outside).unwrap(), "b = 1");
        // However it is named: from within, by a step up, it is the same file elsewhere.
        let folder = |dir: &tempfile::TempDir| dir.path().file_name().unwrap().to_owned();
        let up = own.path().join("..").join(folder(&other)).join("b.toml");
        assert_eq!(document_of(own.path(), &up).unwrap(), "b = 1");
        let back = other.path().join("..").join(folder(&own)).join("a.toml");
        assert_eq!(document_of(own.path(), &back).unwrap(), "a = 1");
        assert!(document(own.path()).is_err() && document(&own.path().join("c")).is_err());
        let large = File::create(own.path().join("large")).unwrap();
        large.set_len(LARGEST + 1).unwrap();
        let told = document(&own.path().join("large")).unwrap_err().to_string();
        assert_eq!(told, "it has more than 4194304 bytes");
        #[cfg(unix)]
        {
            let (link, device) = (own.path().join("link"), own.path().join("zero"));
            std::os::unix::fs::symlink(&outside, &link).unwrap();
            std::os::unix::fs::symlink("/dev/zero", &device).unwrap();
            let told = document_of(own.path(), &link).unwrap_err().to_string();
            assert_eq!(told, "it leads out of the workspace");
            assert_eq!(document(&device).unwrap_err().to_string(), "it is no file");
        }
    }
}
