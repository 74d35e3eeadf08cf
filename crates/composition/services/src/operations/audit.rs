//! `audit.*`: whether the log is what was written.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use formwork_protocols::{RunId, store::Audit};
use formwork_trace::{Archived, Checkpoint, CheckpointFault, PublicKey, StoreAudit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
    seals::{Log, Seals},
};

/// What to check.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VerifyParams {
    /// This run; the whole log where absent, with its checkpoints.
    pub run: Option<RunId>,
    /// Checkpoints that were kept elsewhere.
    pub kept: Vec<Checkpoint>,
    /// Keys of others whose checkpoints are known to be theirs, besides this machine's own.
    pub keys: Vec<PublicKey>,
    /// The folder in which the archives are by now; where they were put where absent.
    pub archives: Option<PathBuf>,
}

/// What was found.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Verified {
    /// Whether nothing is wrong.
    pub sound: bool,
    /// What was found of each run.
    pub audits: Vec<Audit>,
    /// The runs that are in an archive and not here.
    pub archived: Vec<ArchivedRun>,
    /// How many events are missing, with all that remembered them. Negative where there are too many.
    pub missing: i64,
    /// The checkpoints, oldest first.
    pub checkpoints: Vec<VerifiedCheckpoint>,
    /// How many checkpoints are remembered of other logs. They were not compared.
    #[serde(default)]
    pub elsewhere: usize,
    /// What keeps rows of the log from being changed and removed, and is gone: the names of triggers.
    #[serde(default)]
    pub unguarded: Vec<String>,
}

/// A run that is in an archive.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ArchivedRun {
    /// The run.
    pub run: RunId,
    /// How many events it has.
    pub events: u64,
    /// The file, as it was named when the run was taken out.
    pub file: String,
    /// The BLAKE3 hash of the file.
    pub digest: String,
    /// What is wrong with the file, in words.
    #[serde(default)]
    pub fault: Option<String>,
}

/// A checkpoint, compared with the log.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct VerifiedCheckpoint {
    /// What was said of the log.
    pub checkpoint: Checkpoint,
    /// Whether its key is this machine's, or one of those that were named.
    pub known: bool,
    /// What does not hold, in words.
    pub fault: Option<String>,
}

/// `audit.verify`
pub struct Verify;

#[async_trait]
impl Operation for Verify {
    const NAME: &'static str = "audit.verify";
    const DOC: &'static str =
        "Checks the hash chain and the blobs of a run, or the whole log with its checkpoints.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = VerifyParams;
    type Output = Verified;

    async fn run(formwork: &Formwork, _: &Caller, params: VerifyParams) -> Result<Verified, Error> {
        match params.run {
            Some(run) => {
                let audit = formwork.store().audit(run).await?;
                let sound = audit.faults.is_empty();
                Ok(Verified {
                    sound,
                    audits: vec![audit],
                    archived: Vec::new(),
                    missing: 0,
                    checkpoints: Vec::new(),
                    elsewhere: 0,
                    unguarded: Vec::new(),
                })
            }
            None => verified(formwork, params).await,
        }
    }
}

/// Checks the whole log.
pub(super) async fn verified(formwork: &Formwork, params: VerifyParams) -> Result<Verified, Error> {
    let VerifyParams { mut kept, mut keys, archives, .. } = params;
    let (trace, seals) = (formwork.trace(), Seals { state: formwork.state() });
    let (remembered, elsewhere) = seals.remembered(&Log::of(trace).await?)?;
    kept.extend(remembered);
    keys.extend(seals.key()?.map(|key| key.public()));
    let found = trace.audit_store(kept).await?;
    let StoreAudit { audits, archived, missing, checkpoints, unguarded } = found;
    let checkpoints: Vec<_> = checkpoints
        .into_iter()
        .map(|compared| VerifiedCheckpoint {
            known: keys.contains(&compared.checkpoint.signer),
            fault: compared.fault.map(|fault| tell(&compared.checkpoint, fault)),
            checkpoint: compared.checkpoint,
        })
        .collect();
    let looked = tokio::task::spawn_blocking(move || in_archives(archived, archives.as_deref()));
    let archived = looked.await.map_err(|error| Error::Panicked {
        what: "a look at the archives",
        reason: error.to_string(),
    })?;
    let unguarded: Vec<String> = unguarded.into_iter().map(str::to_owned).collect();
    let sound = missing == 0
        && audits.iter().all(|audit| audit.faults.is_empty())
        && checkpoints.iter().all(|checked| checked.fault.is_none())
        && archived.iter().all(|gone| gone.fault.is_none())
        && unguarded.is_empty();
    Ok(Verified { sound, audits, archived, missing, checkpoints, elsewhere, unguarded })
}

/// Compares the archives with what is remembered of them, each once. A run that is said to be in a file which is not
/// there may be nowhere.
fn in_archives(archived: Vec<Archived>, folder: Option<&Path>) -> Vec<ArchivedRun> {
    let mut digests = BTreeMap::new();
    let compared = archived.into_iter().map(|gone| {
        let named = Path::new(&gone.file);
        let place = match (folder, named.file_name()) {
            (Some(folder), Some(name)) => folder.join(name),
            _ => named.to_owned(),
        };
        let found = digests.entry(place).or_insert_with_key(|place| {
            formwork_trace::digest(place)
                .map(|(digest, _)| digest)
                .map_err(|error| error.to_string())
        });
        let fault = match found {
            Ok(digest) if *digest == gone.digest => None,
            Ok(digest) => Some(format!("its hash is {digest}, it was {}", gone.digest)),
            Err(reason) => Some(format!("it cannot be read: {reason}")),
        };
        let (file, digest) = (gone.file, gone.digest.to_string());
        ArchivedRun { run: gone.run, events: gone.events, file, digest, fault }
    });
    compared.collect()
}

fn tell(checkpoint: &Checkpoint, fault: CheckpointFault) -> String {
    match fault {
        CheckpointFault::NotSigned => {
            "its signature is not of its key: the checkpoint was changed".to_owned()
        }
        CheckpointFault::Ahead => {
            "the log ends before it: events are missing at the end".to_owned()
        }
        CheckpointFault::Runs { found } => {
            format!("there were {} runs by then, now there are {found} of them", checkpoint.runs)
        }
        _ => "some run did not stand then as it does now: it was written anew".to_owned(),
    }
}

/// Nothing is asked of a checkpoint.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SealParams {}

/// A checkpoint that was made.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Sealed {
    /// What was signed, and by whom.
    pub checkpoint: Checkpoint,
    /// Whether the key was made for it, as there was none.
    pub key_made: bool,
    /// Where the key is.
    pub key_file: String,
    /// Where the checkpoint is remembered besides the log.
    pub file: String,
}

/// `audit.checkpoint`
pub struct Seal;

#[async_trait]
impl Operation for Seal {
    const NAME: &'static str = "audit.checkpoint";
    const DOC: &'static str =
        "Signs what the whole log is now, so that a run which is removed later is missed.";
    const SCOPE: Scope = Scope::Admin;
    const EFFECT: Effect = Effect::Write;
    type Params = SealParams;
    type Output = Sealed;

    async fn run(
        formwork: &Formwork,
        _: &Caller,
        SealParams {}: SealParams,
    ) -> Result<Sealed, Error> {
        let (trace, seals) = (formwork.trace(), Seals { state: formwork.state() });
        let (key, key_made) = seals.key_or_new()?;
        let made = trace.checkpoint(&key, formwork.now()).await;
        let checkpoint = made.map_err(|error| match error {
            formwork_trace::CheckpointError::Store(source) => Error::Store(source),
            error => Error::Checkpoint { source: error },
        })?;
        seals.remember(&Log::of(trace).await?, &checkpoint)?;
        Ok(Sealed {
            checkpoint,
            key_made,
            key_file: seals.key_file().display().to_string(),
            file: seals.checkpoints_file().display().to_string(),
        })
    }
}
