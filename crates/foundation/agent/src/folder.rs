//! The files of a folder of agents, none of them from outside of it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Larger files are refused: no person writes them.
const MAX_BYTES: u64 = 1024 * 1024;

/// What a file holds, or why that is not known.
pub(crate) type Content = Result<String, String>;

/// The files of a folder of agents.
pub(crate) struct Folder {
    path: PathBuf,
    /// By file name.
    pub(crate) documents: BTreeMap<String, Content>,
    /// By file name without `.md`.
    pub(crate) prompts: BTreeMap<String, Content>,
}

impl Folder {
    /// Reads the folder, or nothing where there is none.
    pub(crate) fn read(path: &Path) -> io::Result<Option<Self>> {
        let root = match fs::canonicalize(path) {
            Ok(root) => root,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let (mut documents, mut prompts) = (BTreeMap::new(), BTreeMap::new());
        for entry in fs::read_dir(&root)? {
            let name = entry?.file_name();
            let at = root.join(&name);
            // A name that is no text can be written in no document, but its file is still reported.
            let name = name.to_string_lossy().into_owned();
            if name.starts_with('.') {
                continue;
            }
            if name.ends_with(".toml") {
                let content = content(&root, &at);
                documents.insert(name, content);
            } else if let Some(stem) = name.strip_suffix(".md") {
                prompts.insert(stem.to_owned(), content(&root, &at));
            }
        }
        Ok(Some(Self { path: path.to_owned(), documents, prompts }))
    }

    /// Returns the path of a file as it is shown to people.
    pub(crate) fn shown(&self, file: &str) -> String {
        self.path.join(file).display().to_string()
    }
}

fn content(root: &Path, path: &Path) -> Content {
    let unread = |error: io::Error| format!("cannot be read: {error}");
    let target = fs::canonicalize(path).map_err(unread)?;
    if !target.starts_with(root) {
        return Err("leads out of the folder of the agents".to_owned());
    }
    // Opening a pipe would wait for whoever writes to it.
    if !fs::metadata(&target).map_err(unread)?.is_file() {
        return Err("is not a file".to_owned());
    }
    let mut bytes = Vec::new();
    let file = File::open(&target).map_err(unread)?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unread)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_BYTES {
        return Err(format!("holds more than {MAX_BYTES} bytes"));
    }
    let text = String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
    // An editor's byte order mark is no part of what is written.
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}
