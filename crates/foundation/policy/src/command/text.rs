//! Shell text, judged by each of its commands.

use std::{
    collections::BTreeSet,
    path::{Component, Path, PathBuf},
};

use super::{
    Judge, Word,
    builtin::{self, Judged},
    program::{self, Program},
    script::{self, Command, Dialect, Script, Set, Way},
    variable::{self, Value},
};

/// What names variables and may make lists of them.
const DECLARE: [&str; 6] = ["declare", "export", "local", "read", "readonly", "typeset"];

impl Judge<'_> {
    /// Checks shell text: each of its commands, wherever it stands in it, by the same patterns.
    pub(super) fn check_text(
        mut self,
        text: &str,
        dialect: Dialect,
        depth: usize,
    ) -> Result<(), String> {
        let script = script::parse(text, dialect)?;
        script.sets.iter().try_for_each(|set| self.check_set(set))?;
        let reckoned = |name: &&String| !variable::may_be_reckoned(name, self.all_may_run());
        if let Some(name) = script.sums.iter().find(reckoned) {
            return Err(may_not(name));
        }
        check_sums(&script, depth)?;
        check_lists(&script)?;
        let goes = |command: &&Command| {
            let name = builtin_of(&command.words).first();
            name.is_some_and(|name| matches!(name.as_str(), "cd" | "pushd" | "popd"))
        };
        let times = script.commands.iter().filter(goes).count();
        let roots = self.roots.take().filter(|_| times == 1 && !self.moved);
        self.moved |= times > 0;
        // A text that goes to a folder first is a call that runs there, for which a pattern may be written.
        let there = script.goes_to.as_deref().zip(roots).filter(|(to, roots)| is_real(to, roots));
        let there = there.map(|(folder, _)| self.patterns_of(folder)).unwrap_or_default();
        let judge = Judge { patterns: &there, moved: false, ..self };
        script.commands.iter().try_for_each(|command| match there.is_empty() {
            true => self.check_command(command, dialect, depth),
            false => judge
                .check_command(command, dialect, depth)
                .or_else(|_| self.check_command(command, dialect, depth)),
        })
    }

    fn check_command(
        self,
        command: &Command,
        dialect: Dialect,
        depth: usize,
    ) -> Result<(), String> {
        let Command { words, given } = command;
        match builtin::judge(builtin_of(words), dialect, self.all_may_run()) {
            Judged::Fine => {
                let name = |set: &String| set.split('=').next().unwrap_or_default().to_owned();
                let refused = given
                    .iter()
                    .map(name)
                    .find(|name| !variable::may_be_set(name, Value::Unknown, self.all_may_run()));
                refused.map_or(Ok(()), |name| Err(may_not(&name)))
            }
            Judged::Denied(why) => Err(why),
            // One that a function is called like as well: whether that is there by then is not known.
            Judged::Program => {
                let env = (!given.is_empty()).then(|| "env".to_owned());
                let argv: Vec<String> = env.iter().chain(given).chain(words).cloned().collect();
                self.check_nested(&argv, depth)
                    .map_err(|why| format!("{why} (a part of the shell text)"))
            }
        }
    }

    /// Refuses a variable that a shell, or a program that it starts, may run something by.
    fn check_set(self, set: &Set) -> Result<(), String> {
        let all = self.all_may_run();
        let is_fine = match set.way {
            // With the command that it is for.
            Way::Before => true,
            Way::Plainly | Way::Declared => variable::may_be_set(&set.name, set.value, all),
            Way::Exported => {
                variable::may_be_given(&set.name, all) || self.lists_variable(&set.written)
            }
        };
        match is_fine {
            true => Ok(()),
            false => Err(may_not(&set.name)),
        }
    }

    /// Says whether a pattern, `env NAME=VALUE *`, lets a variable be given to whatever may run.
    fn lists_variable(self, written: &str) -> bool {
        self.patterns.iter().any(|pattern| match pattern.words.as_slice() {
            [Word::Exactly(env), Word::Exactly(set)] => {
                pattern.open && env == "env" && set == written
            }
            _ => false,
        })
    }
}

/// Says whether a folder is that very one in each root, and no link leads elsewhere on the way to it.
fn is_real(folder: &str, roots: &BTreeSet<PathBuf>) -> bool {
    let plain: PathBuf =
        Path::new(folder).components().filter(|part| *part != Component::CurDir).collect();
    roots.iter().all(|root| {
        let Ok(root) = root.canonicalize() else { return false };
        root.join(folder)
            .canonicalize()
            .is_ok_and(|real| real == root.join(&plain) && real.is_dir())
    })
}

/// Says why a variable may not be set.
pub(super) fn may_not(name: &str) -> String {
    format!(
        "{name} may not be set: a shell or a program may run something by it. A pattern such as `env {name}=VALUE PROGRAM *` \
         allows it before that program"
    )
}

/// Refuses the value of a list that a shell would read again: `declare -a x='($(…))'`, and the same without the `-a` where
/// `x` is one already.
fn check_lists(script: &Script) -> Result<(), String> {
    let lists = script.sets.iter().filter(|set| set.value == Value::List).map(|set| &set.name);
    let declared = script.commands.iter().map(|command| builtin_of(&command.words));
    let declared = declared.filter(|words| {
        let is_declaring = words.first().is_some_and(|name| DECLARE.contains(&name.as_str()));
        is_declaring && words.iter().any(|it| it.starts_with(['-', '+']) && it.contains(['a', 'A']))
    });
    let names: Vec<&str> = declared.flatten().map(|word| name_of(word)).collect();
    let is_list = |name: &str| names.contains(&name) || lists.clone().any(|list| list == name);
    let is_again = |set: &&Set| {
        let is_declared = matches!(set.way, Way::Declared | Way::Exported);
        is_declared && set.value == Value::Unknown && (set.is_list || is_list(&set.name))
    };
    match script.sets.iter().find(is_again) {
        None => Ok(()),
        Some(Set { name, .. }) => Err(format!(
            "what {name} is declared as may be a list that a shell reads again, and runs what stands in it: write the list \
             without quotes, or set {name} without declaring it"
        )),
    }
}

/// Returns the variable that a word names.
fn name_of(word: &str) -> &str {
    word.split(['=', '+']).next().unwrap_or_default()
}

/// Returns what follows words that reach a shell's own commands.
fn builtin_of(command: &[String]) -> &[String] {
    let mut words = command;
    while let Some(name) = words.first()
        && let "builtin" | "command" | "time" = name.as_str()
        && let Program::Starts(parse) = program::of(name)
        && let Ok(inner) = parse(words)
        && let Some(rest) = words.get(inner..)
    {
        words = rest;
    }
    words
}

/// Refuses sums with a variable that might hold anything but a number: a shell runs what stands in such a one as
/// `a[$(…)]`.
fn check_sums(script: &Script, depth: usize) -> Result<(), String> {
    let is_number = |name: &str| {
        let mut sets = script.sets.iter().filter(|set| set.name == name).peekable();
        let named = |word: &String| name_of(word) == name;
        // A text within another might be handed one.
        depth == 1
            && sets.peek().is_some()
            && sets.all(|set| set.value == Value::Number)
            && !script.commands.iter().any(|command| command.words.iter().any(named))
    };
    match script.sums.iter().find(|name| !is_number(name)) {
        None => Ok(()),
        Some(name) => Err(format!(
            "{name} stands in a sum of the shell text and might hold what a shell would run; only a variable that the text \
             sets to numbers alone may"
        )),
    }
}
