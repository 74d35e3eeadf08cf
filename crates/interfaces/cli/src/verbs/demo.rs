//! `formwork demo`: a broken repository, fixed before your eyes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, anyhow};
use formwork_protocols::{ModelRef, OutcomeCode};
use formwork_services::{
    config::{Config, Layer, Layers, Origin},
    demo::{self, Asked, Chosen},
    operations::runs::{Get, GetParams, List, ListParams, StartParams, Work},
};

use crate::{
    args::{Demo, Global},
    fault::Fault,
    settings::{Need, Settings},
    terminal::{Format, Terminal, harmless},
};

/// The repository: a crate without dependencies, so that nothing has to be fetched.
const FILES: [(&str, &str); 4] = [
    ("Cargo.toml", include_str!("../../assets/demo/Cargo.toml.txt")),
    // Whoever may write the source alone may not make it.
    ("Cargo.lock", include_str!("../../assets/demo/Cargo.lock.txt")),
    ("src/lib.rs", include_str!("../../assets/demo/src/lib.rs")),
    ("tests/median.rs", include_str!("../../assets/demo/tests/median.rs")),
];
const WORKFLOW: &str = include_str!("../../assets/demo/workflow.toml");
const HONEST: &str = include_str!("../../assets/demo/honest.toml");
const LIAR: &str = include_str!("../../assets/demo/liar.toml");

/// What the demo allows its agent, beside what the user has configured.
const RULES: &str = r#"
format_version = 1
sandbox = "auto"
[permissions]
mode = "edit"
exec = ["cargo test *", "cargo check *"]
"#;

pub(super) fn demo(global: &Global, terminal: &Terminal, args: Demo) -> Result<OutcomeCode, Fault> {
    let mut settings = Settings::load(global, Vec::new(), Need::Look)?;
    let scratch = tempfile::Builder::new()
        .prefix("formwork-demo-")
        .tempdir()
        .context("cannot make a temporary folder")
        .map_err(Fault::setup)?;
    let script = scratch.path().join("script.toml");
    write(&script, if args.liar { LIAR } else { HONEST })?;
    let folder = match &args.keep {
        None => scratch.path().join("middle"),
        Some(keep) => keep.clone(),
    };
    let folder = repository(&folder)?;

    super::block_on(async {
        let asked = match (&args.model, args.liar || args.scripted) {
            (_, true) => Asked::Scripted,
            (Some(model), false) => Asked::Model(model.clone()),
            (None, false) => Asked::Any,
        };
        let found = demo::choose(asked, &settings.layered.config, &script, &|name| {
            settings.variable(name).map(str::to_owned)
        })
        .await?;
        terminal.text(introduction(&folder, &found, args.liar))?;
        settings.layered.config = config(&settings.layered.config, found.layer.clone())?;
        settings.workspace = folder.clone();
        let model = found.model.clone();
        let (code, asked) = play(&settings, terminal, model).await?;
        terminal.text(farewell((code, asked), &args, &folder))?;
        Ok(code)
    })
}

/// Runs the workflow and shows what came of it. Returns its code, and whether the model was asked anything.
async fn play(
    settings: &Settings,
    terminal: &Terminal,
    model: ModelRef,
) -> Result<(OutcomeCode, bool), Fault> {
    let mut asked = true;
    let formwork = super::open(settings).await?;
    let caller = formwork_services::capability::Caller::owner(settings.principal.clone());
    let params = StartParams {
        work: Work::Workflow { source: "demo.toml".to_owned(), text: WORKFLOW.to_owned() },
        vars: serde_json::Map::new(),
        model: Some(model),
        width: None,
        commit: false,
        mode: None,
        headless: false,
    };
    let code = super::run::start(&formwork, &caller, terminal, params, None).await;
    if terminal.format == Format::Text && code.is_ok() {
        let newest =
            formwork.call::<List>(&caller, ListParams { before: None, limit: Some(1) }).await?;
        if let Some(row) = newest.runs.first() {
            let detail = formwork.call::<Get>(&caller, GetParams { run: row.run }).await?;
            asked = detail.run.rounds > 0;
            let diff = formwork.diff(row.run).await?;
            let diff = if diff.is_empty() { "no file was changed\n".to_owned() } else { diff };
            let diff = terminal.diff(&harmless(&diff));
            terminal.text(format!(
                "\nthe change\n{diff}\nthe evidence\n{}",
                harmless(&super::runs::show(&detail))
            ))?;
        }
    }
    formwork.close().await;
    Ok((code?, asked))
}

/// Makes the repository, and commits it where there is a git.
fn repository(folder: &Path) -> Result<PathBuf, Fault> {
    if folder.exists() {
        return Err(Fault::usage(format!("{} exists already", folder.display())));
    }
    for (name, text) in FILES {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)
                .with_context(|| format!("cannot make {}", parent.display()))
                .map_err(Fault::setup)?;
        }
        write(&path, text)?;
    }
    write(&folder.join(".gitignore"), "/target\nCargo.lock\n")?;
    let who = [
        "-c",
        "user.name=Formwork",
        "-c",
        "user.email=demo@localhost",
        "-c",
        "commit.gpgsign=false",
    ];
    for arguments in [
        &["init", "--quiet"][..],
        &["add", "."],
        &["commit", "--quiet", "-m", "A median that is not one"],
    ] {
        // Without git the demo has no history and is otherwise the same.
        let _ = Command::new("git")
            .args(who)
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
    folder
        .canonicalize()
        .with_context(|| format!("cannot find {} again", folder.display()))
        .map_err(Fault::setup)
}

fn write(path: &Path, text: &str) -> Result<(), Fault> {
    fs::write(path, text)
        .with_context(|| format!("cannot write {}", path.display()))
        .map_err(Fault::setup)
}

/// Lays the demo's rules and the chosen model over what the user has configured.
fn config(user: &Config, chosen: Layer) -> Result<Config, Fault> {
    let mut layers = Layers::new();
    let user =
        Layer::of(Origin::User { file: "the config".to_owned() }, user).map_err(Fault::failed)?;
    layers.push(user);
    layers.push(Layer::parse(Origin::Project { file: "the demo".to_owned() }, RULES)?);
    layers.push(chosen);
    layers.merge().map(|layered| layered.config).map_err(|error| Fault::failed(anyhow!(error)))
}

fn introduction(folder: &Path, found: &Chosen, liar: bool) -> String {
    let scene = if liar {
        "A model claims that it has fixed a repository, and has not. Its word does not count."
    } else {
        "A repository with failing tests. Done means that they pass, unchanged, by a small diff."
    };
    format!("{scene}\n  repository {}\n  model      {}\n\n", folder.display(), found.told)
}

fn farewell((code, asked): (OutcomeCode, bool), args: &Demo, folder: &Path) -> String {
    let mut text = String::from("\n");
    if args.liar && code == OutcomeCode::Refused && !asked {
        text.push_str(
            "The model was never asked: the entry check failed. `cargo test` has to run here.\n",
        );
    } else if args.liar && code == OutcomeCode::Refused {
        text.push_str("The model said \"done\" and the checks said no: the run ends as refused, with exit code 2.\n");
    }
    if args.keep.is_some() {
        text.push_str(&format!("The repository is kept in {}.\n", folder.display()));
    }
    text.push_str("All of this is in the log: `formwork runs show`, `formwork events`, `formwork audit verify`.\n");
    text
}
