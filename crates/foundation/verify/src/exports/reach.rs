//! Whether what a file declares can be reached, as far as the changed files tell: in Rust another file has to declare it a
//! module, and to say that it is for others or to hand on what it has.

use std::collections::{BTreeMap, BTreeSet};

use formwork_protocols::SymbolKind;

use super::{Export, File, Side};

/// How many files may stand above one.
const MAX_ABOVE: usize = 64;

/// What a file says of modules.
#[derive(Debug, Default)]
struct Outline<'a> {
    /// The modules that it declares, and whether they are for others.
    modules: BTreeMap<&'a str, bool>,
    /// The names that it hands on one by one.
    handed: BTreeSet<&'a str>,
    /// The modules of which it hands on all.
    all_of: BTreeSet<&'a str>,
}

impl<'a> Outline<'a> {
    fn of(side: &'a Side) -> Option<Self> {
        let Side::Declares(symbols) = side else { return None };
        let mut outline = Self::default();
        for symbol in symbols {
            match symbol.kind {
                SymbolKind::Module => {
                    *outline.modules.entry(&symbol.name).or_default() |= symbol.exported;
                }
                SymbolKind::Reexport if symbol.exported => match symbol.name.strip_suffix("::*") {
                    Some(path) => outline.all_of.extend(path.split("::")),
                    None => outline.handed.extend(symbol.name.rsplit("::").next()),
                },
                _ => {}
            }
        }
        Some(outline)
    }
}

/// The changed files that may declare others, before and after.
pub(super) struct Reach<'a> {
    files: BTreeMap<&'a str, (&'a File, [Option<Outline<'a>>; 2])>,
}

impl<'a> Reach<'a> {
    pub(super) fn new(files: &'a [File]) -> Self {
        let above: BTreeSet<&str> = files
            .iter()
            .filter_map(|file| file.place.as_ref())
            .flat_map(|place| place.by.iter().map(String::as_str))
            .collect();
        let files = files.iter().filter(|file| above.contains(file.path.as_str()));
        let outlines = |file: &'a File| [Outline::of(&file.before), Outline::of(&file.after)];
        Self { files: files.map(|file| (file.path.as_str(), (file, outlines(file)))).collect() }
    }

    /// Tells whether what is `now` can be reached, or what it `was` could not be either.
    pub(super) fn is_as_before(&self, was: &Export<'_>, now: &Export<'_>) -> bool {
        !self.is_hidden(now, 1) || self.is_hidden(was, 0)
    }

    /// Tells whether an export is known to be hidden, before the change (0) or after it (1).
    fn is_hidden(&self, export: &Export<'_>, side: usize) -> bool {
        let name = &export.symbol.name;
        let mut names = vec![name.split("::").next().unwrap_or(name)];
        let mut place = export.file.place.as_ref();
        for _ in 0..MAX_ABOVE {
            let Some(here) = place else { return false };
            let above: Vec<_> =
                here.by.iter().filter_map(|path| self.files.get(path.as_str())).collect();
            let outlines = || {
                above.iter().filter_map(|(file, sides)| Some((file, sides.get(side)?.as_ref()?)))
            };
            let hands_on =
                |outline: &Outline<'_>| names.iter().any(|name| outline.handed.contains(name));
            let declarer = outlines().find_map(|(file, outline)| {
                Some((file, outline, *outline.modules.get(here.name.as_str())?))
            });
            let Some((file, outline, is_open)) = declarer else {
                // Whoever declares it by another name hands it on all the same.
                let mut known = outlines().peekable();
                let is_known = known.peek().is_some();
                return is_known && !known.any(|(_, it)| hands_on(it) || !it.all_of.is_empty());
            };
            let module = here.name.as_str();
            if !is_open && !hands_on(outline) && !outline.all_of.contains(module) {
                return true;
            }
            names.push(module);
            place = file.place.as_ref();
        }
        false
    }
}
