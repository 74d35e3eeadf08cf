//! What is made of a document: a tool like any other.

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use formwork_policy::{Hashes, hash_of_file, instead_of_modules, run_files, uncached};
use formwork_protocols::{
    Cancel, Replay, Span, Tool, ToolClass, ToolError, ToolErrorKind, ToolOutput, ToolSpec,
    message::ToolDefinition, tool::CallContext,
};
use formwork_sandbox::{Command, Protection, Sandbox, Terminal};
use reqwest::Method as Verb;
use serde_json::{Map, Value};

use super::{
    document::{CommandExecution, HttpExecution, Method, ToolDocument},
    template::Template,
};
use crate::{
    HttpRules,
    builtin::{destination, run, told},
    fetch::{self, Request},
    schema::Validator,
};

/// How long a program may run unless its document says otherwise.
const TIMEOUT: Duration = Duration::from_secs(120);

/// What such tools work with in one session.
#[derive(Clone)]
pub struct Seams {
    /// The folder that programs start in.
    pub root: PathBuf,
    /// Runs programs.
    pub sandbox: Arc<Sandbox>,
    /// What a program may reach.
    pub protection: Protection,
    /// How long a program may run at the most.
    pub longest: Duration,
    /// Where requests may go.
    pub http: HttpRules,
    /// Puts in the secrets that a document names.
    pub secrets: Arc<formwork_secrets::Registry>,
    /// What the files of programs held when it was decided that they may run; what they hold now where absent.
    pub since: Option<Arc<Hashes>>,
}

/// A tool that was written down as data.
pub struct CustomTool {
    spec: ToolSpec,
    document: ToolDocument,
    output: Option<Validator>,
    /// The files of the workspace that it runs, and the hashes of what they held.
    own: Vec<(PathBuf, Option<String>)>,
    seams: Seams,
}

impl CustomTool {
    /// Makes a tool of a document that was parsed.
    ///
    /// # Errors
    /// [`Error::Schema`](crate::Error::Schema) when the schema of its answer does not compile.
    pub fn new(document: ToolDocument, seams: Seams) -> Result<Self, crate::Error> {
        let spec = Self::spec_of(&document);
        let name = spec.definition.name.clone();
        let schema = document.output.as_ref().map(|output| Value::Object(output.schema.clone()));
        let output = schema.as_ref().map(Validator::new).transpose();
        let output = output.map_err(|reason| crate::Error::Schema { tool: name, reason })?;
        let command = document.execution.command.as_ref();
        let files = command.map(|command| run_files(&seams.root, &command.argv));
        let then = |path: PathBuf| {
            let below = path.strip_prefix(&seams.root).unwrap_or(&path);
            let hash = match &seams.since {
                Some(then) => then.get(&below.to_string_lossy().into_owned()).cloned(),
                None => hash_of_file(&path),
            };
            (path, hash)
        };
        let to_come = command.map(|command| instead_of_modules(&seams.root, &command.argv));
        let own = files.into_iter().chain(to_come).flatten().map(then).collect();
        Ok(Self { spec, document, output, own, seams })
    }

    /// Describes the tool of a document.
    pub fn spec_of(document: &ToolDocument) -> ToolSpec {
        let class = match document.execution.command {
            Some(_) => ToolClass::Exec,
            None => ToolClass::Network,
        };
        ToolSpec {
            definition: ToolDefinition {
                name: document.tool.name.clone(),
                description: document.tool.description.clone(),
                parameters: document.arguments(),
            },
            class,
            replay: Replay::Once,
            tags: document.tool.tags.clone(),
        }
    }

    async fn command(
        &self,
        command: &CommandExecution,
        arguments: &Map<String, Value>,
        cancel: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        for (path, before) in &self.own {
            if now(path).await != *before {
                let told = format!("{} was changed since it was taken up", path.display());
                return Err(ToolError::new(ToolErrorKind::Denied, told));
            }
        }
        let argv = words(command, arguments)?;
        let mut running = Command::new(argv, &self.seams.root, self.seams.protection.clone());
        running.timeout =
            command.timeout.map_or(TIMEOUT, Span::as_duration).min(self.seams.longest);
        running.terminal = command.pty.then(Terminal::default);
        running.pass = command.pass.iter().map(Into::into).collect();
        let files: Vec<PathBuf> = self.own.iter().map(|(path, _)| path.clone()).collect();
        running.set.extend(uncached(&files).map(|(name, value)| (name.into(), value.into())));
        running.stdin = match &command.stdin {
            Some(text) => {
                template(text)?.fill(arguments, str::to_owned).map(|text| text.into_bytes().into())
            }
            None => None,
        };
        let output = run(&self.seams.sandbox, running, cancel).await?;
        if self.output.is_some() {
            let (exit, text) = output.text.split_once('\n').unwrap_or((&output.text, ""));
            if exit != "exit code 0" {
                return Err(ToolError::new(ToolErrorKind::Failed, output.text));
            }
            self.judge(text)?;
        }
        Ok(output)
    }

    async fn http(
        &self,
        http: &HttpExecution,
        arguments: &Map<String, Value>,
        cancel: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        // Secrets go where the document has them, before there are arguments: what these hold is never read.
        let secret = |text: &str| self.secret(text);
        let url = url(template(&http.url)?.with_texts(secret)?, arguments)?;
        let mut pairs = Vec::new();
        for (name, value) in &http.headers {
            if let Some(value) = template(value)?.with_texts(secret)?.fill(arguments, str::to_owned)
            {
                pairs.push((name.as_str(), value));
            }
        }
        let headers = fetch::headers(pairs.iter().map(|(name, value)| (*name, value.as_str())))?;
        let mut request =
            Request { method: verb(http.method), url: fetch::parse(&url)?, headers, body: None };
        if let Some(body) = &http.body {
            let body = filled(body, arguments, &secret)?.unwrap_or(Value::Null);
            request.body = Some(body.to_string());
            let kind = reqwest::header::HeaderValue::from_static("application/json");
            request.headers.entry("content-type").or_insert(kind);
        }
        let response = fetch::fetch(&self.seams.http, request, cancel).await?;
        if self.output.is_some() {
            if !response.status.is_success() {
                return Err(ToolError::new(ToolErrorKind::Failed, told(&response).text));
            }
            self.judge(&String::from_utf8_lossy(&response.body))?;
        }
        Ok(told(&response))
    }

    /// Holds an answer against the schema that it has to follow.
    fn judge(&self, text: &str) -> Result<(), ToolError> {
        let Some(validator) = &self.output else { return Ok(()) };
        let failed = |why: String| {
            ToolError::new(
                ToolErrorKind::Failed,
                format!("the answer is not what the tool promises: {why}"),
            )
        };
        let value: Value = serde_json::from_str(text).map_err(|error| failed(error.to_string()))?;
        validator.check(&self.spec.definition.name, &value).map_err(|error| failed(error.message))
    }

    fn secret(&self, text: &str) -> Result<String, ToolError> {
        let mut value = Value::String(text.to_owned());
        self.seams.secrets.substitute(&mut value).map_err(|error| {
            ToolError::new(ToolErrorKind::Failed, format!("the tool cannot be called: {error}"))
        })?;
        Ok(value.as_str().unwrap_or_default().to_owned())
    }
}

#[async_trait]
impl Tool for CustomTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn paths(&self, _: &Value) -> Vec<String> {
        Vec::new()
    }

    fn command(&self, arguments: &Value) -> Option<Vec<String>> {
        words(self.document.execution.command.as_ref()?, arguments.as_object()?).ok()
    }

    fn hosts(&self, _: &Value) -> Vec<String> {
        let http = self.document.execution.http.as_ref();
        // Its host stands as it is, whatever is put in behind it.
        http.map(|http| destination(&http.url.replace(['{', '}'], "x"))).into_iter().collect()
    }

    fn secrets(&self) -> Vec<String> {
        let Some(http) = &self.document.execution.http else { return Vec::new() };
        let headers = http.headers.values().cloned().map(Value::String);
        let texts = headers.chain([Value::String(http.url.clone())]).chain(http.body.clone());
        formwork_secrets::placeholders(&Value::Array(texts.collect()))
    }

    async fn call(
        &self,
        _: &CallContext,
        arguments: Value,
        cancel: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        let Value::Object(arguments) = arguments else {
            let told = "the arguments are no object";
            return Err(ToolError::new(ToolErrorKind::InvalidArguments, told));
        };
        let execution = &self.document.execution;
        match (&execution.http, &execution.command) {
            (Some(http), None) => self.http(http, &arguments, cancel).await,
            (None, Some(command)) => self.command(command, &arguments, cancel).await,
            _ => Err(ToolError::new(ToolErrorKind::Failed, "the tool does nothing")),
        }
    }
}

/// Returns the hash of what a program holds, on a thread where it may take its time.
async fn now(path: &std::path::Path) -> Option<String> {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || hash_of_file(&path)).await.ok().flatten()
}

fn template(text: &str) -> Result<Template, ToolError> {
    Template::parse(text).map_err(|why| ToolError::new(ToolErrorKind::Failed, why))
}

/// Returns the program and its arguments. A word that names what is not given is left out.
///
/// # Errors
/// [`ToolErrorKind::InvalidArguments`] for an argument that would become an option: the document says which there are.
fn words(
    command: &CommandExecution,
    arguments: &Map<String, Value>,
) -> Result<Vec<String>, ToolError> {
    let mut argv = Vec::new();
    for word in &command.argv {
        let template = template(word)?;
        let given = match template.alone().map(|name| arguments.get(name)) {
            Some(Some(Value::Array(items))) => {
                items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
            }
            _ => Vec::from_iter(template.fill(arguments, str::to_owned)),
        };
        for word in given {
            let is_option = template.begins_with_argument() && word.starts_with('-');
            if is_option && !is_number(&word) {
                let shown = formwork_protocols::text::head(&word, 64);
                let told = format!("{shown:?} begins like an option, and is to be none");
                return Err(ToolError::new(ToolErrorKind::InvalidArguments, told));
            }
            if word.contains('\0') {
                let told = "no word of a program holds a character of value zero";
                return Err(ToolError::new(ToolErrorKind::InvalidArguments, told));
            }
            argv.push(word);
        }
    }
    Ok(argv)
}

fn is_number(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|digits| {
        !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || c == '.')
    })
}

/// Returns the address of a request. What is put in stays one part of a path or of a query.
fn url(template: Template, arguments: &Map<String, Value>) -> Result<String, ToolError> {
    // However a part is written that is made of dots alone, it leads to another folder.
    let dots = |name: &&str| match arguments.get(*name) {
        Some(Value::String(text)) => text.trim_matches('.').is_empty() && !text.is_empty(),
        _ => false,
    };
    if let Some(name) = template.names().find(dots) {
        let told = format!("{name} is made of dots alone, and would lead to another address");
        return Err(ToolError::new(ToolErrorKind::InvalidArguments, told));
    }
    let filled = template.fill(arguments, |text| {
        let mut encoded = String::new();
        for byte in text.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' | b'.' => {
                    encoded.push(char::from(byte));
                }
                _ => encoded.push_str(&format!("%{byte:02X}")),
            }
        }
        encoded
    });
    filled.ok_or_else(|| {
        ToolError::new(ToolErrorKind::InvalidArguments, "the address needs what was not given")
    })
}

/// Fills a body. Fields that name what is not given are left out.
fn filled(
    body: &Value,
    arguments: &Map<String, Value>,
    secret: &impl Fn(&str) -> Result<String, ToolError>,
) -> Result<Option<Value>, ToolError> {
    Ok(Some(match body {
        Value::String(text) => {
            let template = template(text)?;
            match template.alone() {
                Some(name) => match arguments.get(name) {
                    Some(value) => value.clone(),
                    None => return Ok(None),
                },
                None => match template.with_texts(secret)?.fill(arguments, str::to_owned) {
                    Some(text) => Value::String(text),
                    None => return Ok(None),
                },
            }
        }
        Value::Array(items) => {
            let items = items.iter().map(|item| filled(item, arguments, secret));
            Value::Array(items.filter_map(Result::transpose).collect::<Result<_, _>>()?)
        }
        Value::Object(fields) => {
            let mut own = Map::new();
            for (name, value) in fields {
                if let Some(value) = filled(value, arguments, secret)? {
                    own.insert(name.clone(), value);
                }
            }
            Value::Object(own)
        }
        other => other.clone(),
    }))
}

fn verb(method: Option<Method>) -> Verb {
    match method {
        None | Some(Method::Get) => Verb::GET,
        Some(Method::Head) => Verb::HEAD,
        Some(Method::Post) => Verb::POST,
        Some(Method::Put) => Verb::PUT,
        Some(Method::Patch) => Verb::PATCH,
        Some(Method::Delete) => Verb::DELETE,
    }
}
