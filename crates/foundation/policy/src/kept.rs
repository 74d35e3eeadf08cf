//! A small file of the user's own: read whole, replaced whole, outside of what it judges.

use std::{
    fs::{self, File},
    io::{self, Write},
    marker::PhantomData,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::Error;

/// The format that is written and read.
const FORMAT: u32 = 1;

/// A file that holds a `T` beside the version of its format.
#[derive(Debug)]
pub(crate) struct Kept<T> {
    path: PathBuf,
    /// What it is called in messages.
    what: &'static str,
    content: PhantomData<fn() -> T>,
}

impl<T> Clone for Kept<T> {
    fn clone(&self) -> Self {
        Self { path: self.path.clone(), what: self.what, content: PhantomData }
    }
}

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    format_version: u32,
    #[serde(flatten)]
    content: T,
}

#[derive(Deserialize)]
struct Version {
    format_version: u32,
}

impl<T: Serialize + DeserializeOwned + Default> Kept<T> {
    /// Names a file, which need not exist.
    ///
    /// # Errors
    /// [`Error::StoreInside`] when it lies within `tree`, where what it judges could change it.
    pub(crate) fn new(
        path: impl Into<PathBuf>,
        what: &'static str,
        tree: &Path,
    ) -> Result<Self, Error> {
        let kept = Self { path: path.into(), what, content: PhantomData };
        let place = real(&kept.path).map_err(kept.failed("found"))?;
        let real_tree = tree.canonicalize().map_err(kept.failed("found"))?;
        if place.starts_with(&real_tree) {
            return Err(Error::StoreInside { what, store: kept.path, tree: tree.to_owned() });
        }
        Ok(kept)
    }

    /// Reads what it holds; nothing where there is no file yet.
    ///
    /// # Errors
    /// When it cannot be read, or holds something else.
    pub(crate) fn read(&self) -> Result<T, Error> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(T::default()),
            Err(source) => return Err(self.failed("read")(source)),
        };
        let wrong =
            |source| Error::StoreFormat { what: self.what, store: self.path.clone(), source };
        // The version first: another one's fields are not this one's.
        let version: Version = serde_json::from_slice(&bytes).map_err(wrong)?;
        if version.format_version != FORMAT {
            return Err(Error::StoreVersion {
                what: self.what,
                store: self.path.clone(),
                found: version.format_version,
                wanted: FORMAT,
            });
        }
        let versioned: Versioned<T> = serde_json::from_slice(&bytes).map_err(wrong)?;
        Ok(versioned.content)
    }

    /// Changes what it holds, whoever else is about to.
    ///
    /// # Errors
    /// When it cannot be read or written: then it is as it was.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> Result<R, Error> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(self.failed("written"))?;
        // Another process may be changing it too; the lock ends with the file's handle.
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.path.with_added_extension("lock"))
            .map_err(self.failed("locked"))?;
        lock.lock().map_err(self.failed("locked"))?;
        let mut content = self.read()?;
        let done = change(&mut content);
        self.replace(folder, content).map_err(self.failed("written"))?;
        Ok(done)
    }

    /// Replaces the file at once, so that whatever happens it is either as before or as after.
    fn replace(&self, folder: &Path, content: T) -> io::Result<()> {
        // Readable by its owner alone, as temporary files are.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        let versioned = Versioned { format_version: FORMAT, content };
        serde_json::to_writer_pretty(&mut file, &versioned)?;
        file.write_all(b"\n")?;
        file.as_file().sync_all()?;
        file.persist(&self.path)?;
        File::open(folder)?.sync_all()
    }

    fn failed(&self, action: &'static str) -> impl Fn(io::Error) -> Error + use<T> {
        let (what, store) = (self.what, self.path.clone());
        move |source| Error::StoreIo { what, store: store.clone(), action, source }
    }
}

/// Returns where `path` really is, even if its last folders are not there yet.
fn real(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let mut missing = Vec::new();
    for ancestor in path.ancestors() {
        if let Ok(real) = ancestor.canonicalize() {
            return Ok(missing.into_iter().rev().fold(real, |real, name| real.join(name)));
        }
        missing.extend(ancestor.file_name());
    }
    Ok(path)
}
