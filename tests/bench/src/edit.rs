//! Files: one put in place at once, sixteen edited together, a splice of a large one.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use anyhow::Result;
use formwork_write_safety::{Apply, Edit, Reads, Root, Workspace, WriteRules, splice};

use crate::{
    figure::{Figure, Limit, Report, Target},
    noise::Noise,
    place,
};

/// As large as most sources.
const BYTES: usize = 4 << 10;

/// How many files are edited together.
const TOGETHER: usize = 16;

/// Runs the bench.
pub(crate) fn run(is_quick: bool, report: &mut Report) -> Result<()> {
    let repetitions = if is_quick { 15 } else { 101 };
    let scratch = place::scratch()?;
    let root = Arc::new(Root::open(scratch.path())?);
    let workspace = Workspace::new(root, WriteRules::everything(), Reads::new().session());
    let noise = Noise::begin();
    one(&workspace, scratch.path(), repetitions, report)?;
    together(&workspace, scratch.path(), repetitions, report)?;
    large(repetitions, report)?;
    report.noise("edit", &noise);
    Ok(())
}

/// One file, put in place of another, durably.
fn one(
    workspace: &Workspace,
    folder: &Path,
    repetitions: usize,
    report: &mut Report,
) -> Result<()> {
    let file = folder.join("one");
    fs::write(&file, content(0))?;
    workspace.read("one")?;
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for repetition in 0..=repetitions {
        let began = Instant::now();
        workspace.write("one", &content(2 * repetition + 1), Apply::Write)?;
        let took = micros(began);
        let began = Instant::now();
        raw(&folder.join("two"), &content(2 * repetition))?;
        let bare = micros(began);
        if repetition > 0 {
            ours.push(took);
            floor.push(bare);
        }
    }
    let bar = Target::ratio(Limit::AtMost(1.3), Limit::AtMost(1.1));
    report.add(
        Figure::new("edit one file in place", "µs", ours)
            .against("temp, fdatasync, rename, fsync of the folder", floor)
            .aims(bar),
    );
    Ok(())
}

/// Sixteen files in four folders, all or none.
fn together(
    workspace: &Workspace,
    folder: &Path,
    repetitions: usize,
    report: &mut Report,
) -> Result<()> {
    let named = |number: usize| PathBuf::from(format!("d{}/f{number}", number % 4));
    let names: Vec<PathBuf> = (0..TOGETHER).map(named).collect();
    for name in &names {
        fs::create_dir_all(folder.join(name).parent().unwrap_or(folder))?;
        fs::write(folder.join(name), content(0))?;
    }
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for repetition in 0..=repetitions {
        let edit = [Edit::one(marked(repetition), marked(repetition + 1))];
        let edits: Vec<(&Path, &[Edit])> =
            names.iter().map(|name| (name.as_path(), edit.as_slice())).collect();
        let began = Instant::now();
        workspace.edit_many(&edits, Apply::Write)?;
        let took = micros(began);
        let began = Instant::now();
        for name in &names {
            raw(&folder.join(name).with_extension("raw"), &content(repetition))?;
        }
        let bare = micros(began);
        if repetition > 0 {
            ours.push(took / TOGETHER as f64);
            floor.push(bare / TOGETHER as f64);
        }
    }
    let bar = Target::ratio(Limit::AtMost(0.6), Limit::AtMost(0.3));
    report.add(
        Figure::new("edit sixteen files together, each", "µs", ours)
            .against("the same one by one", floor)
            .aims(bar),
    );
    Ok(())
}

/// A splice in the middle of a megabyte, without any disk.
fn large(repetitions: usize, report: &mut Report) -> Result<()> {
    let mut text = "a line like many others\r\n".repeat(1 << 15);
    text.push_str("the one that is meant\n");
    text.push_str(&"and more of them\n".repeat(1 << 13));
    let bytes = text.into_bytes();
    let edit = [Edit::one("the one that is meant", "the one that was meant")];
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for repetition in 0..=repetitions {
        let began = Instant::now();
        let edited = splice("large", &bytes, &edit)?;
        let took = micros(began);
        let began = Instant::now();
        let copied = std::hint::black_box(bytes.clone());
        let bare = micros(began);
        anyhow::ensure!(edited.len() > copied.len() - 8, "the splice lost something");
        if repetition > 0 {
            ours.push(took);
            floor.push(bare);
        }
    }
    report
        .add(Figure::new("edit a megabyte, in memory", "µs", ours).against("a copy of it", floor));
    Ok(())
}

/// Puts a file in place as a program does that has read the manual, and no more.
fn raw(file: &Path, bytes: &[u8]) -> Result<()> {
    let temp = file.with_extension("temp");
    let mut written = File::create(&temp)?;
    written.write_all(bytes)?;
    written.sync_data()?;
    fs::rename(&temp, file)?;
    File::open(file.parent().unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(())
}

fn marked(number: usize) -> String {
    format!("<{number:08}>")
}

fn content(number: usize) -> Vec<u8> {
    let mut text = marked(number);
    while text.len() < BYTES {
        text.push_str("\nas long as most lines of a source are, or a little longer");
    }
    text.into_bytes()
}

fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}
