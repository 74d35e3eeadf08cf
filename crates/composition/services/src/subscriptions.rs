//! The subscriptions of a workspace: how their documents are read, and how what they say is done.

mod doing; // What an action does.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use formwork_dispatch::{ActionKind, Subscription};
use formwork_protocols::{
    SubscriptionName, WorkflowName,
    document::{self, Diagnostic, Diagnostics},
};
use formwork_secrets::placeholders;
use formwork_tool::Post;
use serde_json::Value;

use crate::{documents, reading};

pub(crate) use doing::Doing;

/// The folder of a workspace's subscriptions.
pub(crate) const SUBSCRIPTIONS: &str = ".formwork/subscriptions";

/// The most subscriptions of one workspace: each has a log of its own and is looked at with every event.
const MAX_SUBSCRIPTIONS: usize = 10_000;

/// A subscription of the workspace, as its file says.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// Its file.
    pub(crate) path: PathBuf,
    /// What the file says.
    pub(crate) text: String,
    /// What that means, or what is wrong with it.
    pub(crate) read: Result<Subscription, Diagnostics>,
}

impl Found {
    /// Returns the name of its file, which has to be its own.
    pub(crate) fn name(&self) -> String {
        let stem = self.path.file_stem().and_then(|name| name.to_str());
        stem.unwrap_or_default().to_owned()
    }

    /// Says what it does, for whoever is to trust it.
    pub(crate) fn does(&self) -> Vec<String> {
        let Ok(subscription) = &self.read else { return Vec::new() };
        let kinds: Vec<&str> =
            subscription.filter.kinds.iter().map(|pattern| pattern.as_str()).collect();
        let what = |action: &formwork_dispatch::Action| {
            format!("{} by events of {}", action.kind.told(), kinds.join(" "))
        };
        subscription.actions.iter().map(what).collect()
    }

    /// Returns the commands that it runs.
    pub(crate) fn commands(&self) -> impl Iterator<Item = &Vec<String>> {
        let actions = self.read.iter().flat_map(|subscription| &subscription.actions);
        actions.filter_map(|action| match &action.kind {
            ActionKind::Command { argv, .. } => Some(argv),
            _ => None,
        })
    }
}

/// Reads the subscriptions of a workspace, trusted or not, in the order of their names. Nothing of them has an effect by that.
///
/// # Errors
/// [`Diagnostics`] where the folder cannot be read.
pub(crate) fn read(workspace: &Path) -> Result<Vec<Found>, Diagnostics> {
    let folder = workspace.join(SUBSCRIPTIONS);
    let mut files: Vec<PathBuf> = match fs::read_dir(&folder) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(fault(&folder, format!("the folder cannot be read: {error}")).into());
        }
    };
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    if files.len() > MAX_SUBSCRIPTIONS {
        let told = format!(
            "there are {} subscriptions, and no more than {MAX_SUBSCRIPTIONS} are read",
            files.len()
        );
        return Err(fault(&folder, told).into());
    }
    let workflows = workflows(workspace);
    let found = |path: PathBuf| match reading::document_of(workspace, &path) {
        Ok(text) => {
            let read = parse(&path.display().to_string(), &text, &workflows);
            Found { path, text, read }
        }
        Err(error) => {
            let read = Err(fault(&path, format!("it cannot be read: {error}")).into());
            Found { path, text: String::new(), read }
        }
    };
    Ok(files.into_iter().map(found).collect())
}

/// Returns the names of the workflows that a subscription of a workspace may name.
pub(crate) fn workflows(workspace: &Path) -> BTreeSet<WorkflowName> {
    documents::workflows(workspace).into_keys().collect()
}

/// Reads a subscription, with what only the tools and the config can tell of it.
///
/// # Errors
/// [`Diagnostics`] lists every fault with its place.
pub(crate) fn parse(
    source: &str,
    text: &str,
    workflows: &BTreeSet<WorkflowName>,
) -> Result<Subscription, Diagnostics> {
    let read = Subscription::parse(source, text, workflows);
    let mut faults = Diagnostics::default();
    if let Some(parsed) = document::salvage::<formwork_dispatch::SubscriptionDocument>(source, text)
    {
        let stem = Path::new(source).file_stem().and_then(|name| name.to_str());
        let named: Option<SubscriptionName> = stem.and_then(|name| name.parse().ok());
        if named.as_ref() != Some(&parsed.value.name) {
            let name = &parsed.value.name;
            let told = format!("a subscription stands in the file of its name, {name}.toml");
            faults.merge([parsed.diagnostic("/name", told)]);
        }
        for (at, action) in parsed.value.actions.iter().enumerate() {
            let Some(webhook) = &action.webhook else { continue };
            if let Err(why) = Post::destination(&webhook.url) {
                faults.merge([parsed.diagnostic(&format!("/actions/{at}/webhook/url"), why)]);
            }
            for header in webhook.headers.keys() {
                if let Err(why) = Post::may_set(header) {
                    let place = document::pointer(["webhook", "headers", header]);
                    let place = format!("/actions/{at}{place}");
                    faults.merge([parsed.diagnostic(&place, why)]);
                }
            }
        }
    }
    match read {
        Ok(subscription) => faults.or(subscription),
        Err(mut own) => {
            own.merge(faults);
            Err(own)
        }
    }
}

/// Returns the names of the secrets that a header asks for.
fn secrets_of(header: &str) -> Vec<String> {
    placeholders(&Value::String(header.to_owned()))
}

fn fault(path: &Path, told: String) -> Diagnostic {
    Diagnostic {
        source: path.display().to_string().into(),
        line: 1,
        column: 1,
        span: 0..0,
        key: String::new(),
        message: told,
        hint: None,
        text: "".into(),
    }
}
