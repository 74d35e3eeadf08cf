//! Walks templates: once to see what they name, once to write them out.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use formwork_protocols::document::{nearest, nearest_hint};
use handlebars::template::{
    BlockParam, DecoratorTemplate, HelperTemplate, Parameter, Template as Parsed, TemplateElement,
    TemplateMapping,
};
use serde_json::{Map, Value};

use crate::path::{From, Path};
use crate::template::MAX_DEPTH;
use crate::{Error, Fault, Library, Problem, Template};

/// Elements written out by one rendering; loops within loops end here.
const MAX_STEPS: usize = 200_000;

/// Bytes written by one rendering: more than any model reads.
const MAX_OUTPUT: usize = 8 * 1024 * 1024;

/// Begins the name of a placeholder that is for the tools, and that a prompt hands on as it is.
const SECRET: &str = "secret:";

/// Where an element stands.
#[derive(Debug, Clone, Copy)]
struct Place {
    line: usize,
    column: usize,
}

impl Place {
    fn of(mapping: Option<&TemplateMapping>, outer: Self) -> Self {
        // The parser keeps no place for a chained `else`; that of the block around it is near.
        mapping.map_or(outer, |mapping| Self { line: mapping.0, column: mapping.1 })
    }

    const START: Self = Self { line: 1, column: 1 };
}

/// What a block does.
enum Block<'t> {
    If(&'t Parameter),
    Each { over: &'t Parameter, names: Names<'t> },
    Other,
}

/// The names that a loop gives to its item and to its index or key.
#[derive(Default, Clone, Copy)]
struct Names<'t> {
    item: Option<&'t str>,
    key: Option<&'t str>,
}

fn block(helper: &HelperTemplate) -> Block<'_> {
    let name = helper.name.as_name().unwrap_or_default();
    match (name, helper.params.as_slice()) {
        ("if", [condition]) if helper.hash.is_empty() && helper.block_param.is_none() => {
            Block::If(condition)
        }
        ("each", [over]) if helper.hash.is_empty() => {
            let names = match &helper.block_param {
                None => Names::default(),
                Some(BlockParam::Single(item)) => Names { item: item.as_name(), key: None },
                Some(BlockParam::Pair((item, key))) => {
                    Names { item: item.as_name(), key: key.as_name() }
                }
                Some(_) => return Block::Other,
            };
            Block::Each { over, names }
        }
        _ => Block::Other,
    }
}

/// Returns the name that a plain include names.
fn include(partial: &DecoratorTemplate) -> Option<&str> {
    let plain = partial.params.is_empty() && partial.hash.is_empty();
    partial.name.as_name().filter(|_| plain).map(|name| name.trim_matches(['\'', '"']))
}

/// What a template and all it includes name, found without rendering.
pub(crate) struct Survey<'t> {
    library: &'t Library,
    /// The variables named, each with the place where it is named first.
    variables: BTreeMap<String, (String, Place)>,
    faults: Vec<Fault>,
    seen: HashSet<(String, usize)>,
    open: Vec<String>,
}

impl<'t> Survey<'t> {
    pub(crate) fn of(library: &'t Library, template: &'t Template) -> Result<Self, Error> {
        let mut survey = Self {
            library,
            variables: BTreeMap::new(),
            faults: Vec::new(),
            seen: HashSet::new(),
            open: Vec::new(),
        };
        survey.template(template, 0)?;
        Ok(survey)
    }

    pub(crate) fn into_variables(self) -> BTreeSet<String> {
        self.variables.into_keys().collect()
    }

    /// Adds the faults of `supplied` variables: those missing and those never named.
    pub(crate) fn compare(&mut self, template: &Template, supplied: &Map<String, Value>) {
        for (name, (template, place)) in &self.variables {
            if !supplied.contains_key(name) {
                let hint = nearest_hint(name, supplied.keys().map(String::as_str));
                let problem = Problem::Unresolved { name: name.clone(), hint };
                self.faults.push(fault(template, *place, problem));
            }
        }
        for name in supplied.keys().filter(|name| !self.variables.contains_key(*name)) {
            let named = self.variables.keys().map(String::as_str);
            let hint = nearest(name, named).map(|near| format!("the template names {near:?}"));
            let problem = Problem::Unused { name: name.clone(), hint };
            let template = template.name().to_owned();
            self.faults.push(Fault { template, line: None, column: None, problem });
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.faults.is_empty() {
            return Ok(());
        }
        let mut faults = self.faults.clone();
        faults.sort_by(|a, b| {
            let place = |f: &Fault| (f.line.is_none(), f.line, f.column);
            (&a.template, place(a)).cmp(&(&b.template, place(b)))
        });
        faults.dedup();
        Err(Error::Faults { faults })
    }

    /// Surveys `template` as included within so many loops.
    fn template(&mut self, template: &'t Template, loops: usize) -> Result<(), Error> {
        let name = template.name();
        if let Some(start) = self.open.iter().position(|open| open == name) {
            let circle = self.open.iter().skip(start).cloned().chain([name.to_owned()]);
            return Err(Error::Cycle { circle: circle.collect() });
        }
        if !self.seen.insert((name.to_owned(), loops)) {
            return Ok(());
        }
        if self.open.len() >= MAX_DEPTH {
            let found = self.open.len() + 1;
            let template = name.to_owned();
            return Err(Error::TooLarge {
                template,
                found,
                limit: MAX_DEPTH,
                unit: "levels of includes",
            });
        }
        self.open.push(name.to_owned());
        self.elements(name, template.parsed(), &mut Vec::new(), loops, Place::START)?;
        self.open.pop();
        Ok(())
    }

    fn elements(
        &mut self,
        name: &str,
        parsed: &'t Parsed,
        names: &mut Vec<Names<'t>>,
        loops: usize,
        outer: Place,
    ) -> Result<(), Error> {
        for (index, element) in parsed.elements.iter().enumerate() {
            let place = Place::of(parsed.mapping.get(index), outer);
            match element {
                TemplateElement::RawString(_) | TemplateElement::Comment(_) => {}
                TemplateElement::Expression(tag) | TemplateElement::HtmlExpression(tag) => {
                    if tag.params.is_empty() && tag.hash.is_empty() {
                        self.parameter(name, &tag.name, names, loops, place);
                    } else {
                        let helper = tag.name.as_name().unwrap_or("an expression");
                        self.unsupported(name, place, format!("the helper {helper:?}"));
                    }
                }
                TemplateElement::HelperBlock(helper) => {
                    let (inner, own) = match block(helper) {
                        Block::If(condition) => {
                            self.parameter(name, condition, names, loops, place);
                            (loops, Names::default())
                        }
                        Block::Each { over, names: own } => {
                            self.parameter(name, over, names, loops, place);
                            (loops + 1, own)
                        }
                        Block::Other => {
                            let found = helper.name.as_name().unwrap_or("of an expression");
                            self.unsupported(name, place, format!("the block {found:?}"));
                            continue;
                        }
                    };
                    if let Some(body) = &helper.template {
                        names.push(own);
                        self.elements(name, body, names, inner, place)?;
                        names.pop();
                    }
                    if let Some(otherwise) = &helper.inverse {
                        self.elements(name, otherwise, names, loops, place)?;
                    }
                }
                TemplateElement::PartialExpression(partial) => match include(partial) {
                    Some(wanted) => self.include(name, wanted, loops, place)?,
                    None => self.unsupported(name, place, "an include with arguments".to_owned()),
                },
                TemplateElement::PartialBlock(_) => {
                    self.unsupported(name, place, "an include with a block".to_owned());
                }
                TemplateElement::DecoratorExpression(_) | TemplateElement::DecoratorBlock(_) => {
                    self.unsupported(name, place, "a decorator".to_owned());
                }
                _ => self.unsupported(name, place, "this tag".to_owned()),
            }
        }
        Ok(())
    }

    fn include(
        &mut self,
        name: &str,
        wanted: &str,
        loops: usize,
        place: Place,
    ) -> Result<(), Error> {
        if let Some(template) = self.library.get(wanted) {
            return self.template(template, loops);
        }
        let hint = nearest_hint(wanted, self.library.names());
        let problem = Problem::UnknownInclude { name: wanted.to_owned(), hint };
        self.faults.push(fault(name, place, problem));
        Ok(())
    }

    fn parameter(
        &mut self,
        name: &str,
        parameter: &'t Parameter,
        names: &[Names<'t>],
        loops: usize,
        place: Place,
    ) {
        let path = match path(parameter) {
            Ok(Some(path)) => path,
            Ok(None) => return,
            Err(found) => return self.unsupported(name, place, found),
        };
        match path {
            Path::Loop { up, name: local, raw } => {
                if up >= loops || !["index", "key", "first", "last"].contains(&local) {
                    let problem = Problem::Unresolved { name: raw.to_owned(), hint: None };
                    self.faults.push(fault(name, place, problem));
                }
            }
            Path::Value { from, steps, raw } => {
                let of_loop = |step: &Cow<'_, str>| {
                    let step = Some(step.as_ref());
                    names.iter().any(|own| own.item == step || own.key == step)
                };
                let is_root = match from {
                    From::Root => true,
                    From::Context { up } if up > loops => {
                        let hint = Some("it leads out of the template".to_owned());
                        let problem = Problem::Unresolved { name: raw.to_owned(), hint };
                        self.faults.push(fault(name, place, problem));
                        return;
                    }
                    From::Context { up: 0 } if steps.first().is_some_and(of_loop) => false,
                    From::Context { up } => up == loops,
                };
                match steps.first() {
                    Some(step) if is_root => {
                        self.variables
                            .entry(step.clone().into_owned())
                            .or_insert_with(|| (name.to_owned(), place));
                    }
                    None if is_root => {
                        self.unsupported(name, place, format!("{raw:?} outside of a loop"));
                    }
                    _ => {}
                }
            }
        }
    }

    fn unsupported(&mut self, name: &str, place: Place, found: String) {
        self.faults.push(fault(name, place, Problem::Unsupported { found }));
    }
}

fn fault(template: &str, place: Place, problem: Problem) -> Fault {
    let Place { line, column } = place;
    Fault { template: template.to_owned(), line: Some(line), column: Some(column), problem }
}

/// Returns the path that `parameter` is, nothing for a placeholder of a secret, or the name of what else it is.
fn path(parameter: &Parameter) -> Result<Option<Path<'_>>, String> {
    match parameter {
        Parameter::Name(raw) => Ok(Some(Path::parse(raw))),
        Parameter::Path(parsed) => Ok(Some(Path::of(parsed))),
        Parameter::Literal(value) => return Err(format!("the literal {value}")),
        Parameter::Subexpression(_) => return Err("a call within a tag".to_owned()),
        _ => return Err("this tag".to_owned()),
    }
    .map(|path| path.filter(|path| secret(path).is_none()))
}

/// Returns the placeholder's name when `path` is one of a secret.
fn secret<'t>(path: &Path<'t>) -> Option<&'t str> {
    match path {
        Path::Value { raw, .. } if raw.starts_with(SECRET) => Some(raw),
        _ => None,
    }
}

/// One level of a rendering: what names are looked up in.
#[derive(Clone)]
struct Context<'v, 't> {
    value: &'v Value,
    key: Value,
    index: usize,
    last: bool,
    names: Names<'t>,
}

/// Writes templates out.
pub(crate) struct Renderer<'v, 't> {
    library: &'t Library,
    variables: &'v Map<String, Value>,
    contexts: Vec<Context<'v, 't>>,
    faults: Vec<Fault>,
    output: String,
    indents: Vec<&'t str>,
    steps: usize,
}

impl<'v, 't> Renderer<'v, 't> {
    pub(crate) fn new(library: &'t Library, variables: &'v Map<String, Value>) -> Self {
        Self {
            library,
            variables,
            contexts: Vec::new(),
            faults: Vec::new(),
            output: String::new(),
            indents: Vec::new(),
            steps: 0,
        }
    }

    /// Writes `template`, which was surveyed.
    pub(crate) fn run(mut self, template: &'t Template) -> Result<String, Error> {
        self.elements(template.name(), template.parsed(), Place::START)?;
        if self.faults.is_empty() {
            return Ok(self.output);
        }
        self.faults.dedup();
        Err(Error::Faults { faults: self.faults })
    }

    fn elements(&mut self, name: &'t str, parsed: &'t Parsed, outer: Place) -> Result<(), Error> {
        for (index, element) in parsed.elements.iter().enumerate() {
            let place = Place::of(parsed.mapping.get(index), outer);
            self.steps += 1;
            if self.steps > MAX_STEPS {
                let template = name.to_owned();
                return Err(Error::TooManySteps { template, limit: MAX_STEPS });
            }
            match element {
                TemplateElement::RawString(text) => self.write(text),
                TemplateElement::Expression(tag) | TemplateElement::HtmlExpression(tag) => {
                    self.variable(name, &tag.name, place);
                }
                TemplateElement::HelperBlock(helper) => self.block(name, helper, place)?,
                TemplateElement::PartialExpression(partial) => {
                    let before = index.checked_sub(1).and_then(|i| parsed.elements.get(i));
                    self.include(partial, before)?;
                }
                _ => {}
            }
            if self.output.len() > MAX_OUTPUT {
                let (found, limit) = (self.output.len(), MAX_OUTPUT);
                let template = name.to_owned();
                return Err(Error::TooLarge { template, found, limit, unit: "bytes of output" });
            }
        }
        Ok(())
    }

    fn write(&mut self, text: &str) {
        if self.indents.is_empty() {
            self.output.push_str(text);
            return;
        }
        for line in text.split_inclusive('\n') {
            // An include on its own line is moved in as far as the line is, its empty lines excepted.
            if (self.output.is_empty() || self.output.ends_with('\n')) && line != "\n" {
                self.output.extend(self.indents.iter().copied());
            }
            self.output.push_str(line);
        }
    }

    fn variable(&mut self, name: &str, parameter: &'t Parameter, place: Place) {
        let Ok(Some(path)) = path(parameter) else {
            if let Parameter::Path(parsed) = parameter
                && let Some(raw) = secret(&Path::of(parsed))
            {
                self.write(&format!("{{{{{raw}}}}}"));
            }
            return;
        };
        let text = match self.resolve(&path) {
            Ok(value) => match value.as_ref() {
                Value::String(text) => Cow::Owned(text.clone()),
                Value::Null => Cow::Borrowed(""),
                // Tables are written with sorted keys, whatever order the program keeps them in.
                other => {
                    Cow::Owned(formwork_protocols::canonical::to_string(other).unwrap_or_default())
                }
            },
            Err(problem) => return self.faults.push(fault(name, place, problem)),
        };
        self.write(&text);
    }

    fn block(
        &mut self,
        name: &'t str,
        helper: &'t HelperTemplate,
        place: Place,
    ) -> Result<(), Error> {
        let (body, otherwise) = (helper.template.as_ref(), helper.inverse.as_ref());
        let (parameter, names) = match block(helper) {
            Block::If(condition) => (condition, None),
            Block::Each { over, names } => (over, Some(names)),
            Block::Other => return Ok(()),
        };
        let value = match path(parameter) {
            Ok(Some(path)) => self.resolve(&path),
            _ => return Ok(()),
        };
        let value = match value {
            Ok(value) => value,
            Err(problem) => {
                self.faults.push(fault(name, place, problem));
                return Ok(());
            }
        };
        let Some(names) = names else {
            let branch = if is_true(&value) { body } else { otherwise };
            return branch.map_or(Ok(()), |branch| self.elements(name, branch, place));
        };

        let items: Vec<(Value, &'v Value)> = match value {
            Cow::Borrowed(Value::Array(items)) => {
                items.iter().enumerate().map(|(index, item)| (Value::from(index), item)).collect()
            }
            Cow::Borrowed(Value::Object(entries)) => {
                let mut sorted: Vec<_> = entries.iter().collect();
                sorted.sort_unstable_by_key(|(key, _)| *key);
                sorted.into_iter().map(|(key, item)| (Value::from(key.as_str()), item)).collect()
            }
            Cow::Borrowed(Value::Null) => Vec::new(),
            other => {
                let named = parameter.as_name().unwrap_or_default().to_owned();
                let problem = Problem::NotAList { name: named, found: type_name(&other) };
                self.faults.push(fault(name, place, problem));
                return Ok(());
            }
        };
        if items.is_empty() {
            return otherwise.map_or(Ok(()), |branch| self.elements(name, branch, place));
        }
        let count = items.len();
        for (index, (key, value)) in items.into_iter().enumerate() {
            self.contexts.push(Context { value, key, index, last: index + 1 == count, names });
            // A loop without a body still takes its time.
            self.steps += 1;
            let done = body.map_or(Ok(()), |body| self.elements(name, body, place));
            self.contexts.pop();
            done?;
        }
        Ok(())
    }

    fn include(
        &mut self,
        partial: &'t DecoratorTemplate,
        before: Option<&TemplateElement>,
    ) -> Result<(), Error> {
        let Some(template) = include(partial).and_then(|name| self.library.get(name)) else {
            return Ok(());
        };
        // The parser takes the white space before a tag away only where the tag has a line of its own.
        let indent = partial.indent.as_deref().filter(|indent| {
            !matches!(before, Some(TemplateElement::RawString(text)) if text.ends_with(indent))
        });
        // Names that a loop gave are those of its own template.
        let names: Vec<Names<'t>> =
            self.contexts.iter_mut().map(|c| std::mem::take(&mut c.names)).collect();
        self.indents.extend(indent);
        let done = self.elements(template.name(), template.parsed(), Place::START);
        if indent.is_some() {
            self.indents.pop();
        }
        for (context, names) in self.contexts.iter_mut().zip(names) {
            context.names = names;
        }
        done
    }

    fn resolve(&self, path: &Path<'_>) -> Result<Cow<'v, Value>, Problem> {
        let unresolved =
            |raw: &str, hint: Option<String>| Problem::Unresolved { name: raw.to_owned(), hint };
        match path {
            Path::Loop { up, name, raw } => {
                let context = self.context(*up).ok_or_else(|| unresolved(raw, None))?;
                Ok(Cow::Owned(match *name {
                    "index" => Value::from(context.index),
                    "key" => context.key.clone(),
                    "first" => Value::from(context.index == 0),
                    "last" => Value::from(context.last),
                    _ => return Err(unresolved(raw, None)),
                }))
            }
            Path::Value { from, steps, raw } => {
                let (mut value, steps) = match self.start(*from, steps) {
                    Some(Start::Value(value, rest)) => (value, rest),
                    Some(Start::Key(key)) => return Ok(Cow::Owned(key)),
                    None => {
                        let known = self.variables.keys().map(String::as_str);
                        return Err(unresolved(raw, nearest_hint(raw, known)));
                    }
                };
                for step in steps {
                    value = self.step(value, step).map_err(|hint| unresolved(raw, hint))?;
                }
                Ok(Cow::Borrowed(value))
            }
        }
    }

    fn start<'p>(&self, from: From, steps: &'p [Cow<'p, str>]) -> Option<Start<'v, 'p>> {
        let up = match from {
            From::Context { up } => up,
            From::Root => self.contexts.len(),
        };
        if let (0, Some((first, rest))) = (up, steps.split_first())
            && from != From::Root
        {
            let name = Some(first.as_ref());
            for context in self.contexts.iter().rev() {
                if context.names.item == name {
                    return Some(Start::Value(context.value, rest));
                }
                if context.names.key == name {
                    return Some(Start::Key(context.key.clone()));
                }
            }
        }
        match self.context(up) {
            Some(context) => Some(Start::Value(context.value, steps)),
            None => {
                let (first, rest) = steps.split_first()?;
                self.variables.get(first.as_ref()).map(|value| Start::Value(value, rest))
            }
        }
    }

    /// Returns the context so many loops out; nothing for that of the variables themselves.
    fn context(&self, up: usize) -> Option<&Context<'v, 't>> {
        self.contexts.iter().rev().nth(up)
    }

    /// Returns what `value` holds under `step`, or what was probably meant.
    fn step(&self, value: &'v Value, step: &str) -> Result<&'v Value, Option<String>> {
        match value {
            Value::Object(entries) => entries.get(step).ok_or_else(|| {
                if !self.contexts.is_empty() && self.variables.contains_key(step) {
                    return Some(format!("the variable outside of the loop is \"@root.{step}\""));
                }
                nearest_hint(step, entries.keys().map(String::as_str))
            }),
            Value::Array(items) => {
                let item = step.parse::<usize>().ok().and_then(|index| items.get(index));
                item.ok_or_else(|| Some(format!("the list has {} items", items.len())))
            }
            other => Err(Some(format!("{step:?} is looked up in {}", type_name(other)))),
        }
    }
}

/// Where a path begins: at a value with steps left, or at the key of a loop.
enum Start<'v, 'p> {
    Value(&'v Value, &'p [Cow<'p, str>]),
    Key(Value),
}

fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(truth) => *truth,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}
