//! What agents and programs never write unless a person says so: by what is written there, the next run would obey
//! whoever wrote it.

use std::path::Path;

/// What shapes runs, in every workspace.
const SHAPES: [&str; 3] = [".formwork", "formwork.toml", "**/AGENTS.md"];

/// Returns the globs of what is protected below `root`: what shapes runs, unless the person's own `scope` names it; and
/// the folders of Formwork itself, `state` and `besides`, where they lie within.
pub(crate) fn guarded(
    root: &Path,
    state: &Path,
    besides: Option<&Path>,
    scope: Option<&[String]>,
) -> Vec<String> {
    let names = |shape: &str| {
        let stem = shape.trim_start_matches("**/");
        scope.into_iter().flatten().any(|glob| {
            let glob = glob.trim_start_matches("./");
            glob.strip_prefix(stem).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                || (stem != shape && glob.ends_with(&format!("/{stem}")))
        })
    };
    let mut globs: Vec<String> =
        SHAPES.into_iter().filter(|shape| !names(shape)).map(str::to_owned).collect();
    globs.extend(below(root, state).map(|path| plain(&path)));
    globs.extend(besides.and_then(|path| below(root, path)).map(|path| plain(&path)));
    globs
}

/// Returns the path of a folder below the root, with the links on its way followed.
fn below(root: &Path, path: &Path) -> Option<String> {
    // What is not there yet is where its nearest folder is.
    let there = path.ancestors().find_map(|above| {
        let rest = path.strip_prefix(above).ok()?;
        Some(above.canonicalize().ok()?.join(rest))
    })?;
    let root = root.canonicalize().ok()?;
    let below = there.strip_prefix(root).ok()?.to_str()?;
    (!below.is_empty()).then(|| below.trim_end_matches('/').to_owned())
}

/// Returns a path as a glob that means it alone.
fn plain(path: &str) -> String {
    let mut glob = String::new();
    for character in path.chars() {
        match character {
            '*' | '?' | '[' | ']' | '{' | '}' => glob.extend(['[', character, ']']),
            '\\' => glob.push_str("\\\\"),
            other => glob.push(other),
        }
    }
    glob
}

#[cfg(test)]
mod tests {
    use formwork_write_safety::{RelPath, WriteRules};

    use super::*;

    fn refused(globs: &[String], paths: &[&str]) -> Vec<bool> {
        let rules = WriteRules::parse(&["**".to_owned()], globs).unwrap();
        paths.iter().map(|path| rules.check(&RelPath::parse(path).unwrap()).is_err()).collect()
    }

    #[test]
    fn what_shapes_runs_is_written_where_a_persons_scope_names_it_alone() {
        let (root, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let paths =
            [".formwork/agents/reviewer.toml", "formwork.toml", "AGENTS.md", "a/AGENTS.md", "a/b"];
        let with = |scope: Option<&[String]>| {
            refused(&guarded(root.path(), state.path(), None, scope), &paths)
        };
        let scope = |globs: &[&str]| globs.iter().map(|&glob| glob.to_owned()).collect::<Vec<_>>();

        assert_eq!(with(None), [true, true, true, true, false]);
        assert_eq!(with(Some(&scope(&["**", "a"]))), [true, true, true, true, false]);
        let named = scope(&["**", ".formwork/agents/**", "./formwork.toml", "a/AGENTS.md"]);
        assert_eq!(with(Some(&named)), [false; 5]);
    }

    #[test]
    fn the_folders_of_formwork_within_a_workspace_are_protected() {
        let root = tempfile::tempdir().unwrap();
        let state = root.path().join("home [1]/state");
        std::fs::create_dir_all(&state).unwrap();
        let config = root.path().join("home [1]/config");

        let globs = guarded(root.path(), &state, Some(&config), None);

        let paths = [
            "home [1]/state/formwork.db",
            "home [1]/state/trust.json",
            "home [1]/state/tmp/a",
            "home [1]/config/config.toml",
            "home [1]/statex",
            "home 1/state/trust.json",
        ];
        assert_eq!(refused(&globs, &paths), [true, true, true, true, false, false]);
        let embedded = root.path().join(".formwork/state");
        let globs = guarded(root.path(), &embedded, None, None);
        let paths =
            [".formwork/agents/a.toml", ".formwork/state/formwork.db", ".formwork/state/tmp/a"];
        assert_eq!(refused(&globs, &paths), [true; 3]);
    }
}
