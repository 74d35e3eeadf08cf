//! Who may depend on whom: one table, a check over `cargo metadata`, and what cargo-deny reads.
//!
//! The check names each breach and knows the kinds of dependencies; cargo-deny sees what is
//! resolved, features and all. Both come from [`table`], so that they cannot disagree.

mod fault;
mod proof;
mod table;
mod written;

use anyhow::{Result, bail};
use cargo_metadata::Metadata;

pub(crate) use proof::prove;
pub(crate) use written::write;

use fault::{Edge, Graph, Kind, Node, faults};

/// Fails with every breach of the layers, and when a generated text is out of date.
pub(crate) fn check() -> Result<()> {
    let metadata = crate::manifests()?;
    let faults = faults(&graph(&metadata));
    if !faults.is_empty() {
        let lines: Vec<String> = faults.iter().map(|fault| format!("  {fault}")).collect();
        bail!("the layers are breached in {} places\n{}", faults.len(), lines.join("\n"));
    }
    written::check(&metadata)?;
    println!("xtask layers: {} packages, no breach", metadata.workspace_packages().len());
    Ok(())
}

fn graph(metadata: &Metadata) -> Graph {
    let folder = |manifest: &cargo_metadata::camino::Utf8Path| {
        let folder = manifest.parent().unwrap_or(manifest);
        folder.strip_prefix(&metadata.workspace_root).unwrap_or(folder).to_string()
    };
    let nodes = metadata.workspace_packages().into_iter().map(|package| Node {
        package: package.name.to_string(),
        folder: folder(&package.manifest_path),
        edges: package
            .dependencies
            .iter()
            .map(|dependency| Edge {
                to: dependency.name.clone(),
                kind: match dependency.kind {
                    cargo_metadata::DependencyKind::Development => Kind::Dev,
                    cargo_metadata::DependencyKind::Build => Kind::Build,
                    _ => Kind::Normal,
                },
            })
            .collect(),
    });
    Graph { nodes: nodes.collect() }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_workspace_keeps_to_its_layers() {
        if let Err(error) = super::check() {
            panic!("{error:#}");
        }
    }
}
