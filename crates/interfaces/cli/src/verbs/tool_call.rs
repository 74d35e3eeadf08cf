//! `formwork tools call`: one call of a tool by hand.

use anyhow::{Context as _, anyhow};
use formwork_protocols::{OutcomeCode, ToolName};
use formwork_services::{
    Formwork,
    capability::Caller,
    operations::{
        runs::{Call, StartParams, Work},
        tools::{Get, GetParams},
    },
};
use serde_json::{Map, Value};

use super::run;
use crate::{
    args::{Global, RunOptions, ToolCall},
    asking,
    fault::Fault,
    settings::{Need, Settings},
    terminal::Terminal,
};

pub(super) fn call(
    global: &Global,
    terminal: &Terminal,
    args: ToolCall,
) -> Result<OutcomeCode, Fault> {
    let ToolCall { name, pairs, args, dry_run, agent, mode, allow, sandbox } = args;
    let whole = args.map(|text| whole(&text)).transpose()?;
    let options = RunOptions { mode, allow, sandbox, ..RunOptions::default() };
    let settings = Settings::load(global, run::flags(&options, None)?, Need::Effect)?;
    let (asker, desk) = asking::open(global, terminal, &settings.principal).unzip();
    let more = |builder, _: &Settings| run::equipped(builder, None, asker);
    super::with_settings(settings, more, async |formwork, caller, _| {
        let arguments = match whole {
            Some(arguments) => arguments,
            None => from_pairs(&formwork, &caller, &name, &pairs).await?,
        };
        let work = Work::Call(Call { tool: name, arguments, agent, dry_run });
        let params = StartParams {
            work,
            vars: Map::new(),
            model: None,
            width: None,
            commit: false,
            mode: options.mode,
            headless: false,
        };
        run::start(&formwork, &caller, terminal, params, desk).await
    })
}

/// Reads all arguments from one text.
fn whole(text: &str) -> Result<Map<String, Value>, Fault> {
    let read;
    let text = match text {
        "-" => {
            read = run::standard_input()?;
            &read
        }
        text => text,
    };
    serde_json::from_str(text)
        .context("--args is not one JSON object")
        .map_err(|error| Fault::usage(format!("{error:#}")))
}

/// Reads arguments one by one, each as the tool wants it.
async fn from_pairs(
    formwork: &Formwork,
    caller: &Caller,
    name: &ToolName,
    pairs: &[String],
) -> Result<Map<String, Value>, Fault> {
    let mut arguments = Map::new();
    if pairs.is_empty() {
        return Ok(arguments);
    }
    let tool = formwork.call::<Get>(caller, GetParams { name: name.clone() }).await?.tool;
    let properties = tool.definition.parameters.get("properties").and_then(Value::as_object);
    for pair in pairs {
        let (key, text) = pair
            .split_once('=')
            .filter(|(key, _)| !key.is_empty())
            .ok_or_else(|| Fault::usage(format!("{pair:?} is not KEY=VALUE")))?;
        let known = properties.and_then(|known| known.get(key));
        if known.is_none() {
            let names = properties.into_iter().flatten().map(|(name, _)| name.as_str());
            let fault = Fault::usage(format!("{name} is given no {key}"));
            return Err(match formwork_protocols::document::nearest(key, names) {
                Some(nearest) => fault.hint(format!("did you mean {nearest}?")),
                None => fault.hint(format!("`formwork tools show {name}` tells what it is given")),
            });
        }
        put(&mut arguments, key, text, known)
            .map_err(|error| Fault::usage(format!("{key}: {error:#}")))?;
    }
    Ok(arguments)
}

/// Adds an argument as its schema wants it.
fn put(
    arguments: &mut Map<String, Value>,
    key: &str,
    text: &str,
    schema: Option<&Value>,
) -> Result<(), anyhow::Error> {
    let kind = schema.and_then(|schema| schema.get("type")).and_then(Value::as_str);
    let json = || serde_json::from_str::<Value>(text);
    if kind == Some("array") && !text.starts_with('[') {
        let items = schema.and_then(|schema| schema.get("items"));
        let texts = items.and_then(|items| items.get("type")).and_then(Value::as_str);
        let item = match texts {
            Some("string") | None => Value::String(text.to_owned()),
            Some(other) => json().with_context(|| format!("{text:?} is no {other}"))?,
        };
        let list = arguments.entry(key).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(list) = list {
            list.push(item);
        }
        return Ok(());
    }
    let value = match kind {
        Some("string") => Value::String(text.to_owned()),
        Some(other) => json().with_context(|| format!("{text:?} is no {other}"))?,
        // Whatever it may be: JSON where it is some.
        None => json().unwrap_or_else(|_| Value::String(text.to_owned())),
    };
    match arguments.insert(key.to_owned(), value) {
        None => Ok(()),
        Some(_) => Err(anyhow!("it is given twice")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Value, String> {
        let schema = json!({
            "path": { "type": "string" }, "max": { "type": "integer" }, "all": { "type": "boolean" },
            "files": { "type": "array", "items": { "type": "string" } },
            "headers": { "type": "object" }, "any": {},
        });
        let mut arguments = Map::new();
        for (key, text) in pairs {
            put(&mut arguments, key, text, schema.get(key))
                .map_err(|error| format!("{error:#}"))?;
        }
        Ok(Value::Object(arguments))
    }

    #[test]
    fn an_argument_is_read_as_the_tool_wants_it() {
        let given = [
            ("path", "12"),
            ("max", "12"),
            ("all", "true"),
            ("files", "a b"),
            ("files", "[c"),
            ("headers", "{\"accept\":\"x\"}"),
            ("any", "{"),
        ];
        let whole = [("files", "[\"a\",\"b\"]")];

        assert_eq!(read(&whole), Ok(json!({ "files": ["a", "b"] })));
        let wanted = json!({
            "path": "12", "max": 12, "all": true, "files": ["a b"], "headers": { "accept": "x" }, "any": "{",
        });
        let some: Vec<_> = given.into_iter().filter(|(_, text)| *text != "[c").collect();
        assert_eq!(read(&some), Ok(wanted));
        assert!(read(&given).unwrap_err().contains("\"[c\" is no array"));
        assert!(read(&[("max", "many")]).unwrap_err().starts_with("\"many\" is no integer"));
        assert_eq!(read(&[("path", "a"), ("path", "b")]), Err("it is given twice".to_owned()));
    }
}
