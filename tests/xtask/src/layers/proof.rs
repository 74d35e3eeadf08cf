//! Shows that cargo-deny fails, by name, on an edge that points up or sideways.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Metadata;

use crate::{process, tools};

/// The planted edges, one up and one sideways. They are of tests alone, since cargo lets those
/// close a circle and refuses the others before cargo-deny sees them.
const PLANTED: [(&str, &str); 2] =
    [("formwork-secrets", "formwork-scheduler"), ("formwork-sandbox", "formwork-policy")];

/// How long cargo-deny may take, the download of other platforms' crates included.
const LIMIT: Duration = Duration::from_secs(300);

/// Copies the manifests, checks that the copy passes, plants each edge by itself and expects a
/// failure that names both its ends.
pub(crate) fn prove() -> Result<()> {
    let copy = tempfile::tempdir().context("cannot make a folder for the copy")?;
    copy_manifests(&crate::manifests()?, copy.path())?;
    let (passes, said) = deny(copy.path())?;
    ensure!(passes, "cargo-deny fails without a planted edge\n{said}");

    for (from, to) in PLANTED {
        let manifest = manifest_of(from, copy.path())?;
        let before = fs::read_to_string(&manifest)?;
        // A table of its own for every platform: there may be one of dev-dependencies already.
        let table = format!("\n[target.'cfg(all())'.dev-dependencies]\n{to}.workspace = true\n");
        fs::write(&manifest, format!("{before}{table}"))?;
        let (passes, said) = deny(copy.path())?;
        fs::write(&manifest, before)?;

        let named = [format!("crate '{to} = "), format!("'{from} = ")];
        if passes || !named.iter().all(|name| said.contains(name)) {
            bail!("cargo-deny does not name the planted edge {from} -> {to}\n{said}");
        }
        println!("xtask layers prove: cargo-deny names the planted edge {from} -> {to}");
    }
    Ok(())
}

fn manifest_of(package: &str, workspace: &Path) -> Result<PathBuf> {
    let member = super::table::find(package)
        .with_context(|| format!("{package} is not in the table of layers"))?;
    Ok(workspace.join(member.folder).join("Cargo.toml"))
}

fn deny(folder: &Path) -> Result<(bool, String)> {
    let mut deny = tools::DENY.command()?;
    deny.current_dir(folder).args(["--color", "never", "check", "-A", "unused-wrapper", "bans"]);
    let ended = process::capture(&mut deny, LIMIT)?;
    Ok((ended.status.success(), ended.stderr + &ended.stdout))
}

/// Copies what cargo needs to resolve the workspace, with empty files for the code.
fn copy_manifests(metadata: &Metadata, to: &Path) -> Result<()> {
    let root = &metadata.workspace_root;
    let manifests = metadata.workspace_packages().into_iter().map(|one| &one.manifest_path);
    let kept = ["Cargo.toml", "Cargo.lock", "deny.toml"].map(|name| root.join(name));
    for file in manifests.chain(&kept) {
        let copied = to.join(file.strip_prefix(root)?);
        fs::create_dir_all(copied.parent().unwrap_or(to))?;
        fs::copy(file, &copied).with_context(|| format!("cannot copy {file}"))?;
    }
    for target in metadata.workspace_packages().into_iter().flat_map(|one| &one.targets) {
        let empty = to.join(target.src_path.strip_prefix(root)?);
        fs::create_dir_all(empty.parent().unwrap_or(to))?;
        fs::write(empty, "")?;
    }
    Ok(())
}
