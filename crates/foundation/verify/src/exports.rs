//! What the files that a task changed exported when it began, and whether that is still there and alike.
//!
//! Each file is compared with itself. What it has lost counts as moved where another changed file of the same language
//! has gained it, under the same name and with the same signature; a gain makes up for one loss. Names are those within
//! their file, so a function that goes to another module is still the same one, unless that module is known to be hidden
//! from others: declared by another changed file, which keeps it to itself and hands nothing of it on.

mod reach; // Whether what a file declares can be reached.

use std::{collections::BTreeMap, sync::Arc};

use formwork_protocols::{
    BlobHash, Language, Symbol, SymbolKind, Symbols, Unreadable,
    check::{Evidence, Issue, Severity},
    event::FileChange,
    source::Place,
};

use self::reach::Reach;

use crate::{Changes, verifier::Decision};

/// How many findings are told one by one, and how many files that were not judged.
const TOLD: usize = 40;

/// How much of a signature is told: what a macro wrote may fill a page.
const MAX_SIGNATURE: usize = 300;

/// What git says of a symbolic link.
const LINK: u32 = 0o120_000;

/// What exports are held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// They are there.
    There,
    /// Those that are there have the signature that they had.
    Alike,
}

/// What a file declares at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Side {
    /// There is none, or it is a link.
    Absent,
    Declares(Vec<Symbol>),
    Unread(String),
}

/// A changed file of a language that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
struct File {
    path: String,
    language: Language,
    /// What has to declare it for others to reach it.
    place: Option<Place>,
    before: Side,
    after: Side,
}

/// What was changed.
#[derive(Debug, Default)]
pub(crate) struct Read {
    files: Vec<File>,
    /// The files whose language is not known.
    outside: Vec<String>,
}

/// Reads the changed files, one after the other.
///
/// # Errors
/// Why it cannot be told which they are, in one line.
pub(crate) async fn read(
    changes: &dyn Changes,
    symbols: &Arc<dyn Symbols>,
) -> Result<Read, String> {
    let mut read = Read::default();
    for change in changes.since_entry().await? {
        let FileChange { path, before, after, before_mode, after_mode, .. } = change;
        let Some(language) = symbols.language(&path) else {
            read.outside.push(path);
            continue;
        };
        let before = side(changes, symbols, &path, (before, before_mode)).await;
        let after = side(changes, symbols, &path, (after, after_mode)).await;
        let place = symbols.place(&path);
        read.files.push(File { path, language, place, before, after });
    }
    Ok(read)
}

async fn side(
    changes: &dyn Changes,
    symbols: &Arc<dyn Symbols>,
    path: &str,
    (hash, mode): (Option<BlobHash>, Option<u32>),
) -> Side {
    // Where a link leads is not the file's own.
    let Some(hash) = hash.filter(|_| mode != Some(LINK)) else { return Side::Absent };
    let bytes = match changes.content(&hash).await {
        Ok(bytes) => bytes,
        Err(reason) => return Side::Unread(reason),
    };
    let (symbols, path) = (Arc::clone(symbols), path.to_owned());
    // Grammars take their time with a large file.
    match tokio::task::spawn_blocking(move || symbols.symbols(&path, &bytes)).await {
        Ok(Ok(declared)) => Side::Declares(declared),
        Ok(Err(unreadable)) => Side::Unread(unreadable.to_string()),
        Err(_) => Side::Unread(Unreadable::TooIntricate.to_string()),
    }
}

/// An export of a file, at one time.
#[derive(Debug, Clone, Copy)]
struct Export<'a> {
    file: &'a File,
    symbol: &'a Symbol,
}

/// What became of an export that is not what it was.
#[derive(Debug, Clone, Copy)]
enum Fate<'a> {
    Gone,
    /// It is there, for its own file alone.
    Hidden(&'a Symbol),
    /// It has another signature.
    Changed(Export<'a>),
    /// It is in another file with another signature.
    MovedChanged(Export<'a>),
    /// It is in another file, from where nobody else can reach it.
    Unreached(Export<'a>),
    /// Its file hands on what goes by its name elsewhere.
    HandedOn(&'a Symbol),
}

/// Judges what became of the exports.
pub(crate) fn judge(held: Held, read: Read) -> Decision {
    let Read { files, outside } = read;
    let (mut issues, mut unjudged) = (Vec::new(), Vec::new());
    let mut count = 0;
    for File { path, before, after, .. } in &files {
        match (before, after) {
            (Side::Unread(reason), _) => {
                unjudged.push(format!("{path} ({reason}, when the task began)"));
            }
            (Side::Declares(_), Side::Unread(reason)) => {
                let file = Some(path.clone());
                let message = format!("what it exports cannot be told any more: {reason}");
                issues.push(Issue { file, ..Issue::new(Severity::Major, message) });
            }
            (Side::Absent, Side::Unread(reason)) => unjudged.push(format!("{path} ({reason})")),
            (Side::Declares(before), _) => count += before.iter().filter(|it| it.exported).count(),
            (Side::Absent, _) => {}
        }
    }
    issues.extend(fates(&files).into_iter().filter_map(|(was, fate)| told(held, was, fate)));
    let known = files.len();
    let what = match held {
        Held::There => "gone",
        Held::Alike => "other than it was",
    };
    let decision = match issues.first() {
        Some(first) => {
            let place = match (&first.file, first.line) {
                (Some(file), Some(line)) => format!("{file}:{line}: "),
                (Some(file), None) => format!("{file}: "),
                (None, _) => String::new(),
            };
            let more = match issues.len() - 1 {
                0 => String::new(),
                more => format!(", and {more} more"),
            };
            Decision::fail(format!("{place}{}{more}", first.message))
        }
        None if known == 0 => Decision::pass("no file of a language that is known was changed"),
        None => {
            let unsure = match unjudged.len() {
                0 => String::new(),
                many => format!(", but {many} of them could not be judged"),
            };
            let files = if known == 1 { "file" } else { "files" };
            Decision::pass(format!(
                "nothing is {what} of {count} exports in {known} changed {files}{unsure}"
            ))
        }
    };
    let mut excerpt = list("", issues.iter().map(ToString::to_string));
    excerpt.push_str(&list("not judged: ", unjudged.into_iter()));
    let outside = outside.into_iter().map(|path| format!("{path} (its language is not known)"));
    excerpt.push_str(&list("not judged: ", outside));
    issues.truncate(TOLD);
    Decision { issues, evidence: Evidence { excerpt, ..Evidence::default() }, ..decision }
}

/// Lists what was found, a line each.
fn list(before: &str, found: impl ExactSizeIterator<Item = String>) -> String {
    let more = found.len().saturating_sub(TOLD);
    let mut text: String = found.take(TOLD).map(|it| format!("{before}{it}\n")).collect();
    if more > 0 {
        text.push_str(&format!("{before}and {more} more\n"));
    }
    text
}

/// Returns what became of each export that does not stand in its file as it did.
fn fates(files: &[File]) -> Vec<(Export<'_>, Fate<'_>)> {
    let (mut lost, mut gained) = (Vec::new(), Gained::new());
    for file in files {
        if let Side::Unread(_) = file.after {
            continue; // Told of already.
        }
        compare(file, &mut lost, &mut gained);
    }
    let reach = Reach::new(files);
    // What moved as it was has the first claim, so that nothing else is taken for it.
    let is_move = |was: &Export<'_>, now: &Export<'_>| {
        let alike = was.symbol.signature == now.symbol.signature;
        alike && was.file.path != now.file.path && was.file.language.is_kin(now.file.language)
    };
    lost.retain(|was| {
        take(&mut gained, was, |now| is_move(was, now) && reach.is_as_before(was, now)).is_none()
    });
    lost.into_iter().filter_map(|was| Some((was, fate(was, &mut gained, &reach)?))).collect()
}

/// What changed files export that they did not, by its name.
type Gained<'a> = BTreeMap<&'a str, Vec<Export<'a>>>;

/// Takes what makes up for something that was lost.
fn take<'a>(
    gained: &mut Gained<'a>,
    was: &Export<'_>,
    is_it: impl Fn(&Export<'a>) -> bool,
) -> Option<Export<'a>> {
    let named = gained.get_mut(was.symbol.name.as_str())?;
    let at = named.iter().position(is_it)?;
    Some(named.remove(at))
}

/// Finds what a file exported and does not any more, and what it exports anew. A name may stand there several times.
fn compare<'a>(file: &'a File, lost: &mut Vec<Export<'a>>, gained: &mut Gained<'a>) {
    let exports = |side: &'a Side| -> Vec<&'a Symbol> {
        match side {
            Side::Declares(symbols) => symbols.iter().filter(|it| it.exported).collect(),
            Side::Absent | Side::Unread(_) => Vec::new(),
        }
    };
    let mut after: BTreeMap<(&str, &str), Vec<&Symbol>> = BTreeMap::new();
    for symbol in exports(&file.after) {
        after.entry((&symbol.name, &symbol.signature)).or_default().push(symbol);
    }
    for symbol in exports(&file.before) {
        let same = after.get_mut(&(symbol.name.as_str(), symbol.signature.as_str()));
        if same.and_then(Vec::pop).is_none() {
            lost.push(Export { file, symbol });
        }
    }
    // What was not understood then is not known to be new.
    if !matches!(file.before, Side::Unread(_)) {
        for symbol in after.into_values().flatten() {
            gained.entry(&symbol.name).or_default().push(Export { file, symbol });
        }
    }
}

/// Finds out what became of an export; nothing where it is as good as it was.
fn fate<'a>(was: Export<'a>, gained: &mut Gained<'a>, reach: &Reach<'_>) -> Option<Fate<'a>> {
    let is_own = |now: &Export<'_>| now.file.path == was.file.path;
    let is_handed_on = |now: &Export<'_>| now.symbol.kind == SymbolKind::Reexport;
    if let Some(now) = take(gained, &was, |now| is_own(now) && !is_handed_on(now)) {
        // What was handed on has no signature of its own that could have changed.
        return (!is_handed_on(&was)).then_some(Fate::Changed(now));
    }
    let handed_on = take(gained, &was, |now| is_own(now) && is_handed_on(now));
    let is_kin = |now: &Export<'_>| {
        !is_own(now) && !is_handed_on(now) && was.file.language.is_kin(now.file.language)
    };
    let moved = match is_handed_on(&was) {
        true => None,
        false => take(gained, &was, |now| is_kin(now) && reach.is_as_before(&was, now)),
    };
    if let Some(own) = handed_on {
        return Some(moved.map_or(Fate::HandedOn(own.symbol), Fate::Changed));
    }
    if let Some(moved) = moved {
        return Some(Fate::MovedChanged(moved));
    }
    if let Some(unreached) = take(gained, &was, is_kin).filter(|_| !is_handed_on(&was)) {
        return Some(Fate::Unreached(unreached));
    }
    let Side::Declares(after) = &was.file.after else { return Some(Fate::Gone) };
    let hidden = after.iter().find(|it| !it.exported && it.name == was.symbol.name);
    Some(hidden.map_or(Fate::Gone, Fate::Hidden))
}

/// Tells what is wrong with what became of an export; nothing where that is no matter of this check.
fn told(held: Held, was: Export<'_>, fate: Fate<'_>) -> Option<Issue> {
    let Export { file, symbol } = was;
    let name = format!("{} `{}`", symbol.kind.as_str(), symbol.name);
    let signature = cut(&symbol.signature);
    let moved = |now: &Export<'_>| match now.file.path == file.path {
        true => String::new(),
        false => format!(" in {}", now.file.path),
    };
    let issue = |file: &File, line: u64, message: String| Issue {
        file: Some(file.path.clone()),
        line: Some(line),
        ..Issue::new(Severity::Major, message)
    };
    let then = format!("line {} when the task began", symbol.line);
    match (held, fate) {
        (Held::There, Fate::Gone) => {
            let message = format!("{name} is gone: was `{signature}`, {then}");
            Some(issue(file, symbol.line, message))
        }
        (Held::There, Fate::Hidden(now)) => {
            let now_is = cut(&now.signature);
            let message =
                format!("{name} is not exported any more: was `{signature}`, now `{now_is}`");
            Some(issue(file, now.line, message))
        }
        (Held::There, Fate::MovedChanged(now)) => {
            let (at, now_is) = (&now.file.path, cut(&now.symbol.signature));
            let message = format!(
                "{name} is gone: was `{signature}`, {then}; {at} has one of that name, but `{now_is}`"
            );
            Some(issue(file, symbol.line, message))
        }
        (Held::There, Fate::Unreached(now)) => {
            let at = &now.file.path;
            let message = format!(
                "{name} is gone: was `{signature}`, {then}; {at} has it, where others cannot reach it"
            );
            Some(issue(file, symbol.line, message))
        }
        (Held::There, Fate::Changed(_) | Fate::HandedOn(_))
        | (Held::Alike, Fate::Gone | Fate::Unreached(_)) => None,
        (Held::Alike, Fate::Changed(now) | Fate::MovedChanged(now)) => {
            let now_is = cut(&now.symbol.signature);
            let message =
                format!("{name} has changed: was `{signature}`, now{} `{now_is}`", moved(&now));
            Some(issue(now.file, now.symbol.line, message))
        }
        (Held::Alike, Fate::Hidden(now) | Fate::HandedOn(now)) => {
            let now_is = cut(&now.signature);
            let message = format!("{name} has changed: was `{signature}`, now `{now_is}`");
            Some(issue(file, now.line, message))
        }
    }
}

/// Returns the beginning of a signature.
fn cut(signature: &str) -> String {
    match signature.char_indices().nth(MAX_SIGNATURE) {
        Some((at, _)) => format!("{}…", signature.get(..at).unwrap_or_default()),
        None => signature.to_owned(),
    }
}

#[cfg(test)]
mod tests;
