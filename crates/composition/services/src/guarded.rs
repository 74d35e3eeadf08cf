//! What agents and programs never write unless a person says so: by what is written there, the next run would obey
//! whoever wrote it.

mod made; // What has come since.

use std::path::Path;

use formwork_policy::{named_modules, run_files};
use formwork_tool::custom::ToolDocument;
use formwork_write_safety::{RelPath, WriteRules};

use crate::{Error, config::HookConfig};

pub(crate) use made::Shapes;

/// What shapes runs, in every workspace.
const SHAPES: [&str; 3] = [".formwork", "formwork.toml", "**/AGENTS.md"];

/// The folders of Formwork itself, and the programs that a person put around what agents do or trusted as tools.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Own<'a> {
    pub(crate) state: &'a Path,
    pub(crate) besides: Option<&'a Path>,
    pub(crate) hooks: &'a [HookConfig],
    pub(crate) tools: &'a [ToolDocument],
}

/// Returns what may be written below `root` by a person's `scope`, or by everybody where there is none: nothing of what
/// shapes runs but what the scope names, nothing in the folders of Formwork itself, and no file that a hook names or a tool runs.
///
/// # Errors
/// [`Error::Workspace`] for a glob that does not parse.
pub(crate) fn scope(
    root: &Path,
    own: Own<'_>,
    scope: Option<&[String]>,
) -> Result<WriteRules, Error> {
    let names = |glob: &&String| {
        let glob = glob.trim_start_matches("./");
        SHAPES.iter().any(|shape| {
            let stem = shape.trim_start_matches("**/");
            glob.strip_prefix(stem).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                || (stem != *shape && glob.ends_with(&format!("/{stem}")))
        })
    };
    let all = ["**".to_owned()];
    let shapes = SHAPES.map(str::to_owned);
    let named: Vec<String> = scope.into_iter().flatten().filter(names).cloned().collect();
    let rules = WriteRules::parse_except(scope.unwrap_or(&all), &shapes, &named)?;
    Ok(rules.narrowed(&WriteRules::parse(&all, &kept(root, own))?))
}

/// Returns the globs of what nobody writes.
fn kept(root: &Path, own: Own<'_>) -> Vec<String> {
    let folders = [Some(own.state), own.besides].into_iter().flatten();
    let mut globs: Vec<String> =
        folders.filter_map(|path| below(root, path)).map(|path| plain(&path)).collect();
    for hook in own.hooks {
        for word in &hook.command {
            let path = root.join(word);
            // Nothing of such a name is there yet, and whoever made it would be the one who is asked.
            let is_to_come = hook.event.is_gate()
                && path.symlink_metadata().is_err()
                && !word.starts_with('-')
                && !word.contains(char::is_whitespace);
            if !path.is_file() && !is_to_come {
                continue;
            }
            // By its name, which might be a link's, and by where that leads.
            let named = RelPath::parse(word).ok().map(|it| it.to_string());
            globs.extend(named.into_iter().chain(below(root, &path)).map(|path| plain(&path)));
        }
        globs.extend(modules(&hook.command));
    }
    for command in own.tools.iter().filter_map(|tool| tool.execution.command.as_ref()) {
        let files = run_files(root, &command.argv);
        let named = files.iter().filter_map(|path| path.strip_prefix(root).ok()?.to_str());
        let named = named.filter_map(|path| Some(RelPath::parse(path).ok()?.to_string()));
        globs.extend(
            named.chain(files.iter().filter_map(|path| below(root, path))).map(|it| plain(&it)),
        );
        globs.extend(modules(&command.argv));
    }
    globs
}

/// Returns the globs of the modules that a command names: whichever of a file and a folder of that name there is, the other
/// would take its place.
fn modules(command: &[String]) -> Vec<String> {
    let of = |module: &str| [format!("{module}.*"), module.to_owned(), format!("{module}/**")];
    named_modules(command).into_iter().flat_map(of).collect()
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
    use formwork_write_safety::Sealing;

    use super::*;
    use crate::config::HookEvent::{RunFinished, ToolBefore};

    fn refused(rules: &WriteRules, paths: &[&str]) -> Vec<bool> {
        paths.iter().map(|path| rules.check(&RelPath::parse(path).unwrap()).is_err()).collect()
    }

    fn by(root: &Path, state: &Path, besides: Option<&Path>) -> WriteRules {
        scope(root, Own { state, besides, hooks: &[], tools: &[] }, None).unwrap()
    }

    #[test]
    fn what_shapes_runs_is_written_where_a_persons_scope_names_it_alone() {
        let (root, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let paths = [
            ".formwork/agents/reviewer.toml",
            ".formwork/tools/x.toml",
            "formwork.toml",
            "AGENTS.md",
            "a/AGENTS.md",
            "a/b",
        ];
        let own = Own { state: state.path(), besides: None, hooks: &[], tools: &[] };
        let with = |globs: &[&str]| {
            let globs: Vec<String> = globs.iter().map(|&glob| glob.to_owned()).collect();
            refused(&scope(root.path(), own, Some(&globs)).unwrap(), &paths)
        };

        let unnamed = [true, true, true, true, true, false];
        assert_eq!(refused(&scope(root.path(), own, None).unwrap(), &paths), unnamed);
        assert_eq!(with(&["**", "a"]), unnamed);
        let named = with(&["**", ".formwork/agents/**", "./formwork.toml", "a/AGENTS.md"]);
        assert_eq!(named, [false, true, false, true, false, false]);
        assert_eq!(
            with(&["**", ".formwork", "**/AGENTS.md"]),
            [false, false, true, false, false, false]
        );
    }

    #[test]
    fn a_program_is_kept_from_a_folder_of_which_a_part_is_named() {
        let (root, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = root.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join(".formwork/agents")).unwrap();
        let own = Own { state: state.path(), besides: None, hooks: &[], tools: &[] };
        let globs = ["**".to_owned(), ".formwork/agents/**".to_owned()];

        let rules = scope(&root, own, Some(&globs)).unwrap();

        let writable = rules.writable(&root, Sealing::Had, &[]);
        assert_eq!(writable.sealed, [root.join(".formwork")]);
        let new = RelPath::parse(".formwork/agents/a.toml").unwrap();
        assert!(rules.check(&new).is_ok());
    }

    #[test]
    fn the_folders_of_formwork_within_a_workspace_are_protected() {
        let root = tempfile::tempdir().unwrap();
        let state = root.path().join("home [1]/state");
        std::fs::create_dir_all(&state).unwrap();
        let config = root.path().join("home [1]/config");

        let rules = by(root.path(), &state, Some(&config));

        let paths = [
            "home [1]/state/formwork.db",
            "home [1]/state/trust.json",
            "home [1]/state/tmp/a",
            "home [1]/config/config.toml",
            "home [1]/statex",
            "home 1/state/trust.json",
        ];
        assert_eq!(refused(&rules, &paths), [true, true, true, true, false, false]);
        let embedded = root.path().join(".formwork/state");
        let rules = by(root.path(), &embedded, None);
        let paths =
            [".formwork/agents/a.toml", ".formwork/state/formwork.db", ".formwork/state/tmp/a"];
        assert_eq!(refused(&rules, &paths), [true; 3]);
        let named = [".formwork".to_owned()];
        let own = Own { state: &embedded, besides: None, hooks: &[], tools: &[] };
        let rules = scope(root.path(), own, Some(&named)).unwrap();
        assert_eq!(refused(&rules, &paths), [false, true, true]);
    }

    #[test]
    fn the_files_that_a_hook_names_or_a_tool_runs_are_nobodys_to_change() {
        let (root, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["gate.sh", "real.sh", "told.sh", "tool.sh", "data.txt"] {
            std::fs::write(root.path().join(name), "").unwrap();
        }
        std::fs::create_dir(root.path().join("src")).unwrap();
        std::os::unix::fs::symlink("real.sh", root.path().join("link.sh")).unwrap();
        let hook = |event, command: &[&str]| HookConfig {
            event,
            tools: None,
            command: command.iter().map(|&word| word.to_owned()).collect(),
            timeout: None,
        };
        let hooks = [
            hook(ToolBefore, &["sh", "./gate.sh", "--in", "src"]),
            hook(ToolBefore, &["sh", "link.sh", "new.sh"]),
            hook(RunFinished, &["sh", "told.sh", "log.txt"]),
            hook(ToolBefore, &["python3", "-m", "gatemod"]),
        ];
        let tool = "format_version = 1\n[tool]\nname = \"custom.it\"\ndescription = \"It.\"\n[execution.command]\n\
            argv = [\"bash\", \"tool.sh\", \"data.txt\"]\n";
        let tools = [ToolDocument::parse("t.toml", tool).unwrap()];

        let own = Own { state: state.path(), besides: None, hooks: &hooks, tools: &tools };
        let rules = scope(root.path(), own, None).unwrap();

        let own = [
            "gate.sh",
            "link.sh",
            "real.sh",
            "new.sh",
            "told.sh",
            "tool.sh",
            "gatemod.py",
            "gatemod/__init__.py",
        ];
        assert_eq!(refused(&rules, &own), [true; 8]);
        assert_eq!(refused(&rules, &["log.txt", "src/a", "other.sh", "data.txt"]), [false; 4]);
    }
}
