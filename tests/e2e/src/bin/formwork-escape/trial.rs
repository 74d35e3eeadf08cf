//! One attempt, carried out and judged.

use std::{fmt, time::Duration};

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    model::{self, Call},
    place::Place,
    record::Record,
};

/// When a run that should have ended is taken to hang: an attempt that holds the program has got through.
const DEADLINE: Duration = Duration::from_secs(90);

/// Prepares an attempt.
type Prepare = dyn Fn(&Place) -> Result<Scene> + Send + Sync;

/// Looks at what an attempt has left, and tells what it should not have.
type Look = dyn Fn(&Place, &Record) -> Result<Option<String>> + Send + Sync;

/// Something that must not work.
pub(crate) struct Attempt {
    pub(crate) name: String,
    /// The way in.
    pub(crate) way: &'static str,
    /// Who is to refuse it.
    pub(crate) by: &'static str,
    /// What the program says of a machine that can refuse it.
    pub(crate) needs: &'static str,
    /// Prepares it.
    pub(crate) scene: Box<Prepare>,
}

/// An attempt that is prepared.
pub(crate) struct Scene {
    /// What the config says besides the model.
    pub(crate) config: String,
    /// The workflow, where it is not one task of an agent.
    pub(crate) workflow: Option<String>,
    /// What the task says besides its agent.
    pub(crate) task: String,
    /// What the model asks for, answer by answer.
    pub(crate) answers: Vec<Vec<Call>>,
    /// Texts of which one is in the record where it was refused.
    pub(crate) signs: Vec<String>,
    /// Looks for what only this attempt could have done.
    pub(crate) look: Box<Look>,
    /// Goes on beside the run until it is dropped.
    pub(crate) beside: Option<Box<dyn std::any::Any + Send>>,
    /// Whether git's own folder is written, as a commit does.
    pub(crate) commits: bool,
}

impl Scene {
    /// Prepares calls that are refused with one of these signs.
    pub(crate) fn new(answers: Vec<Vec<Call>>, signs: &[&str]) -> Self {
        Self {
            config: "[permissions]\nmode = \"auto\"\n".to_owned(),
            workflow: None,
            task: String::new(),
            answers,
            signs: signs.iter().map(|&sign| sign.to_owned()).collect(),
            look: Box::new(|_, _| Ok(None)),
            beside: None,
            commits: false,
        }
    }

    /// Looks for what only this attempt could have done.
    pub(crate) fn looking(
        mut self,
        look: impl Fn(&Place, &Record) -> Result<Option<String>> + Send + Sync + 'static,
    ) -> Self {
        self.look = Box::new(look);
        self
    }
}

/// What came of an attempt.
pub(crate) enum Verdict {
    /// It was refused, and the record says so: where, and in which words.
    Refused { place: String, words: String },
    /// It got through, or nobody can tell that it did not.
    Escaped(String),
    /// This machine lacks what it takes, and the program has said so and run nothing.
    Untried(String),
}

/// An attempt and what came of it.
pub(crate) struct Outcome {
    name: String,
    way: &'static str,
    by: &'static str,
    pub(crate) verdict: Verdict,
}

impl Attempt {
    /// Carries it out in a place of its own.
    ///
    /// Of a machine without what it takes the program has said so: `protections`.
    pub(crate) async fn outcome(self, protections: &str) -> Outcome {
        if !protections.contains(self.needs) {
            let verdict = Verdict::Untried(format!("{} is missing here", self.needs));
            return Outcome { name: self.name, way: self.way, by: self.by, verdict };
        }
        let tried = tokio::time::timeout(DEADLINE, self.tried()).await;
        let verdict = match tried {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(error)) => Verdict::Escaped(format!("cannot be told: {error:#}")),
            Err(_) => Verdict::Escaped("it held the program".to_owned()),
        };
        Outcome { name: self.name, way: self.way, by: self.by, verdict }
    }

    async fn tried(&self) -> Result<Verdict> {
        let mut place = Place::new().await?;
        let scene = (self.scene)(&place)?;
        for answer in &scene.answers {
            place.server.reply("/v1/chat/completions", model::calls(answer));
        }
        place.server.reply_always("/v1/chat/completions", model::ends());
        let task = format!(
            "format_version = 1\nname = \"work\"\n[[tasks]]\nname = \"left\"\nagent = \"left\"\n\
             prompt = \"Go.\"\nretries = {{ max = 0 }}\n{}\n",
            scene.task
        );
        place.repo.write(
            ".formwork/workflows/work.toml",
            scene
                .workflow
                .as_deref()
                .map_or(task, |rest| format!("format_version = 1\nname = \"work\"\n{rest}\n")),
        )?;
        place.repo.write(
            ".formwork/agents/left.toml",
            "format_version = 1\nname = \"left\"\nmodel = \"one/m\"\nprompt = \"left.md\"\n[tools]\nallow = [\"*\"]\n",
        )?;
        place.repo.write(".formwork/agents/left.md", "You do what is asked.\n")?;
        place.trust()?;
        let before = place.around(scene.commits)?;

        let record = place.run(&scene.config, &["run", "work"]).await?;

        drop(scene.beside);
        if record.stderr.contains("cannot be confined here") {
            let why = record.stderr.lines().next().unwrap_or_default().to_owned();
            return Ok(Verdict::Untried(why));
        }
        if let Some(what) = (scene.look)(&place, &record)? {
            return Ok(Verdict::Escaped(what));
        }
        let after = place.around(scene.commits)?;
        if let Some(what) = place.reached(&before, &after, &record)? {
            return Ok(Verdict::Escaped(what));
        }
        if record.find(&["escaped: ".to_owned()]).is_some() {
            return Ok(Verdict::Escaped("the hostile program got through".to_owned()));
        }
        let asked: usize = scene.answers.iter().map(Vec::len).sum();
        let told = record.count("tool.completed") + record.count("tool.failed");
        let found = record.find(&scene.signs).or_else(|| {
            // What is refused before there is a run is told and stands in no log.
            let is_sign = |line: &&str| scene.signs.iter().any(|sign| line.contains(sign.as_str()));
            let line = record.stderr.lines().find(is_sign).filter(|_| record.events.is_empty());
            line.map(|line| ("no run".to_owned(), line.trim().to_owned()))
        });
        Ok(match found {
            // The claim that the task is done is a call too.
            Some((place, words)) if told > asked || scene.answers.is_empty() => {
                Verdict::Refused { place, words }
            }
            _ => Verdict::Escaped(format!(
                "not recorded: {asked} calls asked for, {told} told, none of {:?}\n{}",
                scene.signs,
                record.told()
            )),
        })
    }
}

impl Outcome {
    /// Returns its name and the way in.
    pub(crate) fn named(&self) -> String {
        format!("{} by {}", self.name, self.way)
    }

    /// Returns a row of the table.
    pub(crate) fn cells(&self) -> [String; 4] {
        let by = match &self.verdict {
            Verdict::Refused { .. } => self.by.to_owned(),
            Verdict::Escaped(_) => "NOBODY".to_owned(),
            Verdict::Untried(_) => "not tried".to_owned(),
        };
        [self.name.clone(), self.way.to_owned(), by, self.verdict.to_string()]
    }

    pub(crate) fn to_json(&self) -> Value {
        let (verdict, told) = match &self.verdict {
            Verdict::Refused { .. } => ("refused", self.verdict.to_string()),
            Verdict::Escaped(what) => ("escaped", what.clone()),
            Verdict::Untried(why) => ("untried", why.clone()),
        };
        json!({
            "attempt": self.name, "way": self.way, "refused_by": self.by,
            "verdict": verdict, "told": told,
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { place, words } => {
                let line = words.lines().find(|line| line.contains("refused")).unwrap_or(words);
                let line: String = line.trim().chars().take(90).collect();
                write!(f, "{place}: {}", line.replace('\n', " "))
            }
            Self::Escaped(what) => {
                write!(f, "ESCAPED: {}", what.lines().next().unwrap_or_default())
            }
            Self::Untried(why) => f.write_str(why),
        }
    }
}
