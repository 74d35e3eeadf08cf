//! Shell text, judged by each of its commands.

use super::{
    Judge,
    builtin::{self, Judged},
    program::{self, Program},
    script::{self, Dialect, Script},
};

impl Judge<'_> {
    /// Checks shell text: each of its commands, wherever it stands in it, by the same patterns.
    pub(super) fn check_text(
        mut self,
        text: &str,
        dialect: Dialect,
        depth: usize,
    ) -> Result<(), String> {
        let script = script::parse(text, dialect)?;
        for name in script.sets.iter().map(|set| &set.name).chain(&script.sums) {
            if program::is_dangerous(name, self.all_may_run()) {
                return Err(format!(
                    "{name} is set in the shell text, which may make programs run others"
                ));
            }
        }
        check_sums(&script, depth)?;
        self.moved |= script.commands.iter().any(|command| {
            builtin_of(command)
                .first()
                .is_some_and(|name| matches!(name.as_str(), "cd" | "pushd" | "popd"))
        });
        for command in &script.commands {
            match builtin::judge(builtin_of(command), dialect, self.all_may_run()) {
                Judged::Fine => {}
                Judged::Denied(why) => return Err(why),
                // One that a function is called like as well: whether that is there by then is not known.
                Judged::Program => self
                    .check_nested(command, depth)
                    .map_err(|why| format!("{why} (a part of the shell text)"))?,
            }
        }
        Ok(())
    }
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
        let named = |word: &String| word.split('=').next() == Some(name);
        // A text within another might be handed one.
        depth == 1
            && sets.peek().is_some()
            && sets.all(|set| set.is_number)
            && !script.commands.iter().any(|command| command.iter().any(named))
    };
    match script.sums.iter().find(|name| !is_number(name)) {
        None => Ok(()),
        Some(name) => Err(format!(
            "{name} stands in a sum of the shell text and might hold what a shell would run; only a variable that the text \
             sets to numbers alone may"
        )),
    }
}
